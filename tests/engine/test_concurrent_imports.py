"""Imports from many threads neither deadlock nor bind twice, and change nothing global."""

MODEL = "def function(x):\n    return ('old', x)\n"
FAST = """
    import threading
    made = []
    def wrapped(original, options):
        made.append(original)
        return lambda x: ("new", *original(x))
"""
# A deadlock ends the interpreter with the stacks of all threads, long before the test's own limit.
WATCHDOG = """
        import faulthandler, threading
        faulthandler.dump_traceback_later(40, exit=True)
"""


def test_an_import_storm_binds_each_target_once(project):
    """Each module imports its neighbours, and every thread starts elsewhere."""
    project.write({"fast.py": FAST, "model/__init__.py": ""})
    for i in range(8):
        others = [f"from model import m{(i + step) % 8}" for step in (1, 3)]
        project.write({f"model/m{i}.py": MODEL + "\n".join(others)})
    members = [f"wrap('model.m{i}.function', 'fast.wrapped')" for i in range(8)]
    project.declare(f"group('a', {', '.join(members[:5])}), group('b', {', '.join(members[5:])})")
    project.run(f"""
        {WATCHDOG}
        report = apply()
        sys.setswitchinterval(1e-5)
        start = threading.Barrier(16)
        errors = []
        def load(i):
            start.wait()
            try:
                module = importlib.import_module(f"model.m{{i % 8}}")
                assert module.function(1) == ("new", "old", 1), i
            except BaseException as error:
                errors.append(error)
        threads = [threading.Thread(target=load, args=(i,)) for i in range(16)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert not errors, errors
        import fast
        assert len(fast.made) == 8 and report.summary["applied"] == 2, str(report)
        assert all(m.times_bound == 1 for g in report.execution.values() for m in g.members)
    """)


def test_no_lock_is_held_while_foreign_code_runs(project):
    """Bodies, replacements and factories that wait for threads which import other targets."""
    wait = """
        import threading
        def wait_for(module):
            thread = threading.Thread(target=__import__, args=(module,))
            thread.start()
            thread.join(20)
            assert not thread.is_alive()
    """
    project.write(
        {
            "waiting.py": wait,
            "model/a.py": "import waiting\nwaiting.wait_for('model.from_body')\n" + MODEL,
            "model/from_body.py": MODEL,
            "model/from_replacement.py": MODEL,
            "model/from_factory.py": MODEL,
            "fast.py": FAST,
            "slow_to_load.py": """
                import waiting
                waiting.wait_for("model.from_replacement")
                def factory(original, options):
                    waiting.wait_for("model.from_factory")
                    return lambda x: ("new", *original(x))
            """,
        }
    )
    names = ("from_body", "from_replacement", "from_factory")
    members = ", ".join(f"wrap('model.{name}.function', 'fast.wrapped')" for name in names)
    project.declare(f"""
        group('a', wrap('model.a.function', 'slow_to_load.factory')), group('others', {members})
    """)
    project.run(f"""
        {WATCHDOG}
        report = apply()
        import model.a
        assert model.a.function(1) == ("new", "old", 1)
        for name in {names}:
            assert sys.modules[f"model.{{name}}"].function(1) == ("new", "old", 1), name
        assert report.summary["applied"] == 2
    """)


def test_two_threads_that_need_each_others_module_get_through(project):
    """One imports a target whose replacement needs a second target, the other the second first."""
    project.write({"model/a.py": MODEL, "model/b.py": MODEL})
    for one, other in ("ab", "ba"):
        slow = f"import time, model.{other}\ntime.sleep(0.05)\n"
        project.write({f"fast_{one}.py": slow + MODEL.replace("old", "new")})
    project.declare("""
        group('a', replace('model.a.function', 'fast_a.function')),
        group('b', replace('model.b.function', 'fast_b.function'))
    """)
    project.run(f"""
        {WATCHDOG}
        report = apply()
        start = threading.Barrier(2)
        def load(name):
            start.wait()
            importlib.import_module(name)
        threads = [threading.Thread(target=load, args=(n,)) for n in ("model.a", "model.b")]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        from model import a, b
        assert a.function(1) == b.function(1) == ("new", 1), str(report)
        assert report.summary["applied"] == 2
    """)


def test_find_spec_takes_no_lock(project):
    """Another thread holds the engine's lock for ever; whoever searches does not notice."""
    project.write({"model.py": MODEL, "fast.py": FAST})
    project.declare("group('g', wrap('model.function', 'fast.wrapped'))")
    project.run(f"""
        {WATCHDOG}
        import importlib.util
        report = apply()
        held = threading.Event()
        def hold():
            with report.lock:
                held.set()
                threading.Event().wait()
        threading.Thread(target=hold, daemon=True).start()
        held.wait()
        assert importlib.util.find_spec("model").origin.endswith("model.py")
        assert sys.meta_path[0].find_spec("model", None, None).loader
        import colorsys
        os._exit(0)  # the lock is held for ever
    """)


def test_nothing_global_changes_while_a_body_runs(project):
    project.write(
        {
            "look.py": """
                import builtins, importlib, os, sys, threading, warnings
                def state():
                    modules = builtins, importlib, importlib.util, importlib._bootstrap
                    return [
                        *(dict(vars(m)) for m in (*modules, importlib._bootstrap_external)),
                        list(sys.path), list(sys.path_hooks), list(sys.meta_path),
                        list(warnings.filters), dict(os.environ), os.getcwd(), sys.excepthook,
                        sys.gettrace(), sys.getprofile(), threading.gettrace(),
                        sys.stdout, sys.stderr, threading.active_count(),
                    ]
            """,
            "model.py": f"import look\nduring = look.state()\n{MODEL}",
            "fast.py": FAST,
        }
    )
    project.declare("group('g', wrap('model.function', 'fast.wrapped'))")
    project.run("""
        import importlib.util, look
        apply()
        before = look.state()
        import model
        assert model.function(1) == ("new", "old", 1)
        assert model.during == before == look.state()
    """)


def test_targets_are_found_in_sys_modules_alone(project):
    """The package has no attribute for its submodule yet, or has another object there, or a lazy
    one that must not wake."""
    project.write(
        {
            "pkg/__init__.py": """
                from pkg.ops import Ops as ops      # hides the submodule, as BEVFormer does
                import importlib.util, sys
                spec = importlib.util.find_spec("pkg.lazy")
                spec.loader = importlib.util.LazyLoader(spec.loader)
                lazy = sys.modules["pkg.lazy"] = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(lazy)
            """,
            "pkg/ops.py": """
                import sys
                assert not hasattr(sys.modules["pkg"], "ops")
                class Ops:
                    def function(self, x):
                        return ("old", x)
                def function(x):
                    return ("old", x)
            """,
            "pkg/lazy.py": "import sys\nsys.woken = True\n" + MODEL,
            "fast.py": FAST,
        }
    )
    project.declare("""
        group('g', wrap('pkg.ops.function', 'fast.wrapped')),
        group('lazy', wrap('pkg.lazy.function', 'fast.wrapped'))
    """)
    project.run("""
        report = apply()
        import pkg
        assert pkg.ops().function(1) == ("old", 1)
        assert sys.modules["pkg.ops"].function(1) == ("new", "old", 1)
        assert state(report) == "applied" and state(report, "lazy") == "pending"
        assert not hasattr(sys, "woken")
        assert pkg.lazy.function(1) == ("new", "old", 1) and state(report, "lazy") == "applied"
    """)
