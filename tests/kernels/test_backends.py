"""`backends()` tells what can run here and why not; dispatch walks the same table."""

from __future__ import annotations

import _ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from kernel_cases import MS_DEFORM_ATTN
from turbo_physai.kernels import _backends, backends, ms_deform_attn
from turbo_physai.kernels.common.cpu import library as _cpu_library

ROOT = Path(__file__).parents[2]


@pytest.fixture
def _unloaded():
    _cpu_library._load.cache_clear()
    yield
    _cpu_library._load.cache_clear()


def test_every_operator_has_the_torch_backend():
    missing = {(one.op, one.name): one.missing for one in backends()}
    assert missing["ms_deform_attn", "torch"] is None
    assert ("ms_deform_attn", "cpu") in missing


def test_a_line_a_backend_is_printed():
    lines = str(backends()).splitlines()
    assert len(lines) == len(backends())
    for line, one in zip(lines, backends(), strict=True):
        assert line.split()[:2] == [one.op, one.name]
        assert (one.missing or "available") in line


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_triton_needs_a_gpu():
    pytest.importorskip("triton", "3.6")
    missing = {one.missing for one in backends() if one.name == "triton"}
    assert missing == {"torch sees no CUDA device"}


@pytest.mark.skipif(_cpu_library.library() is None, reason=str(_cpu_library.why_not()))
def test_a_tensor_of_the_cpu_is_computed_in_cpp_where_the_kernels_take_its_head_dimension():
    assert _backends.choose("op", ("cpu", "torch"), [torch.ones(1)], None) == "cpu"
    with pytest.warns(UserWarning, match=r"other_op runs on PyTorch's own operators: no such head"):
        chosen = _backends.choose("other_op", ("cpu", "torch"), [torch.ones(1)], "no such head")
    assert chosen == "torch"


@pytest.mark.filterwarnings("ignore:ms_deform_attn runs on PyTorch's own operators")
@pytest.mark.parametrize("dim", [1, 6, 30, 71, 260, 1025])
def test_any_head_dimension_is_computed(dim):
    inputs = MS_DEFORM_ATTN.make(dim=dim, queries=3, requires_grad=True)
    out = ms_deform_attn(*inputs)
    assert out.shape == (2, 3, 3 * dim)
    out.sum().backward()
    assert inputs.value.grad.shape == inputs.value.shape


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("torch", "torch"),
        ("cpu", "cpu"),
        (
            "triton",
            "cannot run on TURBO_PHYSAI_KERNEL_BACKEND=triton: it does not take ",
        ),
        ("fast", "TURBO_PHYSAI_KERNEL_BACKEND must be one of cpu, triton, torch, not 'fast'"),
    ],
)
def test_the_variable_forces_one_backend(name, printed):
    script = """if True:
        import torch
        from turbo_physai.kernels._operator import Operator
        from turbo_physai.kernels.ops.ms_deform_attn import Inputs
        inputs = Inputs(torch.ones(1, 4, 1, 8), torch.tensor([[2, 2]]), torch.tensor([0]),
                        torch.ones(1, 1, 1, 1, 1, 2), torch.ones(1, 1, 1, 1, 1))
        print(Operator.all["ms_deform_attn"].backend(inputs).__name__)
    """
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, _backends.VARIABLE: name},
        capture_output=True,
        text=True,
        check=False,
    )
    assert printed in run.stdout + run.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="Triton runs on Linux")
def test_a_triton_that_is_too_old_is_told(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "3.2.0")
    reason = _backends.triton_why_not.__wrapped__()
    assert reason == "triton 3.2.0 is too old: 3.6 or newer is needed"


@pytest.mark.usefixtures("_unloaded")
def test_a_library_that_was_not_built_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(_cpu_library, "_FILE", tmp_path / "libturbo_physai_cpu.so")
    assert _cpu_library.library() is None
    assert "was not built: install again with a C++17 compiler" in _cpu_library.why_not()


@pytest.mark.usefixtures("_unloaded")
def test_a_library_that_does_not_load_is_told(monkeypatch, tmp_path):
    broken = tmp_path / "libturbo_physai_cpu.so"
    broken.write_bytes(b"not a library")
    monkeypatch.setattr(_cpu_library, "_FILE", broken)
    assert _cpu_library.library() is None
    assert "does not load" in _cpu_library.why_not()


@pytest.mark.usefixtures("_unloaded")
@pytest.mark.parametrize("stale", [_cpu_library._FILE, Path(_ctypes.__file__)], ids=["ours", "old"])
def test_a_library_of_other_sources_is_told_and_not_called(monkeypatch, tmp_path, stale):
    if not stale.exists():
        pytest.skip("no such library")
    copy = shutil.copy(stale, tmp_path / "libturbo_physai_cpu.so")
    (tmp_path / "changed.cpp").write_text("// a function takes one more argument")
    monkeypatch.setattr(_cpu_library, "_FILE", Path(copy))
    assert _cpu_library.library() is None
    assert "was built from other sources: install again" in _cpu_library.why_not()


def test_without_a_compiler_the_build_goes_on(tmp_path):
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("kernels", "turbo_physai", "model_configs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.so"))
    nowhere = str(tmp_path / "no-compiler")
    build = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=tmp_path,
        env={**os.environ, "CC": nowhere, "CXX": nowhere},
        capture_output=True,
        text=True,
    )
    assert build.returncode == 0, build.stderr
    assert not list(tmp_path.rglob("*.so"))
