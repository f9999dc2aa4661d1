"""What the operators' benchmarks share: interleaved timing, peak memory, table, CSV and plot."""

from __future__ import annotations

import csv
import gc
import importlib
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

Step = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One shape, one pass: a step for every implementation, the reference first."""

    shape: str
    direction: str
    steps: dict[str, Step]
    floor_us: float | None = None
    """The least time that the memory traffic or the arithmetic allows on the device, if known."""


def passes(
    name: str,
    operators: dict[str, Callable[..., Tensor]],
    inputs: Sequence[Tensor],
    wanted: Sequence[Tensor],
    floors_us: tuple[float | None, float | None] = (None, None),
) -> Iterator[Case]:
    """A forward and a forward+backward case, with gradients for `wanted`."""

    def forward(operator: Callable[..., Tensor]) -> Step:
        def step() -> None:
            with torch.no_grad():
                operator(*inputs)

        return step

    def forward_backward(operator: Callable[..., Tensor], grad: Tensor) -> Step:
        def step() -> None:
            torch.autograd.grad(operator(*inputs), wanted, grad)

        return step

    yield Case(name, "forward", {k: forward(f) for k, f in operators.items()}, floors_us[0])
    with torch.no_grad():
        grad = torch.randn_like(operators["turbo_physai"](*inputs))
    steps = {k: forward_backward(f, grad) for k, f in operators.items()}
    yield Case(name, "forward+backward", steps, floors_us[1])


def is_h200(device: torch.device) -> bool:
    """Whether it is the GPU that the floors are computed for."""
    return device.type == "cuda" and "H200" in torch.cuda.get_device_name(device)


def floors_us(
    device: torch.device, read: Sequence[Tensor], written: Tensor, corners: float
) -> tuple[float | None, float | None]:
    """What memory allows at best: every tensor moved once, every corner read from L1.

    An H200: 4.3 TB/s copy, 132 multiprocessors that load 128 bytes a cycle at 1.98 GHz. The
    additions into the gradient of the pixels come on top; their rate is not known.

    Args:
        read: the inputs.
        written: the result.
        corners: bytes of all the pixels that are read, each as often as a sample reads it.
    """
    if not is_h200(device):
        return None, None
    moved = sum(t.numel() * t.element_size() for t in read)
    result = written.numel() * written.element_size()
    gather = corners / (132 * 128 * 1.98e9)
    forward = max((moved + result) / 4.3e12, gather)
    backward = max((2 * moved + result) / 4.3e12, gather)
    return forward * 1e6, (forward + backward) * 1e6


@dataclass(frozen=True)
class Row:
    """One implementation in one case; times in milliseconds, memory in MB (10**6 bytes)."""

    op: str
    shape: str
    direction: str
    dtype: str
    implementation: str
    median_ms: float
    p10_ms: float
    p90_ms: float
    runs: int
    ratio: float
    """How many times faster than the reference: the ratio of the medians."""
    peak_mb: float
    """The most memory held at once beyond what was held before the step."""
    peak_part: float
    """Of the reference's peak."""
    over_floor: float | None
    """The median over the floor."""
    device: str
    torch: str
    threads: int


def measure(op: str, case: Case, dtype: torch.dtype, device: torch.device, runs: int) -> list[Row]:
    """Time all implementations of a case in turns, so that a busy machine slows them alike."""
    times: dict[str, list[float]] = {name: [] for name in case.steps}
    peaks = {name: peak_memory(step, device) for name, step in case.steps.items()}
    for _ in range(runs):
        for name, step in case.steps.items():
            times[name].append(seconds(step, device))
    reference = next(iter(case.steps))
    rows = []
    for name, taken in times.items():
        median = statistics.median(taken) * 1e3
        cuts = statistics.quantiles(taken, n=10) if runs > 1 else taken
        rows.append(
            Row(
                op=op,
                shape=case.shape,
                direction=case.direction,
                dtype=str(dtype).removeprefix("torch."),
                implementation=name,
                median_ms=median,
                p10_ms=cuts[0] * 1e3,
                p90_ms=cuts[-1] * 1e3,
                runs=runs,
                ratio=statistics.median(times[reference]) * 1e3 / median,
                peak_mb=peaks[name] / 1e6,
                peak_part=peaks[name] / peaks[reference],
                over_floor=None if case.floor_us is None else median * 1e3 / case.floor_us,
                device=device_name(device),
                torch=torch.__version__,
                threads=torch.get_num_threads(),
            )
        )
    return rows


