"""The Triton kernels of the attention operators, interpreted and on a GPU if there is one: their
definitions, deterministic sums, and the sizes of programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", "3.6", reason="Triton runs on Linux")

from kernel_cases import Operator
from turbo_physai.kernels.common.triton import launch
from turbo_physai.kernels.common.triton.launch import Size
from turbo_physai.kernels.ops.ms_deform_attn._triton import KERNELS
from turbo_physai.kernels.ops.spatial_cross_attention import _triton as spatial
from turbo_physai.kernels.ops.temporal_self_attention import _triton as temporal

RunInterpreted = Callable[..., None]
FOLDER = Path(__file__).parents[1]
TESTS = [
    FOLDER / "attention" / "test_definition.py",
    FOLDER / "attention" / "triton_only.py",
    FOLDER / "spatial_cross_attention" / "test_definition.py",
    FOLDER / "temporal_self_attention" / "test_definition.py",
]
by_folder = pytest.mark.parametrize("tests", TESTS, ids=lambda path: "-".join(path.parts[-2:]))


@pytest.mark.slow
@by_folder
def test_interpreted_kernels_follow_the_definition(
    run_interpreted: RunInterpreted, tests: Path
) -> None:
    run_interpreted(tests)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@by_folder
def test_compiled_kernels_follow_the_definition(
    run_interpreted: RunInterpreted, tests: Path
) -> None:
    run_interpreted(tests, interpret=False)


def test_amd_gpus_get_programs_of_64_lanes_and_no_limit_of_registers() -> None:
    for head_dim in (4, 32, 256):
        narrow, wide = (launch.default_size("forward", head_dim, warp) for warp in (32, 64))
        assert wide.rows == 2 * narrow.rows
        assert wide.tile("forward", torch.empty(head_dim), 64)["PARTS"] in (1, 2)
    assert "maxnreg" not in wide.options(hip=True)
    assert wide.options(hip=False)["maxnreg"] == 64


@pytest.mark.parametrize("kernel", ["forward", "backward"])
@pytest.mark.parametrize("head_dim", range(4, 257, 4))
def test_every_head_dimension_has_a_size_that_is_also_a_candidate(
    kernel: str, head_dim: int
) -> None:
    size = launch.default_size(kernel, head_dim)
    assert size in launch.candidates(kernel, head_dim)
    assert launch.deterministic_size(size).rows >= 1


def test_a_saved_size_is_used_instead_of_the_built_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder" / "sizes.json"
    monkeypatch.setenv(launch.VARIABLE, str(path))
    value = torch.zeros(1, 1, 1, 32)
    assert KERNELS.size_for("forward", value) == launch.default_size("forward", 32)
    saved = Size(rows=64, warps=8, registers=None)
    launch.save(path, {"ms_deform_attn_forward/cpu/float32/32": saved})
    assert KERNELS.size_for("forward", value) == saved
    assert KERNELS.size_for("backward", value) == launch.default_size("backward", 32)
    assert KERNELS.size_for("forward", value.half()) == launch.default_size("forward", 32)


def test_sizes_are_kept_in_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(launch.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert launch.size_file() == Path("/somewhere/turbo_physai/triton_sizes.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "must be an object of sizes, not list"),
        ('{"a": 3}', "a: must be an object with rows, warps and registers, not 3"),
        ('{"a": {"rows": 24, "warps": 4}}', "a: rows must be a power of two up to 1024, not 24"),
        ('{"a": {"rows": 32, "warps": 0}}', "a: warps must be a power of two up to 32, not 0"),
        ('{"a": {"rows": true, "warps": 1}}', "a: rows must be a power of two up to 1024, not Tru"),
        ('{"a": {"rows": 8, "warps": 1, "registers": 999}}', "a: registers must be null or 16 to"),
        ('{"a": {"rows": 8, "stages": 1}}', "a: .*'stages'"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "sizes.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"^{path}: {message}"):
        launch.measured(path)


def test_the_fastest_candidate_is_saved_beside_earlier_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sizes.json"
    earlier = Size(rows=4, warps=1)
    launch.save(path, {"other": earlier})
    milliseconds = {Size(8, 1): 3.0, Size(16, 2): 1.0, Size(32, 4): 2.0}
    ran = []

    def bench(run: object, return_mode: str) -> float:
        run()  # type: ignore[operator]
        return milliseconds[ran[-1]]

    monkeypatch.setattr("triton.testing.do_bench", bench)
    assert launch.tune("kernel", milliseconds, ran.append, path) == milliseconds
    assert launch.measured(path) == {"other": earlier, "kernel": Size(16, 2)}


@pytest.mark.parametrize("kernels", [KERNELS, spatial.KERNELS, temporal.KERNELS])
def test_tuning_needs_a_gpu(kernels, attention: Operator) -> None:
    if kernels.name == attention.name:
        with pytest.raises(RuntimeError, match="measured on a CUDA device, not on cpu"):
            kernels.tune(attention.make())
