"""What launches of Triton kernels share: checks of tensors, and the file of measured program sizes.

The file overrides the sizes that a kernel comes with. It is JSON, an entry per kernel,
architecture, dtype of the values and head dimension:

    {"ms_deform_attn_forward/sm_90/float32/32": {"rows": 32, "warps": 4, "registers": 64}}

It is looked for where the environment variable TURBO_PHYSAI_TRITON_SIZES says, else in the user's
cache folder. Nothing is measured unasked.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import json
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import triton
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

VARIABLE = "TURBO_PHYSAI_TRITON_SIZES"
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@cache
def is_hip() -> bool:
    """Whether torch was built for AMD GPUs."""
    return torch.version.hip is not None


@cache
def warp_size() -> int:
    """Threads in a warp of the current GPU: 32 on NVIDIA's, 64 on AMD's of the CDNA family."""
    if is_hip() and torch.cuda.is_available():
        return int(torch.cuda.get_device_properties(torch.cuda.current_device()).warp_size)
    return 32


@dataclass(frozen=True)
class Size:
    """A program's share: `rows` (query, head) pairs on `warps` warps.

    `registers` is the most that a thread may use, None for the compiler's choice. Told a number,
    the compiler also uses it up: it issues all of a sample's loads before it needs the first. Only
    NVIDIA's compiler can be told.
    """

    rows: int
    warps: int
    registers: int | None = None

    def __post_init__(self) -> None:
        for name, number, most in (("rows", self.rows, 1024), ("warps", self.warps, 32)):
            if type(number) is not int or not 1 <= number <= most or number & (number - 1):
                raise ValueError(f"{name} must be a power of two up to {most}, not {number!r}")
        limit = self.registers
        if limit is not None and (type(limit) is not int or not 16 <= limit <= 255):
            raise ValueError(f"registers must be null or 16 to 255, not {limit!r}")

    def tile(self, kernel: str, value: Tensor, warp: int | None = None) -> dict[str, int]:
        """The constants of a "forward" or "backward" kernel that describe its tile of channels.

        Args:
            warp: threads in a warp (those of the current GPU).

        LANES is the head dimension DIM rounded up to a power of two. A thread has eight of them, in
        one row, if it makes PARTS accesses of VECTOR channels. An access has 128 bits, but no more
        than four channels backward: additions to float32 come in fours, and numbers that change
        threads in between go through shared memory.
        """
        dim = value.shape[-1]
        lanes = int(triton.next_power_of_2(dim))
        vector = 16 // value.element_size() if kernel == "forward" else 4
        a_thread = min(lanes, self.rows * lanes // ((warp or warp_size()) * self.warps))
        return {
            "DIM": dim,
            "LANES": lanes,
            "PARTS": 2 if a_thread >= 2 * vector else 1,
            "VECTOR": vector,
            "ROWS": self.rows,
        }

    def options(self, hip: bool | None = None) -> dict[str, Any]:
        """Launch options, for AMD's GPUs where `hip` (None: as torch was built)."""
        return options(self.warps, self.registers, hip=hip)


def options(
    warps: int, registers: int | None = None, *, hip: bool | None = None, **more: Any
) -> dict[str, Any]:
    """Launch options. FP fusion is named because its default differs between Tritons; a limit of
    registers is NVIDIA's alone."""
    limit = {} if (is_hip() if hip is None else hip) else {"maxnreg": registers}
    return {"num_warps": warps, "enable_fp_fusion": True, **limit, **more}


