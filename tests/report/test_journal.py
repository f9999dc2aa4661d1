"""A journal is one process's file, replaced as a whole, where nobody else can reach it."""

import json
import logging
import os
import secrets
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from turbo_physai.report import Journal, journal


def write(journal, report):
    journal.write(lambda: json.dumps(report))


@pytest.fixture(autouse=True)
def process(tmp_path, monkeypatch, caplog):
    """A process whose journal's name and temporary folder are known."""
    here = os.uname_result(("Linux", "node7", "6", "1", "x86_64"))
    monkeypatch.setattr("os.uname", lambda: here)
    monkeypatch.setattr("os.getpid", lambda: 42)
    monkeypatch.delenv("TURBO_PHYSAI_REPORT_DIR", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    caplog.set_level(logging.WARNING, "turbo_physai")


@pytest.fixture
def base(tmp_path):
    """The folder that a user's reports lie in when none is named."""
    return tmp_path / f"turbo_physai-{os.getuid()}"


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_its_name_tells_the_run_the_host_and_the_process(tmp_path, base, monkeypatch):
    assert Journal.of_this_process("run").path == base / "run" / "report-run-node7-42.json"
    monkeypatch.setenv("TURBO_PHYSAI_REPORT_DIR", str(tmp_path / "a"))
    assert Journal.of_this_process("run").path == tmp_path / "a" / "report-run-node7-42.json"


def test_a_relative_folder_stays_where_it_was_when_the_program_moves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TURBO_PHYSAI_REPORT_DIR", "out")
    assert Journal.of_this_process("run").path.parent == tmp_path / "out"


def test_it_is_replaced_and_nothing_else_remains(tmp_path):
    written = Journal(tmp_path / "new" / "report-a.json")
    for state in ({"a": 1}, {"a": 2}):
        write(written, state)
        assert json.loads(written.path.read_text()) == state
    assert [file.name for file in written.path.parent.iterdir()] == ["report-a.json"]


def test_colleagues_may_read_what_lies_in_a_folder_that_was_named(tmp_path):
    (tmp_path / "shared").mkdir()
    written = Journal(tmp_path / "shared" / "report-a.json")
    umask = os.umask(0o022)
    try:
        write(written, {})
    finally:
        os.umask(umask)
    assert mode(written.path) == 0o644


# Folders and disks that fail.


def test_a_folder_that_cannot_be_written_is_one_warning(tmp_path, caplog):
    (tmp_path / "file").touch()
    written = Journal(tmp_path / "file" / "report-a.json")
    write(written, {})
    write(written, {})
    assert isinstance(written.error, OSError)
    (message,) = caplog.messages
    assert message.startswith("turbo_physai: the report of this process is not kept: ")
    assert str(tmp_path / "file") in message
    assert "--report-dir or TURBO_PHYSAI_REPORT_DIR names a folder" in message


def test_a_full_disk_leaves_the_old_state(tmp_path, monkeypatch, caplog):
    def full(*_, **__):
        raise OSError("no space left on device")

    written = Journal(tmp_path / "report-a.json")
    write(written, {"a": 1})
    with monkeypatch.context() as disk:
        disk.setattr("os.rename", full)
        write(written, {"a": 2})
    assert "no space" in str(written.error)
    assert json.loads(written.path.read_text()) == {"a": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["report-a.json"]
    write(written, {"a": 3})
    assert written.error is None
    assert len(caplog.messages) == 1


REPORT = {"final": False, "prepared_execution": {"groups": {}, "order": []}, "execution": {}}


def told(**states):
    """What has changed of some Groups, as `View.changes` makes it."""
    plan = {"order": list(states), "groups": dict.fromkeys(states, "apply")}
    return json.dumps({"prepared_execution": plan, "execution": states})


def reread(written, whole, changes):
    """Writes changes, or the whole; returns what is read then, and whether it was the whole."""
    made = []
    written.write(lambda: made.append(1) or json.dumps(whole), lambda: changes)
    return journal.read(written.path), bool(made)


def test_changes_are_appended_until_the_report_is_written_as_a_whole(tmp_path):
    written = Journal(tmp_path / "report-a.json")
    write(written, {**REPORT, "padding": "x" * 1000})
    assert not reread(written, REPORT, told(a="pending", b="pending"))[1]
    found, is_whole = reread(written, REPORT, told(a="applied"))
    assert not is_whole
    assert found["execution"] == {"a": "applied", "b": "pending"}
    assert found["prepared_execution"] == {"groups": {"a": "apply", "b": "apply"}, "order": ["a"]}
    write(written, {**REPORT, "final": True})
    assert json.loads(written.path.read_text()) == {**REPORT, "final": True}


def test_changes_that_are_longer_than_the_report_replace_it(tmp_path):
    written = Journal(tmp_path / "report-a.json")
    write(written, REPORT)
    was_whole = [reread(written, REPORT, told(a="x" * 50))[1] for _ in range(6)]
    assert was_whole[0] is False
    assert True in was_whole
    assert written.path.stat().st_size < 6 * 50 + len(json.dumps(REPORT))


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_changes_that_were_not_written_to_the_end_are_left_out(tmp_path, cut):
    written = Journal(tmp_path / "report-a.json")
    write(written, {**REPORT, "padding": "x" * 1000})
    reread(written, REPORT, told(a="pending"))
    reread(written, REPORT, told(a="applied"))
    with written.path.open("rb+") as file:
        file.truncate(written.path.stat().st_size - 1 - cut)
    assert journal.read(written.path)["execution"] == {"a": "pending"}


TAMPERED = {
    "removed": lambda file: file.unlink(),
    "cut": lambda file: os.truncate(file, 20),
    "longer": lambda file: file.write_text(file.read_text() + "half a li"),
    "another": lambda file: (file.unlink(), file.write_text(" " * 1000)),
    "a link": lambda file: (file.rename(f"{file}.old"), file.symlink_to(f"{file}.old")),
}


@pytest.mark.parametrize("change", TAMPERED)
def test_nothing_is_appended_to_a_file_that_is_not_as_it_was_left(tmp_path, change):
    written = Journal(tmp_path / "report-a.json")
    write(written, {**REPORT, "padding": "x" * 1000})
    TAMPERED[change](written.path)
    old = Path(f"{written.path}.old")
    before = old.read_bytes() if old.exists() else b""
    assert reread(written, REPORT, told(a="applied")) == (REPORT, True)
    assert not written.path.is_symlink()
    assert (old.read_bytes() if old.exists() else b"") == before


def test_after_an_append_that_failed_the_report_is_written_as_a_whole(tmp_path, monkeypatch):
    written = Journal(tmp_path / "report-a.json")
    write(written, {**REPORT, "padding": "x" * 1000})
    with monkeypatch.context() as patched:
        patched.setattr(journal, "_file", lambda descriptor: os.close(descriptor) or fail())
        reread(written, REPORT, told(a="applied"))
    assert "No space left" in str(written.error)
    assert reread(written, REPORT, told(a="applied")) == (REPORT, True)
    assert written.error is None


def fail():
    raise OSError(28, "No space left on device")


def test_a_report_that_json_cannot_hold_does_not_stop_a_training(tmp_path, caplog):
    written = Journal(tmp_path / "report-a.json")
    circle = {}
    circle["a"] = circle
    for report in ({(1, 2): 3}, circle):
        write(written, report)
        assert written.error is not None
    assert len(caplog.messages) == 1


def test_no_folder_for_temporary_files_is_one_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "absent"))
    monkeypatch.setattr(journal, "_TEMPORARY", (str(tmp_path / "absent too"),))
    written = Journal.of_this_process("run")
    assert written.path is None
    write(written, {})
    write(written, {})
    (message,) = caplog.messages
    assert "there is no folder for temporary files" in message


