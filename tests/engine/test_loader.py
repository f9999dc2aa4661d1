"""A watched module looks, to its own body and to everyone after, as if nobody had watched it."""

import importlib.machinery
import py_compile
import sys
import zipfile

import pytest

BODY = """
    import importlib.util, sys
    def look():
        loaders = (__loader__, __spec__.loader, importlib.util.find_spec(__name__).loader)
        assert all(loader is __loader__ for loader in loaders), loaders
        left = set(getattr(__loader__, "__dict__", ())) & {"exec_module", "load_module"}
        assert isinstance(__loader__, type) or not left, left
        return type(__loader__).__module__, type(__loader__).__qualname__
    seen = look()
    def function(x):
        return ("old", x)
"""
FAST = """
    def function(x):
        return ("new", x)
    def wrapped(original, options):
        return lambda *args: ("new", original(*args))
    value = "new"
"""
SHARED_LOADER = """
    import importlib.abc, importlib.machinery, importlib.util, sys, types
    TEXT = open("loaded.txt").read()
    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name == "target":
                return importlib.machinery.ModuleSpec(name, LOADER, origin="loaded.txt")
    sys.meta_path.insert(0, Finder())
"""
LOADERS_OF_OTHERS = {
    "shared": """
        class Loader:
            def create_module(self, spec): return None
            def exec_module(self, module): exec(TEXT, vars(module))
        LOADER = Loader()
    """,
    "class": """
        class LOADER:
            @staticmethod
            def create_module(spec): return None
            @staticmethod
            def exec_module(module): exec(TEXT, vars(module))
    """,
    "load_module": """
        import warnings
        warnings.simplefilter("ignore", ImportWarning)
        class Loader:
            def load_module(self, name):
                module = sys.modules[name] = types.ModuleType(name)
                module.__spec__ = importlib.machinery.ModuleSpec(name, self)
                module.__loader__ = self
                exec(TEXT, vars(module))
                return module
        LOADER = Loader()
    """,
    "slots": """
        class Loader:
            __slots__ = ()
            def create_module(self, spec): return None
            def exec_module(self, module): exec(TEXT, vars(module))
        LOADER = Loader()
    """,
}
MADE_HERE = ("source", "package", "sourceless", "zip", "lazy", *LOADERS_OF_OTHERS)
OF_PYTHON = {
    "extension": ("_statistics._normal_dist_inv_cdf", "wrap", "wrapped"),
    "frozen": ("__hello__.initialized", "replace", "value"),
    "builtin": ("faulthandler.is_enabled", "wrap", "wrapped"),
}


def make(project, kind, body=BODY):
    """Writes the module `target` so that a loader of that kind loads it; returns what a script does
    before it may be imported."""
    project.write({"fast.py": FAST})
    if kind in LOADERS_OF_OTHERS:
        project.write({"loaded.txt": body, "finder.py": SHARED_LOADER})
        project.write({"loader.py": LOADERS_OF_OTHERS[kind]})
        return "exec(open('finder.py').read() + open('loader.py').read(), globals())"
    project.write({"target/__init__.py" if kind == "package" else "target.py": body})
    source = project.path / "target.py"
    if kind == "sourceless":
        py_compile.compile(str(source), str(project.path / "target.pyc"))
        source.unlink()
    if kind == "zip":
        with zipfile.ZipFile(project.path / "archive.zip", "w") as archive:
            archive.write(source, "target.py")
        source.unlink()
        return "sys.path.insert(0, 'archive.zip')"
    if kind == "lazy":
        return """if True:
            import importlib.util
            class Lazily:
                def find_spec(self, name, path=None, target=None):
                    if name == "target":
                        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
                        spec.loader = importlib.util.LazyLoader(spec.loader)
                        return spec
            sys.meta_path.insert(0, Lazily())
        """
    return ""


@pytest.mark.parametrize("kind", MADE_HERE)
def test_both_loader_attributes_hold_the_original_loader(project, kind):
    """Before the body runs, after it has, and in the spec that `find_spec` answers."""
    prepare = make(project, kind)
    project.declare("group('g', replace('target.function', 'fast.function'))")
    script = f"""
        {prepare}
        if len(sys.argv) > 1:
            apply()
        import target
        print(target.seen, target.look(), type(target.__loader__), type(target.__spec__.loader))
        print(sorted(getattr(target.__loader__, "__dict__", ())))
        print(sorted(set(vars(target)) - {{"__cached__"}}), file=sys.stderr)
    """
    project.run(script)
    plain, watched = (project.python("main.py", *args) for args in ((), ("watched",)))
    assert (plain.stdout, plain.stderr) == (watched.stdout, watched.stderr)


