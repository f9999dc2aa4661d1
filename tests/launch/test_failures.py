"""Where activation fails, a training does not start and nothing else is stopped."""

import attrs
import pytest

from turbo_physai.launch.options import BOOTSTRAP

CONFIG = "TURBO_PHYSAI_OPTIMIZATION_CONFIG"
HEAD = """\
schema_version: turbophysai/optimization-config/v1
kind: OptimizationConfig
metadata: {id: test, version: "1"}
"""
WITH_OPTIONS = HEAD + "optimization_groups: [{id: g, options: {a: %s}}]\n"

# What is in the files of a folder, the variables, and what the message says.
CAUSES = {
    "no file": ({}, {CONFIG: "absent.yaml"}, "found no file at"),
    "folder": ({}, {CONFIG: "."}, "found a folder at"),
    "long path": ({}, {CONFIG: "x" * 5000 + ".yaml"}, "File name too long"),
    "device": ({}, {CONFIG: "/dev/zero"}, "found a device or pipe"),
    "bool": ({"bad.yaml": WITH_OPTIONS % "!!bool x"}, {CONFIG: "bad.yaml"}, "bad.yaml:4:"),
    "date": ({"bad.yaml": WITH_OPTIONS % "!!timestamp x"}, {CONFIG: "bad.yaml"}, "bad.yaml:4:"),
    "no catalog": (
        {"bad.yaml": HEAD + "optimization_modules: [absent]\n"},
        {CONFIG: "bad.yaml"},
        "No module named 'absent'",
    ),
    "catalog exits": ({"declared.py": "raise SystemExit(0)\n"}, {}, "SystemExit: 0"),
    "catalog without end": ({"declared.py": "def f(): f()\nf()\n"}, {}, "RecursionError"),
    "catalog without memory": ({"declared.py": "raise MemoryError\n"}, {}, "MemoryError"),
    "catalog with an exception of its own": (
        {"declared.py": "class Odd(BaseException): pass\nraise Odd('own')\n"},
        {},
        "Odd: own (declared.py:2)",
    ),
    "flag": ({}, {"TURBO_PHYSAI_STRICT": "maybe"}, "TURBO_PHYSAI_STRICT: found 'maybe'"),
    "kill switch": ({}, {"TURBO_PHYSAI_DISABLE": "2"}, "TURBO_PHYSAI_DISABLE: found '2'"),
    "CPUs": (
        {},
        {"TURBO_PHYSAI_RANK_AFFINITY": "0=0-99999999999"},
        "TURBO_PHYSAI_RANK_AFFINITY: found '0=0-99999999999'",
    ),
    "nodes": ({}, {"TURBO_PHYSAI_RANK_NUMA": "²"}, "TURBO_PHYSAI_RANK_NUMA: found '²'"),
    "id": ({}, {"TURBO_PHYSAI_DISABLE_GROUPS": "other"}, "disable_groups: found 'other'"),
}


@pytest.fixture(params=["start-up file", "bootstrap folder"])
def routed(request, launch, bare):
    """A launcher whose processes can be reached by one of the routes."""
    if request.param == "start-up file":
        return launch
    return attrs.evolve(launch, interpreter=bare, variables={"PYTHONPATH": BOOTSTRAP})


def fast_cases(cases, *fast):
    return [pytest.param(c, marks=() if c in fast else pytest.mark.slow) for c in cases]


def one_line(done):
    (line,) = done.stderr.splitlines()
    assert line.startswith("turbo_physai: ")
    return line


@pytest.mark.parametrize(
    "cause", fast_cases(CAUSES, "long path", "date", "catalog exits", "flag", "CPUs")
)
def test_a_program_does_not_start_and_a_snippet_does(launch, cause):
    files, variables, message = CAUSES[cause]
    launch.project.write(files)
    for strict in ({}, {"TURBO_PHYSAI_STRICT": "1"}):
        done = launch.activated("main.py", code=2, **{**strict, **variables})
        assert message in one_line(done)
        assert done.stdout == ""
    done = launch.activated("-c", "import model; print(model.f())", **variables)
    assert done.stdout == "slow\n"
    assert "this process runs unpatched: " in one_line(done)
    assert message in done.stderr


@pytest.mark.parametrize("cause", fast_cases(CAUSES, "bool", "catalog without end"))
def test_the_launchers_start_nothing(launch, cause):
    files, variables, message = CAUSES[cause]
    if cause == "kill switch":
        pytest.skip("the same as for any flag")
    launch.project.write(files)
    for command in (
        ["python", "-m", "turbo_physai.run", "main.py"],
        ["turbo-physai", "run", "--", "python", "main.py"],
    ):
        done = launch(*command, code=2, **{CONFIG: "optimization.yaml", **variables})
        assert message in one_line(done)
        assert done.stdout == ""


BROKEN = {CONFIG: "absent.yaml"}
PROGRAMS = {
    "script": ["main.py"],
    "flags": ["-u", "-OO", "-X", "dev", "main.py"],
    "folder": ["work"],
    "script in a folder named bin": ["bin/main.py"],
    "module": ["-m", "main"],
    "package": ["-m", "work"],
    "profiled": ["-m", "cProfile", "main.py"],
}


