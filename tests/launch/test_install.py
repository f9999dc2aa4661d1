"""What pip installs, as a wheel or editable, activates processes without another step."""

import re
import shutil
import subprocess
import sys
import sysconfig

import attrs
import pytest

pytestmark = pytest.mark.slow

START_UP = {f"turbo_physai_startup.{kind}" for kind in ("pth", "py", "start")}


@pytest.fixture(scope="module")
def source(tmp_path_factory, root):
    """A copy of the project to build from, without the kernels that would have to be compiled."""
    copy = tmp_path_factory.mktemp("source")
    for folder in ("startup", "turbo_physai", "kernels", "model_configs"):
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(root / folder, copy / folder, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "setup.py"):
        shutil.copy(root / name, copy)
    setup = (copy / "setup.py").read_text()
    (copy / "setup.py").write_text(re.sub(r"ext_modules=\[.*?\n    \],", "", setup, flags=re.S))
    return copy


def build(source, hook, target):
    """Calls a hook of the build backend, as pip does; returns what it has built."""
    target.mkdir()
    code = f"import setuptools.build_meta as b; print(b.{hook}({str(target)!r}))"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True)
    (built,) = target.iterdir()
    return built


@pytest.fixture(scope="module", params=["build_wheel", "build_editable"])
def environment(request, source, tmp_path_factory):
    """The python of an environment into which pip has installed the project."""
    pytest.importorskip("setuptools", "77")
    venv = tmp_path_factory.mktemp("environment")
    wheel = build(source, request.param, venv / "built")
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    python = venv / "bin" / "python"
    pip = [python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel]
    subprocess.run(pip, check=True, capture_output=True)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.fixture
def installation(launch, environment):
    return attrs.evolve(launch, interpreter=environment)


def test_a_process_is_activated_by_the_environment_alone(installation):
    assert installation.activated("main.py").stdout == "fast\n"
    assert installation.python("main.py").stdout == "slow\n"
    assert installation.python("-c", "import sys; print('turbo_physai' in sys.modules)").stdout == (
        "False\n"
    )


def test_the_launchers_and_the_packaged_configs_are_there(installation):
    run = ["turbo-physai", "run", "--model", "bevformer", "--", "python", "main.py"]
    assert installation(*run).stdout == "slow\n"
    (report,) = installation.reports
    assert report["runtime_config_path"].endswith("bevformer/runtime.yaml")
    assert installation.python("-m", "turbo_physai.run", "main.py").stdout == "slow\n"


def test_the_start_up_files_go_when_the_package_goes(installation):
    (site,) = installation.interpreter.parent.parent.glob("lib/python*/site-packages")
    assert {file.name for file in site.glob("turbo_physai_startup.*")} == START_UP
    installation.python("-m", "pip", "uninstall", "-q", "-y", "turbo_physai")
    assert not list(site.glob("turbo_physai*"))
    assert installation.activated("main.py").stdout == "slow\n"


def test_a_source_distribution_holds_the_start_up_files(source, tmp_path):
    pytest.importorskip("setuptools", "77")
    archive = build(source, "build_sdist", tmp_path / "built")
    shutil.unpack_archive(archive, tmp_path / "unpacked")
    found = {file.name for file in (tmp_path / "unpacked").glob("*/startup/*")}
    assert found == START_UP
