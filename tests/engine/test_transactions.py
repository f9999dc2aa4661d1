"""A Group is a transaction that lasts as long as its modules take to be imported."""

import pytest

MODEL = """
    class Base:
        def inherited(self):
            return "old"
    class C(Base):
        def method(self):
            return "old"
    def f(x):
        return ("old", x)
    before = {**globals()}, dict(vars(C))
"""
FAST = """
    def f(x):
        return ("new", x)
    def method(self):
        return "new"
    def failing(original, options):
        raise OSError("no driver")
    calls = []
    def interrupted(original, options):
        calls.append(original)
        if len(calls) == 1:
            raise KeyboardInterrupt("stop")
        return lambda x: ("new", x)
"""
FIRST = """
    replace('m.f', 'fast.f'), replace('m.C.method', 'fast.method'),
    replace('m.C.inherited', 'fast.method')
"""


@pytest.fixture
def model(project):
    project.write({"m.py": MODEL, "late.py": "def f(x):\n    return ('old', x)\n", "fast.py": FAST})
    return project.write({"user.py": "from m import f\nclass Holds:\n    act = f\n"})


@pytest.mark.parametrize("failing", ["wrap('late.f', 'fast.failing')", "wrap('late.f', 'fast.f')"])
def test_a_later_failure_takes_everything_back_by_identity(model, failing):
    """Captured references too, also those made in between; what was absent is absent again."""
    model.declare(f"group('g', {FIRST}, {failing})")
    model.run("""
        import user      # captured before
        report = apply()
        import m
        made = m.C()
        assert m.f is user.f is user.Holds.act
        assert made.method() == made.inherited() == "new"
        assert state(report) == "pending" and report.summary["pending"] == 1
        assert [x.state.value for x in report.execution["g"].members] == ["bound"] * 3 + ["waiting"]
        import late
        group = report.execution["g"]
        assert state(report) == "rolled_back" and report.final, str(report)
        original = m.before[0]["f"]
        assert m.f is user.f is user.Holds.act is original
        assert {**vars(m)}.items() >= {k: v for k, v in m.before[0].items() if k[0] != "_"}.items()
        assert vars(m.C)["method"] is m.before[1]["method"] and "inherited" not in vars(m.C)
        assert made.method() == made.inherited() == "old" and late.f(1) == ("old", 1)
        assert [x.state.value for x in group.members] == ["restored"] * 3 + ["waiting"]
        assert "late.f" in group.reason and group.members[3].error is not None
        importlib.reload(m)
        assert m.f(1) == ("old", 1) and m.C().method() == "old"
    """)


def test_what_cannot_be_restored_leaves_the_import_as_an_error(model):
    """Somebody else wrote over the replacement: nobody knows any more what this process runs."""
    model.declare(f"""
        group('g', {FIRST}, wrap('late.f', 'fast.failing')),
        group('needs', replace('user.f', 'fast.f'), depends_on=['g'])
    """)
    model.run("""
        report = apply()
        import m
        original = m.before[0]["f"]
        m.C.method = lambda self: "somebody else's"
        for attempt in 1, 2:
            try:
                import late
            except OptimizationRollbackError as error:
                assert not isinstance(error, ImportError) and attempt == 1
                assert error.report is report and "g could not be restored" in str(error)
                assert "'method' of the class m.C" in str(error)
        assert state(report) == "failed" and report.final and report.summary["failed"] == 1
        assert m.C().method() == "somebody else's"  # not overwritten
        assert m.f is original and "inherited" not in vars(m.C)  # all the others were restored
        assert state(report, "needs") == "not_started"
        assert json.load(open(report.journal.path))["execution"]["g"]["state"] == "failed"
    """)


def test_an_interrupted_binding_is_made_by_the_next_import(model):
    model.declare(f"group('g', {FIRST}, wrap('late.f', 'fast.interrupted'))")
    model.run("""
        report = apply()
        import m, fast
        try:
            import late
        except KeyboardInterrupt as error:
            assert error.args == ("stop",) and error.__context__ is error.__cause__ is None
        else:
            raise AssertionError
        assert state(report) == "pending" and len(fast.calls) == 1 and "late" not in sys.modules
        assert [x.state.value for x in report.execution["g"].members] == ["bound"] * 3 + ["waiting"]
        import late
        assert late.f(1) == ("new", 1) and state(report) == "applied" and len(fast.calls) == 2
    """)


