"""An installation of its own, and a model that programs can be launched with."""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import attrs
import pytest

from turbo_physai.report.journal import read

ROOT = Path(__file__).parents[2]


def install(venv, start_up):
    """Makes an environment that holds what a plain installation puts there; returns its python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(venv)}))
    package = site / "turbo_physai"
    package.mkdir()
    # The processes of the tests write no bytecode, and would compile all of it each time.
    compileall.compile_dir(ROOT / "turbo_physai", quiet=2)
    for source in (*(ROOT / "turbo_physai").iterdir(), ROOT / "kernels", ROOT / "model_configs"):
        (package / source.name).symlink_to(source)
    if start_up:
        for file in (ROOT / "startup").glob("turbo_physai_startup.*"):
            shutil.copy(file, site)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    script = venv / "bin" / "turbo-physai"
    script.write_text(f"#!{venv}/bin/python\nfrom turbo_physai.cli import main\nmain()\n")
    script.chmod(0o755)
    return venv / "bin" / "python"


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """A python whose environment holds the package and its start-up file."""
    return install(tmp_path_factory.mktemp("installed"), start_up=True)


@pytest.fixture(scope="session")
def bare(tmp_path_factory):
    """A python whose environment holds the package alone."""
    return install(tmp_path_factory.mktemp("bare"), start_up=False)


@attrs.frozen
class Launcher:
    """Runs commands in the folder of a project.

    Attributes:
        project: the project.
        interpreter: the python that is found there.
        variables: what commands get besides an environment without a trace of us.
    """

    project: object
    interpreter: Path
    variables: dict = attrs.field(factory=dict)

    @property
    def path(self):
        return self.project.path

    @property
    def reports(self):
        """The reports that were left, the first to start first."""
        files = (self.path / "reports").glob("report-*.json")
        found = [read(file) for file in files]
        return sorted(found, key=lambda report: report["started_at"])

    def environment(self, **more):
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TURBO_PHYSAI_", "PYTHON", "SLURM_", "OMPI_"))
        }
        bin_ = f"{self.interpreter.parent}{os.pathsep}{os.environ['PATH']}"
        reports = str(self.path / "reports")
        own = {"PATH": bin_, "TURBO_PHYSAI_REPORT_DIR": reports, "PYTHONDONTWRITEBYTECODE": "1"}
        return {**kept, **own, **self.variables, **more}

    def __call__(self, *command, code=0, stdin=None, **environment):
        given = {} if stdin is None else {"input": stdin}
        done = subprocess.run(
            [str(part) for part in command],
            cwd=self.path,
            **given,
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert code is None or done.returncode == code, f"{done.stdout}\n{done.stderr}"
        return done

    def python(self, *arguments, code=0, **environment):
        return self(self.interpreter, *arguments, code=code, **environment)

    def activated(self, *arguments, code=0, **environment):
        """Runs python with the variable that activates it."""
        variable = {"TURBO_PHYSAI_OPTIMIZATION_CONFIG": "optimization.yaml"}
        return self.python(*arguments, code=code, **{**variable, **environment})


@pytest.fixture
def launch(project, installed):
    """A launcher in a folder with `model.py`, whose `f` says "slow" or, if it was changed, "fast",
    and `main.py`, which prints that."""
    project.write(
        {
            "model.py": "def f(): return 'slow'\n",
            "quick.py": "def f(): return 'fast'\n",
            "main.py": "import model\nprint(model.f())\n",
        }
    ).declare("group('g', replace('model.f', 'quick.f'))")
    return Launcher(project, installed)


@pytest.fixture(scope="session")
def root():
    """The folder of the project."""
    return ROOT
