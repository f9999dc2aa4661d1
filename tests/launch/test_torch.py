"""Real launches: the example under torchrun and by every way in, and DataLoader's workers."""

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "bevformer"
SCRIPT, CONFIG = EXAMPLE / "train.py", EXAMPLE / "optimization.yaml"
SMALL = ["--device", "cpu", "--steps", "2", "--bev", "12", "--embed-dims", "32"]
SMALL += ["--encoder-layers", "1", "--queries", "80"]
VARIABLE = "TURBO_PHYSAI_OPTIMIZATION_CONFIG"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def losses(output):
    return re.findall(r"step \d+ loss (\S+)", output)


def account(report):
    """What a report says of the Groups, without what differs from process to process."""
    groups = report["execution"]
    for group in groups.values():
        for member in group["members"]:
            seconds = member.pop("seconds")
            assert group["state"] == "skipped" or seconds > 0
    return groups, report["prepared_execution"]["groups"], report["summary"], report["final"]


def test_every_way_in_trains_alike_and_gives_the_same_account(launch):
    launch.project.write(
        {
            "applied.py": f"""\
            import runpy, sys, turbo_physai
            turbo_physai.apply(optimization_config_path={str(CONFIG)!r})
            sys.path[0] = {str(EXAMPLE)!r}
            runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
            """
        }
    )
    config = ["--optimization-config", CONFIG]
    ways = [
        launch.python("-m", "turbo_physai.run", *config, SCRIPT, *SMALL, **ONE_THREAD),
        launch.python(SCRIPT, *SMALL, **{VARIABLE: str(CONFIG)}, **ONE_THREAD),
        launch.python("applied.py", *SMALL, **ONE_THREAD),
        launch("turbo-physai", "run", *config, "--", "python", SCRIPT, *SMALL, **ONE_THREAD),
    ]
    first, *others = [losses(way.stdout) for way in ways]
    assert len(first) == 2
    assert others == [first] * 3
    found = [account(report) for report in launch.reports]
    assert found == [found[0]] * 4
    summary = found[0][2]
    assert summary["applied"] == sum(summary.values()) - summary["skipped"] > 0


@pytest.mark.parametrize("way", ["environment", "run in front of the script", "turbo-physai run"])
def test_torchrun_trains_the_example_on_two_ranks(launch, way):
    logs = ["--redirects", "1", "--log-dir", launch.path / "logs"]
    config = ["--optimization-config", CONFIG, "--strict"]
    if way == "environment":
        variables = {VARIABLE: str(CONFIG), "TURBO_PHYSAI_STRICT": "1"}
        launch.python(*TORCHRUN, *logs, SCRIPT, *SMALL, **variables, **ONE_THREAD)
    elif way == "turbo-physai run":
        command = ["python", *TORCHRUN, *logs, SCRIPT, *SMALL]
        launch("turbo-physai", "run", *config, "--", *command, **ONE_THREAD)
    else:
        program = ["-m", "turbo_physai.run", *config, SCRIPT, *SMALL]
        launch.python(*TORCHRUN, *logs, *program, **ONE_THREAD)
    first, second = (losses(f.read_text()) for f in (launch.path / "logs").rglob("stdout.log"))
    assert len(first) == 2
    assert first == second
    assert [report["rank"] for report in sorted(launch.reports, key=lambda r: r["rank"])] == [0, 1]
    assert {report["world_size"] for report in launch.reports} == {2}
    assert len({report["run_id"] for report in launch.reports}) == 1
    shown = launch("turbo-physai", "report", "show", "reports").stdout
    assert re.search(r": 2 ranks\nbevformer.msda +applied\n", shown), shown


def test_a_rank_that_fails_and_one_that_is_stopped_for_it_leave_their_reports(launch):
    launch.project.write(
        {
            "fail.py": """\
            import os, pathlib, time
            import model
            print(model.f(), flush=True)
            other = pathlib.Path("imported")
            if os.environ["RANK"] == "1":
                while not other.exists():  # it will be stopped, and is to have begun by then
                    time.sleep(0.01)
                os._exit(9)
            other.touch()
            time.sleep(120)
            """
        }
    )
    done = launch.activated(*TORCHRUN, "fail.py", code=1)
    assert done.stdout.count("fast") == 2
    assert "exitcode  : 9" in done.stderr
    states = {r["rank"]: (r["final"], r["summary"]["applied"]) for r in launch.reports}
    assert states == {0: (True, 1), 1: (True, 1)}


def test_ranks_that_run_different_code_are_found_out(launch):
    launch.project.write(
        {
            "differ.py": """\
            import os, sys
            if os.environ["RANK"] == "1":
                sys.modules["quick"] = None  # its import fails
            import model
            print(model.f())
            """
        }
    )
    assert launch.activated(*TORCHRUN, "differ.py").stdout.split() != ["fast", "fast"]
    shown = launch("turbo-physai", "report", "show", "reports", code=1).stdout.splitlines()
    assert shown[1] == "g  DIFFERS between ranks"


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_the_workers_of_a_data_loader_run_the_replacement(launch, method):
    launch.project.write(
        {
            "load.py": f"""\
            import torch
            from torch.utils.data import DataLoader, Dataset
            import model
            class Words(Dataset):
                def __len__(self): return 4
                def __getitem__(self, i): return model.f(), torch.utils.data.get_worker_info().id
            if __name__ == "__main__":
                loader = DataLoader(Words(), num_workers=2, multiprocessing_context="{method}")
                print(sorted((word, int(worker)) for (word,), worker in loader))
            """
        }
    )
    expected = "[('fast', 0), ('fast', 0), ('fast', 1), ('fast', 1)]\n"
    assert launch.activated("load.py", TURBO_PHYSAI_STRICT="1").stdout == expected
    (report,) = launch.reports
    assert report["final"]
