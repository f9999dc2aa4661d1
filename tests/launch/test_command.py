"""`turbo-physai run -- COMMAND` checks everything, prepares the environment, and is the command."""

import os
import subprocess

import attrs
import pytest

RUN = ("turbo-physai", "run", "--optimization-config", "optimization.yaml")
RUNTIME = """\
schema_version: turbophysai/runtime-config/v1
kind: RuntimeConfig
environment:
  unset: [OLD]
  set: {THREADS: 4, FRACTION: 0.50, SWITCH: true, TEXT: "a b"}
process: {numa: false}
"""


@pytest.fixture
def environment(launch):
    """The environment in which a command finds itself."""

    def seen(*options, **variables):
        entries = launch(*RUN, *options, "--", "env", "-0", **variables).stdout.split("\0")
        return dict(entry.split("=", 1) for entry in entries if entry)

    return seen


def test_the_processes_of_the_command_are_activated(launch):
    assert launch(*RUN, "--", "python", "main.py").stdout == "fast\n"
    assert launch(*RUN, "python", "main.py").stdout == "fast\n"
    assert [report["summary"]["applied"] for report in launch.reports] == [1, 1]


def test_an_environment_without_the_start_up_file_is_reached_too(launch, bare):
    reached = attrs.evolve(launch, interpreter=bare)(*RUN, "--", "python", "main.py")
    assert reached.stdout == "fast\n"


def test_a_shell_script_may_stand_between(launch):
    launch.project.write({"train.sh": "set -e\ncd .\npython -c 'print(1)'\nexec python main.py\n"})
    assert launch(*RUN, "--strict", "--", "sh", "train.sh").stdout == "1\nfast\n"


@pytest.mark.slow
def test_no_process_stays_in_between(launch):
    command = [*RUN, "--", "sh", "-c", "echo $$"]
    variables = launch.environment()
    with subprocess.Popen(
        command, cwd=launch.path, env=variables, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.communicate(timeout=60)[0] == f"{process.pid}\n"


def test_the_commands_arguments_and_exit_code_are_its_own(launch):
    show = "import sys; print(sys.argv[1:]); sys.exit(9)"
    done = launch(*RUN, "--", "python", "-c", show, "--model", "x", "--", "-h", code=9)
    assert done.stdout == "['--model', 'x', '--', '-h']\n"
    assert launch(*RUN, "--", "sh", "-c", "kill -TERM $$", code=-15).stderr == ""


@pytest.mark.slow
def test_launches_may_be_nested(launch):
    inner = [*RUN, "--disable-group", "g", "--", "python", "main.py"]
    assert launch(*RUN, "--", *inner).stdout == "slow\n"
    inner = ["python", "-m", "turbo_physai.run", "main.py"]
    assert launch(*RUN, "--", *inner).stdout == "fast\n"


def test_the_runtime_config_sets_and_unsets_variables(environment, launch):
    launch.project.write({"runtime.yaml": RUNTIME})
    seen = environment("--runtime-config", "runtime.yaml", "--set", "THREADS=8", "--set", "EMPTY=")
    assert seen.items() >= {
        "THREADS": "8", "FRACTION": "0.50", "SWITCH": "true", "TEXT": "a b", "EMPTY": ""
    }.items()  # fmt: skip
    assert "OLD" not in environment("--runtime-config", "runtime.yaml", OLD="1")
    assert environment(OLD="1")["OLD"] == "1"


@pytest.mark.slow
def test_the_model_names_both_configs(launch):
    done = launch("turbo-physai", "run", "--model", "Common", "--", "python", "main.py")
    (report,) = launch.reports
    assert report["optimization_config_path"].endswith("/common/optimization.yaml")
    assert report["runtime_config_path"].endswith("/common/runtime.yaml")
    assert done.stdout == "slow\n"


def test_a_config_in_the_folder_is_not_taken_by_a_launcher_for_any_command(launch):
    folder = launch.path / "turbophysai_configs" / "default"
    folder.mkdir(parents=True)
    (launch.path / "optimization.yaml").rename(folder / "optimization.yaml")
    done = launch("turbo-physai", "run", "--", "python", "main.py")
    assert done.stdout == "slow\n"
    assert done.stderr == (
        f"turbo_physai: not using {folder}/optimization.yaml, because nobody named it; "
        "--optimization-config does\n"
    )
    named = ("--optimization-config", folder / "optimization.yaml")
    assert launch("turbo-physai", "run", *named, "--", "python", "main.py").stdout == "fast\n"
    # One in front of a program runs what lies in the folder anyway.
    done = launch("python", "-m", "turbo_physai.run", "main.py")
    assert done.stdout == "fast\n"
    assert done.stderr == (
        f"turbo_physai: using {folder}/optimization.yaml, because no config was named and it lies "
        "in this folder\n"
    )


def test_everything_that_is_wrong_is_said_and_nothing_is_started(launch):
    launch.project.write({"runtime.yaml": "kind: RuntimeConfig\nprocess: {numa: 1}\n"})
    options = [
        *("--runtime-config", "runtime.yaml", "--force-group", "x", "--disable-group", "y"),
        *("--disable-group", "x"),
    ]
    done = launch(*RUN, *options, "--", "touch", "started", code=2)
    lines = done.stderr.splitlines()
    assert all(line.startswith("turbo_physai: ") for line in lines)
    for part in (
        *(
            "schema_version",
            "process.numa",
            "force_groups: found 'x';",
            "disable_groups: found 'x'",
        ),
        *("disable_groups: found 'y'", "found 'x', which is also in disable_groups"),
    ):
        assert sum(part in line for line in lines) == 1, part
    assert done.stdout == ""
    assert not (launch.path / "started").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "X"], "--set: found 'X'; accepted: NAME=VALUE"),
        (["--set-rank-affinity", "0"], "--set-rank-affinity: found '0'; accepted: RANK=CPUS"),
        (["--set-rank-affinity", "0=99999"], "found CPUs 99999 for rank 0"),
        (["--set-rank-numa", "-1=0"], "--set-rank-numa: found '-1=0'; accepted: RANK=NODE"),
        (["--set-rank-numa", "1=77"], "found node 77 for rank 1"),
    ],
)
def test_a_wrong_option_is_named(launch, options, message):
    done = launch(*RUN, *options, "--", "touch", "started", code=2)
    assert message in done.stderr
    assert not (launch.path / "started").exists()


