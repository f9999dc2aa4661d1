"""Targets that were imported without our finder are noticed as soon as possible, and bound."""

import pytest

MODEL = "def f(x): return ('old', x)\n"
FAST = "def f(x): return ('new', x)\n"


@pytest.fixture
def model(project):
    return project.write({"model.py": MODEL, "other.py": MODEL, "fast.py": FAST}).declare(
        "group('g', replace('model.f', 'fast.f'))"
    )


# apply() in the middle of the target's own import.

APPLY = "import turbo_physai\nturbo_physai.apply(optimization_config_path='optimization.yaml')\n"
HALF_IMPORTED = {
    "by the target itself": {"model.py": APPLY + MODEL},
    "at its end": {"model.py": MODEL + APPLY},
    "by a module that it imports": {"model.py": "import setup\n" + MODEL, "setup.py": APPLY},
    "two levels down": {
        "model.py": MODEL + "import one\n",
        "one.py": "import two\n",
        "two.py": APPLY,
    },
    "in a thread": {
        "model.py": "import threading, setup\n"
        "thread = threading.Thread(target=setup.go)\nthread.start()\nthread.join()\n" + MODEL,
        "setup.py": "def go():\n    " + APPLY.replace("\n", "\n    ", 1),
    },
}


@pytest.mark.parametrize("case", HALF_IMPORTED)
def test_apply_inside_of_the_targets_own_import_binds_when_that_ends(model, case):
    model.write(HALF_IMPORTED[case])
    model.run("""
        from turbo_physai import api
        import model
        report = api._first.report
        assert model.f(1) == ("new", 1), str(report)
        assert state(report) == "applied" and report.final
    """)


def test_apply_in_the_init_of_the_targets_package(project):
    project.write({"pkg/__init__.py": APPLY + "from pkg.model import f\n", "pkg/model.py": MODEL})
    project.write({"fast.py": FAST}).declare("""
        group('g', replace('pkg.model.f', 'fast.f')), group('h', inject('pkg', 'n', 'fast.f'))
    """)
    project.run("""
        from turbo_physai import api
        import pkg
        report = api._first.report
        assert pkg.f(1) == pkg.model.f(1) == pkg.n(1) == ("new", 1), str(report)
        assert report.summary["applied"] == 2
    """)


def test_a_half_imported_target_that_fails_is_bound_by_its_next_import(model):
    once = "import flag\nif not flag.one:\n    " + APPLY.rstrip().replace("\n", "\n    ")
    model.write({"model.py": f"{once}\n1 / flag.one\n{MODEL}", "flag.py": "one = 0\n"})
    model.run("""
        from turbo_physai import api
        import flag
        try:
            import model
        except ZeroDivisionError:
            flag.one = 1
        import model
        assert model.f(1) == ("new", 1) and state(api._first.report) == "applied"
    """)


# Finders that were put in front.

IN_FRONT = """
import importlib.machinery
class InFront:
    "Loads the modules that it is for itself, as typeguard's import hook does."
    def find_spec(self, name, path=None, target=None):
        if name == "model":
            return importlib.machinery.PathFinder.find_spec(name, path)
class Polite:
    def find_spec(self, name, path=None, target=None):
        return None
report = apply()
"""


def test_a_target_that_a_finder_in_front_loads_is_bound_at_the_next_import_of_anything(model):
    done = model.script(
        IN_FRONT
        + """
sys.meta_path.insert(0, InFront())
import model
import colorsys
assert model.f(1) == ("new", 1), str(report)
assert state(report) == "applied"
"""
    )
    assert "a finder in front of turbo_physai's on sys.meta_path" in done.stderr


def test_the_finder_returns_to_the_front(model):
    model.run(
        IN_FRONT
        + """
sys.meta_path.insert(0, Polite())
import wave
assert type(sys.meta_path[0]).__name__ == "WatchingFinder"
sys.meta_path.insert(1, InFront())
import model
assert model.f(1) == ("new", 1) and state(report) == "applied"
"""
    )


@pytest.mark.parametrize(
    "removal",
    [
        "sys.meta_path[:] = [f for f in sys.meta_path if 'turbo' not in type(f).__module__]",
        "sys.meta_path = [f for f in sys.meta_path if 'turbo' not in type(f).__module__]",
    ],
    ids=["removed", "another list"],
)
def test_a_removed_finder_is_noticed_at_the_latest_at_the_end(model, removal):
    done = model.script(f"""
        report = apply()
        {removal}
        import model
        print(model.f(1)[0])
    """)
    assert "turbo_physai" in done.stderr
    assert "finder was removed from sys.meta_path" in done.stderr or "not applied" in done.stderr