@pytest.mark.parametrize("kind", ["source", "package", "zip", "shared"])
def test_the_original_loader_also_stays_when_the_body_raises(project, kind):
    prepare = make(project, kind, BODY + "    sys.failed = sys.modules[__name__]\n    1 / 0\n")
    project.declare("group('g', replace('target.function', 'fast.function'))")
    project.run(f"""
        {prepare}
        apply()
        for attempt in 1, 2:
            try:
                import target
            except ZeroDivisionError:
                failed = sys.failed
            assert failed.__loader__ is failed.__spec__.loader
            assert not {{"exec_module"}} & set(getattr(failed.__loader__, "__dict__", ()))
            assert "turbo_physai" not in type(failed.__loader__).__module__
            assert "target" not in sys.modules
    """)


@pytest.mark.parametrize("kind", ["source", "zip"])
def test_find_spec_sees_the_loader_that_the_others_made(project, kind):
    """Before the import too, and however often it is asked."""
    prepare = make(project, kind)
    project.declare("group('g', replace('target.function', 'fast.function'))")
    project.run(f"""
        import importlib.util
        {prepare}
        plain = importlib.util.find_spec("target")
        apply()
        for _ in range(2):
            spec = importlib.util.find_spec("target")
            assert isinstance(spec.loader, type(plain.loader)) and spec.origin == plain.origin
            assert spec.loader.get_source("target") == plain.loader.get_source("target")
        import target
        assert target.__spec__.loader is importlib.util.find_spec("target").loader
    """)


def test_a_target_that_runs_as_main_runs_normally_and_is_reported(project):
    """`python -m` runs a module without importing it; what it imports is patched as always."""
    project.write(
        {
            # Whatever activates a process does what this file does.
            "sitecustomize.py": """
                import os
                if os.environ.get("ACTIVE"):
                    import turbo_physai
                    turbo_physai.apply(optimization_config_path="optimization.yaml")
            """,
            "fast.py": FAST,
            "script.py": """
                def function(x):
                    return ("old", x)
                print(__name__, __spec__.name, function(1))
            """,
            "pkg/__init__.py": BODY,
            "pkg/__main__.py": """
                from pkg import function
                def main(x):
                    return "old"
                print(__name__, __spec__.name, function(1), main(1))
            """,
        }
    )
    project.declare("""
        group('script', replace('script.function', 'fast.function')),
        group('main', replace('pkg.__main__.main', 'fast.function')),
        group('pkg', replace('pkg.function', 'fast.function'))
    """)
    assert (
        project.python("-m", "script").stdout == project.python("-m", "script", ACTIVE="1").stdout
    )
    done = project.python("-m", "pkg", ACTIVE="1")
    assert done.stdout == "__main__ pkg.__main__ ('new', 1) old\n"
    lines = done.stderr.splitlines()
    assert all(line.startswith("turbo_physai: the Group ") for line in lines)
    assert "pkg.__main__ ran as __main__, where it is not patched" in done.stderr
    reports = [file.read_text() for file in (project.path / "reports").iterdir()]
    script, package = sorted(reports, key=lambda text: "script ran as __main__" not in text)
    assert "script ran as __main__, where it is not patched" in script
    assert "pkg.__main__ ran as __main__, where it is not patched" in package
    assert '"applied": 1' in package


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_resources_are_read_as_always_during_and_after_the_import(project, kind):
    project.write(
        {
            "lib/pkg/data/x.txt": "data",
            "lib/pkg/__init__.py": """
                import importlib.resources, inspect, os, pkgutil, sys
                def look():
                    root = importlib.resources.files(__name__)
                    yield root.joinpath("data/x.txt").read_text()
                    yield sorted(item.name for item in root.iterdir() if item.name[0] != "_")
                    yield pkgutil.get_data(__name__, "data/x.txt")
                    module = sys.modules[__name__]
                    yield __loader__.get_source(__name__) == inspect.getsource(module)
                    yield os.path.relpath(__loader__.get_filename(__name__))
                    yield __loader__.is_package(__name__), __loader__.get_code(__name__).co_name
                    yield [module.name for module in pkgutil.iter_modules(__path__)]
                seen = list(look())
                def function(x):
                    return ("old", x)
            """,
            "lib/pkg/sub.py": "",
            "fast.py": FAST,
        }
    )
    if kind == "zip":
        with zipfile.ZipFile(project.path / "lib.zip", "w") as archive:
            for file in sorted((project.path / "lib/pkg").rglob("*")):
                archive.write(file, file.relative_to(project.path / "lib"))
    project.declare("group('g', replace('pkg.function', 'fast.function'))")
    project.run(f"""
        sys.path.insert(0, "lib{".zip" if kind == "zip" else ""}")
        watched = len(sys.argv) > 1
        if watched:
            apply()
        import pkg
        assert pkg.function(1)[0] == ("new" if watched else "old")
        print(pkg.seen, list(pkg.look()))
    """)
    plain, watched = (project.python("main.py", *args) for args in ((), ("watched",)))
    assert "data" in plain.stdout
    assert plain.stdout == watched.stdout


