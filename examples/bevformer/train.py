"""Train the small BEVFormer on one sample: drawn boxes, or a nuScenes key frame."""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from model import STAGES, ModelConfig, build_model
from projects.mmdet3d_plugin.datasets.frame import collate
from projects.mmdet3d_plugin.datasets.nuscenes_frame import load_frame
from projects.mmdet3d_plugin.datasets.synthetic import make_frames
from torch import distributed, nn
from tqdm import tqdm

IMAGE_SCALE = 0.2  # 1600 x 900 becomes 320 x 180


def parse_arguments() -> argparse.Namespace:
    default = ModelConfig()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "--data", default="synthetic", help="'synthetic' or a folder with frame.json"
    )
    parser.add_argument("--steps", type=int, default=30, help="optimizer steps")
    parser.add_argument("--seed", type=int, default=0, help="of the weights, scene and dropout")
    parser.add_argument("--lr", type=float, default=5e-4, help="learning rate")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--bev", type=int, default=default.bev, help="BEV rows and columns")
    parser.add_argument(
        "--levels", type=int, default=default.levels, choices=STAGES, help="image feature levels"
    )
    parser.add_argument("--embed-dims", type=int, default=default.embed_dims, help="channels")
    parser.add_argument("--encoder-layers", type=int, default=default.encoder_layers)
    parser.add_argument("--decoder-layers", type=int, default=default.decoder_layers)
    parser.add_argument("--queries", type=int, default=default.queries, help="object queries")
    arguments = parser.parse_args()
    if arguments.steps < 1:
        parser.error(f"--steps is {arguments.steps}; at least 1 is needed")
    return arguments


def load_sample(data: str, seed: int, device: str) -> dict[str, Any]:
    """The model's arguments for two consecutive frames; a single key frame stands still."""
    if data == "synthetic":
        frames = make_frames(seed, IMAGE_SCALE)
    else:
        frames = [load_frame(Path(data), IMAGE_SCALE)] * 2
    sample = collate(frames)
    sample["img"] = sample["img"].to(device)
    for name in ("gt_bboxes_3d", "gt_labels_3d"):
        sample[name] = [tensor.to(device) for tensor in sample[name]]
    return sample


def make_optimizer(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """Momentum, and a tenth of the rate for the backbone and for where the attention looks.

    Chosen for a training that can be repeated: Adam, or a full rate there, turns differences in the
    last bit into other losses within ten steps.
    """
    slow, rest = [], []
    for name, parameter in model.named_parameters():
        is_slow = "sampling_offsets" in name or "backbone" in name
        (slow if is_slow else rest).append(parameter)
    groups = [{"params": slow, "lr": lr / 10}, {"params": rest}]
    return torch.optim.SGD(groups, lr=lr, momentum=0.9)


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, sample: dict[str, Any]) -> float:
    """One update; returns the sum of all losses before it."""
    optimizer.zero_grad()
    loss = sum(model(**sample).values())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 35)
    optimizer.step()
    return loss.item()


def join_ranks(model: nn.Module, device: str) -> nn.Module:
    """The model under DDP where torchrun has started several ranks of this script, else itself.
    All ranks train on the same sample."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return model
    distributed.init_process_group("gloo" if device == "cpu" else "nccl")
    return nn.parallel.DistributedDataParallel(model)


def main() -> None:
    arguments = parse_arguments()
    if arguments.device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    random.seed(arguments.seed)
    np.random.seed(arguments.seed)
    torch.manual_seed(arguments.seed)
    try:
        sample = load_sample(arguments.data, arguments.seed, arguments.device)
    except FileNotFoundError as error:
        sys.exit(f"--data: {error}")
    config = ModelConfig(
        bev=arguments.bev,
        levels=arguments.levels,
        embed_dims=arguments.embed_dims,
        encoder_layers=arguments.encoder_layers,
        decoder_layers=arguments.decoder_layers,
        queries=arguments.queries,
        cameras=sample["img"].shape[2],
    )
    model = join_ranks(build_model(config).to(arguments.device).train(), arguments.device)
    optimizer = make_optimizer(model, arguments.lr)

    losses, times = [], []
    for step in tqdm(range(1, arguments.steps + 1), unit="step"):
        start = time.perf_counter()
        losses.append(train_step(model, optimizer, sample))  # reading the loss waits for the device
        times.append(time.perf_counter() - start)
        tqdm.write(f"step {step} loss {losses[-1]:.4f} time {times[-1]:.2f} s", file=sys.stdout)
    print(
        f"first loss {losses[0]:.4f} last loss {losses[-1]:.4f}"
        f" median step time {statistics.median(times):.3f} s"
    )
    if distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
