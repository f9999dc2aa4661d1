"""Whoever holds the original of a target is found: changed with it, or counted and named."""

import pytest

MODEL = """
    def f(x):
        return ("old", x)
    class C:
        def method(self):
            return "old"
"""
FAST = """
    def f(x):
        return ("new", x)
    class C:
        def method(self):
            return "new"
"""
USER = """
    import functools
    from model import f, f as g
    class Inside:
        act = f
        static = staticmethod(f)
        class Deeper:
            act = f
"""


@pytest.fixture
def model(project):
    project.write({"model.py": MODEL, "fast.py": FAST, "user.py": USER})
    return project.declare("group('g', replace('model.f', 'fast.f'))")


def test_names_that_captured_the_original_change_with_it(model):
    """The module was imported before; afterwards the names are captured by themselves."""
    model.write({"late.py": "from model import f\n"})
    model.run("""
        import user, model
        report = apply()
        import late, fast
        assert model.f is user.f is user.g is late.f is fast.f
        assert user.Inside.act is user.Inside.Deeper.act is fast.f
        member, = report.execution["g"].members
        assert set(member.captured) == {
            "user.f", "user.g", "user.Inside.act", "user.Inside.Deeper.act"}, member.captured
        assert member.left == ["user.Inside.static"], member.left
        assert state(report) == "applied" and report.final
        assert "also changed: " in str(report)
    """)


def test_a_package_that_captures_in_its_init_is_in_time(project):
    project.write(
        {
            "pkg/__init__.py": "from pkg.ops import f\nfrom pkg.ops import *\nTABLE = {'f': f}\n",
            "pkg/ops.py": MODEL,
            "pkg/user.py": "from pkg import f\nfrom pkg.ops import f as g\nfrom pkg import TABLE\n",
            "fast.py": FAST,
        }
    )
    project.declare("group('g', replace('pkg.ops.f', 'fast.f'))")
    project.run("""
        report = apply()
        import pkg.user, fast
        assert pkg.f is pkg.user.f is pkg.user.g is pkg.TABLE["f"] is fast.f
        member, = report.execution["g"].members
        assert member.captured == member.left == []
    """)


def test_aliases_change_in_the_same_transaction(model):
    """What cannot be found by itself, such as an entry of a table, can be declared."""
    model.write({"user.py": USER + "    TABLE = {'f': f}\n"})
    model.declare("""
        group('g', replace('model.f', 'fast.f', aliases=['user.TABLE.f', 'user.f']),
                   replace('model.C', 'fast.missing'))
    """)
    model.run("""
        import user, model
        held = model.f,
        report = apply()
        assert state(report) in ("blocked", "rolled_back")
        assert model.f is user.f is user.TABLE["f"] is user.Inside.act is held[0]
    """)
    model.declare("""
        group('g', replace('model.f', 'fast.f', aliases=['user.TABLE.f', 'user.f']))
    """)
    model.run("""
        import user, model
        report = apply()
        import fast
        assert model.f is user.f is user.TABLE["f"] is fast.f
        assert "user.f" not in report.execution["g"].members[0].captured
    """)


def test_a_circular_import_that_captures_too_early_is_put_right(project):
    """`pk.b` takes the name while the body of `pk.a` still runs: no hook can be in time."""
    project.write(
        {
            "pk/a.py": MODEL + "\n    import pk.b\n",
            "pk/b.py": "from pk.a import f\nseen = f\ndef user(x, function=f):\n    return f(x)\n",
            "fast.py": FAST,
        }
    )
    project.declare("group('g', replace('pk.a.f', 'fast.f'))")
    project.run("""
        report = apply()
        import pk.a, fast
        assert pk.a.f is pk.b.f is pk.b.seen is fast.f and pk.b.user(1) == ("new", 1)
        member, = report.execution["g"].members
        assert set(member.captured) == {"pk.b.f", "pk.b.seen"}
        assert member.left == ["pk.b.user"]
    """)