@pytest.mark.parametrize("kind", MADE_HERE)
def test_targets_are_patched_whatever_loads_them(project, kind):
    prepare = make(project, kind)
    project.declare("group('g', replace('target.function', 'fast.function'))")
    project.run(f"""
        {prepare}
        report = apply()
        from target import function
        assert function(1) == ("new", 1)
        assert report.summary["applied"] == 1, str(report)
        checks = {{check.name: check for check in report.prepared_execution.groups["g"].checks}}
        if {kind in ("sourceless", *LOADERS_OF_OTHERS)}:  # a state that is named, not a crash
            assert checks["target"].reason
            assert checks["target"].actual == "found when it was imported"
        else:
            assert not checks["target"].reason
        assert checks["target"].outcome == "pass"
    """)


@pytest.mark.parametrize("kind", OF_PYTHON)
def test_modules_that_are_no_python_source_are_patched_too(project, kind):
    target, declaration, replacement = OF_PYTHON[kind]
    module, name = target.split(".")
    spec = importlib.machinery.PathFinder.find_spec(module)
    if kind == "extension" and (spec is None or "site" in sys.builtin_module_names):
        pytest.skip(f"{module} is built into this Python")
    project.write({"fast.py": FAST})
    project.declare(f"group('g', {declaration}('{target}', 'fast.{replacement}'))")
    project.run(f"""
        assert {module!r} not in sys.modules
        report = apply()
        import {module} as module
        made = module.{name}
        assert made == "new" or made(*[0.5, 0.0, 1.0][:3 * ("stat" in {module!r})])[0] == "new"
        assert report.summary["applied"] == 1, str(report)
        checks = {{check.name: check for check in report.prepared_execution.groups["g"].checks}}
        assert checks["target"].outcome in ("unknown", "pass")
        assert "turbo_physai" not in type(module.__spec__.loader).__module__
        assert module.__spec__.loader is module.__loader__
    """)


def test_a_loader_that_python_refuses_is_refused_in_the_same_words(project):
    """`exec_module` without `create_module`: Python's own ImportError, not one of ours."""
    project.write({"loaded.txt": BODY, "fast.py": FAST})
    project.declare("group('g', replace('target.function', 'fast.function'))")
    script = """
        import importlib.machinery
        class Loader:
            def exec_module(self, module): raise AssertionError
        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name == "target":
                    return importlib.machinery.ModuleSpec(name, Loader())
        sys.meta_path.append(Finder())
        if len(sys.argv) > 1:
            apply()
        try:
            import target
        except ImportError as error:
            print(error)
    """
    plain = project.run(script)
    assert "create_module" in plain
    assert project.python("main.py", "watched").stdout == plain


def test_submodules_of_a_namespace_package_are_patched(project):
    """The namespace package itself cannot hold a target, and that is said."""
    project.write({"fast.py": FAST})
    (project.path / "ns").mkdir()
    (project.path / "ns/sub.py").write_text("def function(x):\n    return ('old', x)\n")
    project.declare("""
        group('sub', replace('ns.sub.function', 'fast.function')),
        group('ns', replace('ns.function', 'fast.function'))
    """)
    project.run("""
        refused = check().groups["ns"]
        assert refused.decision == "block" and "ns is a namespace package" in refused.reason
        report = apply()
        import ns
        assert ns.__spec__.origin is None and list(ns.__path__)
        from ns.sub import function
        assert function(1) == ("new", 1) and state(report, "sub") == "applied"
        assert state(report, "ns") == "blocked", str(report)
        assert "ns is a namespace package" in report.execution["ns"].reason
    """)
