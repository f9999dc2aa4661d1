"""Import-compatibility declarations let imports succeed, honestly, and can be taken back."""

import pytest

from turbo_physai import group, replace_import


def test_replace_import_answers_for_every_way_to_import_a_module(project):
    """Whether something is installed there or not."""
    project.write({"ours.py": "name = 'ours'\n", "pkg/old.py": "raise ImportError('too old')\n"})
    project.declare("""
        group('imports', replace_import('gone', 'ours'), replace_import('pkg.old', 'ours'))
    """)
    project.write({"user.py": "import gone, pkg.old\nfrom gone import name\nfrom pkg import old\n"})
    project.run("""
        report = apply()
        import user, ours
        assert user.gone is user.old is user.pkg.old is ours and user.name == "ours"
        assert sys.modules["gone"] is sys.modules["pkg.old"] is ours
        assert ours.__name__ == ours.__spec__.name == "ours"
        assert state(report, "imports") == "applied" and report.final
        kinds = [m.kind for m in report.execution["imports"].members]
        assert kinds == ["replace_import"] * 2
    """)


def test_replaced_modules_may_not_contain_one_another(project):
    """A declaration error in one Group, a conflict that blocks the later one of two."""
    with pytest.raises(ValueError, match=r"gone and gone\.ops, which contain one another"):
        group("g", replace_import("gone", "ours"), replace_import("gone.ops", "ours"))
    project.declare("""
        group('first', replace_import('gone.ops', 'ours')),
        group('g', replace_import('gone', 'ours'))
    """)
    project.run("""
        prepared = check()
        assert prepared.groups["first"].decision == "apply"
        assert prepared.groups["g"].decision == "block"
        assert "gone, with gone.ops" in prepared.groups["g"].reason
    """)


def test_a_replacing_module_that_fails_leaves_the_models_error_as_it_would_be_without_us(project):
    """Where the original exists it is imported instead; where it does not, Python says so."""
    project.write({"broken.py": "raise OSError('no driver')\n", "here.py": "name = 'original'\n"})
    project.declare("""
        group('gone', replace_import('gone', 'broken')),
        group('here', replace_import('here', 'broken'))
    """)
    script = """
        import traceback
        report = apply() if len(sys.argv) > 1 else None
        for attempt in 1, 2:
            try:
                import gone
            except ImportError as error:
                print(type(error), error, error.name, error.__cause__, error.__context__)
                traceback.print_exc(file=sys.stdout)
        import here
        print(here.name, here.__spec__.name, type(here.__loader__), here.__spec__.origin)
        print("gone" in sys.modules, here is sys.modules["here"])
        if report:
            assert report.summary["rolled_back"] == 2, str(report)
            assert report.execution["here"].members[0].error.type == "OSError"
    """
    plain = project.run(script)
    assert "No module named 'gone'" in plain
    assert project.python("main.py", "watched").stdout == plain


def test_import_alias_and_inject_add_names_that_a_module_lacks(project):
    """They never hide a name of the module's own."""
    project.write(
        {
            "numpylike.py": "float64 = 'float64'\nint_ = 'own'\n",
            "values.py": "answer = 42\ndef version(): return '1.0'\n",
            "user.py": "from numpylike import float, version, int_\n",
        }
    )
    project.declare("""
        group('imports', import_alias('numpylike', 'numpylike.float64', 'float'),
                         inject('numpylike', 'version', 'values.version'),
                         inject('numpylike', 'int_', 'values.answer'))
    """)
    project.run("""
        report = apply()
        import user
        assert (user.float, user.int_) == ("float64", "own")
        assert state(report, "imports") == "applied", str(report)
        assert "of its own" in report.execution["imports"].members[2].note
        import numpylike
        importlib.reload(numpylike)
        assert numpylike.float == "float64" and numpylike.int_ == "own"
    """)


def test_registry_override_lets_names_be_registered_again_while_a_module_is_imported(project):
    registering = "from registry import OPS\n@OPS.register\nclass A: ...\n"
    project.write(
        {
            "registry.py": """
                HELD = {}
                class Registry:
                    module_dict = HELD
                    def register(self, cls):
                        if cls.__name__ in HELD:
                            raise KeyError(f"{cls.__name__} is already registered")
                        HELD[cls.__name__] = cls
                        return cls
                OPS = Registry()
            """,
            "first.py": registering + "@OPS.register\nclass B: ...\n",
            "second.py": registering,
            "third.py": registering,
        }
    )
    project.declare("""
        group('imports', registry_override('second', 'registry.OPS.module_dict', ['A', 'B']))
    """)
    project.run("""
        report = apply()
        import registry, first, second
        assert registry.HELD == {"A": second.A, "B": first.B}
        assert state(report, "imports") == "applied"
        try:
            import third
        except KeyError as error:
            assert "A is already registered" in str(error)
        else:
            raise AssertionError("only the declared module may register again")
        importlib.reload(second)
        assert registry.HELD["A"] is second.A
    """)


