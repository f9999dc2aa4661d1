"""Measure the parts of this BEVFormer and its whole training step: as published, on the fused
operators, and on these compiled.

    python examples/bevformer/bench.py --help

All are measured in one process and in turns. The parts are replayed with the inputs that a training
step gives them, forward and backward, dropout included.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from turbo_physai.kernels.bench import harness

import turbo_physai

HERE = Path(__file__).parent
PARTS = ("sca", "tsa", "layer", "encoder", "step")


@dataclass(frozen=True)
class Shape:
    """Sizes of the model and of its images, relative to 1600 x 900."""

    image_scale: float
    sizes: dict[str, int]


SHAPES = {
    "example": Shape(0.2, {}),
    # The official tiny model's encoder: 50 x 50 queries of 256 channels, one level of 15 x 25.
    "tiny": Shape(0.25, {"bev": 50, "embed_dims": 256, "encoder_layers": 3, "queries": 900}),
    "four-level": Shape(0.25, {"bev": 50, "embed_dims": 256, "levels": 4, "queries": 900}),
}


@dataclass(frozen=True)
class Variant:
    """One way to run the model, with a model that runs so."""

    name: str
    model: nn.Module
    train_step: Callable[[], object]

    @property
    def parts(self) -> dict[str, nn.Module]:
        encoder: Any = self.model.pts_bbox_head.transformer.encoder
        layer = encoder.layers[0]
        return {
            "sca": layer.attentions[1],
            "tsa": layer.attentions[0],
            "layer": layer,
            "encoder": encoder,
        }


def forget_modules() -> None:
    """Lets the next import of the example's modules run them again."""
    for module in list(sys.modules):
        if module.partition(".")[0] in ("projects", "model", "train"):
            del sys.modules[module]


def build(name: str, shape: Shape, device: str, *, compile_layers: bool = False) -> Variant:
    """A model from freshly imported modules, so that it is patched or not as its own are."""
    forget_modules()
    import train
    from model import ModelConfig, build_model

    if compile_layers:
        from projects.mmdet3d_plugin.bevformer.modules.encoder import BEVFormerLayer

        from turbo_physai.optimizations.compiled import compiled
        from turbo_physai.optimizations.options import CompileOptions

        options = CompileOptions(options={"fallback_random": True})
        BEVFormerLayer.forward = compiled(BEVFormerLayer.forward, options)
    train.IMAGE_SCALE = shape.image_scale
    torch.manual_seed(0)
    sample = train.load_sample("synthetic", 0, device)
    model = build_model(ModelConfig(**shape.sizes)).to(device).train()
    optimizer = train.make_optimizer(model, 1e-6)
    return Variant(name, model, lambda: train.train_step(model, optimizer, sample))


def variants(shape: Shape, device: str, compiled: bool) -> list[Variant]:
    """The published one comes first: what is imported after `apply` is patched."""
    published = build("published", shape, device)
    forget_modules()
    report = turbo_physai.apply(optimization_config_path=HERE / "optimization.yaml")
    ways = [published, build("fused", shape, device)]
    if report.summary["applied"] + report.summary["skipped"] != sum(report.summary.values()):
        sys.exit(f"not every Group was applied:\n{report}")
    if compiled:
        ways.append(build("fused+compiled", shape, device, compile_layers=True))
    return ways


def inputs_of(variant: Variant) -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    """What each part is called with in a training step."""
    seen: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}

    def remember(part: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if torch.is_grad_enabled():  # the older frame of the queue goes without
                seen[part] = _detached(args), _detached(kwargs)

        return hook

    handles = [
        module.register_forward_pre_hook(remember(part), with_kwargs=True)
        for part, module in variant.parts.items()
    ]
    variant.train_step()
    for handle in handles:
        handle.remove()
    return seen


def _detached(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, tuple):
        return tuple(map(_detached, value))
    return {k: _detached(v) for k, v in value.items()} if isinstance(value, dict) else value


def forward_backward(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[[], object]:
    """A step that computes the part and all of its gradients."""
    tensors = [t for t in (*args, *kwargs.values()) if isinstance(t, Tensor) and t.requires_grad]
    wanted = [*tensors, *module.parameters()]
    grad = torch.randn_like(module(*args, **kwargs))

    def step() -> None:
        torch.autograd.grad(module(*args, **kwargs), wanted, grad, allow_unused=True)

    return step


def cases(
    name: str, parts: list[str], device: str, compiled: bool
) -> Iterator[tuple[str, harness.Case]]:
    """For each part, its name and its case."""
    ways = variants(SHAPES[name], device, compiled)
    seen = inputs_of(ways[0])
    for part in parts:
        if part == "step":
            steps = {way.name: way.train_step for way in ways}
        else:
            steps = {way.name: forward_backward(way.parts[part], *seen[part]) for way in ways}
        yield part, harness.Case(name, "forward+backward", steps)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="what to measure (all)")
    parser.add_argument("--shape", choices=SHAPES, default="example")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, help="CPU threads (torch's own choice)")
    parser.add_argument("--runs", type=int, default=10, help="timed runs of each")
    parser.add_argument("--no-compile", action="store_true", help="leave out fused+compiled")
    parser.add_argument("--csv", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    # Kineto, the profiler that counts the memory, announces itself on stderr at every use.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    if options.threads:
        torch.set_num_threads(options.threads)
    device = torch.device(options.device)

    print(harness.heading(device), end="\n\n")
    rows: list[harness.Row] = []
    parts = options.parts or list(PARTS)
    for part, case in cases(options.shape, parts, options.device, not options.no_compile):
        measured = harness.measure(part, case, torch.float32, device, options.runs)
        print(f"{part}\n{harness.table(measured)}\n", flush=True)
        rows += measured
    if options.csv:
        harness.write_csv(rows, options.csv)


if __name__ == "__main__":
    main()
