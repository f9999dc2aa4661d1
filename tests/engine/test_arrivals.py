"""Targets that are imported without our finder are noticed as soon as anything can tell of them."""

from __future__ import annotations

import pytest

OLD = "def f(x):\n    return 'old'\nclass C:\n    def m(self):\n        return 'old'\n"
FAST = "def f(x):\n    return 'new'\ndef m(self):\n    return 'new'\n"
APPLY = "import turbo_physai, sys\nsys.report = turbo_physai.apply(optimization_config_path={!r})\n"
FINDER = """
    import importlib.machinery, sys
    class Answering:
        "Finds the target by itself, without asking the others."
        def __init__(self, name="pkg.model"):
            self.name = name
        def find_spec(self, name, path=None, target=None):
            if name == self.name:
                return importlib.machinery.PathFinder.find_spec(name, path, target)
    class Pushy(Answering):
        def find_spec(self, name, path=None, target=None):
            if sys.meta_path[0] is not self:
                sys.meta_path.insert(0, self)
            return super().find_spec(name, path, target)
"""


@pytest.fixture
def model(project):
    project.write({"pkg/model.py": OLD, "fast.py": FAST, "finders.py": FINDER})
    project.write({"new1.py": "", "new2.py": "", "user.py": "from pkg.model import f\n"})
    return project.declare(
        "group('g', replace('pkg.model.f', 'fast.f'), replace('pkg.model.C.m', 'fast.m'))"
    )


APPLIED = """
        report = sys.report
        assert state(report) == "applied" and report.final, str(report)
        assert f(1) == pkg.model.f(1) == pkg.model.C().m() == "new"
        found, = (c for c in report.prepared_execution.groups["g"].checks
                  if c.name == "imported_before")
        assert found.outcome == "warning" and "when turbo_physai.apply() was called" in found.reason
"""


@pytest.mark.parametrize("deep", [0, 1, 2])
def test_apply_from_inside_the_import_of_its_target(model, deep):
    """The rest of the body defines the targets after `apply` has returned, in the target itself or
    in what it imports."""
    apply = APPLY.format(str(model.path / "optimization.yaml"))
    files = {"pkg/model.py": apply + OLD}
    if deep:
        files = {"pkg/model.py": "import deep1\n" + OLD, f"deep{deep}.py": apply}
    if deep == 2:
        files["deep1.py"] = "import deep2\n"
    model.write(files)
    model.run(f"""
        from pkg.model import f
        import pkg
        {APPLIED}
    """)


def test_apply_from_the_package_that_holds_the_target(model):
    apply = APPLY.format(str(model.path / "optimization.yaml"))
    model.write({"pkg/__init__.py": apply + "from pkg.model import f\n" + OLD})
    model.declare("""
        group('g', replace('pkg.f', 'fast.f', aliases=['pkg.model.f']),
              replace('pkg.C.m', 'fast.m'))
    """)
    model.write(
        {
            "pkg/__init__.py": apply
            + OLD.replace("def f(x)", "def g(x)")
            + "from pkg.model import f\n"
        }
    )
    model.run("""
        from pkg import f, C
        import pkg.model
        assert state(sys.report) == "applied", str(sys.report)
        assert f(1) == pkg.model.f(1) == C().m() == "new"
    """)


def test_apply_from_another_thread_while_the_target_is_imported(model):
    model.write({"pkg/model.py": "import handshake\nhandshake.wait()\n" + OLD})
    model.write(
        {
            "handshake.py": """
                import threading
                inside, applied = threading.Event(), threading.Event()
                def wait():
                    inside.set()
                    assert applied.wait(20)
            """
        }
    )
    model.run(f"""
        import handshake, threading
        def work():
            handshake.inside.wait(20)
            sys.report = apply()
            handshake.applied.set()
        thread = threading.Thread(target=work)
        thread.start()
        from pkg.model import f
        import pkg
        {APPLIED}
        thread.join()
    """)


def test_apply_from_inside_a_reload_of_its_target(model):
    """The import system does not call a module unfinished that is reloaded."""
    apply = APPLY.format(str(model.path / "optimization.yaml"))
    model.write(
        {
            "pkg/model.py": "import sys\nif hasattr(sys, 'ready'):\n"
            + "".join(f"    {line}\n" for line in apply.splitlines())
            + OLD
        }
    )
    model.run(f"""
        import pkg.model
        sys.ready = True
        importlib.reload(pkg.model)
        from pkg.model import f
        {APPLIED}
    """)


def test_apply_inside_an_import_that_then_fails(model):
    apply = APPLY.format(str(model.path / "optimization.yaml"))
    model.write(
        {
            "pkg/model.py": "import sys\nif not hasattr(sys, 'report'):\n"
            + "".join(f"    {line}\n" for line in apply.splitlines())
            + "    raise ValueError\n"
            + OLD
        }
    )
    model.run("""
        try:
            import pkg.model
        except ValueError:
            pass
        assert state(sys.report) == "pending"
        from pkg.model import f
        assert f(1) == "new" and state(sys.report) == "applied"
    """)


