"""A Replacement can tell the report of itself, long after it was bound."""

import json

MODEL = {"model.py": "def f(x): return x\n"}
TELLING = """
    import turbo_physai

    def counting(f, options):
        told, calls = turbo_physai.metrics(), 0

        def counted(x):
            nonlocal calls
            calls += 1
            told.set(calls={"all": calls})
            if x < 0:
                told.warn("negative")
            return f(x)

        return counted
"""


def journal(project):
    (file,) = (project.path / "reports").glob("report-*.json")
    return json.loads(file.read_text())["execution"]["g"]


def test_what_it_tells_after_the_report_was_final_is_in_the_journal(project):
    project.write({**MODEL, "telling.py": TELLING})
    project.declare("group('g', wrap('model.f', 'telling.counting'))")
    printed = project.run("""
        report = apply()
        import model
        assert report.final and report.execution["g"].members[0].metrics == {}
        model.f(1), model.f(-1), model.f(-1)
        print(report)
        os._exit(0)
    """)
    assert journal(project)["members"][0]["metrics"] == {"calls": {"all": 3}}
    assert journal(project)["warnings"] == ["negative"]
    assert "    - calls: all 3\n" in printed
    assert "- warning: negative\n" in printed


def test_a_forked_child_tells_nothing_in_its_parents_name(project):
    project.write({**MODEL, "telling.py": TELLING})
    project.declare("group('g', wrap('model.f', 'telling.counting'))")
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


def test_outside_of_a_factory_nobody_listens():
    import turbo_physai

    turbo_physai.metrics().set(calls=1)
    turbo_physai.metrics().warn("nobody hears")
