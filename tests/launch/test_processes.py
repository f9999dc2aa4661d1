"""Of all processes of a launch, its ranks leave a report, and nobody else does."""

import signal
import subprocess
import time
from functools import partial

import pytest

from turbo_physai.report.journal import read

CONFIG = "TURBO_PHYSAI_OPTIMIZATION_CONFIG"


def states(launch):
    """Rank and state of every report."""
    return sorted((r["rank"], r["execution"]["g"]["state"]) for r in launch.reports)


def test_a_program_that_never_imports_the_model_says_so(launch):
    launch.project.write({"idle.py": "print('idle')\n"})
    launch.activated("idle.py")
    assert states(launch) == [(0, "not_started")]
    assert launch.reports[0]["execution"]["g"]["reason"] == "never imported: model.f"


@pytest.mark.parametrize("name", ["torchrun", "torch.distributed.run"])
def test_a_launcher_leaves_no_report_and_its_ranks_do_under_one_id(launch, name):
    source = """\
        import os, subprocess, sys
        ranks = [
            subprocess.Popen([sys.executable, *sys.argv[1:]], env={**os.environ, "RANK": str(rank)})
            for rank in range(2)
        ]
        sys.exit(max(rank.wait() for rank in ranks))
        """
    is_module = "." in name
    launch.project.write({name.replace(".", "/") + ".py" if is_module else name: source})
    done = launch.activated(*(["-m"] if is_module else []), name, "main.py")
    assert done.stdout == "fast\n" * 2
    assert states(launch) == [(0, "applied"), (1, "applied")]
    assert len({report["run_id"] for report in launch.reports}) == 1


@pytest.mark.slow
def test_a_launcher_inside_our_launcher_leaves_no_report(launch):
    launch.project.write({"torch/distributed/run.py": "print('agent')\n"})
    run = ["-m", "turbo_physai.run", "--optimization-config", "optimization.yaml"]
    assert launch.python(*run, "-m", "torch.distributed.run").stdout == "agent\n"
    assert states(launch) == []


WORKERS = """\
    import multiprocessing as mp, os, sys
    def work(rank):
        if os.environ.get("OWN_RANK"):
            os.environ["RANK"] = str(rank)
        import model
        print(model.f(), flush=True)
    if __name__ == "__main__":
        workers = [mp.get_context(sys.argv[1]).Process(target=work, args=(i,)) for i in (1, 2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        import model
        print(model.f())
    """


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_workers_are_patched_and_leave_no_report(launch, method):
    launch.project.write({"workers.py": WORKERS})
    assert launch.activated("workers.py", method, RANK="5").stdout == "fast\n" * 3
    assert states(launch) == [(5, "applied")]


def test_spawned_processes_with_a_rank_of_their_own_are_ranks(launch):
    launch.project.write({"workers.py": WORKERS})
    assert launch.activated("workers.py", "spawn", OWN_RANK="1").stdout == "fast\n" * 3
    assert states(launch) == [(0, "applied"), (1, "applied"), (2, "applied")]


@pytest.mark.slow
def test_workers_of_a_program_that_calls_apply_leave_no_report(launch):
    apply = "import turbo_physai; turbo_physai.apply(optimization_config_path='optimization.yaml')"
    launch.project.write({"workers.py": f"{apply}\n" + WORKERS.replace("\n    ", "\n").lstrip()})
    done = launch.python("workers.py", "spawn", PYTHONPATH=str(launch.path))
    assert done.stdout == "fast\n" * 3
    assert states(launch) == [(0, "applied")]


def test_a_forked_child_does_not_touch_the_report_and_does_not_log_it(launch):
    launch.project.write(
        {
            "fork.py": """\
            import os, sys, model
            if os.fork() == 0:
                sys.exit(0)
            os.wait()
            """
        }
    )
    done = launch.activated("fork.py", TURBO_PHYSAI_LOG_REPORT="1")
    assert done.stderr.count(" begin =====") == 1
    launch.project.write({"fork.py": (launch.path / "fork.py").read_text().replace(", model", "")})
    done = launch.activated("fork.py", TURBO_PHYSAI_LOG_REPORT="1")
    assert done.stderr.count(" begin =====") == 1
    assert states(launch) == [(0, "applied"), (0, "not_started")]


def test_helpers_of_a_rank_leave_a_report_only_if_they_meet_the_model(launch):
    launch.project.write(
        {
            "helper.py": "print('helper')\n",
            "parent.py": """\
            import subprocess, sys
            for program in (["helper.py"], ["-c", "print('code')"], ["main.py"]):
                subprocess.run([sys.executable, *program], check=True)
            """,
        }
    )
    done = launch.activated("parent.py", RANK="3", TURBO_PHYSAI_STRICT="", WORLD_SIZE="4")
    assert done.stdout == "helper\ncode\nfast\n"
    assert states(launch) == [(3, "applied"), (3, "not_started")]
    assert launch.activated("-c", "print('code')").stdout == "code\n"
    assert len(launch.reports) == 2