# Other users of the machine.


def test_the_folders_are_for_their_owner_alone(base):
    written = Journal.of_this_process("run")
    write(written, {})
    assert mode(base) == mode(base / "run") == 0o700
    base.chmod(0o777)
    (base / "run").chmod(0o755)
    write(written, {})
    assert written.error is None
    assert mode(base) == mode(base / "run") == 0o700


@pytest.mark.parametrize("name", ["base", "run"])
@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_is_no_folder_is_not_followed(base, tmp_path, name, kind, caplog):
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    (victim / "run").mkdir(mode=0o700)
    place = base if name == "base" else base / "run"
    place.parent.mkdir(mode=0o700, exist_ok=True)
    if kind == "link":
        place.symlink_to(victim)
    else:
        place.touch()
    write(Journal.of_this_process("run"), {})
    assert len(caplog.messages) == 1
    assert [path.name for path in victim.rglob("*")] == ["run"]


@pytest.fixture
def other():
    """Runs a command as another user of this machine."""
    if os.geteuid() != 0:
        pytest.skip("only root can make another user")
    name = f"turbo-test-{secrets.token_hex(4)}"
    if subprocess.run(["useradd", "-M", name], check=False, capture_output=True).returncode:
        pytest.skip("useradd does not work here")

    def run(*command):
        subprocess.run(list(map(str, command)), user=name, check=True, cwd="/")

    yield run
    subprocess.run(["userdel", name], check=True, capture_output=True)


