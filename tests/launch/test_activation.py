"""A process activates itself when the environment says so, once, by either route, and else not."""

import pkgutil
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from turbo_physai.launch.options import BOOTSTRAP

ROOT = Path(__file__).parents[2]
CONFIG = "TURBO_PHYSAI_OPTIMIZATION_CONFIG"


@pytest.fixture(params=["start-up file", "bootstrap folder"])
def routed(request, launch, bare):
    """A launcher whose processes can be reached by one of the routes."""
    interpreter = bare if request.param == "bootstrap folder" else launch.interpreter
    variables = {} if request.param == "start-up file" else {"PYTHONPATH": BOOTSTRAP}
    return attrs.evolve(launch, interpreter=interpreter, variables=variables)


def test_the_environment_alone_activates_a_process(routed):
    done = routed.activated("main.py")
    assert (done.stdout, done.stderr) == ("fast\n", "")
    (report,) = routed.reports
    assert report["execution"]["g"]["state"] == "applied"
    assert report["final"]


def test_both_routes_together_activate_once(launch):
    done = launch.activated("main.py", PYTHONPATH=BOOTSTRAP)
    assert (done.stdout, done.stderr) == ("fast\n", "")
    assert len(launch.reports) == 1


def test_a_process_that_is_not_activated_imports_nothing_of_ours(routed):
    show = "import sys; print(sorted(m for m in sys.modules if 'turbo' in m))"
    assert routed.python("-c", show).stdout == "[]\n"
    assert routed.python("-c", show, **{CONFIG: ""}).stdout == "[]\n"
    assert routed.python("main.py").stdout == "slow\n"


def test_the_kill_switch_keeps_a_process_as_it_is(routed):
    show = "print(model.f(), len(sys.meta_path), sorted({*sys.modules} - {'turbo_physai_startup'}))"
    routed.project.write({"show.py": f"import sys, model; {show}\n"})
    plain = routed.python("show.py").stdout
    assert plain.startswith("slow")
    assert routed.activated("show.py", TURBO_PHYSAI_DISABLE="1").stdout == plain
    assert routed.reports == []


@pytest.mark.parametrize("value", ["true", "YES", "On", " 1 "])
def test_the_kill_switch_is_spelled_as_people_do(routed, value):
    assert routed.activated("main.py", TURBO_PHYSAI_DISABLE=value).stdout == "slow\n"
    assert routed.reports == []


@pytest.mark.parametrize("value", ["", "0", "false", "No", "off"])
def test_a_kill_switch_that_is_off_changes_nothing(routed, value):
    assert routed.activated("main.py", TURBO_PHYSAI_DISABLE=value).stdout == "fast\n"


def test_an_unknown_variable_is_one_line_for_the_whole_launch(routed):
    routed.project.write(
        {
            "parent.py": """\
            import multiprocessing as mp, subprocess, sys
            def work():
                pass
            if __name__ == "__main__":
                import model
                subprocess.run([sys.executable, "main.py"], check=True)
                worker = mp.get_context("spawn").Process(target=work)
                worker.start()
                worker.join()
            """
        }
    )
    done = routed.activated("parent.py", TURBO_PHYSAI_DISABLE_GROUP="g")
    assert done.stdout == "fast\n"
    assert done.stderr == (
        "turbo_physai: there is no variable TURBO_PHYSAI_DISABLE_GROUP; "
        "did you mean TURBO_PHYSAI_DISABLE_GROUPS?\n"
    )
    wrong = {"TURBO_PHYSAI_DISABLE_GROUP": "g", "RANK": "1"}
    assert routed.activated("main.py", **wrong).stderr == ""  # rank 0 has said it


def test_a_wrong_config_is_one_line_and_the_code_2(routed):
    routed.project.write({"wrong.yaml": "kind: Other\nunknown: 1\n"})
    for name, parts in {
        "absent.yaml": ["no file at"],
        "wrong.yaml": ["unknown: found an unknown key", "schema_version: found nothing"],
    }.items():
        done = routed.activated("main.py", code=2, **{CONFIG: name})
        assert done.stdout == ""
        (line,) = done.stderr.splitlines()
        assert line.startswith("turbo_physai: ")
        assert all(part in line for part in parts)
    assert routed.reports == []


def test_ids_in_the_environment_are_obeyed_and_checked(routed):
    assert routed.activated("main.py", TURBO_PHYSAI_DISABLE_GROUPS="g").stdout == "slow\n"
    done = routed.activated("main.py", code=2, TURBO_PHYSAI_DISABLE_GROUPS="g, h,i")
    (line,) = done.stderr.splitlines()
    assert "'h'" in line
    assert "'i'" in line


def test_an_apply_for_the_same_config_gets_the_report_of_the_process(routed):
    same = "import turbo_physai\nreport = turbo_physai.apply(**{})\n"
    path = {"optimization_config_path": str(routed.path / "optimization.yaml")}
    show = "import model\nreport.require('g')\nprint(report.summary['applied'])\n"
    for arguments in ({}, path):
        routed.project.write({"again.py": same.replace("{}", repr(arguments)) + show})
        done = routed.activated("again.py")
        assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.parametrize(
    "arguments", [{"model": "common"}, {"disable_groups": ["g"]}, {"force_groups": ["g"]}]
)
def test_an_apply_for_something_else_names_both_places(routed, arguments):
    source = f"import turbo_physai\nturbo_physai.apply(**{arguments})\n"
    routed.project.write({"again.py": source})
    done = routed.activated("again.py", code=1)
    (line,) = [line for line in done.stderr.splitlines() if "works once per process" in line]
    assert "was applied at the start of this process" in line
    assert str(routed.path / "optimization.yaml") in line
    assert ("config" if "model" in arguments else next(iter(arguments))) in line


