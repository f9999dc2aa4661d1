"""A journal is one process's file, replaced as a whole."""

import json

from turbo_physai.report import Journal, journal


def test_its_name_tells_the_run_the_host_and_the_process(tmp_path, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "node7")
    monkeypatch.setattr("os.getpid", lambda: 42)
    monkeypatch.setenv("TURBO_PHYSAI_REPORT_DIR", str(tmp_path))
    assert journal.place("run") == tmp_path / "report-run-node7-42.json"
    assert journal.place("run", tmp_path / "a") == tmp_path / "a" / "report-run-node7-42.json"
    monkeypatch.delenv("TURBO_PHYSAI_REPORT_DIR")
    assert journal.place("run").parent.name == "run"


def test_a_relative_folder_stays_where_it_was_when_the_program_moves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert journal.place("run", "out").parent == tmp_path / "out"


def test_it_is_replaced_and_nothing_else_remains(tmp_path):
    written = Journal(tmp_path / "new" / "report-a.json")
    for state in ({"a": 1}, {"a": 2}):
        written.write(state)
        assert json.loads(written.path.read_text()) == state
    assert [file.name for file in written.path.parent.iterdir()] == ["report-a.json"]


def test_a_folder_that_cannot_be_written_does_not_stop_a_training(tmp_path):
    (tmp_path / "file").touch()
    written = Journal(tmp_path / "file" / "report-a.json")
    written.write({})
    assert isinstance(written.error, OSError)


def test_a_full_disk_leaves_the_old_state(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError("no space left on device")

    written = Journal(tmp_path / "report-a.json")
    written.write({"a": 1})
    monkeypatch.setattr("pathlib.Path.write_text", full)
    written.write({"a": 2})
    assert "no space" in str(written.error)
    assert json.loads(written.path.read_text()) == {"a": 1}