def test_a_registry_is_whole_again_when_the_module_fails(project):
    project.write(
        {
            "registry.py": "HELD = {}\n",
            "first.py": "import registry\nregistry.HELD['A'] = 'first'\n",
            "second.py": "import registry\nassert 'A' not in registry.HELD\nraise OSError\n",
        }
    )
    project.declare("group('imports', registry_override('second', 'registry.HELD', ['A']))")
    project.run("""
        report = apply()
        import registry, first
        try:
            import second
        except OSError:
            assert registry.HELD == {"A": "first"}
        assert state(report, "imports") == "pending"
    """)


def test_probes_see_an_absent_package_as_absent_until_somebody_imports_it(project):
    project.write({"ours.py": ""})
    project.declare("""
        group('imports', optional_import('absent'), replace_import('gone', 'ours'),
                         optional_import('absent_parent.sub'))
    """)
    project.run("""
        import importlib.metadata, importlib.util, pkgutil
        report = apply()
        for name in ("absent", "gone"):
            for _ in range(2):
                assert importlib.util.find_spec(name) is None
            assert pkgutil.find_loader(name) is None if hasattr(pkgutil, "find_loader") else True
            assert importlib.machinery.PathFinder.find_spec(name) is None
            assert name not in {module.name for module in pkgutil.iter_modules()}
            try:
                importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                pass
            assert name not in sys.modules and not hasattr(sys, name)
        try:
            import absent_parent.sub
        except ModuleNotFoundError as error:
            assert error.name == "absent_parent"
        import absent, gone
        assert importlib.util.find_spec("absent") is absent.__spec__
        assert importlib.import_module("absent") is __import__("absent") is absent
        assert not hasattr(absent, "anything")
    """)


def test_everything_goes_back_when_a_member_fails(project):
    """Provided modules leave `sys.modules` and their parents, names and registry are as before."""
    project.write(
        {
            "pkg/__init__.py": "def f(): ...\n",
            "pkg/ops.py": "def f(): ...\n",
            "ours.py": "value = 1\n",
            "registry.py": "HELD = {'A': 'first'}\n",
            "second.py": "import registry\nregistry.HELD['A'] = 'second'\n",
            "late.py": "",
        }
    )
    project.declare("""
        group('imports', replace_import('pkg.gone', 'ours'), optional_import('absent'),
              inject('pkg.ops', 'name', 'ours.value'), inject('absent', 'name', 'ours.value'),
              import_alias('pkg.ops', 'ours.value', 'alias'),
              registry_override('second', 'registry.HELD', ['A']),
              inject('late', 'name', 'ours.missing')),
        group('needs', replace('pkg.ops.f', 'pkg.f'), depends_on=['imports'])
    """)
    project.run("""
        report = apply()
        import registry, pkg.gone, absent, pkg.ops, second, ours
        assert pkg.gone is ours and pkg.ops.name == pkg.ops.alias == absent.name == 1
        assert registry.HELD == {"A": "second"} and state(report, "imports") == "pending"
        import late
        assert state(report, "imports") == "rolled_back", str(report)
        assert not {"pkg.gone", "absent"} & sys.modules.keys() and not hasattr(pkg, "gone")
        assert not {"name", "alias"} & vars(pkg.ops).keys() and not hasattr(late, "name")
        assert registry.HELD == {"A": "first"}
        for name in ("pkg.gone", "absent"):
            try:
                importlib.import_module(name)
            except ModuleNotFoundError as error:
                assert error.name == name
            else:
                raise AssertionError(name)
        assert state(report, "needs") == "not_started"
        assert "depends on imports" in report.execution["needs"].reason
    """)


