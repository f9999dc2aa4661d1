"""The guide to BEVFormer names the Groups there are, and its lines start what they say."""

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from turbo_physai.config import OptimizationConfigCatalog, load
from turbo_physai.config.selection import packaged
from turbo_physai.plan import collect

GUIDE = (Path(__file__).parents[2] / "docs" / "bevformer.md").read_text()
LINES = [
    line
    for block in re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL)
    for line in block.splitlines()
]
(OWN,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)


def configured():
    config = OptimizationConfigCatalog.packaged().resolve(load(packaged("bevformer")))
    return config, {entry.id for entry in config.groups}


def test_every_group_of_the_config_has_a_row_and_every_row_a_group():
    config, ids = configured()
    rows = re.findall(r"^\| `([\w.]+)` \|", GUIDE, re.MULTILINE)
    assert len(rows) == len(set(rows))
    assert ids <= set(rows)
    assert set(rows) <= set(collect(config, None).ids)


def test_the_groups_that_let_the_repository_run_are_declared_so():
    config, ids = configured()
    table = GUIDE.partition("Groups that let the repository run")[2].partition("\nGroups that")[0]
    registry = collect(config, None)
    declared = {id_ for id_ in ids if registry[id_].compatibility}
    assert declared == set(re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE))


def test_every_group_that_is_mentioned_exists():
    config, _ = configured()
    mentioned = re.findall(r"`((?:mmcv|mmdet3d|bevformer)\.[\w.]+)`", GUIDE)
    known = {*collect(config, None).ids, "mmcv._ext"}
    assert set(mentioned) <= known


@pytest.fixture
def repository(project):
    """A folder with the programs that the lines start."""
    program = """
        import json, os, sys
        switched_off = os.environ.get("TURBO_PHYSAI_DISABLE_GROUPS", "")
        print(json.dumps([os.path.basename(sys.argv[0]), sys.argv[1], switched_off]))
    """
    project.write({"tools/train.py": program, "tools/create_data.py": program, "own.yaml": OWN})
    binaries = project.path / "bin"
    binaries.mkdir()
    for name, arguments in (
        ("python", ""),
        ("turbo-physai", "-m turbo_physai.cli"),
        ("torchrun", "-m torch.distributed.run"),
    ):
        script = binaries / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
        script.chmod(0o755)
    return project


def started(repository, line):
    line = line.replace("PYTHONPATH=.", f"PYTHONPATH=.:{Path(__file__).parents[2]}")
    path = f"{repository.path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    script = f"import subprocess; subprocess.run({line!r}, shell=True, check=True)"
    return repository.python("-c", script, PATH=path, OMP_NUM_THREADS="1").stdout


@pytest.mark.parametrize("line", [line for line in LINES if "torchrun" not in line])
def test_a_line_starts_the_repositorys_program(repository, line):
    out = started(repository, line)
    program = "create_data.py" if "create_data" in line else "train.py"
    first = "nuscenes" if "create_data" in line else "projects/configs/bevformer/bevformer_tiny.py"
    disabled = ",".join(re.findall(r"--disable-group (\S+)", line))
    assert out == f'["{program}", "{first}", "{disabled}"]\n'


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="torchrun needs torch")
@pytest.mark.parametrize("line", [line for line in LINES if "torchrun" in line])
def test_a_line_starts_the_repositorys_program_on_two_ranks(repository, line):
    assert started(repository, line).count('["train.py"') == 2


def test_the_config_of_ones_own_says_what_the_guide_says(repository):
    repository.python(
        "-c",
        "import turbo_physai\n"
        "prepared = turbo_physai.check(optimization_config_path='own.yaml')\n"
        "assert prepared.groups['bevformer.msda'].decision == 'skip'\n"
        "assert prepared.groups['mmcv.load_checkpoint'].entry.options == {'trusted': True}\n"
        "assert prepared.groups['mmcv.ext'].decision == 'apply'\n",
    )
