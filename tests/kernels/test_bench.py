"""The benchmark measures what it says, and writes what it measured."""

from __future__ import annotations

import csv

import pytest
import torch
from kernel_cases import MS_DEFORM_ATTN
from kernel_checks import expected
from turbo_physai.kernels import ms_deform_attn
from turbo_physai.kernels.bench import __main__ as command
from turbo_physai.kernels.bench import harness
from turbo_physai.kernels.ops.ms_deform_attn import bench

CPU = torch.device("cpu")


@pytest.fixture
def _small(monkeypatch):
    shapes = {"small": bench.Shape(1, 6, ((4, 5), (2, 3)), 2, heads=2, dim=8)}
    monkeypatch.setattr(bench, "SHAPES", shapes)


def test_the_grid_sample_reference_is_the_operator():
    inputs = MS_DEFORM_ATTN.make(requires_grad=True)
    grad_out = torch.randn(2, 11, 24)
    out = bench.grid_sample_reference(((6, 9), (3, 5)))(*inputs)
    grads = torch.autograd.grad(out, [inputs[i] for i in (0, 3, 4)], grad_out)
    for actual, one in zip((out, *grads), expected(inputs, grad_out), strict=True):
        torch.testing.assert_close(actual.double(), one, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("_small")
def test_the_command_prints_a_table_and_writes_every_row(capsys, tmp_path):
    file = tmp_path / "rows.csv"
    command.main(["ms_deform_attn", "--runs", "2", "--device", "cpu", "--csv", str(file)])
    printed = capsys.readouterr().out
    assert torch.__version__ in printed
    rows = list(csv.DictReader(file.open()))
    assert [(row["direction"], row["implementation"]) for row in rows] == [
        ("forward", "grid_sample"),
        ("forward", "turbo_physai"),
        ("forward+backward", "grid_sample"),
        ("forward+backward", "turbo_physai"),
    ]
    for row in rows:
        assert row["shape"] in printed
        assert float(row["p10_ms"]) <= float(row["median_ms"]) <= float(row["p90_ms"])
        assert float(row["peak_mb"]) > 0
    assert [float(row["ratio"]) for row in rows[::2]] == [1, 1]


@pytest.mark.usefixtures("_small")
def test_the_plot_is_an_image(tmp_path):
    pytest.importorskip("matplotlib")
    file = tmp_path / "rows.png"
    command.main(["ms_deform_attn", "--runs", "1", "--device", "cpu", "--plot", str(file)])
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("_small")
def test_an_unknown_shape_is_refused(capsys):
    with pytest.raises(SystemExit):
        command.main(["ms_deform_attn", "--shapes", "huge"])
    assert "no shape huge; ms_deform_attn has small" in capsys.readouterr().err


def test_peak_memory_counts_what_is_held_at_once():
    def step():
        for _ in range(3):
            torch.empty(1000, 1000)  # freed before the next

    assert harness.peak_memory(step, CPU) == pytest.approx(4e6, rel=0.01)


def test_peak_memory_of_the_operator_is_its_output():
    inputs = MS_DEFORM_ATTN.make(queries=400, dim=32)
    with torch.no_grad():
        peak = harness.peak_memory(lambda: ms_deform_attn(*inputs), CPU)
    assert peak < 2 * 400 * 3 * 32 * 4 * 1.2
