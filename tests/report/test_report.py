"""The report is live, becomes final once, and is a file that is valid at every moment."""

import pytest

from turbo_physai.report.journal import read

SOURCES = {
    "model/one.py": "def f(x): return ('old', x)\n",
    "model/two.py": "def g(x): return ('old', x)\n",
    "fast.py": "def f(x): return ('new', x)\ndef g(x): return ('new', x)\n",
}
GROUPS = """
    group('one', replace('model.one.f', 'fast.f')),
    group('two', replace('model.two.g', 'fast.g')),
    group('idle', replace('model.two.h', 'fast.g'))
"""


@pytest.fixture
def two(project):
    return project.write(SOURCES).declare(GROUPS, idle="enabled: false")


def journal(project):
    (file,) = (project.path / "reports").glob("report-*.json")
    return read(file)


def test_it_is_final_when_every_target_of_every_group_has_loaded(two):
    two.run("""
        seen = []
        report = apply()
        report.on_final(seen.append)
        assert not report.final and report.summary["pending"] == 2
        import model.one
        assert not report.final and state(report, "one") == "applied" and not seen
        import model.two
        assert report.final and seen == [report]
        assert report.summary == {
            "pending": 0, "applied": 2, "skipped": 1, "blocked": 0, "rolled_back": 0, "failed": 0,
            "not_started": 0,
        }
        report.on_final(seen.append)
        assert seen == [report] * 2
    """)
    assert journal(two)["final"] is True


def test_it_is_final_at_exit_with_the_reason_for_what_never_came(two):
    two.run("""
        import atexit
        report = apply()
        import model.one
    """)
    written = journal(two)
    assert written["final"] is True
    assert written["summary"]["not_started"] == 1
    assert written["execution"]["two"]["reason"] == "never imported: model.two.g"
    assert written["execution"]["idle"]["state"] == "skipped"


def test_a_callback_that_fails_does_not_break_the_models_import(two):
    two.run("""
        report = apply()
        report.on_final(lambda report: 1 / 0)
        import model.one, model.two
        assert report.final
    """)


def test_it_tells_where_the_objects_come_from(two):
    two.run("""
        report = apply()
        import model.one
        member, = report.execution["one"].members
        assert (member.state.value, member.module, member.times_bound) == ("bound", "model.one", 1)
        assert (member.original.name, member.original.line) == ("model.one.f", 1)
        assert member.original.file.endswith("model/one.py")
        assert member.replacement.file.endswith("fast.py")
        assert member.seconds >= 0
        assert report.optimization_config.id == "test" and report.runtime_config_path is None
        assert report.optimization_config_path.is_absolute()
        json.dumps(report.to_dict())  # plain data, as it stands
    """)
    written = journal(two)
    assert written["schema_version"] == "turbophysai/report/v1"
    assert written["prepared_execution"]["order"] == ["one", "two"]
    assert written["prepared_execution"]["environment"]["pid"] > 0


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os._exit(5)"])
def test_a_process_that_is_cut_short_leaves_its_last_state(two, end):
    two.run(f"report = apply(); import model.one; {end}", code=None)
    written = journal(two)
    assert written["final"] is False
    assert written["execution"]["one"]["state"] == "applied"
    assert written["execution"]["two"]["state"] == "pending"


def test_a_reader_never_sees_half_a_journal(two):
    two.run("""
        import threading
        report = apply()
        stop = threading.Event()
        def write():
            while not stop.is_set():
                report.changed()
        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(200):
                journal(report)
        finally:
            stop.set()
            writer.join()
    """)


def test_rank_0_logs_the_whole_report_and_other_ranks_one_line(two):
    script = "apply(log_report=True); import model.one, model.two"
    for rank, start in (
        ("0", "===== turbo_physai report "),
        ("3", "turbo_physai: rank 3: 2 applied"),
    ):
        done = two.script(script, RANK=rank)
        lines = done.stderr.splitlines()
        assert lines[0].startswith(start), done.stderr
        assert lines[-1].endswith(" end =====") if rank == "0" else len(lines) == 1
        assert done.stdout == ""


def test_a_program_that_logs_gets_the_report_in_its_log(two):
    two.run("""
        import io, logging
        stream = io.StringIO()
        logging.basicConfig(level=logging.INFO, stream=stream, format="%(name)s|%(message)s")
        apply(log_report=True)
        import model.one, model.two
        assert stream.getvalue().startswith("turbo_physai|===== turbo_physai report")
    """)


# Acceptance checks.


def test_require_raises_until_groups_are_applied_and_says_what_is_pending(two):
    two.run("""
        report = apply()
        try:
            report.require()
        except OptimizationNotAppliedError as error:
            assert error.groups == {
                "one": "not applied (pending): not imported yet: model.one.f",
                "two": "not applied (pending): not imported yet: model.two.g",
            } and error.report is report
            assert str(error).startswith("one is not applied (pending): not imported yet: model")
        else:
            raise AssertionError
        import model.one
        report.require("one")
        import model.two
        report.require()
    """)


def test_require_names_a_group_that_is_skipped_or_blocked_or_unknown(two):
    two.write({"fast.py": "def f(): ...\ndef g(x): ...\n"})
    done = two.script("""
        report = apply()
        import model.one, model.two
        for ids in ((), ("idle",), ("one", "two"), ("twoo",)):
            try:
                report.require(*ids)
            except (OptimizationNotAppliedError, ValueError) as error:
                print(type(error).__name__, str(error)[:50])
    """)
    first, second, third, fourth = done.stdout.splitlines()
    assert first == third
    assert first.startswith("OptimizationNotAppliedError one is not applied (blocked): sig")
    assert (
        second == "OptimizationNotAppliedError idle is not applied (skipped): not enabled in the "
    )
    assert fourth == "ValueError found 'twoo'; accepted: one, two, idle"


def test_a_callback_may_end_the_program_and_the_others_are_called_later(two):
    two.run("""
        seen = []
        report = apply()
        report.on_final(lambda report: sys.exit(7))
        report.on_final(seen.append)
        import model.one
        try:
            import model.two
        except SystemExit as error:
            assert error.code == 7 and report.final
        else:
            raise AssertionError
        import model.two
        assert seen == [report] and report.summary["applied"] == 2
    """)