@pytest.fixture
def programs(routed):
    main = (routed.path / "main.py").read_text()
    # A module of the working directory may have the name of an installed one.
    routed.project.write({"work/__main__.py": main, "bin/main.py": main})
    return routed


@pytest.mark.parametrize("program", fast_cases(PROGRAMS, "script", "module"))
def test_programs_of_the_user_do_not_start(programs, program):
    done = programs.activated(*PROGRAMS[program], code=2, **BROKEN)
    assert "found no file at" in one_line(done)
    assert done.stdout == ""


def test_a_rank_does_not_start_whatever_it_runs(launch):
    rank = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    assert launch.activated("-m", "json.tool", "--help", code=2, **BROKEN, **rank).stdout == ""


TOOLS = {
    "code": ["-c", "print('on')"],
    "module of the standard library": ["-m", "json.tool", "--help"],
    "installed module": ["-m", "packaging_tool"],
    "console script": ["{bin}/tool"],
    "isolated": ["-I", "on.py"],
}


@pytest.mark.parametrize("tool", fast_cases(TOOLS, "console script", "installed module"))
def test_tools_go_on(routed, tool, request):
    bin_ = routed.interpreter.parent
    (site,) = bin_.parent.glob("lib/python*/site-packages")
    for file in (site / "packaging_tool.py", bin_ / "tool"):
        request.addfinalizer(file.unlink)
        file.write_text("print('on')\n")
    routed.project.write({"on.py": "print('on')\n"})
    command = [part.format(bin=bin_) for part in TOOLS[tool]]
    done = routed.activated(*command, **BROKEN)
    assert done.stdout
    if tool != "isolated" or not routed.variables:  # which PYTHONPATH does not reach
        assert "this process runs unpatched: " in one_line(done)


def test_code_on_standard_input_goes_on(launch):
    done = launch("sh", "-c", "echo 'print(1)' | python -", **BROKEN)
    assert done.stdout == "1\n"
    assert "this process runs unpatched: " in one_line(done)


@pytest.mark.skipif("sys.version_info < (3, 11)", reason="-P came later")
def test_a_safe_path_that_hides_the_catalog_stops_nobody(launch):
    done = launch.activated("-P", "-c", "print('on')")
    assert "No module named 'declared'" in one_line(done)
    launch.project.write({"on.py": "print('on')\n"})
    assert launch.activated("-P", "on.py").stdout == "on\n"
    assert launch.activated("-P", "on.py", code=2, **BROKEN).stdout == ""
    rank = {"RANK": "0", "LOCAL_RANK": "0"}
    assert launch.activated("-P", "on.py", code=2, **rank).stdout == ""


