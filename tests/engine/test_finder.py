"""Other import hooks in the same process do their work, and so do we."""

import pytest

MODEL = """
    def function(x):
        return ("old", x)
"""
FAST = """
    def function(x):
        return ("new", x)
"""
MARKING_FINDER = """
    import importlib.machinery, importlib.util
    class Marking:
        "Marks the modules that it loads: as a finder that asks the others, or one that does not."
        def __init__(self, loader): self.loader = loader
        def create_module(self, spec): return self.loader.create_module(spec)
        def exec_module(self, module):
            self.loader.exec_module(module)
            module.marked = True
    class Asking:
        asked = None
        def find_spec(self, name, path=None, target=None):
            if name != "model" or self.asked:
                return None
            self.asked = name, path, target
            spec = importlib.util.find_spec(name)
            self.asked = None
            spec.loader = Marking(spec.loader)
            return spec
    class Answering:
        def find_spec(self, name, path=None, target=None):
            if name == "model":
                spec = importlib.machinery.PathFinder.find_spec(name, path, target)
                spec.loader = Marking(spec.loader)
                return spec
"""


@pytest.fixture
def hooked(project):
    project.write({"model.py": MODEL, "fast.py": FAST, "finders.py": MARKING_FINDER})
    return project.declare("group('g', replace('model.function', 'fast.function'))")


@pytest.mark.parametrize("finder", ["Asking", "Answering"])
@pytest.mark.parametrize("place", ["before", "after"])
def test_both_effects_happen_wherever_the_other_finder_stands(hooked, finder, place):
    hooked.run(f"""
        import finders
        if {place!r} == "after":
            sys.meta_path.insert(0, finders.{finder}())
        report = apply()
        if {place!r} == "before":
            sys.meta_path.insert(0, finders.{finder}())
        import model, atexit
        assert model.marked
        assert type(model.__loader__).__name__ == type(model.__spec__.loader).__name__ == "Marking"
        assert not set(vars(model.__loader__)) - {{"loader"}}
        hidden = ({place!r}, {finder!r}) == ("before", "Answering")
        if not hidden:
            assert model.function(1) == ("new", 1) and state(report) == "applied"
        else:  # nobody told us of this import; it is noticed with the next one, or at the end
            atexit._run_exitfuncs()
            assert state(report) == "not_started" and report.final
            assert "finders.Answering, a finder in front of" in report.execution["g"].reason
    """)


def test_a_finder_in_front_that_hides_a_target_is_named_in_the_report(hooked):
    hooked.write({"other.py": MODEL})
    hooked.declare("""
        group('g', replace('model.function', 'fast.function')),
        group('other', replace('other.function', 'fast.function'))
    """)
    hooked.run("""
        import finders
        report = apply()
        sys.meta_path.insert(0, finders.Answering())
        import model, other
        assert model.function(1) == other.function(1) == ("new", 1)
        found, = (c for c in report.prepared_execution.groups["g"].checks
                  if c.name == "imported_before")
        assert found.outcome == "warning"
        assert "finders.Answering, a finder in front of turbo_physai's" in found.reason
    """)


def test_the_others_are_asked_with_the_same_arguments(project):
    project.write({"pkg/model.py": MODEL, "fast.py": FAST})
    project.declare("group('g', replace('pkg.model.function', 'fast.function'))")
    project.run("""
        seen = []
        class Listening:
            def find_spec(self, name, path=None, target=None):
                seen.append((name, path, target))
        report = apply()
        sys.meta_path.insert(1, Listening())
        import pkg.model
        importlib.reload(pkg.model)
        assert seen == [
            ("pkg", None, None),
            ("pkg.model", pkg.__path__, None),
            ("fast", None, None),
            ("pkg.model", pkg.__path__, pkg.model),
        ], seen
        assert state(report) == "applied"
    """)