def test_a_target_that_waits_to_be_loaded_when_apply_runs(model):
    model.run("""
        import importlib.util, pkg
        spec = importlib.util.find_spec("pkg.model")
        spec.loader = importlib.util.LazyLoader(spec.loader)
        lazy = sys.modules["pkg.model"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(lazy)
        report = apply()
        assert state(report) == "pending"
        assert lazy.f(1) == "new" and state(report) == "applied"
    """)


def test_a_finder_in_front_loses_its_place_at_the_next_import(model):
    """Any import will do, and the target is then found by us, with nothing to warn of."""
    done = model.script("""
        import finders
        report = apply()
        other = finders.Answering()
        sys.meta_path.insert(0, other)
        import new1, user
        assert user.f(1) == "new" and state(report) == "applied", str(report)
        names = [type(each).__name__ for each in sys.meta_path]
        assert names[:2] == ["WatchingFinder", "Answering"], names
        assert not any(c.outcome == "warning" and c.name != "trust"
                       for c in report.prepared_execution.groups["g"].checks)
        sys.meta_path.remove(other)
        import new2
    """)
    assert "turbo_physai" not in done.stderr


def test_what_a_finder_in_front_has_found_is_bound_when_its_import_ends(model):
    """The body of the target imports something, so we hear of it in time."""
    model.write({"pkg/model.py": "import new1\n" + OLD})
    done = model.script("""
        import finders
        import pkg
        report = apply()
        sys.meta_path.insert(0, finders.Answering())
        from pkg.model import f
        assert f(1) == "new" and state(report) == "applied", str(report)
        assert report.execution["g"].members[0].captured == []
    """)
    assert "pkg.model: it was found by finders.Answering, a finder in front of" in done.stderr


def test_what_a_finder_in_front_has_found_is_bound_at_the_next_import_at_the_latest(model):
    done = model.script("""
        import finders
        import pkg
        report = apply()
        sys.meta_path.insert(0, finders.Answering())
        from pkg.model import f
        assert f(1) == "old" and state(report) == "pending"
        import new1
        assert f(1) == pkg.model.f(1) == "new" and state(report) == "applied", str(report)
        assert report.execution["g"].members[0].captured == ["__main__.f"]
    """)
    (line,) = done.stderr.splitlines()
    assert line.startswith("turbo_physai: pkg.model: it was found by finders.Answering")
    assert line.endswith("(Groups: g)")


def test_a_finder_that_insists_on_its_place_is_warned_of(model):
    """We do not fight over it: each of the two would move at each import."""
    done = model.script("""
        import finders
        report = apply()
        sys.meta_path.insert(0, finders.Pushy())
        import new1, new2, fast
        ours = [each for each in sys.meta_path if type(each).__name__ == "WatchingFinder"]
        assert len(ours) == 2, ours
        import colorsys, quopri
        assert len(sys.meta_path) < 12
        checks = report.prepared_execution.groups["g"].checks
        assert [c.name for c in checks if "finders.Pushy keeps putting itself" in c.reason]
    """)
    assert "finders.Pushy keeps putting itself in front of turbo_physai's finder" in done.stderr


@pytest.mark.parametrize(
    "remove",
    ["sys.meta_path = [f for f in sys.meta_path if f is not ours]", "del sys.meta_path[0]"],
)
def test_a_finder_of_ours_that_was_removed_is_told_of_at_the_end_at_the_latest(model, remove):
    done = model.script(f"""
        import atexit
        report = apply()
        ours = sys.meta_path[0]
        {remove}
        import user
        assert user.f(1) == "old"
        atexit._run_exitfuncs()
        assert state(report) == "not_started" and report.final
        checks = report.prepared_execution.groups["g"].checks
        assert any("was removed from sys.meta_path" in c.reason for c in checks), str(report)
    """)
    assert "turbo_physai's finder was removed from sys.meta_path" in done.stderr


def test_pytest_and_typeguard_like_hooks_may_come_and_go(model):
    """Put in front, taken away by value, put in front again: both do their work each time."""
    model.run("""
        import importlib.machinery
        class Rewriting(importlib.machinery.SourceFileLoader):
            def exec_module(self, module):
                super().exec_module(module)
                module.rewritten = True
        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name == "pkg.model":
                    spec = importlib.machinery.PathFinder.find_spec(name, path, target)
                    spec.loader = Rewriting(spec.loader.name, spec.loader.path)
                    return spec
        report = apply()
        for module in "new1", "new2", "colorsys":
            finder = Finder()
            sys.meta_path.insert(0, finder)
            importlib.import_module(module)
            import pkg.model
            assert pkg.model.f(1) == "new" and pkg.model.rewritten
            sys.meta_path.remove(finder)
            del sys.modules["pkg.model"]
        assert state(report) == "applied"
    """)