@pytest.mark.slow
def test_only_the_rank_itself_logs_the_report(launch):
    launch.project.write({"workers.py": WORKERS})
    done = launch.activated("workers.py", "spawn", TURBO_PHYSAI_LOG_REPORT="1")
    assert done.stderr.count(" begin =====") == 1


# Ranks and ids of launchers.


def test_slurm_tells_the_rank_and_the_run(launch):
    slurm = {"SLURM_PROCID": "6", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "1"}
    launch.activated("main.py", **slurm)
    (report,) = launch.reports
    found = (report["rank"], report["world_size"], report["run_id"])
    assert found == (6, 8, "slurm-77.1")


@pytest.mark.parametrize(
    ("variables", "run_id"),
    [
        ({"TORCHELASTIC_RUN_ID": "job"}, "torchrun-job"),
        ({"TORCHELASTIC_RUN_ID": "job", "TURBO_PHYSAI_RUN_ID": "mine"}, "mine"),
        ({"TORCHELASTIC_RUN_ID": "a/b c"}, "torchrun-a_b_c"),
    ],
)
def test_all_machines_of_a_launch_find_one_id(launch, variables, run_id):
    launch.activated("main.py", **variables)
    assert launch.reports[0]["run_id"] == run_id


def test_torchruns_default_rendezvous_is_no_id(launch):
    launch.activated("main.py", TORCHELASTIC_RUN_ID="none")
    launch.activated("main.py", TORCHELASTIC_RUN_ID="none")
    assert len({report["run_id"] for report in launch.reports}) == 2


def test_ranks_that_lightning_starts_are_two(launch):
    for local in "01":
        launch.activated("main.py", LOCAL_RANK=local, NODE_RANK="0", WORLD_SIZE="2")
    assert states(launch) == [(0, "applied"), (1, "applied")]
    # Each start has made up an id of its own, as no process above them did.
    assert {report["world_size"] for report in launch.reports} == {2}
    for local in "01":
        ranks = {"LOCAL_RANK": local, "NODE_RANK": "0", "WORLD_SIZE": "2"}
        launch.activated("main.py", **ranks, TURBO_PHYSAI_RUN_ID="mine")
    shown = launch("turbo-physai", "report", "show", "reports", "--run-id", "mine").stdout
    assert shown.startswith("run mine: 2 ranks\n")


# Sudden ends.

STUCK = "import model, time\nprint(model.f(), flush=True)\ntime.sleep(60)\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("early", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_killed_process_leaves_its_last_state(launch, number, early):
    source = STUCK.replace("model.f()", "'early'").replace("model, ", "") if early else STUCK
    launch.project.write({"stuck.py": source})
    variables = launch.environment(**{CONFIG: "optimization.yaml"})
    command = [launch.interpreter, "stuck.py"]
    pipe = subprocess.PIPE
    # A test run in the background of a shell is deaf to SIGINT, and so would be its children.
    hear = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command, cwd=launch.path, env=variables, stdout=pipe, stderr=pipe, preexec_fn=hear
    ) as stuck:
        stuck.stdout.readline()
        stuck.send_signal(number)
        assert stuck.wait(30) == -number  # the program's own way to end: no handler of ours
    (report,) = launch.reports
    if number == signal.SIGINT and early:  # python ends in order
        assert (report["final"], report["execution"]["g"]["state"]) == (True, "not_started")
    else:
        state = "pending" if early else "applied"
        assert (report["final"], report["execution"]["g"]["state"]) == (not early, state)


def test_no_signal_handler_is_installed(launch):
    launch.project.write(
        {
            "handlers.py": """\
            import signal
            print([signal.getsignal(number) for number in signal.valid_signals()])
            """
        }
    )
    assert launch.activated("handlers.py").stdout == launch.python("handlers.py").stdout


@pytest.mark.slow
def test_the_journal_is_valid_at_every_moment(launch):
    names = [f"part{i}" for i in range(20)]
    launch.project.write({f"{name}.py": "def f(): pass\n" for name in names})
    launch.project.declare(",\n".join(f"group('{n}', replace('{n}.f', 'quick.f'))" for n in names))
    launch.project.write(
        {"many.py": f"import time\nfor n in {names}:\n    __import__(n)\n    time.sleep(0.01)\n"}
    )
    variables = launch.environment(**{CONFIG: "optimization.yaml"})
    command = [launch.interpreter, "many.py"]
    seen = set()
    with subprocess.Popen(command, cwd=launch.path, env=variables) as process:
        while process.poll() is None:
            for file in (launch.path / "reports").glob("report-*.json"):
                seen.add(read(file)["summary"]["applied"])
            time.sleep(0.001)
    assert len(seen) > 5
    assert not list((launch.path / "reports").glob("*.tmp"))
