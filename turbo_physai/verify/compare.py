"""Compares what two calls have left: values, structures, and how far tensors are apart."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

import attrs

from turbo_physai.verify import libraries
from turbo_physai.verify.copies import is_tensor

# As parts of the largest absolute value; sums of many terms in another order are apart by more than
# the machine epsilon, and a wrong formula by more than these.
_TOLERANCES: Final = {"float64": 1e-7, "float32": 1e-3, "float16": 1e-2, "bfloat16": 5e-2}
_COMPLEX: Final = {"complex128": "float64", "complex64": "float32"}
# A gradient that is zero but for rounding has no digit in common with another one.
_NOISE: Final = {"float64": 2e-15, "float32": 1e-6, "float16": 8e-3, "bfloat16": 6e-2}


@attrs.define(eq=False)
class Comparison:
    """What two calls have in common.

    Attributes:
        tolerance: what the declaration states, or None.
        errors: the worst absolute and relative error, by name.
        mismatch: the first thing in which they differ; empty if they do not.
    """

    tolerance: float | None
    errors: dict[str, tuple[float, float]] = attrs.field(factory=dict)
    mismatch: str = ""

    def add(self, ours: Mapping[str, Any], theirs: Mapping[str, Any], *, same: bool) -> None:
        """Compares values by name.

        Args:
            same: whether both must have the same names.
        """
        largest = max((_largest(value) for value in theirs.values()), default=0.0)
        for name, theirs_value in theirs.items():
            if name in ours:
                self._compare(name, ours[name], theirs_value, largest)
            elif same and _is_compared(theirs_value):
                self._note(f"{name}: missing, the original gives {_brief(theirs_value)}")
        for name, value in ours.items():
            if same and name not in theirs and _is_compared(value):
                self._note(f"{name}: found {_brief(value)}, the original gives nothing there")

    def _note(self, difference: str) -> None:
        self.mismatch = self.mismatch or difference

    def _compare(self, name: str, ours: Any, theirs: Any, largest: float) -> None:
        if _is_array(theirs) and _is_array(ours):
            self._compare_arrays(name, ours, theirs, largest)
        elif _is_array(theirs) != _is_array(ours):
            self._note(f"{name}: found {_brief(ours)}, the original gives {_brief(theirs)}")
        elif isinstance(theirs, float) and isinstance(ours, float):
            tolerance = self.tolerance if self.tolerance is not None else _TOLERANCES["float32"]
            is_same = ours == theirs or (ours != ours and theirs != theirs)
            if not is_same and not abs(ours - theirs) <= tolerance * abs(theirs):
                self._note(f"{name}: found {ours}, the original gives {theirs}")
        elif _is_plain(theirs) or _is_plain(ours):
            if type(ours) is not type(theirs) or ours != theirs:
                self._note(f"{name}: found {_brief(ours)}, the original gives {_brief(theirs)}")
        elif isinstance(theirs, (list, tuple, Mapping)) and type(ours) is not type(theirs):
            self._note(f"{name}: found {_brief(ours)}, the original gives {_brief(theirs)}")

    def _compare_arrays(self, name: str, ours: Any, theirs: Any, largest: float) -> None:
        if tuple(ours.shape) != tuple(theirs.shape) or str(ours.dtype) != str(theirs.dtype):
            self._note(f"{name}: found {_brief(ours)}, the original gives {_brief(theirs)}")
            return
        found = _distance(ours, theirs)
        if found is None:
            return
        absolute, scale, worst = found
        relative = absolute / scale if scale else float(absolute > 0)
        self.errors[name] = absolute, relative
        dtype = str(theirs.dtype).removeprefix("torch.")
        dtype = _COMPLEX.get(dtype, dtype)
        tolerance = _TOLERANCES.get(dtype, 0.0) if self.tolerance is None else self.tolerance
        accepted = tolerance * scale + _NOISE.get(dtype, 0.0) * largest
        if not absolute <= accepted:
            self._note(
                f"{name}: {worst}, the original gives another value: error {absolute:.3g}, "
                f"relative {relative:.3g}; accepted: {accepted:.3g}"
            )


def _distance(ours: Any, theirs: Any) -> tuple[float, float, str] | None:
    """The largest absolute difference, the largest absolute value of the original, and where they
    differ most; None where there is nothing to compare."""
    torch = libraries.torch()
    if torch is None:
        return _distance_of_arrays(ours, theirs)
    pair = [torch.as_tensor(each).detach() for each in (ours, theirs)]
    if any(each.layout is not torch.strided for each in pair):
        pair = [each.to_dense() for each in pair]
    if not pair[1].numel():
        return None
    a, b = (each.to(torch.complex128 if each.is_complex() else torch.float64) for each in pair)
    is_same = (a == b) | (a.isnan() & b.isnan())
    errors = (a - b).abs().masked_fill(is_same, 0.0)
    errors = errors.masked_fill(errors.isnan(), float("inf")).flatten()
    at = int(errors.argmax())
    place = [int(i) for i in torch.unravel_index(torch.tensor(at), tuple(b.shape))]
    scale = float(b.abs().nan_to_num(0.0, 0.0, 0.0).max())
    values = a.flatten()[at].item(), b.flatten()[at].item()
    return float(errors[at]), scale, f"at {place} {values[0]:.6g} in place of {values[1]:.6g}"


def _distance_of_arrays(ours: Any, theirs: Any) -> tuple[float, float, str] | None:
    numpy: Any = sys.modules["numpy"]
    if not theirs.size or theirs.dtype.kind not in "biufc":
        return None
    kind = complex if theirs.dtype.kind == "c" else float
    a, b = ours.astype(kind), theirs.astype(kind)
    is_same = (a == b) | (numpy.isnan(a) & numpy.isnan(b))
    with numpy.errstate(all="ignore"):
        errors = numpy.where(is_same, 0.0, numpy.abs(a - b))
    errors = numpy.nan_to_num(errors, nan=float("inf"))
    place = [int(i) for i in numpy.unravel_index(int(errors.argmax()), b.shape)]
    scale = float(numpy.nan_to_num(numpy.abs(b), nan=0.0, posinf=0.0).max())
    at = tuple(place)
    return float(errors[at]), scale, f"at {place} {a[at]:.6g} in place of {b[at]:.6g}"


def _largest(value: Any) -> float:
    found = _distance(value, value) if _is_array(value) else None
    return 0.0 if found is None else found[1]


def _is_array(value: Any) -> bool:
    if is_tensor(value):
        return True
    numpy = libraries.numpy()
    is_numeric = numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))
    return is_numeric and value.dtype.kind in "biufc"


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str, bytes))


def _is_compared(value: Any) -> bool:
    return _is_array(value) or _is_plain(value)


def _brief(value: Any) -> str:
    if _is_array(value):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    return repr(value)[:80] if _is_plain(value) else f"a {type(value).__qualname__}"
