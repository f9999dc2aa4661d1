"""A Replacement can report metrics of its own, long after it was bound."""

from turbo_physai.report.journal import read

MODEL = {"model.py": "def f(x): return x\n"}
COUNTING = """
    import turbo_physai

    def counting(f, options):
        held, calls = turbo_physai.metrics(), 0

        def counted(x):
            nonlocal calls
            calls += 1
            held.set(calls={"all": calls})
            if x < 0:
                held.warn("negative")
            return f(x)

        return counted
"""


def journal(project):
    (file,) = (project.path / "reports").glob("report-*.json")
    return read(file)["execution"]["g"]


def test_what_it_reports_after_the_report_was_final_is_in_the_journal(project):
    project.write({**MODEL, "metered.py": COUNTING})
    project.declare("group('g', wrap('model.f', 'metered.counting'))")
    printed = project.run("""
        report = apply()
        import model
        assert report.final and report.execution["g"].members[0].metrics == {}
        model.f(1), model.f(-1), model.f(-1)
        print(report, flush=True)
        os._exit(0)
    """)
    assert journal(project)["members"][0]["metrics"] == {"calls": {"all": 3}}
    assert journal(project)["warnings"] == ["negative"]
    assert "    - calls: all 3\n" in printed
    assert "- warning: negative\n" in printed


def test_a_forked_child_reports_nothing_in_its_parents_name(project):
    project.write({**MODEL, "metered.py": COUNTING})
    project.declare("group('g', wrap('model.f', 'metered.counting'))")
    project.run("""
        apply()
        import model
        child = os.fork()
        model.f(1)
        if child == 0:
            model.f(1)
            os._exit(0)
        os.waitpid(child, 0)
    """)
    assert journal(project)["members"][0]["metrics"] == {"calls": {"all": 1}}


ODD = """
    class Hostile:
        def __repr__(self):
            raise ValueError
    cycle = []
    cycle.append(cycle)
    VALUES = [{(1, 2): 3}, Hostile(), {Hostile(): 1}, float("nan"), cycle, b"\\xff", {1}, "\\ud800",
              10 ** 5000, "x" * 10 ** 7, [0] * 10 ** 6]
"""


def test_no_value_raises_into_the_model_or_breaks_the_report(project):
    project.write({**MODEL, "odd.py": ODD, "late.py": "def f(x): return x\n"})
    project.write(
        {
            "odd_factory.py": """
                import odd, turbo_physai
                def factory(f, options):
                    metrics = turbo_physai.metrics()
                    for value in odd.VALUES:  # while it is bound
                        metrics.set(at_once=value)
                    def run(x):
                        metrics.set(**{f"n{i}": value for i, value in enumerate(odd.VALUES)})
                        for value in odd.VALUES:
                            metrics.warn(value)
                        metrics.set(**{f"many{i}": i for i in range(1000)})
                        for i in range(1000):
                            metrics.warn(f"warning {i}")
                        return f(x)
                    return run
            """
        }
    )
    project.declare("""
        group('g', wrap('model.f', 'odd_factory.factory')),
        group('late', wrap('late.f', 'odd_factory.factory'))
    """)
    printed = project.run("""
        report = apply()
        import model
        assert model.f(1) == 1 and state(report) == "applied"
        import late
        assert report.final and report.summary["applied"] == 2
        group = report.execution["g"]
        assert len(group.members[0].metrics) == len(group.warnings) == 100
        print(report)
    """)
    found = journal(project)
    assert found["members"][0]["metrics"]["n0"] == {"(1, 2)": 3}
    assert found["state"] == "applied"
    assert "n1: <Hostile: its __repr__ raises ValueError>" in printed


def test_metrics_are_copied(project):
    project.write(
        {
            **MODEL,
            "kept.py": """
        import turbo_physai
        COUNTS = {}
        def factory(f, options):
            turbo_physai.metrics().set(counts=COUNTS)
            return lambda x: f(x)
    """,
        }
    )
    project.declare("group('g', wrap('model.f', 'kept.factory'))")
    project.run("""
        report = apply()
        import model, kept
        kept.COUNTS[kept] = 1
        assert report.execution["g"].members[0].metrics == {"counts": {}}
    """)


def test_a_journal_that_cannot_be_written_does_not_raise_into_the_model(project):
    project.write({**MODEL, "metered.py": COUNTING})
    project.declare("group('g', wrap('model.f', 'metered.counting'))")
    project.run("""
        report = apply()
        import model
        def broken(report):
            raise RuntimeError
        report.journal.write = broken
        assert model.f(-1) == -1
        assert report.execution["g"].members[0].metrics == {"calls": {"all": 1}}
    """)


def test_outside_of_a_factory_they_are_discarded():
    import turbo_physai

    turbo_physai.metrics().set(calls=1)
    turbo_physai.metrics().warn("discarded")
    assert turbo_physai.metrics() is turbo_physai.metrics()