def test_helpers_and_workers_of_a_rank_go_on(launch):
    launch.project.write(
        {
            "helper.py": "print('helper', flush=True)\n",
            "parent.py": """\
            import multiprocessing as mp, os, subprocess, sys
            def work():
                print("worker", flush=True)
            if __name__ == "__main__":
                import model
                print(model.f(), flush=True)
                os.environ["TURBO_PHYSAI_OPTIMIZATION_CONFIG"] = "absent.yaml"
                subprocess.run([sys.executable, "helper.py"], check=True)
                worker = mp.get_context("spawn").Process(target=work)
                worker.start()
                worker.join()
            """,
        }
    )
    done = launch.activated("parent.py", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    assert done.stdout == "fast\nhelper\nworker\n"
    lines = done.stderr.splitlines()
    assert all("this process runs unpatched: " in line for line in lines)
    assert len(lines) == 3  # the tracker of multiprocessing's resources is a process too


def test_an_interrupt_stays_one(launch):
    launch.project.write({"declared.py": "raise KeyboardInterrupt\n"})
    for program in (["main.py"], ["-c", "print('on')"]):
        done = launch.activated(*program, code=None)
        assert done.returncode != 0
        assert done.stdout == ""
        assert "\nKeyboardInterrupt\n" in done.stderr
        assert "turbo_physai: " not in done.stderr


def test_a_package_that_cannot_be_imported_is_known_by_the_same_rule(launch):
    # What the environment lacks, or has another module in the place of, is a cause like any other.
    launch.project.write({"users/attrs.py": "raise ImportError('not this one')\n"})
    users = {"PYTHONPATH": str(launch.path / "users")}
    done = launch.activated("main.py", code=2, **users)
    assert "ImportError: not this one" in one_line(done)
    done = launch.activated("-c", "print('on')", **users)
    assert done.stdout == "on\n"
    assert "this process runs unpatched: ImportError: not this one" in one_line(done)


# What activation can do without.


def test_a_deleted_working_directory_is_a_warning(launch):
    gone = f"mkdir gone && cd gone && rmdir ../gone && exec python {launch.path}/main.py"
    config = {CONFIG: str(launch.path / "optimization.yaml")}
    done = launch("sh", "-c", gone, **config)
    assert done.stdout == "fast\n"
    assert "the working directory cannot be told" in one_line(done)


@pytest.mark.parametrize("folder", ["named", "default"])
def test_a_full_disk_is_a_warning(launch, folder):
    reports = {"named": str(launch.path / "reports"), "default": ""}[folder]
    variables = {"TURBO_PHYSAI_REPORT_DIR": reports, "TMPDIR": str(launch.path)}
    full = "ulimit -f 0; exec python main.py"
    done = launch("sh", "-c", full, **variables, **{CONFIG: "optimization.yaml"})
    assert done.stdout == "fast\n"
    assert "the report of this process is not kept: " in one_line(done)
    assert "File too large" in done.stderr
    run = full.replace("main.py", "-m turbo_physai.run main.py")
    done = launch("sh", "-c", run, **variables, **{CONFIG: "optimization.yaml"})
    assert done.stdout == "fast\n"
    assert "the report of this process is not kept: " in one_line(done)


def test_a_report_folder_that_cannot_be_made_is_a_warning(launch):
    file = str(launch.path / "main.py")
    done = launch.activated("main.py", TURBO_PHYSAI_REPORT_DIR=file)
    assert done.stdout == "fast\n"
    line = one_line(done)
    assert f"'{file}'" in line
    assert "--report-dir or TURBO_PHYSAI_REPORT_DIR names a folder" in line


# Children in other folders.


def test_what_a_relative_path_names_is_found_from_everywhere(launch):
    launch.project.write(
        {
            "parent.py": """\
            import multiprocessing as mp, os, subprocess, sys
            def work():
                import model
                print(model.f(), flush=True)
            if __name__ == "__main__":
                import model
                os.chdir("/")
                show = "import os; print(os.environ['TURBO_PHYSAI_REPORT_DIR'])"
                subprocess.run([sys.executable, "-c", show], check=True)
                worker = mp.get_context("spawn").Process(target=work)
                worker.start()
                worker.join()
            """,
            # As torchrun's agent, which is a launcher and not activated itself.
            "torchrun": """\
            import os, subprocess, sys
            command = [sys.executable, os.path.abspath(sys.argv[1])]
            sys.exit(subprocess.run(command, cwd="/").returncode)
            """,
        }
    )
    done = launch.activated("parent.py", TURBO_PHYSAI_REPORT_DIR="out")
    assert done.stdout == f"{launch.path}/out\nfast\n"
    assert done.stderr == ""
    assert launch.activated("torchrun", "main.py", TURBO_PHYSAI_REPORT_DIR="out").stdout == "fast\n"


def test_a_shell_with_the_variable_can_use_its_tools_in_any_folder(launch):
    (launch.path / "tools").mkdir()
    for name in ("declared.py", "main.py", "model.py", "quick.py"):
        (launch.path / name).rename(launch.path / "tools" / name)
    shell = "python tools/main.py && cd / && python -c 'print(1)' && python -m json.tool --help"
    done = launch("sh", "-c", shell, **{CONFIG: "optimization.yaml"})
    assert done.stdout.startswith("fast\n1\nusage")
    first, second = done.stderr.splitlines()
    assert "this process runs unpatched: " in first
    assert "this process runs unpatched: " in second


def test_a_tool_is_judged_by_nobody(launch, request):
    tool = launch.interpreter.parent / "tool"
    request.addfinalizer(tool.unlink)
    tool.write_text("import sys\nif sys.argv[1:]: import model\nprint('on')\n")
    strict = {"TURBO_PHYSAI_STRICT": "1"}
    assert launch.activated(tool, **strict).stdout == "on\n"
    assert launch.reports == []
    launch.activated(tool, "model", PYTHONPATH=str(launch.path), **strict)
    assert len(launch.reports) == 1


def test_a_process_that_could_not_be_patched_keeps_nothing_of_ours(launch):
    launch.project.write(
        {
            "late.py": """\
            import sys
            import turbo_physai
            from turbo_physai.launch import activation
            turbo_physai.apply(optimization_config_path="optimization.yaml")
            before = len(sys.meta_path)
            activation._fail(ValueError("late"), "tool")
            import model
            print(model.f(), before - len(sys.meta_path))
            """
        }
    )
    done = launch.python("late.py")
    assert done.stdout == "slow 1\n"
    assert "this process runs unpatched: ValueError: late" in done.stderr.splitlines()[0]
    assert "turbo_physai's finder was removed" in done.stderr


def test_processes_below_are_stopped_only_for_what_they_are(launch):
    # A tool may start trainings, and a build may run scripts.
    launch.project.write({"on.py": "print('on')\n"})
    build = {"PIP_BUILD_TRACKER": "/tmp/tracker"}
    assert launch.activated("on.py", **BROKEN, **build).stdout == "on\n"
    start = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, 'on.py']).returncode)"
    assert launch.activated("-c", start, code=2, **BROKEN).stdout == ""


def test_a_standard_error_that_takes_no_message_changes_nothing(launch):
    for redirection in ("2>&-", "2>/dev/full"):
        command = f"python main.py {redirection}"
        assert launch("sh", "-c", command, code=2, **BROKEN).stdout == ""
    assert launch("sh", "-c", "python -c 'print(1)' 2>&-", **BROKEN).stdout == "1\n"
