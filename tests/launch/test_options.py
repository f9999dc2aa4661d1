"""What a launcher was told reaches the processes below as variables."""

import pytest

from turbo_physai.errors import OptimizationConfigNotFoundError
from turbo_physai.launch.options import BOOTSTRAP, Options


@pytest.fixture
def export(tmp_path, monkeypatch):
    """The environment that options make of another one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TURBO_PHYSAI_DISABLE", raising=False)
    (tmp_path / "opt.yaml").touch()

    def export(*, of=(), **options):
        environment = dict(of)
        Options(**{"optimization_config": "opt.yaml", **options}).export(environment)
        return environment

    return export


def test_every_option_has_its_variable(export, tmp_path):
    seen = export(
        force_groups=("a", "b"),
        disable_groups=("c",),
        log_report=True,
        report_dir="out",
        run_id="mine",
        strict=True,
        observe=True,
        verify="2",
        verify_every="100",
        verify_save="inputs",
    )
    del seen["PYTHONPATH"], seen["TURBO_PHYSAI_LAUNCH_ID"]
    assert seen == {
        "TURBO_PHYSAI_OPTIMIZATION_CONFIG": str(tmp_path / "opt.yaml"),
        "TURBO_PHYSAI_FORCE_GROUPS": "a,b",
        "TURBO_PHYSAI_DISABLE_GROUPS": "c",
        "TURBO_PHYSAI_LOG_REPORT": "1",
        "TURBO_PHYSAI_REPORT_DIR": str(tmp_path / "out"),
        "TURBO_PHYSAI_RUN_ID": "mine",
        "TURBO_PHYSAI_STRICT": "1",
        "TURBO_PHYSAI_OBSERVE": "1",
        "TURBO_PHYSAI_VERIFY": "2",
        "TURBO_PHYSAI_VERIFY_EVERY": "100",
        "TURBO_PHYSAI_VERIFY_SAVE": str(tmp_path / "inputs"),
    }


def test_what_is_not_asked_for_is_left_alone(export):
    users = {"TURBO_PHYSAI_STRICT": "1", "TURBO_PHYSAI_RUN_ID": "mine", "HOME": "/"}
    assert export(of=users).items() >= users.items()


def test_ids_of_an_outer_launcher_stay_in_force(export):
    outer = {"TURBO_PHYSAI_DISABLE_GROUPS": "a,b"}
    assert export(of=outer, disable_groups=("c",))["TURBO_PHYSAI_DISABLE_GROUPS"] == "a,b,c"


def test_each_launch_has_an_id_and_nested_ones_share_it(export):
    first, second = export(), export()
    assert first["TURBO_PHYSAI_LAUNCH_ID"] != second["TURBO_PHYSAI_LAUNCH_ID"]
    assert export(of=first)["TURBO_PHYSAI_LAUNCH_ID"] == first["TURBO_PHYSAI_LAUNCH_ID"]


@pytest.mark.parametrize(
    ("users", "ours"),
    [
        (None, BOOTSTRAP),
        ("", BOOTSTRAP),
        ("/a::/b", f"{BOOTSTRAP}:/a::/b"),
        (f"/a:{BOOTSTRAP}:/b:{BOOTSTRAP}", f"{BOOTSTRAP}:/a:/b"),
    ],
)
def test_the_search_path_of_the_user_stays(export, users, ours):
    assert export(of={} if users is None else {"PYTHONPATH": users})["PYTHONPATH"] == ours


def test_the_kill_switch_is_all_that_is_exported(export):
    assert export(off=True, strict=True, optimization_config="absent") == {
        "TURBO_PHYSAI_DISABLE": "1"
    }


def test_a_config_that_is_not_there_is_named(export):
    with pytest.raises(OptimizationConfigNotFoundError, match=r"no file at .*absent\.yaml"):
        export(optimization_config="absent.yaml")
