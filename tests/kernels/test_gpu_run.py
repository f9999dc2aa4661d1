"""The run that waits for a GPU works: all of its phases at tiny shapes, interpreted on the CPU."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", "3.6", reason="Triton runs on Linux")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.sh"


@pytest.mark.slow
def test_every_phase_of_the_dry_run_succeeds(tmp_path):
    run = subprocess.run(
        ["sh", str(SCRIPT), str(tmp_path)],
        env={**os.environ, "DRY_RUN": "1", "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    rows = list(csv.DictReader((tmp_path / "gpu.csv").open()))
    assert not [row["what"] for row in rows if row["what"].startswith("failed")]
    assert not [row["what"] for row in rows if row["what"].startswith("cut short")]
    took = {row["phase"] for row in rows if row["what"] == "took"}
    assert {"correctness", "deterministic", "scatter", "launches", "large"} <= took
    for row in rows:
        if row["phase"] == "correctness" and row["unit"]:
            limit = 1e-4 if "float32" in row["what"] else 0.1
            assert row["what"] == "took" or float(row["number"]) < limit, row
        if row["unit"] == "1 is right":
            assert float(row["number"]) == 1, row
        if row["unit"] == "over 0.4 is right":
            assert float(row["number"]) > 0.4, row
    assert "| correctness |" in (tmp_path / "gpu.md").read_text()