def default_size(kernel: str, head_dim: int, warp: int | None = None) -> Size:
    """The built-in size of "forward" or "backward": one warp, eight channels a thread.

    Backward, a row's threads sum up over its channels for every sample. Inside a warp they shuffle;
    between warps that would take barriers (in Triton 3.6 always, since 3.9 for the gradients).
    """
    lanes = triton.next_power_of_2(head_dim)
    threads = warp or warp_size()
    rows = max(1, min(threads, 8 * threads // lanes))
    return Size(rows, warps=1, registers=64 if kernel == "forward" else None)


def deterministic_size(size: Size) -> Size:
    """Half the rows: 64-bit terms take twice the registers."""
    return replace(size, rows=max(1, size.rows // 2))


def candidates(kernel: str, head_dim: int) -> list[Size]:
    """The sizes that `tune` tries: 4 to 16 channels a thread."""
    lanes = triton.next_power_of_2(head_dim)
    limits: tuple[int | None, ...] = (None,)
    if not is_hip():
        limits = (None, 64, 80) if kernel == "forward" else (None, 96, 128)
    return [
        Size(rows, warps, limit)
        for warps in (1, 2, 4, 8)
        for rows in (1, 2, 4, 8, 16, 32, 64, 128)
        if 4 <= rows * lanes // (warp_size() * warps) <= 16
        for limit in limits
    ]


def check_dtypes(*inputs: object) -> None:
    """Refuse floating-point dtypes that the kernels do not compute in (TypeError)."""
    for tensor in inputs:
        if isinstance(tensor, Tensor) and tensor.is_floating_point() and tensor.dtype not in DTYPES:
            names = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
            raise TypeError(f"the Triton kernels take {names}, not {str(tensor.dtype)[6:]}")


def aligned_pairs(pairs: Tensor) -> Tensor:
    """Contiguous, with the first (x, y) where one access can load both."""
    pairs = pairs.contiguous()
    return pairs.clone() if pairs.data_ptr() % (2 * pairs.element_size()) else pairs


def device_of(tensor: Tensor) -> AbstractContextManager[object]:
    """Makes the tensor's GPU the current one: Triton launches there. Nothing to do on the CPU."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def key(kernel: str, arch: str, dtype: torch.dtype, head_dim: int) -> str:
    """The name of a size in the file."""
    return f"{kernel}/{arch}/{str(dtype).removeprefix('torch.')}/{head_dim}"


def architecture(device: torch.device) -> str:
    """Such as "sm_90" or "gfx942"; "cpu" when Triton interprets."""
    if device.type != "cuda":
        return device.type
    if is_hip():
        name: str = torch.cuda.get_device_properties(device).gcnArchName
        return name.partition(":")[0]
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def size_file() -> Path:
    """Where measured sizes are read from and saved to."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "turbo_physai" / "triton_sizes.json"


def size_for(operator: str, kernel: str, value: Tensor) -> Size:
    """The size that "forward" or "backward" runs with: a measured one, else the built-in one.

    Args:
        value: what is sampled; its last dimension is the head dimension.
    """
    size = measured(size_file()).get(_key_for(operator, kernel, value))
    return size or default_size(kernel, value.shape[-1])


def _key_for(operator: str, kernel: str, value: Tensor) -> str:
    arch = architecture(value.device)
    return key(f"{operator}_{kernel}", arch, value.dtype, value.shape[-1])


@cache
def measured(path: Path) -> dict[str, Size]:
    """The sizes in a file, read once a process; none when the file does not exist.

    Raises:
        ValueError: naming the file and the entry that cannot be used.
    """
    if not path.exists():
        return {}
    try:
        entries = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from error
    if not isinstance(entries, dict):
        raise ValueError(f"{path}: must be an object of sizes, not {type(entries).__name__}")
    sizes = {}
    for name, fields in entries.items():
        try:
            if not isinstance(fields, dict):
                raise ValueError(
                    f"must be an object with rows, warps and registers, not {fields!r}"
                )
            sizes[name] = Size(**fields)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: {name}: {error}") from error
    return sizes


def tune(
    name: str, candidates: Iterable[Size], run: Callable[[Size], object], path: Path
) -> dict[Size, float]:
    """Time `run` with each size on the current GPU and save the fastest under `name`.

    A candidate that the GPU cannot hold is passed over. Returns milliseconds (medians) by size.
    """
    times: dict[Size, float] = {}
    for size in candidates:
        try:
            times[size] = triton.testing.do_bench(lambda size=size: run(size), return_mode="median")
        except (triton.runtime.errors.OutOfResources, triton.runtime.errors.PTXASError):
            continue
    if not times:
        raise RuntimeError(f"{name}: no candidate size could be run")
    best = min(times, key=times.__getitem__)
    save(path, {**measured(path), name: best})
    return times


def tune_operator(
    operator: str, value: Tensor, runs: dict[str, Callable[[Size], object]], path: Path | None
) -> dict[str, dict[Size, float]]:
    """Measure and save a size for each of an operator's kernels, "forward" and "backward".

    Raises:
        RuntimeError: `value` is not on a CUDA device.
    """
    if value.device.type != "cuda":
        raise RuntimeError(f"sizes are measured on a CUDA device, not on {value.device}")
    path = path or size_file()
    with device_of(value):
        return {
            kernel: tune(
                _key_for(operator, kernel, value), candidates(kernel, value.shape[-1]), run, path
            )
            for kernel, run in runs.items()
        }


def save(path: Path, sizes: dict[str, Size]) -> None:
    """Write a file of sizes in one step, for the processes that may be reading it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    text = json.dumps({name: asdict(size) for name, size in sorted(sizes.items())}, indent=2)
    partial.write_text(text + "\n")
    partial.replace(path)
    measured.cache_clear()
