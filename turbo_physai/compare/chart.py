"""A comparison as a picture, by matplotlib, which is imported for it alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from turbo_physai.errors import TurboPhysAIError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from turbo_physai.compare.figures import Comparison


class ChartError(TurboPhysAIError):
    """A picture cannot be made here."""


def require_matplotlib() -> None:
    """Raises ChartError, before anything is run, if there is no matplotlib."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise ChartError(
            "--png needs matplotlib, which is not installed: pip install 'turbo_physai[chart]'"
        )


def write_png(comparison: Comparison, file: Path) -> None:
    """Draws the step time of each side, from p10 to p90, and the losses with and without.

    Raises:
        OSError: the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    height = 1.8 + 0.35 * len(comparison.sides)
    figure = Figure(figsize=(10, max(height, 3.2)), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _draw_times(left, comparison)
    _draw_losses(right, comparison)
    ratio = comparison.speedup(comparison.with_)[0]
    figure.suptitle(f"{ratio:.2f} times as fast on {comparison.device}")
    figure.savefig(file, format="png")


def _draw_times(axes: Axes, comparison: Comparison) -> None:
    sides = (comparison.without, comparison.with_, *comparison.ablated)
    for i, side in enumerate(sides):
        spread = [[side.median - side.p10], [side.p90 - side.median]]
        color = "#9aa4b2" if side.side.name == "without" else "#2563a8"
        axes.barh(i, side.median, xerr=spread, color=color, height=0.6, capsize=3)
    axes.set_yticks(range(len(sides)), [side.side.name for side in sides])
    axes.invert_yaxis()
    axes.set_xlabel("seconds a step: median, p10 to p90")


def _draw_losses(axes: Axes, comparison: Comparison) -> None:
    for side, style in ((comparison.without, "-"), (comparison.with_, "--")):
        values = [float("nan") if loss is None else loss for loss in side.losses]
        axes.plot(range(1, len(values) + 1), values, style, label=side.side.name)
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    axes.legend()
