"""Modules that fail, come again, are reloaded, or are another module altogether."""

import pytest

MODEL = "def function(x):\n    return ('old', x)\n"
FAST = """
    calls = []
    def function(x):
        return ("new", x)
    def wrapped(original, options):
        return lambda x: ("new", *original(x))
    def failing(original, options):
        calls.append(original)
        raise OSError("no driver")
"""


@pytest.mark.parametrize("failure", ["'fast.failing'", "'fast.missing'", "'broken.function'"])
def test_a_failing_member_is_rolled_back_and_stays_so(project, failure):
    """The model's import always succeeds, with the originals of the whole Group, at the first
    attempt and at every later one."""
    project.write({"model.py": MODEL + "def other(x):\n    return ('old', x)\n", "fast.py": FAST})
    project.write({"broken.py": "raise OSError('no driver')\n" + MODEL})
    project.declare(f"""
        group('g', wrap('model.function', 'fast.wrapped'), wrap('model.other', {failure}))
    """)
    project.run("""
        report = apply()
        for attempt in range(3):
            import model
            assert model.function(1) == model.other(1) == ("old", 1)
            assert state(report) in ("rolled_back", "blocked") and report.final
            del sys.modules["model"]
        group, = report.execution.values()
        assert "model.other" in group.reason or "fast.missing" in group.reason, group.reason
        assert sys.modules.get("fast") is None or len(sys.modules["fast"].calls) <= 1
    """)


@pytest.mark.parametrize("error", ["ImportError('x')", "ValueError('x')", "KeyboardInterrupt('x')"])
def test_a_module_that_fails_is_patched_when_it_succeeds(project, error):
    """The failure is the model's own: untouched, and not reported as ours."""
    project.write(
        {
            "model.py": f"import sys\n{MODEL}if not hasattr(sys, 'ready'):\n    raise {error}\n",
            "fast.py": FAST,
        }
    )
    project.declare("group('g', wrap('model.function', 'fast.wrapped'))")
    project.run(f"""
        report = apply()
        for _ in range(2):
            try:
                import model
            except BaseException as error:
                assert repr(error) == {error!r}.replace('"', "'"), repr(error)
                assert error.__cause__ is None and error.__context__ is None
                assert not hasattr(error, "__notes__")
        assert state(report) == "pending" and not report.final
        assert report.execution["g"].error is report.execution["g"].members[0].error is None
        assert "model" not in sys.modules and "fast" not in sys.modules
        sys.ready = True
        import model
        assert model.function(1) == ("new", "old", 1) and state(report) == "applied"
    """)


def test_a_module_that_runs_again_is_patched_again(project):
    """Reloaded, or removed and imported again; "original" is then the newest one."""
    project.write({"model.py": MODEL, "late.py": MODEL, "fast.py": FAST})
    project.declare("""
        group('g', wrap('model.function', 'fast.wrapped'), wrap('late.function', 'fast.failing'))
    """)
    project.run("""
        report = apply()
        import model
        member, _ = report.execution["g"].members
        for times in (2, 3):
            assert importlib.reload(model) is model
            assert model.function(1) == ("new", "old", 1) and member.times_bound == times
        del sys.modules["model"]
        import model as again
        assert again is not model and again.function(1) == ("new", "old", 1)
        assert model.function(1) == ("new", "old", 1) and member.times_bound == 4
        newest = member.exchange.old
        import late
        assert state(report) == "rolled_back"
        assert again.function is newest and again.function(1) == ("old", 1)
        importlib.reload(again)
        assert again.function(1) == ("old", 1) and member.times_bound == 4
    """)


def test_what_runs_again_is_checked_again(project):
    """A module that was edited between two runs is no longer the code that is trusted."""
    from turbo_physai.evidence import hashes

    project.write({"model.py": MODEL, "fast.py": FAST})
    trusted = hashes.source_hash([MODEL.strip()])
    project.declare(
        "group('g', wrap('model.function', 'fast.wrapped'))",
        g=f"trust: {{source_hashes: {{model.function: ['{trusted}']}}}}",
    )
    project.run("""
        report = apply()
        import model
        assert model.function(1) == ("new", "old", 1)
        with open("model.py", "a") as file:
            file.write("\\ndef function(x):\\n    return ('edited', x)\\n")
        importlib.invalidate_caches()
        importlib.reload(model)
        assert model.function(1) == ("edited", 1)
        assert state(report) == "rolled_back" and "hash" in report.execution["g"].reason
    """)


def test_a_replacing_module_is_honest(project):
    """It is a real module with a true spec, and whoever asks for more is told the truth."""
    project.write(
        {
            "a/b.py": "name = 'old'\ndef only_old(): ...\n",
            "ours.py": "name = 'new'\ndef function(x):\n    return x\n",
            "user.py": "import a.b\nfrom a import b\nfrom a.b import name\n",
        }
    )
    project.declare("group('g', replace_import('a.b', 'ours'), replace_import('gone', 'ours'))")
    project.run("""
        import importlib.metadata, importlib.util, inspect
        report = apply()
        assert importlib.util.find_spec("a.b").origin.endswith(os.path.join("a", "b.py"))
        assert importlib.util.find_spec("gone") is None
        import user, ours, a, gone
        assert user.b is user.a.b is a.b is sys.modules["a.b"] is gone is ours
        assert user.name == "new"
        assert not hasattr(a.b, "only_old") and not hasattr(a.b, "no_such_name")
        assert a.b.__spec__.origin.endswith("ours.py") and a.b.__name__ == "ours"
        assert importlib.util.find_spec("a.b") is ours.__spec__
        for known in (a.b, a.b.function):
            assert "return x" in inspect.getsource(known)
        for distribution in ("gone", "a", "ours"):
            try:
                importlib.metadata.version(distribution)
            except importlib.metadata.PackageNotFoundError:
                continue
            raise AssertionError(distribution)
        assert importlib.reload(ours) is ours and a.b is ours
        for name in ("a.b.sub", "gone.sub"):
            try:
                importlib.import_module(name)
            except ModuleNotFoundError as error:
                assert error.name == name
        assert state(report) == "applied", str(report)
    """)


def test_a_stand_in_is_empty_and_nobody_who_asks_is_told_that_it_is_installed(project):
    project.write(
        {
            "model.py": """
                import importlib.util
                has_flash = importlib.util.find_spec("flash") is not None
                try:
                    import flash
                except ImportError:
                    flash = None
                import json
            """
        }
    )
    project.declare("group('g', optional_import('flash'), optional_import('json'))")
    project.run("""
        import importlib.metadata, importlib.util
        report = apply()
        assert importlib.util.find_spec("flash") is None
        import model
        assert model.has_flash is False and model.json.dumps([]) == "[]"
        flash = model.flash
        assert flash.__spec__.name == "flash" and "turbo_physai" in flash.__spec__.origin
        assert "not installed" in flash.__doc__
        assert not hasattr(flash, "attention") and not hasattr(flash, "__version__")
        assert [name for name in vars(flash) if name[0] != "_"] == []
        assert importlib.util.find_spec("flash") is flash.__spec__  # it was imported: it is there
        for name in ("flash.ops", "flash.no.such"):
            try:
                importlib.import_module(name)
            except ModuleNotFoundError as error:
                assert error.name in name
            else:
                raise AssertionError(name)
        try:
            from flash import attention
        except ImportError as error:
            assert error.name == "flash"
        else:
            raise AssertionError
        assert importlib.reload(flash) is flash
        assert state(report) == "applied", str(report)
    """)
