"""The example's benchmark measures what it says, as published and fused, in one table a part."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "bevformer" / "bench.py"


@pytest.mark.slow
def test_every_part_is_measured_both_ways(tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--runs", "1", "--no-compile", "--threads", "1"],
        env=os.environ | {"TURBO_PHYSAI_REPORT_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tables = re.findall(r"^(\w+)\nshape .*\n((?:example .*\n)+)", done.stdout, re.MULTILINE)
    assert [part for part, _ in tables] == ["sca", "tsa", "layer", "encoder", "step"]
    for part, rows in tables:
        published, fused = (row.split() for row in rows.splitlines())
        assert (published[2], fused[2]) == ("published", "fused")
        if part != "step":  # what is held at once does not depend on how busy the machine is
            assert float(fused[8]) < 0.6, rows
