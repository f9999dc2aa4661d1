"""point_sampling has the bits of the usual formulation on every backend."""

from __future__ import annotations

import itertools

import pytest
import torch
from kernel_cases import PC_RANGE, SIZE, make_points
from kernel_checks import FLOATS
from torch import Tensor
from turbo_physai.kernels import point_sampling
from turbo_physai.kernels.common.cpu import library
from turbo_physai.kernels.ops.point_sampling import Inputs, bench, reference

THRESHOLD = torch.tensor(1e-5)  # float32, as the depth is
BASELINE, AVX2, AVX512 = 0, 1, 2
needs_library = pytest.mark.skipif(library.library() is None, reason=str(library.why_not()))


@pytest.fixture
def run(backend):
    """The backend's points and visibility, on the CPU."""

    def run(points, matrices):
        inputs = Inputs(points.to(backend.device), matrices.to(backend.device), PC_RANGE, SIZE)
        return tuple(tensor.cpu() for tensor in backend.forward(inputs))

    return run


def formulation(points, matrices) -> tuple[Tensor, Tensor]:
    return reference.forward(Inputs(points, matrices, PC_RANGE, SIZE))


def definition(points, lidar2img) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """In float64: points, depths, whether they are seen; how far float32 may be off points, depths.

    A sum is off by as many units in the last place of the sum of its terms' magnitudes as there are
    operations, eight at most.
    """
    low, high = (torch.tensor(half, dtype=torch.float64) for half in (PC_RANGE[:3], PC_RANGE[3:]))
    metres = points.double() * (high - low) + low
    metres = torch.cat([metres, torch.ones_like(metres[..., :1])], -1)
    reach = torch.cat([points.double().abs() * (high - low) + low.abs(), metres[..., 3:]], -1)
    rows = lidar2img.double()[:, :, :3]
    seen = torch.einsum("bnrk,bzqk->nbqzr", rows, metres)
    error = 8 * torch.finfo(torch.float32).eps * torch.einsum("bnrk,bzqk->nbqzr", rows.abs(), reach)
    depth, depth_error = seen[..., 2], error[..., 2]
    divisor = depth.clamp(min=1e-5)
    size = torch.tensor([SIZE[1], SIZE[0]], dtype=torch.float64)
    xy = seen[..., :2] / divisor[..., None] / size
    relative = (depth_error / divisor).where(depth > 1e-5, 0)[..., None]
    xy_error = error[..., :2] / divisor[..., None] / size + xy.abs() * (relative + 1e-6)
    visible = (depth > 1e-5) & (xy > 0).all(-1) & (xy < 1).all(-1)
    return xy, depth, visible, xy_error, depth_error


def make(*sizes, **options):
    """Points and matrices."""
    names = ("batch", "cameras", "heights", "queries")
    return make_points(**dict(zip(names, sizes, strict=False)), **options)[:2]


def one(rows) -> tuple[Tensor, Tensor]:
    """One point, at the origin of the metres, in one camera: it sees the last column of `rows`."""
    matrices = torch.zeros(1, 1, 4, 4)
    matrices[0, 0, :3, 3] = torch.as_tensor(rows)
    return torch.full((1, 1, 1, 3), 0.5), matrices


