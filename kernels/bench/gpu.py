"""One run on a GPU that answers what only a GPU can: `python -m turbo_physai.kernels.bench.gpu`.

Correctness first, then rates, sizes, timings; a CSV and a Markdown file with device and versions. A
phase that fails is reported and does not stop the others.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import math
import os
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import backends
from .._operator import Operator
from . import harness

Row = tuple[str, str, float, str]
"""Phase, what, number, unit."""
_OPERATORS = ("ms_deform_attn", "spatial_cross_attention", "temporal_self_attention")


@dataclass
class Run:
    """What the phases need to know.

    Attributes:
        small: shapes of a dry run.
        seconds: for all phases together.
    """

    device: torch.device
    small: bool
    seconds: float

    def inputs(self, name: str, dtype: torch.dtype, **sizes: int) -> Any:
        """An attention operator's inputs, at the sizes of BEVFormer-base or of a dry run."""
        bench = importlib.import_module(f"turbo_physai.kernels.ops.{name}.bench")
        shape = _small(name, bench) if self.small else bench.SHAPES[_BASE[name]]
        shape = type(shape)(**{**vars(shape), **sizes})
        return Operator.all[name].inputs(*bench.make_inputs(shape, dtype, self.device))


_BASE = {
    "ms_deform_attn": "base-tsa",
    "spatial_cross_attention": "base-sca",
    "temporal_self_attention": "base-tsa",
}


def _small(name: str, bench: Any) -> Any:
    sizes = {
        "ms_deform_attn": (1, 3, ((4, 5),), 2),
        "spatial_cross_attention": ((2, 2), ((4, 5),)),
        "temporal_self_attention": ((2, 2),),
    }[name]
    return bench.Shape(*sizes, heads=1, dim=8)


def _gradients(function: Callable[..., Tensor], inputs: Any) -> list[Tensor]:
    """Output and gradients, the incoming gradient being ones."""
    names = Operator.all[type(inputs).__module__.rpartition(".")[2]]
    wanted = [getattr(inputs, name) for name in names.differentiable]
    out = function(*inputs)
    return [out, *torch.autograd.grad(out, wanted, torch.ones_like(out))]


def correctness(run: Run) -> Iterator[Row]:
    """Each attention operator, dtype and head dimension against the definition in float64."""
    few = {} if run.small else {"bird": (10, 12)}
    for name in _OPERATORS:
        reference = importlib.import_module(f"turbo_physai.kernels.ops.{name}.reference")
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            for dim in (4, 12) if run.small else (4, 12, 32, 256):
                sizes: dict[str, Any] = {"dim": dim, **few}
                if name == "ms_deform_attn" and not run.small:
                    sizes = {"dim": dim, "queries": 120}
                inputs = run.inputs(name, dtype, **sizes)
                found = _gradients(Operator.all[name], inputs)
                wide = type(inputs)(*map(_widened, inputs))
                wanted = _gradients(partial(_defined, reference, type(inputs)), wide)
                for label, one, other in zip(
                    ("out", "value", "place", "weight"), found, wanted, strict=True
                ):
                    error = (one.double() - other).abs().max() / other.abs().max().clamp(min=1e-30)
                    what = f"{name} {str(dtype)[6:]} D={dim} {label}"
                    yield "correctness", what, float(error), "of the largest"


def _defined(reference: Any, kind: Any, *arguments: Any) -> Tensor:
    out: Tensor = reference.forward(kind(*arguments))
    return out


def _widened(value: Any) -> Any:
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.detach().double().requires_grad_(value.requires_grad)
    return value


def numbers_that_are_none(run: Run) -> Iterator[Row]:
    """Locations that are nowhere, and weights of NaN outside, leave everything finite."""
    inputs = run.inputs("ms_deform_attn", torch.float32)
    with torch.no_grad():
        inputs.sampling_locations[:, 0] = torch.nan
        inputs.attention_weights[:, 0] = torch.nan
    finite = all(
        bool(t.isfinite().all()) for t in _gradients(Operator.all["ms_deform_attn"], inputs)
    )
    yield "NaN", "all finite", float(finite), "1 is right"


def deterministic(run: Run) -> Iterator[Row]:
    """The same bits twice under torch.use_deterministic_algorithms."""
    for name in _OPERATORS:
        inputs = run.inputs(name, torch.float32)
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True)
        try:
            first, second = (_gradients(Operator.all[name], inputs) for _ in range(2))
        finally:
            torch.use_deterministic_algorithms(before)
        equal = all(map(torch.equal, first, second))
        yield "deterministic", f"{name} bits are equal", float(equal), "1 is right"


def scatter(run: Run) -> Iterator[Row]:
    """What adding to the gradient of the value costs: backward with it and without."""
    for name in _OPERATORS:
        for dtype in (torch.float32, torch.bfloat16):
            inputs = run.inputs(name, dtype)
            operator = Operator.all[name]
            grad_out = torch.ones_like(inputs.result())
            arguments = [i.detach() if isinstance(i, Tensor) else i for i in inputs]
            times = {}
            for label, wanted in (("all", (True,) * 3), ("frozen", (False, True, True))):
                step = partial(operator.backward, grad_out, *arguments, wanted=wanted)
                times[label] = _median(run, step)
                yield "scatter", f"{name} {str(dtype)[6:]} {label}", times[label], "ms"


