"""What the Triton kernel of point_sampling computes: the bits of the usual formulation on a CPU.

Runs in a process of its own, because Triton decides when it is imported whether it interprets
(TRITON_INTERPRET=1, on the CPU) or compiles: `test_point_sampling_triton.py` starts it.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor
from turbo_physai.kernels.ops import point_sampling_triton as op

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
PC_RANGE = [-51.2, -51.2, -5.0, 51.2, 51.2, 3.0]
SIZE = (90, 160)
THRESHOLD = torch.tensor(1e-5)


@pytest.fixture(autouse=True)
def _fresh_numbers() -> None:
    print("torch.manual_seed", torch.seed())


@pytest.fixture(autouse=True)
def _poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh memory is NaN, or true: what the kernel does not write is seen."""
    allocate = torch.empty

    def poison(*args: Any, **kwargs: Any) -> Tensor:
        tensor = allocate(*args, **kwargs)
        return tensor.fill_(torch.nan if tensor.is_floating_point() else 1)

    monkeypatch.setattr(torch, "empty", poison)


def formulation(points: Tensor, lidar2img: Tensor) -> tuple[Tensor, Tensor]:
    """Every point copied for every camera, a product of 4 x 4 matrices, on the CPU."""
    points = points.float()
    for axis in range(3):
        low, high = PC_RANGE[axis], PC_RANGE[axis + 3]
        points[..., axis] = points[..., axis] * (high - low) + low
    points = torch.cat([points, torch.ones_like(points[..., :1])], -1)
    columns = points.transpose(0, 1)[:, :, None, :, :, None]
    cameras, queries = lidar2img.shape[1], points.shape[2]
    matrices = lidar2img.float()[None, :, :, None].expand(-1, -1, -1, queries, -1, -1)
    seen = (matrices @ columns.expand(-1, -1, cameras, -1, -1, -1)).squeeze(-1)
    depth = seen[..., 2:3]
    xy = seen[..., :2] / torch.maximum(depth, torch.ones_like(depth) * 1e-5)
    xy[..., 0] /= SIZE[1]
    xy[..., 1] /= SIZE[0]
    visible = (depth > 1e-5) & (xy > 0.0).all(-1, True) & (xy < 1.0).all(-1, True)
    return xy.permute(2, 1, 3, 0, 4), visible.permute(2, 1, 3, 0, 4).squeeze(-1)


def make(
    batch: int = 2,
    cameras: int = 3,
    heights: int = 4,
    queries: int = 101,
    dtype: torch.dtype = torch.float32,
    matrix_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Cameras of any kind: about every tenth point is seen."""
    points = torch.rand(batch, heights, queries, 3) * 1.2 - 0.1
    matrices = torch.randn(batch, cameras, 4, 4) * torch.tensor([80.0, 80, 1, 1])[:, None]
    return points.to(dtype), matrices.to(matrix_dtype or dtype)


def check(points: Tensor, matrices: Tensor) -> tuple[Tensor, Tensor]:
    result = op.forward(points.to(DEVICE), matrices.to(DEVICE), PC_RANGE, SIZE)
    found = (result[0].cpu(), result[1].cpu())
    wanted = formulation(points.clone(), matrices)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    return found


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("cameras", [1, 6])
@pytest.mark.parametrize("heights", [1, 4, 7])
def test_the_bits_are_those_of_the_formulation(batch: int, cameras: int, heights: int) -> None:
    for queries in (1, 64, 101):
        check(*make(batch, cameras, heights, queries))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    "matrix_dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64]
)
def test_dtypes_may_be_mixed(dtype: torch.dtype, matrix_dtype: torch.dtype) -> None:
    check(*make(dtype=dtype, matrix_dtype=matrix_dtype))


def test_float64_points_are_refused() -> None:
    points, matrices = make(dtype=torch.float64)
    with pytest.raises(TypeError, match="float16, bfloat16, float32, not float64"):
        op.forward(points, matrices, PC_RANGE, SIZE)


def test_inputs_need_not_be_contiguous() -> None:
    points, matrices = make()
    strided = points.transpose(1, 2).contiguous().transpose(1, 2)
    turned = matrices.transpose(2, 3).contiguous().transpose(2, 3)
    check(strided, turned)


def test_borders_of_depth_and_image() -> None:
    """The point at the origin of the metres is seen at the last column of the matrix."""
    end, zero, one = torch.tensor(160.0), torch.tensor(0.0), torch.tensor(1.0)
    cases = [
        ([80 * THRESHOLD, 45 * THRESHOLD, THRESHOLD], False),
        ([80 * THRESHOLD, 45 * THRESHOLD, THRESHOLD.nextafter(one)], True),
        ([80, 45, -1], False),
        ([0, 45, 1], False),
        ([1e-30, 45, 1], True),
        ([end, 45, 1], False),
        ([end.nextafter(zero), 45, 1], True),
        ([80, 0, 1], False),
        ([80, 90, 1], False),
    ]
    matrices = torch.zeros(1, len(cases), 4, 4)
    for camera, (column, _) in enumerate(cases):
        matrices[0, camera, :3, 3] = torch.as_tensor(column)
    _, visible = check(torch.full((1, 1, 1, 3), 0.5), matrices)
    assert visible.flatten().tolist() == [seen for _, seen in cases]


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf, 1e38])
def test_numbers_that_are_none_do_what_they_do_in_the_formulation(number: float) -> None:
    for row in range(3):
        points, matrices = make(queries=17)
        matrices[1, 2, row, row] = number
        matrices[0, 1, row, 3] = number
        points[0, :, ::5, row] = number
        check(points, matrices)


@pytest.mark.parametrize("sizes", [{"queries": 0}, {"cameras": 0}], ids=str)
def test_empty_inputs_give_empty_results(sizes: dict[str, int]) -> None:
    points, visible = op.forward(*make(**sizes), PC_RANGE, SIZE)
    assert points.numel() == visible.numel() == 0


@pytest.mark.skipif(DEVICE != "cuda", reason="needs a GPU")
def test_torch_on_the_gpu_differs_in_the_last_bits_at_most() -> None:
    points, matrices = (tensor.cuda() for tensor in make(queries=2000))
    found, seen = op.forward(points, matrices, PC_RANGE, SIZE)
    wanted, visible = formulation(points.clone(), matrices)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)
    assert (seen != visible).float().mean() < 1e-4