def test_an_interrupt_while_a_reloaded_module_is_bound_takes_the_group_back(model):
    """Nobody imports it once more, so it would show its originals in an applied Group."""
    model.write({"fast.py": FAST.replace("== 1", "== 2")})
    model.declare(f"group('g', {FIRST}, wrap('late.f', 'fast.interrupted'))")
    model.run("""
        report = apply()
        import m, late, fast
        assert state(report) == "applied"
        try:
            importlib.reload(late)
        except KeyboardInterrupt as error:
            assert error.args == ("stop",)
        else:
            raise AssertionError
        assert state(report) == "rolled_back" and "KeyboardInterrupt" in str(report)
        assert m.f is m.before[0]["f"] and late.f(1) == ("old", 1) and len(fast.calls) == 2
    """)


def test_a_dependent_group_binds_when_its_dependency_is_applied(model):
    """Its modules may come first: they run on the original until then."""
    model.write({"mid.py": "def f(x):\n    return ('old', x)\n"})
    model.declare("""
        group('third', replace('user.Holds.act', 'fast.f'), depends_on=['second']),
        group('second', replace('m.f', 'fast.f'), depends_on=['first']),
        group('first', replace('late.f', 'fast.f'), replace('mid.f', 'fast.f'))
    """)
    model.run("""
        report = apply()
        assert report.prepared_execution.order == ("first", "second", "third")
        import m, user, late
        assert m.f(1) == user.f(1) == ("old", 1) and late.f(1) == ("new", 1)
        assert report.summary["pending"] == 3
        import mid, fast
        assert m.f is user.f is fast.f and user.Holds.act(1) == ("new", 1)
        assert report.summary["applied"] == 3 and report.final, str(report)
        assert report.execution["second"].members[0].captured[:1] == ["user.f"]
    """)


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ("wrap('late.f', 'fast.failing')", "rolled_back"),
        ("replace('late.missing', 'fast.f')", "blocked"),
    ],
)
def test_a_dependency_that_fails_strands_and_takes_back_its_dependents(model, first, reason):
    model.declare(f"""
        group('first', {first}), group('second', replace('m.f', 'fast.f'), depends_on=['first']),
        group('third', replace('m.C.method', 'fast.method'), depends_on=['second'])
    """)
    model.run(f"""
        report = apply()
        import m, late
        assert m.f(1) == ("old", 1) and m.C().method() == "old"
        assert state(report, "first") == {reason!r}
        assert state(report, "second") == state(report, "third") == "not_started" and report.final
        assert report.execution["second"].reason == "depends on first, which is {reason}"
        assert "depends on second" in report.execution["third"].reason
    """)


def test_a_dependency_that_is_applied_and_later_fails_takes_its_dependents_with_it(model):
    """A module that runs again is checked again, and then a factory may refuse it."""
    model.write(
        {
            "fast.py": FAST
            + """
    def once(original, options, ran=[]):
        ran.append(1)
        if len(ran) > 1:
            raise OSError
        return lambda x: ("new", x)
    """
        }
    )
    model.declare("""
        group('first', wrap('late.f', 'fast.once')),
        group('second', replace('m.f', 'fast.f'), depends_on=['first'])
    """)
    model.run("""
        report = apply()
        import late, m
        assert report.summary["applied"] == 2 and m.f(1) == ("new", 1)
        importlib.reload(late)
        assert state(report, "first") == state(report, "second") == "rolled_back", str(report)
        assert m.f is m.before[0]["f"] and late.f(1) == ("old", 1)
    """)


def test_a_dependency_that_is_never_imported_leaves_its_dependents_not_started(model):
    model.declare("""
        group('first', replace('late.f', 'fast.f')),
        group('second', replace('m.f', 'fast.f'), depends_on=['first'])
    """)
    model.run("""
        import atexit
        report = apply()
        import m
        assert m.f(1) == ("old", 1)
        atexit._run_exitfuncs()
        assert report.final and report.summary["not_started"] == 2
        assert report.execution["first"].reason == "never imported: late.f"
        assert report.execution["second"].reason == "depends on first, which is not_started"
    """)


