"""The page about operators names folders, variables and files that there are."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from turbo_physai.kernels import _backends, ops
from turbo_physai.kernels._operator import Operator
from turbo_physai.kernels.common.triton import launch

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operators.md").read_text()


def test_every_file_and_folder_of_the_listing_exists():
    (listing,) = re.findall(r"    kernels/\n((?: {6}.*\n)+)", PAGE)
    for line in listing.splitlines():
        name = line.split()[0].replace("NAME", "bev_pool")
        assert (ROOT / "kernels" / name).exists(), name


def test_the_variables_are_those_that_are_read():
    assert set(re.findall(r"TURBO_PHYSAI_\w+", PAGE)) == {_backends.VARIABLE, launch.VARIABLE}


def test_the_operator_of_the_six_steps_has_the_files_that_they_name():
    folder = Path(ops.__path__[0]) / "bev_pool"
    steps = PAGE[PAGE.index("## Add an operator") : PAGE.index("## Tests")]
    for name in ("__init__.py", "reference.py", "_torch.py", "_cpu.py", "_cpu.cpp", "_triton.py"):
        assert f"`{name}`" in steps or f"ops/NAME/{name}" in steps
        assert (folder / name).exists()


def test_every_operator_has_a_definition_and_a_benchmark():
    for name, operator in Operator.all.items():
        folder = Path(ops.__path__[0]) / name
        for file in ("reference.py", "bench.py", *(f"_{one}.py" for one in operator.backends)):
            assert (folder / file).exists(), (name, file)
