"""The guide to Groups runs as it stands: its files are written, its commands print what it says."""

import re
import shlex
from pathlib import Path

import pytest

GUIDE = (Path(__file__).parents[2] / "docs" / "groups.md").read_text()


@pytest.fixture
def guide(project):
    """The files of the guide on disk. The last name in backquotes before a block is its file's."""
    before = ""
    for block in re.finditer(r"(.*?)```(\w+)\n(.*?)```\n", GUIDE, re.DOTALL):
        text, language, content = block.groups()
        before = re.findall(r"`([\w/]+\.(?:py|yaml))`", text)[-1:] or before
        if language in ("python", "yaml"):
            project.write({before[0]: content})
    return project


def test_every_command_prints_what_the_guide_shows(guide):
    for console in re.findall(r"```console\n(.*?)```", GUIDE, re.DOTALL):
        command, _, expected = console.removeprefix("$ ").partition("\n")
        program, *arguments = shlex.split(command)
        if program == "turbo-physai":
            arguments = ["-m", "turbo_physai.cli", *arguments]
        done = guide.python(*arguments)
        assert done.stdout == expected, command


def test_the_trusted_config_of_the_guide_refuses_other_code(guide):
    generate = "optimization generate optimization.yaml --checkout . --output trusted.yaml"
    guide.python("-m", "turbo_physai.cli", *generate.split())
    run = ["-m", "turbo_physai.run", "--optimization-config", "trusted.yaml"]
    assert guide.python(*run, "train.py").stdout == "5.0 [3.0]\n"
    model = guide.path / "model" / "ops.py"
    model.write_text(model.read_text().replace("sum(v * v", "sum(v * v * 1"))
    assert guide.python(*run, "train.py").stdout == "5.0 [2.0]\n"
    assert guide.python(*run, "--force-group", "mine.norm", "train.py").stdout == "5.0 [3.0]\n"


def test_the_guide_names_every_declaration():
    import turbo_physai

    declared = {"replace", "wrap", "replace_import", "import_alias", "inject", "optional_import"}
    declared |= {"during_import", "registry_override"}
    for name in (*declared, "CompatibilityContext", "CompatibilityResult"):
        assert hasattr(turbo_physai, name)
        assert name in GUIDE


def test_a_misspelt_option_is_refused_as_shown(guide):
    (shown,) = re.findall(r"```text\n(.*?)```", GUIDE, re.DOTALL)
    config = guide.path / "optimization.yaml"
    config.write_text(config.read_text().replace("factor", "facter"))
    run = ["-m", "turbo_physai.run", "--optimization-config", "optimization.yaml", "train.py"]
    done = guide.python(*run, code=2)
    assert done.stderr == f"turbo_physai: {guide.path}/{shown}"
