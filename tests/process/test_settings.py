"""One table says which variables there are; flags are spelled as people spell yes and no."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from turbo_physai.errors import OptimizationConfigError
from turbo_physai.process import settings
from turbo_physai.process.settings import Setting

ROOT = Path(__file__).parents[2]
FLAG = Setting("TURBO_PHYSAI_TEST", "flag", "A test.")


@pytest.mark.parametrize("value", ["1", "true", "True", "YES", "on", " yes "])
def test_yes(value):
    assert FLAG.flag({FLAG.variable: value})
    assert FLAG.is_on({FLAG.variable: value})


@pytest.mark.parametrize("value", ["", " ", "0", "false", "No", "OFF"])
def test_no(value):
    assert not FLAG.flag({FLAG.variable: value})
    assert not FLAG.flag({})


@pytest.mark.parametrize("value", ["2", "y", "enabled", "tru", "-1", "²", "1,"])
def test_neither_is_refused(value):
    with pytest.raises(OptimizationConfigError) as caught:
        FLAG.flag({FLAG.variable: value})
    (fault,) = caught.value.faults
    assert (fault.where, fault.found) == (FLAG.variable, repr(value))
    assert fault.accepted == "1, true, yes, on, 0, false, no, off or nothing"
    assert not FLAG.is_on({FLAG.variable: value})


def test_a_count_is_a_whole_number():
    setting = Setting("X", "count", "")
    assert [setting.count({"X": x}) for x in ("", " 2 ", "10")] == [0, 2, 10]
    for wrong in ("-1", "1.5", "two", "²"):
        assert setting.fault({"X": wrong}).accepted == "a whole number from 0"


def test_ids_have_commas_between_them():
    assert Setting("X", "ids", "").ids({"X": " a,,b , c"}) == ("a", "b", "c")
    assert Setting("X", "ids", "").ids({}) == ()


def test_what_is_empty_is_not_set():
    assert Setting("X", "text", "").text({"X": ""}) is None


def test_the_table_holds_every_variable_that_is_read():
    read = set()
    for folder in ("turbo_physai", "kernels", "startup", "model_configs"):
        for file in (ROOT / folder).rglob("*.p*"):
            if file.suffix in (".py", ".pth"):
                read |= set(re.findall(r"TURBO_PHYSAI_[A-Z_]*[A-Z]", file.read_text()))
    assert read == {setting.variable for setting in settings.ALL}
    assert len(settings.ALL) == len({setting.variable for setting in settings.ALL})


def test_the_start_up_files_spell_the_kill_switch_as_the_table_does():
    words = ", ".join(f'"{word}"' for word in settings.YES)
    for file in (
        ROOT / "startup" / "turbo_physai_startup.py",
        ROOT / "turbo_physai" / "launch" / "bootstrap" / "sitecustomize.py",
    ):
        assert f"in ({words})" in file.read_text()


def test_the_table_is_cheap_to_import():
    code = "import turbo_physai.process.settings, sys; print(sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = [{str(ROOT)!r}]; {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not {"attr", "yaml", "typer", "pathlib", "logging"} & set(eval(done.stdout))