def test_a_stand_in_of_ones_own_answers_where_a_module_is_missing_and_nowhere_else(project):
    project.write(
        {
            "ours.py": "def op(): return 'ours'\n",
            "pkg/here.py": "def op(): return 'its own'\n",
            "user.py": "from pkg import ext, here\n",
        }
    )
    project.declare("""
        group('g', optional_import('pkg.ext', 'ours'), optional_import('pkg.here', 'ours'))
    """)
    project.run("""
        from importlib.util import find_spec
        report = apply()
        assert find_spec("pkg.ext") is None and "ours" not in sys.modules
        import user
        assert user.ext.op() == "ours" and user.here.op() == "its own"
        assert state(report) == "applied", str(report)
    """)


VERSIONED = {
    "lib.py": "version = '1.7.2'\n",
    "strict.py": """
        import lib
        assert lib.version == '1.7.0', f'{lib.version} is too new'
    """,
    "other.py": "import lib\nseen = lib.version\n",
    "ours.py": """
        def older(version, options):
            return options.instead if version == '1.7.2' else version
    """,
}
HOLD = "group('g', during_import('strict', 'lib.version', 'ours.older'), options=Options)"
INSTEAD = "instead: str = '1.7.0'"


def test_during_import_shows_a_module_another_value_while_it_is_imported(project):
    project.write(VERSIONED).declare(HOLD, options=INSTEAD)
    project.run("""
        report = apply()
        import strict, other, lib
        assert (other.seen, lib.version) == ("1.7.2", "1.7.2")
        assert state(report) == "applied", str(report)
        importlib.reload(strict)
        assert lib.version == "1.7.2"
    """)


def test_during_import_says_when_it_was_not_needed(project):
    project.write(VERSIONED | {"lib.py": "version = '1.7.0'\n"}).declare(HOLD, options=INSTEAD)
    project.run("""
        report = apply()
        import strict
        assert "not needed" in report.execution["g"].members[0].note
        assert state(report) == "applied"
    """)


@pytest.mark.parametrize("breaks", ["strict.py", "ours.py"])
def test_during_import_leaves_the_original_behind_when_something_fails(project, breaks):
    """The module itself, or the factory; the import's own error comes through."""
    project.write(VERSIONED).declare(HOLD, options=INSTEAD, g="options: {instead: '1.6'}")
    if breaks == "ours.py":
        project.write({"ours.py": "raise OSError('no driver')\n"})
    seen, ends = ("1.6", "pending") if breaks == "strict.py" else ("1.7.2", "rolled_back")
    project.run(f"""
        report = apply()
        for attempt in 1, 2:
            try:
                import strict
            except AssertionError as error:
                assert str(error) == "{seen} is too new"
            else:
                raise AssertionError
        import lib
        assert lib.version == "1.7.2"
        assert state(report) == "{ends}"
    """)


def test_what_lasts_for_an_import_ends_with_it_even_if_its_group_has_ended_before(project):
    """A registry's names too: nothing of a Group that was rolled back is left."""
    project.write(
        VERSIONED
        | {
            "registry.py": "HELD = {'A': 'first'}\n",
            "strict.py": """
                import lib, registry
                assert lib.version == '1.7.0'
                registry.HELD['A'] = 'second'
                import broken
            """,
            "broken.py": "",
        }
    )
    project.declare(
        """
        group('g', during_import('strict', 'lib.version', 'ours.older'),
                   registry_override('strict', 'registry.HELD', ['A']),
                   inject('broken', 'name', 'ours.missing'), options=Options)
        """,
        options=INSTEAD,
    )
    project.run("""
        report = apply()
        import strict, lib, registry
        assert lib.version == "1.7.2" and registry.HELD == {"A": "first"}
        assert state(report) in ("blocked", "rolled_back"), str(report)
    """)


def test_a_target_in_a_module_that_another_one_answers_for_is_found(project):
    """The module that answers keeps its own name, which may have any number of parts."""
    project.write(
        {
            "ours/deep/ext.py": "__path__ = []\ndef op(): return 'ours'\n",
            "fast.py": "def op(): return 'fast'\n",
        }
    )
    project.declare("""
        group('g', optional_import('pkg', 'ours.deep.ext'), optional_import('pkg.ext', 'fast')),
        group('late', replace('pkg.op', 'fast.op')),
        group('never', optional_import('pkg.a.b'))
    """)
    project.run("""
        report = apply()
        import ours.deep.ext, pkg.ext
        assert pkg.op() == "fast" and pkg.ext.op() == "fast"
        assert state(report) == state(report, "late") == "applied", str(report)
    """)
    assert '"never imported: pkg.a.b"' in next((project.path / "reports").iterdir()).read_text()