@pytest.fixture
def shared():
    """A folder as /tmp is, but for the kernel's own guards, which not every machine has on."""
    folder = Path(tempfile.mkdtemp(prefix="shared-", dir="/tmp"))
    folder.chmod(0o777)
    yield folder
    subprocess.run(["rm", "-rf", folder], check=True)


def test_the_folder_of_another_user_is_not_taken(other, shared, monkeypatch, caplog):
    monkeypatch.setenv("TMPDIR", str(shared))
    written = Journal.of_this_process("run")
    base = written.path.parent.parent
    other("mkdir", "-p", "-m", "777", base, written.path.parent)
    write(written, {})
    (message,) = caplog.messages
    assert f"{base} belongs to another user" in message
    assert list(written.path.parent.iterdir()) == []


@pytest.mark.parametrize("place", ["folder", "run", "report", "old draft"])
def test_links_of_another_user_lead_nowhere(other, shared, monkeypatch, tmp_path, place):
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    (victim / "file").write_text("precious")
    monkeypatch.setenv("TMPDIR", str(shared))
    written = Journal.of_this_process("run")
    if place in ("report", "old draft"):  # in a folder that was named, and that all can write
        written = Journal(shared / "report-a.json")
        link = written.path if place == "report" else written.path.with_suffix(".tmp")
        other("ln", "-s", victim / "file", link)
    else:
        base = written.path.parent.parent
        link = base if place == "folder" else written.path.parent
        if place == "run":
            base.mkdir(mode=0o777)
            base.chmod(0o777)
        other("ln", "-s", victim, link)
    write(written, {"a": 1})
    assert [file.name for file in victim.iterdir()] == ["file"]
    assert (victim / "file").read_text() == "precious"
    if place == "report":  # the link itself was replaced
        assert not written.path.is_symlink()
        assert json.loads(written.path.read_text()) == {"a": 1}


def test_another_user_cannot_guess_a_draft(other, shared, monkeypatch, tmp_path):
    # Whatever stands at a draft's name already, it is not written to.
    monkeypatch.setattr(os, "urandom", bytes)
    written = Journal(shared / "report-a.json")
    other("ln", "-s", tmp_path / "victim", shared / f".report-a.json.{bytes(8).hex()}")
    write(written, {})
    assert isinstance(written.error, FileExistsError)
    assert not (tmp_path / "victim").exists()
