"""Fixtures that write real packages to disk and start real interpreters."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import attrs
import hypothesis
import pytest

ROOT = Path(__file__).parent.parent

# pytest --hypothesis-profile=long
hypothesis.settings.register_profile("long", max_examples=5000, deadline=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bevformer-repo",
        metavar="PATH",
        help="a checkout of the official BEVFormer repository, for the tests marked upstream",
    )
    parser.addoption(
        "--peer-tests",
        metavar="NAME=PATH",
        action="append",
        default=[],
        help="tests of mmcv, torchvision or deformable-detr, for the tests marked upstream",
    )
    parser.addoption(
        "--torch-seed",
        metavar="N",
        type=int,
        default=0,
        help="other random numbers in the tests of the kernels, which else depend on a test's name",
    )
    parser.addoption(
        "--kernel-backend",
        choices=("cpu", "torch", "triton"),
        help="the backend to test the kernels' definitions on (cpu and torch)",
    )


PRELUDE = """\
import importlib, json, os, sys, turbo_physai
from turbo_physai import *
def apply(**arguments):
    arguments.setdefault("optimization_config_path", "optimization.yaml")
    return turbo_physai.apply(**arguments)
def check(**arguments):
    arguments.setdefault("optimization_config_path", "optimization.yaml")
    return turbo_physai.check(**arguments)
def journal(report):
    from turbo_physai.report.journal import read
    return read(report.journal.path)
def state(report, group="g"):
    return report.execution[group].state.value
"""


@attrs.frozen
class Project:
    """A folder with the packages of a test, and interpreters that start in it.

    Attributes:
        path: the folder.
        environment: variables that its interpreters get besides those of the test.
        timeout: the seconds that one of them may take.
    """

    path: Path
    environment: dict[str, str] = attrs.field(factory=dict)
    timeout: float = 120

    def write(self, files: dict[str, str]) -> Project:
        """Writes files; missing `__init__.py` of their folders are added, empty."""
        for name, text in files.items():
            file = self.path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(textwrap.dedent(text))
            for folder in file.relative_to(self.path).parents:
                init = self.path / folder / "__init__.py"
                if (
                    folder != Path()
                    and file.suffix == ".py"
                    and f"{folder}/__init__.py" not in files
                ):
                    init.touch()
        return self

    def declare(
        self, declarations: str, config: str = "", options: str = "", **entries: str
    ) -> Project:
        """Writes a module that declares Groups and a config that lists all of them.

        Args:
            declarations: expressions that make Groups, with commas between them.
            config: more top-level YAML.
            options: the body of a class `Options` for the declarations to name, or an import of
                that name.
            entries: per Group id (with ``_`` for ``.``), more YAML of its entry.
        """
        source = f"from turbo_physai import *\nGROUPS = (\n{textwrap.dedent(declarations)},\n)\n"
        if options.startswith("from "):
            source = f"{options}\n{source}"
        elif options:
            body = textwrap.indent(textwrap.dedent(options), "    ")
            head = "import attrs\nfrom typing import *\nfrom turbo_physai import option\n"
            source = f"{head}@attrs.frozen\nclass Options:\n{body}\n{source}"
        self.write({"declared.py": source})
        namespace: dict[str, object] = {}
        exec(compile(source, "declared.py", "exec", dont_inherit=True), namespace)
        lines = [
            "schema_version: turbophysai/optimization-config/v1",
            "kind: OptimizationConfig",
            'metadata: {id: test, version: "1"}',
            "optimization_modules: [declared]",
            *textwrap.dedent(config).splitlines(),
            "optimization_groups:",
        ]
        for group in namespace["GROUPS"]:
            lines.append(f"  - id: {group.id}")
            entry = entries.get(group.id.replace(".", "_"), "")
            lines += textwrap.indent(textwrap.dedent(entry), "    ").splitlines()
        return self.write({"optimization.yaml": "\n".join(lines) + "\n"})

    def python(
        self, *arguments: str, code: int | None = 0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs the interpreter in the folder; `code` is the exit code that is expected of it."""
        foreign = ("TURBO_PHYSAI_", "PYTHON")  # as PYTHONUNBUFFERED, which mixes ranks' lines
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        own = {"PYTHONPATH": f"{self.path}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
        reports = {"TURBO_PHYSAI_REPORT_DIR": str(self.path / "reports")}
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.path,
            env={**inherited, **own, **reports, **self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=self.timeout,
            check=False,
        )
        if code is not None:
            assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
        return done

    def run(self, script: str, code: int | None = 0, **environment: str) -> str:
        """Runs a script as `script` does and returns what it printed."""
        return self.script(script, code, **environment).stdout

    def script(
        self, script: str, code: int | None = 0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs a script in a fresh interpreter, after a prelude that imports turbo_physai and makes
        `apply` and `check` use the project's config."""
        (self.path / "main.py").write_text(PRELUDE + textwrap.dedent(script))
        return self.python("main.py", code=code, **environment)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)