def seconds(step: Step, device: torch.device) -> float:
    """What a step takes: on a GPU between two events of its stream, else by the clock."""
    if device.type == "cuda":
        event: Any = torch.cuda.Event
        begin, end = event(enable_timing=True), event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        step()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def peak_memory(step: Step, device: torch.device) -> int:
    """Bytes held at the worst moment of a step, beyond those held before it.

    CUDA: the allocator's own count. CPU: the running sum of what torch's allocator reports to the
    profiler; scratch memory that a library takes elsewhere is not seen (the C++ kernels take next
    to none).
    """
    step()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return torch.cuda.max_memory_allocated() - before
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        step()
    held = peak = 0
    events = profile.profiler.kineto_results.events()
    for event in sorted(
        (e for e in events if e.name() == "[memory]"), key=lambda event: event.start_ns()
    ):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def device_name(device: torch.device) -> str:
    """The GPU's or the CPU's name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def table(rows: Iterable[Row]) -> str:
    """The rows for a reader."""
    lines = [
        f"{'shape':<10} {'pass':<17} {'implementation':<15} {'median ms':>9} {'p10':>8} {'p90':>8} "
        f"{'ratio':>6} {'peak MB':>8} {'part':>5} {'/floor':>6}"
    ]
    for row in rows:
        floor = "" if row.over_floor is None else f"{row.over_floor:.1f}"
        lines.append(
            f"{row.shape:<10} {row.direction:<17} {row.implementation:<15} {row.median_ms:9.2f} "
            f"{row.p10_ms:8.2f} {row.p90_ms:8.2f} {row.ratio:6.1f} {row.peak_mb:8.1f} "
            f"{row.peak_part:5.2f} {floor:>6}"
        )
    return "\n".join(lines)


def heading(device: torch.device) -> str:
    """Where and with what the numbers were taken."""
    return (
        f"{device_name(device)}, {torch.get_num_threads()} of {os.cpu_count()} threads, "
        f"torch {torch.__version__}, Python {platform.python_version()}"
    )


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """One line a row, a column a field of `Row`."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def plot(rows: Sequence[Row], path: Path) -> None:
    """Bars of the medians, a group a case, to an image file. Needs matplotlib."""
    figures: Any = importlib.import_module("matplotlib.figure")
    cases = list(dict.fromkeys((row.shape, row.direction) for row in rows))
    names = list(dict.fromkeys(row.implementation for row in rows))
    figure = figures.Figure(figsize=(2 + 1.2 * len(cases), 4), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(names)
    for i, name in enumerate(names):
        bars = {(row.shape, row.direction): row for row in rows if row.implementation == name}
        at = [cases.index(case) + i * width for case in bars]
        drawn = axes.bar(at, [row.median_ms for row in bars.values()], width, label=name)
        axes.bar_label(drawn, [f"{row.ratio:.1f}x" for row in bars.values()], fontsize=7)
    axes.set_xticks(range(len(cases)), [f"{shape}\n{way}" for shape, way in cases], fontsize=7)
    axes.set_yscale("log")
    axes.set_ylabel("median, ms")
    axes.set_title(f"{rows[0].op}, {rows[0].dtype}, {rows[0].device}", fontsize=9)
    axes.legend(fontsize=7)
    figure.savefig(path, dpi=150)