def test_a_command_that_is_not_there_is_missed_as_by_a_shell(launch):
    done = launch(*RUN, "--", "no-such-command", code=127)
    assert done.stderr == "turbo_physai: no-such-command: No such file or directory\n"
    assert "main.py: Permission denied" in launch(*RUN, "--", "./main.py", code=126).stderr


@pytest.mark.parametrize("way", ["option", "variable"])
def test_the_kill_switch_leaves_the_environment_alone(environment, launch, way):
    options = ["--disable"] if way == "option" else []
    variables = {"TURBO_PHYSAI_DISABLE": "1"} if way == "variable" else {}
    seen = environment(*options, "--set", "X=1", "--report-dir", "out", **variables)
    plain = {**launch.environment(), "TURBO_PHYSAI_DISABLE": "1"}
    assert {k: v for k, v in seen.items() if k != "LC_CTYPE"} == plain
    done = launch(*RUN[:2], "--optimization-config", "absent", *options, "true", **variables)
    assert done.stderr == ""


@pytest.mark.slow
def test_ranks_are_bound_at_their_start_and_nothing_else_is(launch):
    cpus = sorted(os.sched_getaffinity(0))
    show = "import os; print(sorted(os.sched_getaffinity(0)))"
    options = ["--set-rank-affinity", f"1={cpus[-1]}", "--enable-numa"]
    for rank, expected in ((None, cpus), ("0", cpus), ("1", cpus[-1:])):
        variables = {} if rank is None else {"LOCAL_RANK": rank, "RANK": rank}
        done = launch(*RUN, *options, "--", "python", "-c", show, **variables)
        assert done.stdout == f"{expected}\n"
    assert "PYTHON" not in done.stderr


def test_a_machine_with_one_node_says_so_and_goes_on(launch, tmp_path):
    from turbo_physai.launch import topology

    done = launch(*RUN, "--enable-numa", "--", "python", "main.py")
    assert done.stdout == "fast\n"
    if len(topology.nodes()) < 2:
        assert done.stderr == "turbo_physai: NUMA: one node only, so no rank is bound\n"
    assert launch(*RUN, "--disable-numa", "--", "python", "main.py").stderr == ""


@pytest.mark.slow
def test_our_launcher_for_programs_takes_a_runtime_config(launch):
    launch.project.write(
        {"runtime.yaml": RUNTIME, "show.py": "import os; print(os.environ['THREADS'])\n"}
    )
    run = ["-m", "turbo_physai.run", "--optimization-config", "optimization.yaml"]
    assert launch.python(*run, "--runtime-config", "runtime.yaml", "show.py").stdout == "4\n"
    assert launch.reports[0]["runtime_config_path"] == f"{launch.path}/runtime.yaml"
    assert launch.python(*run, "--disable", "main.py").stdout == "slow\n"
    assert launch.python(*run, "--runtime-config", "no.yaml", "show.py", code=2).stdout == ""
