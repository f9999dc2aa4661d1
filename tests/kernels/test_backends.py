"""`backends()` tells what can run here, and `_cpu_library` why the compiled kernels cannot."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from turbo_physai.kernels import _cpu_library, backends

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
    missing = {one.missing for one in backends() if one.name == "triton"}
    assert missing == {"torch sees no CUDA device"}


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
