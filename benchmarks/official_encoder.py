"""Measure the encoder of the official BEVFormer repository, forward and backward: with the
compatibility Groups alone, and with the speed Groups as well.

    python benchmarks/official_encoder.py REPOSITORY

Runs in an environment that docs/bevformer.md describes. Each way is a process of its own, started
with `python -m turbo_physai.run --model bevformer`; they take turns, a step at a time.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import turbo_physai

CONFIG = "projects/configs/bevformer/bevformer_{size}.py"
IMAGES = {"tiny": (480, 800), "small": (736, 1280), "base": (928, 1600)}
STRIDES = {"tiny": (32,), "small": (32,), "base": (8, 16, 32, 64)}


def speed_groups() -> list[str]:
    """The Groups that make the encoder faster, of those that the config enables."""
    prepared = turbo_physai.check(model="bevformer")
    compat = ("mmcv.", "mmdet3d.", "bevformer.compat.", "bevformer.grid_mask")
    return [id_ for id_ in prepared.order if not id_.startswith(compat)]


class Way:
    """A process that makes a step whenever it is asked to."""

    def __init__(self, repo: Path, size: str, threads: int, disabled: list[str]) -> None:
        options = [word for group in disabled for word in ("--disable-group", group)]
        ours = [sys.executable, "-m", "turbo_physai.run", "--model", "bevformer", *options]
        self.process = subprocess.Popen(
            [*ours, __file__, str(repo), "--size", size, "--serve"],
            cwd=repo,
            env=os.environ | {"PYTHONPATH": str(repo), "OMP_NUM_THREADS": str(threads)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def step(self) -> float:
        """Seconds of one step."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("seconds "):
                return float(line.split()[1])
        sys.exit(f"the process ended: {self.process.wait()}")


def serve(size: str) -> None:
    """Makes a step for each line on stdin and prints how long it took."""
    step = make_step(size)
    for _ in sys.stdin:
        start = time.perf_counter()
        step()
        print(f"seconds {time.perf_counter() - start}", flush=True)


def make_step(size: str) -> Callable[[], object]:
    """A forward and backward pass of the encoder in training, on random features."""
    import importlib

    import torch
    from mmcv import Config
    from mmdet.models.utils.builder import build_transformer

    importlib.import_module("projects.mmdet3d_plugin")
    config = Config.fromfile(CONFIG.format(size=size))
    torch.manual_seed(0)
    encoder = build_transformer(config.model.pts_bbox_head.transformer).encoder.train()
    height, width = IMAGES[size]
    levels = [(math.ceil(height / s), math.ceil(width / s)) for s in STRIDES[size]]
    shapes = torch.tensor(levels)
    areas = shapes.prod(1)
    rows = columns = config.bev_h_
    queries = rows * columns

    def random(*sizes: int, grad: bool = False) -> Any:
        return torch.randn(*sizes, 1, 256).requires_grad_(grad)

    features = random(6, int(areas.sum()), grad=True)
    query, position, previous = random(queries, grad=True), random(queries), random(queries)
    arguments = {
        "bev_h": rows,
        "bev_w": columns,
        "bev_pos": position,
        "spatial_shapes": shapes,
        "level_start_index": areas.cumsum(0) - areas,
        "prev_bev": previous,
        "shift": torch.tensor([[0.01, 0.02]]),
        "img_metas": [{"lidar2img": ring(height, width), "img_shape": [(height, width, 3)] * 6}],
    }
    weights = torch.randn(1, queries, 256)
    wanted = [query, features, *encoder.parameters()]

    def step() -> None:
        out = encoder(query, features, features, **arguments)
        torch.autograd.grad((out * weights).sum(), wanted, allow_unused=True)

    return step


def ring(height: int, width: int) -> list[Any]:
    """Six cameras that look outwards, 70 degrees wide, as matrices from metres to pixels."""
    import numpy as np

    matrices = []
    for camera in range(6):
        angle = camera * math.pi / 3
        sine, cosine = math.sin(angle), math.cos(angle)
        axes = np.array(
            [[sine, -cosine, 0, 0], [0, 0, -1, 1.5], [cosine, sine, 0, 0], [0, 0, 0, 1]]
        )
        focal = width / 2 / math.tan(math.radians(35))
        intrinsic = np.eye(4)
        intrinsic[:2, :3] = [[focal, 0, width / 2], [0, focal, height / 2]]
        matrices.append(intrinsic @ axes)
    return matrices


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("repository", type=Path, help="a checkout of the official repository")
    parser.add_argument("--size", choices=IMAGES, default="tiny", help="of the official configs")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--runs", type=int, default=10, help="timed steps of each")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.size)
        return

    repo = options.repository.resolve()
    ways = {
        "compatibility Groups": Way(repo, options.size, options.threads, speed_groups()),
        "all Groups": Way(repo, options.size, options.threads, []),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for run in range(-1, options.runs):  # the first one warms up
        for name, way in ways.items():
            seconds = way.step()
            if run >= 0:
                times[name].append(seconds)
    reference = statistics.median(times["compatibility Groups"])
    print(f"encoder of bevformer_{options.size}, forward+backward, {options.threads} CPU threads")
    for name, seconds in times.items():
        median = statistics.median(seconds)
        print(f"{name:<22} {median * 1e3:9.1f} ms  {reference / median:5.2f}x")


if __name__ == "__main__":
    main()