def same(actual, wanted):
    torch.testing.assert_close(tuple(actual), tuple(wanted), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("cameras", [1, 2, 6])
@pytest.mark.parametrize("heights", [1, 4, 7])
def test_the_bits_are_those_of_the_torch_formulation(run, batch, cameras, heights):
    for queries in (1, 3, 16, 333):
        inputs = make(batch, cameras, heights, queries)
        same(run(*inputs), formulation(*inputs))


def test_the_whole_bev_of_the_tiny_model_has_the_bits_of_the_formulation(run):
    inputs = make(batch=1, queries=2500)
    points, visible = run(*inputs)
    same((points, visible), formulation(*inputs))
    assert 0.02 < visible.float().mean() < 0.9


def test_points_and_visibility_follow_the_definition(run):
    inputs = make(queries=2000)
    points, visible = run(*inputs)
    xy, depth, seen, xy_error, depth_error = definition(*inputs)
    beside_threshold = (depth - 1e-5).abs() <= depth_error
    clear = ~beside_threshold & (depth.abs() > 4 * depth_error)
    assert clear.float().mean() > 0.99
    assert ((points.double() - xy).abs() <= xy_error)[clear].all()
    on_border = ((xy - 0).abs() <= xy_error) | ((xy - 1).abs() <= xy_error)
    certain = clear & ~on_border.any(-1)
    assert certain.float().mean() > 0.98
    assert torch.equal(visible[certain], seen[certain])


@pytest.mark.parametrize(("dtype", "matrix_dtype"), list(itertools.product(FLOATS, FLOATS)))
def test_dtypes_may_be_mixed_and_the_result_is_float32(run, backend, dtype, matrix_dtype):
    if dtype not in backend.floats:
        pytest.skip("not computed in")
    points, matrices = make(dtype=dtype, other_dtype=matrix_dtype)
    result = run(points, matrices)
    assert [tensor.dtype for tensor in result] == [torch.float32, torch.bool]
    wide = points if dtype == torch.float64 else points.float()
    same(result, formulation(wide, matrices))


def test_the_results_are_contiguous_and_their_axes_are_cameras_items_queries_heights(run):
    points, visible = run(*make(2, 3, 4, 5))
    assert points.shape == (3, 2, 5, 4, 2)
    assert visible.shape == (3, 2, 5, 4)
    assert points.is_contiguous()
    assert visible.is_contiguous()


def test_inputs_need_not_be_contiguous(run):
    points, matrices = make()
    strided = [torch.stack((t, t), -1).transpose(0, 2)[..., 0].transpose(0, 2) for t in make()]
    strided[0].copy_(points)
    strided[1].copy_(matrices)
    assert not any(t.is_contiguous() for t in strided)
    same(run(*strided), formulation(points, matrices))


def test_the_last_row_of_a_matrix_does_not_matter(run):
    points, matrices = make()
    wanted = run(points, matrices)
    matrices[:, :, 3] = torch.nan
    same(run(points, matrices), wanted)


def test_a_point_behind_the_camera_is_not_seen(run):
    points, visible = run(*one([80.0, 45.0, -1.0]))
    assert not visible.any()
    same(points.flatten(), torch.tensor([80.0, 45.0]) / THRESHOLD / torch.tensor([160.0, 90.0]))


def test_a_depth_at_the_threshold_is_not_seen_and_the_next_one_is(run):
    for depth, seen in (
        (THRESHOLD, False),
        (THRESHOLD.nextafter(torch.tensor(1.0)), True),
        (THRESHOLD.nextafter(torch.tensor(0.0)), False),
    ):
        inputs = one([80 * depth, 45 * depth, depth])
        result = run(*inputs)
        assert bool(result[1]) == seen
        same(result, formulation(*inputs))


@pytest.mark.parametrize("axis", [0, 1])
def test_the_border_of_the_image_is_outside_of_it(run, axis):
    end = torch.tensor(float(SIZE[1 - axis]))
    zero = torch.tensor(0.0)
    for place, seen in (
        (zero, False),
        (torch.tensor(1e-30), True),
        (torch.tensor(-1e-30), False),
        (end, False),
        (end.nextafter(zero), True),
        (2 * end, False),
    ):
        rows = [80.0, 45.0, 1.0]
        rows[axis] = place
        inputs = one(rows)
        result = run(*inputs)
        assert bool(result[1]) == seen
        same(result, formulation(*inputs))


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf, 1e38, -1e38])
def test_numbers_that_are_none_do_what_they_do_in_the_formulation(run, number):
    for row, column in itertools.product(range(3), range(4)):
        points, matrices = make(cameras=3, queries=17)
        matrices[1, 2, row, column] = number
        points[0, :, ::5, column % 3] = number
        result = run(points, matrices)
        same(result, formulation(points, matrices))
        assert not result[1][result[0].isnan().any(-1)].any()