@pytest.mark.parametrize("imported", ["", "import pkg", "import pkg.b"])
def test_an_optional_group_is_skipped_when_nothing_that_it_changes_is_imported(model, imported):
    model.write({"pkg/a.py": "def f(x): return x\n", "pkg/b.py": "def f(x): return x\n"})
    model.declare(
        """
        group('first', replace('pkg.a.f', 'fast.f'), replace('late.f', 'fast.f')),
        group('second', replace('late.g', 'fast.f'), depends_on=['first']),
        group('other', replace('late.h', 'fast.f'))
        """,
        first="optional: true",
        second="optional: true",
    )
    model.run(f"""
        import atexit
        report = apply()
        {imported}
        atexit._run_exitfuncs()
        assert report.final and report.summary["skipped"] == 2
        first, second = report.execution["first"], report.execution["second"]
        assert first.reason == "optional, and never imported: pkg.a.f; never imported: late.f"
        assert second.reason.startswith("optional, and never imported: late.g")
        assert state(report, "other") == "not_started"
    """)


@pytest.mark.parametrize(
    ("late", "ends"),
    [
        ("def f(x): return x\n", "not_started"),  # half of it is not what it was made for
        ("", "blocked"),  # nor is another version of it
    ],
)
def test_an_optional_group_of_which_anything_is_imported_is_judged_as_any_other(model, late, ends):
    model.write({"pkg/a.py": "def f(x): return x\n", "late.py": late})
    first = "group('first', replace('pkg.a.f', 'fast.f'), replace('late.f', 'fast.f'))"
    model.declare(first, first="optional: true")
    model.run(f"""
        import atexit
        report = apply()
        import pkg.a
        atexit._run_exitfuncs()
        assert state(report, "first") == "{ends}", report
    """)


ORDERS = {
    "a circle": (
        "group('a', replace('m.f', 'fast.f'), depends_on=['b']),"
        "group('b', replace('late.f', 'fast.f'), depends_on=['a'])",
        "a circle: ",
    ),
    "a missing Group": (
        "group('a', replace('m.f', 'fast.f'), depends_on=['gone'])",
        "found 'gone'; accepted: a Group of this config",
    ),
    "an ordinary Group before one that changes imports": (
        "group('a', optional_import('x'), depends_on=['b']), group('b', replace('m.f', 'fast.f'))",
        "import-compatibility declarations only",
    ),
}


@pytest.mark.parametrize(("groups", "message"), ORDERS.values(), ids=ORDERS)
def test_dependencies_that_cannot_be_met_are_errors_of_the_config(model, groups, message):
    model.declare(groups)
    model.run(f"""
        finders = list(sys.meta_path)
        for start in check, apply:
            try:
                start()
            except OptimizationConfigError as error:
                assert {message!r} in str(error), str(error)
            else:
                raise AssertionError
        assert sys.meta_path == finders
    """)


def test_a_second_claim_on_a_target_blocks_the_later_group(model):
    """However it is spelled, and also when only an alias is claimed."""
    model.declare("""
        group('first', replace('m.f', 'fast.f', aliases=['user.f'])),
        group('second', wrap('m:f', 'fast.failing'), replace('late.f', 'fast.f')),
        group('third', replace('user.f', 'fast.f')),
        group('fourth', replace('m.C.method', 'fast.method'), depends_on=['second'])
    """)
    model.run("""
        report = apply()
        import m, user, late
        assert m.f(1) == user.f(1) == ("new", 1) and late.f(1) == ("old", 1)
        assert state(report, "first") == "applied"
        assert state(report, "second") == state(report, "third") == "blocked"
        assert report.execution["second"].reason == (
            "conflict of m.f: the Group first already changes it")
        assert "conflict of user.f" in report.execution["third"].reason
        assert state(report, "fourth") == "not_started"
    """)
