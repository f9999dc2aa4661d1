"""The reports of all ranks make one, and a difference between ranks comes first."""

import itertools
import json

import pytest
from typer.testing import CliRunner

from turbo_physai.cli import app
from turbo_physai.report.journal import read
from turbo_physai.report.merge import NoReportsError, merge
from turbo_physai.report.show import as_markdown, as_text

MODEL = {"model.py": "def f(a): return 'slow'\n", "other.py": "def f(a): return 'slow'\n"}
GROUPS = "group('g', replace('model.f', 'quick.f')), group('h', replace('other.f', 'quick.f'))"
QUICK = "def f(a): return 'fast'\n"
BOTH = "apply()\nimport model, other"


@pytest.fixture(scope="module")
def written():
    """What scripts have left as their reports, by script and declarations."""
    return {}


@pytest.fixture
def ranks(project, written):
    """Lets scripts be the ranks of a launch, each started after the one before, and returns the
    folder of their reports."""
    started = itertools.count()

    def run(*scripts, groups=GROUPS, run_id="run", size=None, first=0):
        for rank, script in enumerate(scripts, start=first):
            if (script, groups) not in written:
                project.write({**MODEL, "quick.py": QUICK, "quicker.py": QUICK}).declare(groups)
                project.script(script, None, TURBO_PHYSAI_REPORT_DIR=str(project.path / "raw"))
                (file,) = (project.path / "raw").iterdir()
                written[script, groups] = read(file)
                file.unlink()
            order = next(started)
            report = {
                **written[script, groups],
                "rank": rank,
                "world_size": size or len(scripts),
                "run_id": run_id,
                "started_at": f"2030-01-01T00:00:{order:02}+00:00",
            }
            folder = project.path / "reports"
            folder.mkdir(exist_ok=True)
            (folder / f"report-{order}.json").write_text(json.dumps(report))
        return folder

    return run