def test_names_of_others_are_never_answered_and_no_path_hook_is_added(hooked):
    hooked.run("""
        hooks, finders = list(sys.path_hooks), list(sys.meta_path)
        apply()
        ours, *others = sys.meta_path
        assert others == finders and sys.path_hooks == hooks
        for name in ("json", "zipp", "email.mime", "no_such_module", "models", "model.x", "fas"):
            assert ours.find_spec(name, None, None) is None
        spec = ours.find_spec("model", None, None)
        assert type(spec.loader) is importlib.machinery.SourceFileLoader  # made by the others
        import model, colorsys
        assert sys.path_hooks == hooks and sys.meta_path == [ours, *finders]
        kinds = {type(finder).__module__ for finder in sys.path_importer_cache.values() if finder}
        assert not any(kind.startswith("turbo_physai") for kind in kinds), kinds
    """)


def test_a_watched_import_imports_nothing_of_ours(hooked):
    """All that the finder and loader need is there once apply() has returned."""
    hooked.run("""
        import importlib.util
        from importlib.machinery import PathFinder
        apply()
        before = set(sys.modules)
        assert importlib.util.find_spec("model").loader.get_code("model").co_name == "<module>"
        assert set(sys.modules) == before
        import model
        assert model.function(1) == ("new", 1)
        assert set(sys.modules) - before == {"model", "fast"}, set(sys.modules) - before
    """)


@pytest.mark.parametrize(
    "declaration",
    [
        "replace('turbo_physai.api.apply', 'fast.function')",
        "wrap('turbo_physai:apply', 'fast.function')",
        "replace('model.function', 'fast.function', aliases=['turbo_physai.check'])",
        "replace_import('turbo_physai.engine', 'fast')",
        "inject('turbo_physai', 'name', 'fast.function')",
        "import_alias('turbo_physai.api', 'fast.function', 'name')",
        "optional_import('turbo_physai.extra')",
        "registry_override('turbo_physai.api', 'model.REGISTRY', ['name'])",
    ],
)
def test_the_engine_is_never_a_target(declaration):
    import turbo_physai

    with pytest.raises(ValueError, match="turbo_physai does not change itself"):
        eval(declaration, vars(turbo_physai).copy())


def test_the_file_that_is_really_loaded_is_the_one_that_is_checked(project):
    """Another copy of the model in front of the one that was validated is found out."""
    project.write({"right/pkg/ops.py": MODEL, "wrong/pkg/ops.py": MODEL.replace("old", "other")})
    project.write({"fast.py": FAST, "hash.py": ""})
    project.declare("group('g', replace('pkg.ops.function', 'fast.function'))")
    trusted = project.run("""
        from turbo_physai.evidence import hashes
        print(hashes.source_hash([open("right/pkg/ops.py").read().strip("\\n")]))
    """)
    project.declare(
        "group('g', replace('pkg.ops.function', 'fast.function'))",
        g=f"trust: {{source_hashes: {{pkg.ops.function: ['{trusted.strip()}']}}}}",
    )
    project.run("""
        sys.path[:0] = sys.argv[1:] or ["wrong", "right"]
        report = apply()
        from pkg.ops import function
        right = sys.path[0] == "right"
        assert function(1)[0] == ("new" if right else "other")
        assert state(report) == ("applied" if right else "blocked"), str(report)
        assert right or os.path.join("wrong", "pkg", "ops.py") in report.execution["g"].reason
    """)
    project.python("main.py", "right", "wrong")