def launches(run: Run) -> Iterator[Row]:
    """Decoder size: a call, and its replay from a CUDA graph."""
    sizes = {} if run.small else {"batch": 1, "queries": 900}
    inputs = run.inputs("ms_deform_attn", torch.float32, **sizes)
    arguments = [t.detach() for t in inputs]
    call = Operator.all["ms_deform_attn"]
    yield "launch", "decoder, eager", _median(run, lambda: call(*arguments)), "ms"
    if run.device.type == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call(*arguments)
        yield "launch", "decoder, CUDA graph", _median(run, graph.replay), "ms"


def large(run: Run) -> Iterator[Row]:
    """The last pixel of a value of more than 2**31 elements."""
    keys = 50 if run.small else 2**31 // 256 + 2
    value = torch.zeros(1, keys, 8, 32, dtype=torch.bfloat16, device=run.device)
    value[0, -1] = 1
    shapes = torch.tensor([[1, keys]], device=run.device)
    locations = torch.full((1, 1, 8, 1, 1, 2), 0.5, device=run.device, dtype=torch.float32)
    locations[..., 0] = 1 - 0.25 / keys if run.small else 1.0  # between the last pixel and beyond
    weights = torch.ones(1, 1, 8, 1, 1, device=run.device)
    out = Operator.all["ms_deform_attn"](value, shapes, shapes[:, 0] * 0, locations, weights)
    yield (
        "large",
        f"{value.numel()} elements, the last pixel read",
        float(out.mean()),
        "over 0.4 is right",
    )


def tuned(run: Run) -> Iterator[Row]:
    """Sizes of programs measured at BEVFormer-base, saved for later processes."""
    if run.device.type != "cuda":
        return
    end = time.monotonic() + run.seconds / 4
    for name in _OPERATORS:
        module = importlib.import_module(f"turbo_physai.kernels.ops.{name}._triton")
        for dtype in (torch.float32, torch.bfloat16):
            if time.monotonic() > end:
                yield "tuned", f"{name} {str(dtype)[6:]}: no time left", math.nan, ""
                continue
            for kernel, times in module.KERNELS.tune(run.inputs(name, dtype)).items():
                best = min(times, key=times.__getitem__)
                yield "tuned", f"{name}_{kernel} {str(dtype)[6:]} {best}", times[best], "ms"


def timings(run: Run) -> Iterator[Row]:
    """Every operator's benchmark: the published formulation beside ours, with events."""
    for name in sorted(Operator.all):
        bench = importlib.import_module(f"turbo_physai.kernels.ops.{name}.bench")
        if run.small:
            continue
        for dtype in (torch.float32, torch.bfloat16):
            for case in bench.cases(list(bench.SHAPES)[-2:], dtype, run.device):
                for row in harness.measure(name, case, dtype, run.device, 9):
                    what = f"{name} {row.shape} {row.direction} {row.dtype} {row.implementation}"
                    yield "timing", what, row.median_ms, "ms"
                    if row.over_floor is not None:
                        yield "timing", f"{what}, over the floor", row.over_floor, "times"


PHASES: tuple[Callable[[Run], Iterator[Row]], ...] = (
    correctness,
    numbers_that_are_none,
    deterministic,
    scatter,
    launches,
    large,
    tuned,
    timings,
)


def _median(run: Run, step: Callable[[], object]) -> float:
    step()
    times = [harness.seconds(step, run.device) for _ in range(1 if run.small else 15)]
    return statistics.median(times) * 1e3


def main(arguments: list[str] | None = None) -> None:
    """Run all phases and write what they say."""
    parser = argparse.ArgumentParser(prog="python -m turbo_physai.kernels.bench.gpu")
    parser.add_argument("--out", type=Path, default=Path(), help="folder of gpu.csv and gpu.md")
    parser.add_argument("--seconds", type=float, default=420, help="for all phases together")
    parser.add_argument("--dry-run", action="store_true", help="tiny shapes, on the CPU")
    options = parser.parse_args(arguments)
    device = torch.device("cpu" if options.dry_run else "cuda")
    run = Run(device, options.dry_run, options.seconds)
    end = time.monotonic() + options.seconds
    rows: list[Row] = []
    for phase in PHASES:
        started = time.monotonic()
        try:
            for row in phase(run):
                rows.append(row)
                _write(rows, run, options.out)
                if time.monotonic() > end:
                    rows.append((phase.__name__, "cut short: no time left", math.nan, ""))
                    break
        except Exception:
            rows.append((phase.__name__, f"failed: {traceback.format_exc()}", math.nan, ""))
        rows.append((phase.__name__, "took", time.monotonic() - started, "s"))
        _write(rows, run, options.out)
    print((options.out / "gpu.md").read_text())


def _write(rows: list[Row], run: Run, folder: Path) -> None:
    """Both files anew, so that a run that is ended leaves what it has."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "gpu.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("phase", "what", "number", "unit"))
        writer.writerows(rows)
    triton = importlib.import_module("triton").__version__
    lines = [
        f"{harness.heading(run.device)}, Triton {triton}",
        "",
        "```",
        str(backends()),
        "```",
        "",
    ]
    lines += ["| phase | what | number | unit |", "| --- | --- | ---: | --- |"]
    for phase, what, number, unit in rows:
        first = what.replace("|", "/").strip().splitlines()
        text = first[0] if len(first) == 1 else f"{first[0]} … {first[-1]}"
        lines.append(f"| {phase} | {text} | {number:.4g} | {unit} |")
    (folder / "gpu.md").write_text(os.linesep.join(lines) + os.linesep)


if __name__ == "__main__":
    main()