def show(*arguments, code=0):
    done = CliRunner().invoke(app, ["report", "show", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done


def test_ranks_that_agree_need_one_line_a_group(ranks):
    merged = merge(ranks(BOTH, BOTH))
    assert not merged.differs
    assert as_text(merged) == "run run: 2 ranks\ng  applied\nh  applied"
    assert "| g | applied | 0-1 |  |" in as_markdown(merged)


def test_a_group_that_differs_comes_first_with_its_ranks_and_why(ranks):
    skip = "apply(disable_groups=['h'])\nimport model, other"
    folder = ranks(BOTH, skip, BOTH)
    merged = merge(folder)
    assert [group.id for group in merged.groups] == ["h", "g"]
    assert as_text(merged).splitlines() == [
        "run run: 3 ranks, 1 of 2 Groups differ",
        "h  DIFFERS between ranks",
        "    rank 0,2: applied",
        "    rank 1: skipped: disabled by the caller",
        "g  applied",
    ]
    assert "| **h differs** | skipped | 1 | disabled by the caller |" in as_markdown(merged)
    assert show(folder, code=1).stdout == as_text(merged) + "\n"
    assert show(folder, "--format", "markdown", code=1).stdout == as_markdown(merged) + "\n"
    found = json.loads(show(folder, "--format", "json", code=1).stdout)
    assert found["differs"]
    assert [outcome["ranks"] for outcome in found["groups"][0]["outcomes"]] == [[0, 2], [1]]


def test_equal_states_with_other_objects_differ_too(ranks):
    folder = ranks(BOTH, size=2)
    ranks(BOTH, groups=GROUPS.replace("quick.f", "quicker.f", 1), first=1, size=2)
    text = as_text(merge(folder))
    assert "rank 0: applied: replace model.f: bound to quick.f" in text
    assert "rank 1: applied: replace model.f: bound to quicker.f" in text


def test_a_group_that_a_rank_does_not_know_differs(ranks):
    folder = ranks(BOTH, size=2)
    ranks("apply()\nimport model", groups=GROUPS.split(", group")[0], first=1, size=2)
    assert "rank 1: absent: not in the config of this rank" in as_text(merge(folder))


def test_a_rank_without_a_report_is_missed(ranks):
    merged = merge(ranks(BOTH, BOTH, size=4))
    assert merged.missing == (2, 3)
    assert "warning: no report of rank 2-3" in as_text(merged)


def test_a_rank_that_was_killed_is_seen(ranks):
    kill = "apply()\nimport model\nos.kill(os.getpid(), 9)"
    folder = ranks(BOTH, size=2)
    merged = merge(ranks(kill, first=1, size=2))
    assert merged.run_id == "run"
    assert folder.is_dir()
    assert "warning: rank 1 still runs, or ended without a word" in as_text(merged)
    assert "    rank 1: pending" in as_text(merged)


def test_the_process_that_met_the_model_last_speaks_for_a_rank(ranks):
    folder = ranks("apply(disable_groups=['g'])\nimport other")
    ranks(BOTH)
    ranks("apply()")  # such as a script that evaluates nothing
    merged = merge(folder)
    assert [group.outcomes[0].state for group in merged.groups] == ["applied", "applied"]
    assert len(merged.others) == 2
    assert "further processes, not counted: " in as_text(merged)


def test_the_newest_run_is_shown_unless_another_is_named(ranks):
    folder = ranks(BOTH, run_id="first")
    ranks("apply(disable_groups=['g'])\nimport other", run_id="second")
    merged = merge(folder)
    assert (merged.run_id, merged.other_runs) == ("second", ("first",))
    assert "with --run-id: first" in as_text(merged)
    assert show(folder, "--run-id", "first").stdout.startswith("run first: 1 rank\n")
    done = show(folder, "--run-id", "third", code=2)
    assert done.stderr == f"turbo_physai: found no run 'third' in {folder}; it has second, first\n"


def test_folders_of_several_machines_may_lie_side_by_side(ranks):
    folder = ranks(BOTH, size=2)
    ranks(BOTH, first=1, size=2)
    for i, file in enumerate(sorted(folder.iterdir())):
        (folder / f"node{i}").mkdir()
        file.rename(folder / f"node{i}" / file.name)
    assert merge(folder).missing == ()


def test_files_that_are_no_reports_are_named(ranks):
    folder = ranks(BOTH)
    (folder / "report-torn.json").write_text('{"a":')
    (folder / "report-other.json").write_text('{"schema_version": "other/v9"}')
    (folder / "notes.json").write_text("unrelated")
    text = as_text(merge(folder))
    assert "report-torn.json: " in text
    assert "found the schema 'other/v9'; accepted: turbophysai/report/v1" in text
    assert "notes" not in text


def test_a_folder_without_reports_is_an_error(tmp_path):
    with pytest.raises(NoReportsError, match=f"found no report-.* in {tmp_path}"):
        merge(tmp_path)
    assert show(tmp_path / "absent", code=2).stdout == ""


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("apply()", "g  not_started: never imported: model.f"),
        ("apply()\nimport model\nos.kill(os.getpid(), 9)", "h  pending"),
        ("apply()\nimport sys; sys.modules['quick'] = None; import model, other", "rolled_back"),
    ],
)
def test_a_group_that_no_rank_has_applied_is_an_error(ranks, script, text):
    assert text in show(ranks(script, script), code=1).stdout


def test_a_rank_without_a_report_is_an_error(ranks):
    show(ranks(BOTH, BOTH, size=3), code=1)
    show(ranks(BOTH, BOTH, run_id="whole"), "--run-id", "whole")


def test_what_was_forced_is_shown_and_differs_from_what_was_not(ranks, project):
    trust = "trust: {source_hashes: {model.f: ['source-v1:00']}}"
    project.write({**MODEL, "quick.py": QUICK}).declare("group('g', replace('model.f', 'quick.f'))")
    config = project.path / "optimization.yaml"
    config.write_text(config.read_text() + f"    {trust}\n")
    script = "report = apply(force_groups=['g'])\nimport model\nprint(report)"
    for rank in ("0", "1"):
        text = project.run(script, RANK=rank, WORLD_SIZE="2", TURBO_PHYSAI_RUN_ID="run")
        assert "## g: applied (forced)" in text
        assert "- fail, let through: source_hash of model.f" in text
    shown = show(project.path / "reports").stdout
    assert "g  applied: forced past source_hash of model.f" in shown
    config.write_text(config.read_text().replace(trust, ""))
    project.run(script, RANK="1", WORLD_SIZE="2", TURBO_PHYSAI_RUN_ID="run")
    assert "g  DIFFERS between ranks" in show(project.path / "reports", code=1).stdout