def test_an_apply_that_is_strict_makes_the_report_of_the_process_strict(routed):
    routed.project.write({"again.py": "import turbo_physai\nturbo_physai.apply(strict=True)\n"})
    assert (
        "strict mode: g is not applied (not_started)" in routed.activated("again.py", code=3).stderr
    )


def test_a_module_of_the_config_may_lie_beside_the_script(routed):
    (routed.path / "tools").mkdir()
    for name in ("declared.py", "main.py", "model.py", "quick.py"):
        (routed.path / name).rename(routed.path / "tools" / name)
    assert routed.activated("tools/main.py").stdout == "fast\n"
    routed.project.write(
        {
            "tools/parent.py": """\
            import subprocess, sys
            subprocess.run([sys.executable, "-c", "print('helper')"], cwd="/", check=True)
            """
        }
    )
    config = str(routed.path / "optimization.yaml")
    assert routed.activated("tools/parent.py", **{CONFIG: config}).stdout == "helper\n"


def test_the_search_path_is_that_of_plain_python(routed):
    routed.project.write({"path.py": "import sys; print(sys.path)\n"})
    plain = attrs.evolve(routed, variables={}).python("path.py").stdout
    assert routed.activated("path.py").stdout == plain


def test_the_launcher_in_an_activated_environment_keeps_its_own_options(routed):
    run = ("-m", "turbo_physai.run", "--disable-group", "g")
    assert routed.activated(*run, "main.py").stdout == "slow\n"
    (report,) = routed.reports
    assert report["execution"]["g"]["state"] == "skipped"


def test_a_process_reaches_the_processes_that_it_starts(routed):
    routed.project.write(
        {
            "parent.py": """\
            import model, subprocess, sys
            print(model.f(), flush=True)
            subprocess.run([sys.executable, "main.py"], check=True)
            subprocess.run([sys.executable, "-c", "print('helper')"], check=True)
            """
        }
    )
    assert routed.activated("parent.py").stdout == "fast\nfast\nhelper\n"


def test_processes_without_site_are_not_reached(routed):
    assert routed.activated("-S", "main.py").stdout == "slow\n"


def test_isolated_processes_are_reached_by_the_start_up_file_alone(launch, bare):
    launch.project.write({"isolated.py": "import sys; print('quick' in sys.modules)\n"})
    show = "import sys; print('turbo_physai.engine' in sys.modules)"
    assert launch.activated("-E", "-c", show).stdout == "True\n"
    reached = attrs.evolve(launch, interpreter=bare).activated(
        "-E", "-c", show, PYTHONPATH=BOOTSTRAP
    )
    assert reached.stdout == "False\n"


def test_the_start_file_names_what_the_pth_file_calls(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "startup")
    (entry,) = (ROOT / "startup" / "turbo_physai_startup.start").read_text().splitlines()
    assert pkgutil.resolve_name(entry) is sys.modules["turbo_physai_startup"].activate
    line = (ROOT / "startup" / "turbo_physai_startup.pth").read_text()
    assert '__import__("turbo_physai_startup").activate()' in line


# The user's own sitecustomize.

SITE = "import sys; sys.stderr.write('mine\\n'); flag = 1\n"
SHOW = "import sys, model\nprint(getattr(sys.modules.get('sitecustomize'), '__file__', None))\n"


@pytest.mark.parametrize(
    "source", ["", SITE, "1 / 0\n", "import absent\n", "raise SystemExit(4)\n"]
)
def test_the_users_sitecustomize_runs_once_and_as_without_us(launch, bare, source):
    launch.project.write({"show.py": SHOW})
    users = launch.path / "users"
    if source:
        launch.project.write({"users/sitecustomize.py": source})
    plain = launch.python("show.py", code=None, PYTHONPATH=str(users))
    for launcher in (launch, attrs.evolve(launch, interpreter=bare)):
        path = f"{BOOTSTRAP}:{users}"
        ours = launcher.activated("show.py", code=None, PYTHONPATH=path)
        assert ours.stdout == plain.stdout
        assert ours.returncode == plain.returncode
        if "SystemExit" not in source:  # the start of python itself fails, with a traceback
            assert ours.stderr == plain.stderr


def test_a_sitecustomize_in_site_packages_runs_too(launch, bare, request):
    file = next(bare.parent.parent.glob("lib/python*/site-packages")) / "sitecustomize.py"
    request.addfinalizer(file.unlink)
    file.write_text(SITE)
    done = attrs.evolve(launch, interpreter=bare).activated("main.py", PYTHONPATH=BOOTSTRAP)
    assert (done.stdout, done.stderr) == ("fast\n", "mine\n")


def test_another_environments_python_is_left_alone(launch, tmp_path_factory):
    foreign = tmp_path_factory.mktemp("foreign")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", foreign], check=True)
    launcher = attrs.evolve(launch, interpreter=foreign / "bin" / "python")
    # It finds the bootstrap folder, and may even find the package, but not what that needs.
    for path in (BOOTSTRAP, f"{BOOTSTRAP}:{ROOT}"):
        done = launcher.activated("main.py", PYTHONPATH=path)
        assert (done.stdout, done.stderr) == ("slow\n", "")