def test_a_module_that_is_still_being_imported_is_asked_when_it_is_complete(project):
    """A Group that waited for another binds late, in the middle of a module that nobody watches."""
    project.write(
        {
            "model.py": MODEL,
            "other.py": MODEL,
            "user.py": "from model import f\nearly = f\nimport other\nat_once = f\n",
            "outer.py": "from model import f\nimport user\n",
            "fast.py": FAST,
        }
    )
    project.declare("""
        group('first', replace('other.f', 'fast.f')),
        group('g', replace('model.f', 'fast.f'), depends_on=['first'])
    """)
    project.run("""
        report = apply()
        import outer, user, fast, model
        assert model.f is fast.f
        assert user.f is user.early is user.at_once is outer.f is fast.f
        member, = report.execution["g"].members
        assert set(member.captured) == {"user.f", "user.early", "user.at_once", "outer.f"}
        assert state(report) == "applied"
    """)


HOLDERS = {
    "default argument": "def user(x, fn=f): return fn(x)",
    "keyword default": "def user(x, *, fn=f): return fn(x)",
    "closure": "def make(fn):\n    def inner(x): return fn(x)\n    return inner\nuser = make(f)",
    "partial": "import functools\nuser = functools.partial(f)",
    "tuple": "user = (f,)",
    "list": "user = [f]",
    "table": "user = {'f': f}",
    "static method": "class Inside:\n    user = staticmethod(f)",
    "method's default": "class Inside:\n    def user(self, fn=f): ...",
}


@pytest.mark.parametrize("text", HOLDERS.values(), ids=HOLDERS)
def test_holders_that_cannot_be_changed_are_named(model, text):
    model.write({"user.py": "from model import f\n" + text})
    model.run("""
        import user
        report = apply()
        member, = report.execution["g"].members
        name = "user.Inside.user" if hasattr(user, "Inside") else "user.user"
        assert member.left == [name] and member.captured == ["user.f"]
        assert f"warning: still held by {name}" in str(report)
    """)


def test_a_late_apply_says_what_it_met_and_lists_every_target_with_its_places(model):
    model.run("""
        import user
        report = apply()
        check, = (c for c in report.prepared_execution.groups["g"].checks
                  if c.name == "imported_before")
        assert check.outcome == "warning" and check.subject == "model"
        member, = report.execution["g"].members
        places = [(o.name, os.path.basename(o.file), o.line)
                  for o in (member.original, member.replacement)]
        assert places == [("model.f", "model.py", 1 + 1), ("fast.f", "fast.py", 1 + 1)], places
        assert member.module == "model" and member.seconds >= 0 and member.state.value == "bound"
        text = str(report)
        assert "model.py:2" in text and "fast.py:2" in text and "user.f" in text
    """)


def test_instances_and_subclasses_of_a_replaced_class_are_counted(model):
    """The Group is `applied`, with a warning for each holder."""
    model.write({"user.py": "from model import C\nmade = C(), C()\nclass Sub(C): ...\n"})
    model.declare("group('g', replace('model.C', 'fast.C'))")
    model.run("""
        import user, model
        report = apply()
        import fast
        assert model.C is user.C is fast.C and type(user.made[0]) is not fast.C
        member, = report.execution["g"].members
        assert "2 instance(s) made before" in member.left
        assert "the subclass user.Sub" in member.left
        assert "warning: still held by" in str(report)
    """)


def test_a_replacements_own_module_keeps_its_view_of_the_original(model):
    model.write({"fast.py": "from model import f as slow\ndef f(x):\n    return 'new', slow(x)\n"})
    model.run("""
        import user
        report = apply()
        assert user.f(1) == ("new", ("old", 1))
        assert not [name for name in report.execution["g"].members[0].captured if "fast" in name]
    """)


def test_lazy_modules_are_not_woken_by_the_search(model):
    model.write({"lazy.py": "import sys\nsys.woken = True\n"})
    model.run("""
        import importlib.util, types
        spec = importlib.util.find_spec("lazy")
        spec.loader = importlib.util.LazyLoader(spec.loader)
        sys.modules["lazy"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["lazy"])
        class Proxy(types.ModuleType):
            def __getattribute__(self, name):
                raise AssertionError(f"{name} was asked for")
        sys.modules["proxy"] = Proxy("proxy")
        sys.modules["no_module"] = None
        import user
        report = apply()
        assert "user.f" in report.execution["g"].members[0].captured
        assert not hasattr(sys, "woken")
    """)