@needs_library
@pytest.mark.parametrize("isa", [BASELINE, AVX2, AVX512])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_instruction_set_gives_the_same_bits(isa, dtype):
    try:
        if library.library().turbo_physai_limit_isa(isa) != isa:
            pytest.skip("this machine lacks it")
        inputs = make(dtype=dtype, queries=301)
        same(point_sampling(*inputs, PC_RANGE, SIZE), formulation(*inputs))
    finally:
        library.library().turbo_physai_limit_isa(AVX512)


@needs_library
def test_any_number_of_threads_gives_the_same_bits():
    before = torch.get_num_threads()
    inputs = make(queries=1000)
    try:
        for threads in (1, 2, 16):
            torch.set_num_threads(threads)
            same(point_sampling(*inputs, PC_RANGE, SIZE), formulation(*inputs))
    finally:
        torch.set_num_threads(before)


def test_the_operator_takes_any_sequence_of_numbers():
    inputs = make()
    same(point_sampling(*inputs, tuple(PC_RANGE), torch.Size(SIZE)), formulation(*inputs))


def test_it_compiles_without_a_graph_break():
    def layer(points, matrices, size):
        xy, visible = point_sampling(points, matrices, PC_RANGE, size)
        return xy * 2, ~visible

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for queries, size in ((4, (90, 160)), (9, (90, 160)), (9, (45, 80))):
        inputs = make(queries=queries)
        same(compiled(*inputs, size), layer(*inputs, size))


@pytest.mark.parametrize("which", [0, 1])
def test_an_input_that_requires_a_gradient_is_refused(which):
    inputs = make()
    inputs[which].requires_grad_()
    name = ("reference_points", "lidar2img")[which]
    with pytest.raises(RuntimeError, match=f"{name} has no gradient"):
        point_sampling(*inputs, PC_RANGE, SIZE)
    with torch.no_grad():
        points, _ = point_sampling(*inputs, PC_RANGE, SIZE)
    assert not points.requires_grad


MISTAKES = {
    "reference_points must be (B, Z, Q, 3), not (2, 4, 101)": {"points": torch.zeros(2, 4, 101)},
    "reference_points must be (B, Z, Q, 3), not (2, 4, 101, 4)": {
        "points": torch.zeros(2, 4, 101, 4)
    },
    "lidar2img must be (B, N, 4, 4), not (2, 6, 3, 4)": {"matrices": torch.zeros(2, 6, 3, 4)},
    "lidar2img must be (B, N, 4, 4), not (6, 4, 4)": {"matrices": torch.zeros(6, 4, 4)},
    "must have the same batch size": {"matrices": torch.zeros(3, 6, 4, 4)},
    "pc_range must be 3 minima and 3 maxima, not 5 numbers": {"pc_range": PC_RANGE[:5]},
    "image_size must be a positive (height, width), not [90, 160, 3]": {"size": (90, 160, 3)},
    "image_size must be a positive (height, width), not [0, 160]": {"size": (0, 160)},
    "reference_points must be one of float16, bfloat16, float32, float64, not int64": {
        "points": torch.zeros(2, 4, 101, 3, dtype=torch.int64)
    },
    "lidar2img must be one of float16, bfloat16, float32, float64, not int32": {
        "matrices": torch.zeros(2, 6, 4, 4, dtype=torch.int32)
    },
    "lidar2img is on meta, reference_points on cpu": {
        "matrices": torch.zeros(2, 6, 4, 4, device="meta")
    },
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_is_told_in_one_sentence(message):
    points, matrices = make()
    call = {"points": points, "matrices": matrices, "pc_range": PC_RANGE, "size": SIZE}
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        point_sampling(*{**call, **MISTAKES[message]}.values())
    assert message in str(caught.value)


def test_the_benchmark_compares_with_the_operator():
    shape = bench.Shape(30, SIZE, batch=2)
    inputs = bench.make_inputs(shape, torch.float32, torch.device("cpu"))
    wanted = point_sampling(*inputs, bench.PC_RANGE, SIZE)
    assert wanted[1].any()
    same(bench.matmul_reference(*inputs, bench.PC_RANGE, SIZE), wanted)