def test_a_folder_that_hides_an_editable_package_is_named(project):
    """An empty folder of the same name in front turns the package into a namespace package."""
    project.write({"src/pkg/__init__.py": MODEL, "src/pkg/ops.py": MODEL, "fast.py": FAST})
    (project.path / "pkg").mkdir()
    project.declare("""
        group('g', replace('pkg.function', 'fast.function'),
                   replace('pkg.ops.function', 'fast.function'))
    """)
    project.run("""
        import importlib.util
        class Editable:
            @classmethod
            def find_spec(cls, name, path=None, target=None):
                if name == "pkg":
                    return importlib.util.spec_from_file_location(
                        name, "src/pkg/__init__.py", submodule_search_locations=["src/pkg"])
        Editable.__module__ = "__editable___pkg_1_0_finder"
        sys.meta_path.append(Editable)
        prepared = check().groups["g"]
        assert prepared.decision == "block" and "namespace package" in prepared.reason
        report = apply()
        try:
            import pkg.ops
        except ModuleNotFoundError as error:
            assert error.name == "pkg.ops"
        import atexit
        atexit._run_exitfuncs()
        assert state(report) in ("blocked", "not_started")
        assert "pkg is a namespace package" in report.execution["g"].reason, str(report)
    """)
    project.run("""
        sys.path[:] = [path for path in sys.path if path not in ("", os.getcwd())]
        import importlib.util
        class Editable:
            @classmethod
            def find_spec(cls, name, path=None, target=None):
                files = {"pkg": "src/pkg/__init__.py", "fast": "fast.py", "declared": "declared.py"}
                if name in files:
                    return importlib.util.spec_from_file_location(name, files[name])
        Editable.__module__ = "__editable___pkg_1_0_finder"
        sys.meta_path.append(Editable)
        assert check().groups["g"].decision == "apply"
        report = apply()
        import pkg.ops
        assert pkg.function(1) == pkg.ops.function(1) == ("new", 1), str(report)
        assert state(report) == "applied"
    """)


def test_a_failing_target_has_the_traceback_that_it_has_without_us(project):
    """Where Python shows the frames of its import system, ours among them count as its own."""
    project.write({"fast.py": FAST, "pkg/__init__.py": ""})
    failures = ("1 / 0", "import no_such_module", "raise ImportError('x')", "def (:", "exit(3)")
    for i, text in enumerate(failures):
        (project.path / f"pkg/fails{i}.py").write_text(f"{text}\ndef function(x): ...\n")
    members = [f"replace('pkg.fails{i}.function', 'fast.function')" for i in range(len(failures))]
    project.declare(f"group('g', {', '.join(members)})")
    script = f"""
        import traceback
        if len(sys.argv) > 1:
            apply()
        for i in range({len(failures)}):
            try:
                importlib.import_module(f"pkg.fails{{i}}")
            except BaseException as error:
                lines = traceback.format_exc().splitlines()
                print(*[line for line in lines if "<frozen importlib." not in line], sep="\\n")
                print(error.args, error.__cause__, getattr(error, "__notes__", None))
            try:
                exec(f"import pkg.fails{{i}}")
            except BaseException:
                traceback.print_exc(file=sys.stdout)
    """
    plain = project.run(script)
    assert plain.count("Traceback") == 2 * len(failures)
    assert project.python("main.py", "watched").stdout == plain


def test_the_kill_switch_leaves_nothing_behind(hooked):
    hooked.run(
        """
        finders = list(sys.meta_path)
        report = apply()
        assert sys.meta_path == finders and report.summary["skipped"] == 1 and report.final
        import model
        assert model.function(1) == ("old", 1)
        """,
        TURBO_PHYSAI_DISABLE="1",
    )


@pytest.mark.parametrize("order", ["wrapt first", "wrapt second", "wrapt twice"])
def test_wrapt_and_we_hook_the_same_module(hooked, order):
    pytest.importorskip("wrapt")
    hooked.run(f"""
        import wrapt
        hooked, report = [], None
        def hook(name):
            wrapt.register_post_import_hook(lambda module: hooked.append(module.function(1)), name)
        if {order!r} != "wrapt second":
            hook("model")
        report = apply()
        if {order!r} != "wrapt first":
            hook("model")
        import model
        assert model.function(1) == ("new", 1) and state(report) == "applied"
        assert len(hooked) == 1 + ({order!r} == "wrapt twice"), hooked
        assert type(model.__loader__) is importlib.machinery.SourceFileLoader
        assert model.__spec__.loader is model.__loader__
        assert set(vars(model.__loader__)) == {{"name", "path"}}
        importlib.reload(model)
        assert model.function(1) == ("new", 1)
        del sys.modules["model"]
        import model
        assert model.function(1) == ("new", 1)
        assert report.execution["g"].members[0].times_bound == 3
    """)
