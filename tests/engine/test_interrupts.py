"""An exception or a fork may come at any moment of the engine's work, and nothing is lost by it.

Each test runs one history of imports again and again, each time in a child of its own, and stops it
elsewhere. What was cut short is completed by the next import: at the end every Group is wholly
applied or wholly taken back, as the report says, and nothing import-scoped is left behind.

There are about 2,000 moments; each run of the tests takes a random share of them, and with
``--hypothesis-profile=long`` all of them.
"""

from __future__ import annotations

import random

import attrs
import hypothesis
import pytest

SHARE = 60
FILES = {
    "reg.py": """
        REGISTRY = {"x": "the registry's own"}
        def hook():
            return "original"
        seen = []
    """,
    "m.py": """
        import reg
        reg.seen.append(reg.hook())
        if "x" in reg.REGISTRY:
            raise KeyError("x is registered already")
        reg.REGISTRY["x"] = "of m"
        def f(x):
            return "old"
        def other(x):
            return "old"
        class C:
            def method(self, x):
                return "old"
    """,
    "user.py": """
        from m import f
        import m
        def g(x):
            return "old"
    """,
    "late.py": """
        def h(x):
            return "old"
        def other(x):
            return "old"
    """,
    "alone.py": """
        def k(x):
            return "old"
    """,
    "fast_alone.py": """
        def k(x):
            return "new"
    """,
    "gone_here.py": "NAME = 'stand-in'\n",
    "fast.py": """
        VALUE = 7
        def hooked(original, options):
            return lambda: "during"
        def f(x):
            return "new"
        def method(self, x):
            return "new"
        def factory(original, options):
            return lambda x: "new"
        def broken(original, options):
            raise OSError("no driver")
    """,
}
GROUPS = """
    group('imports', during_import('m', 'reg.hook', 'fast.hooked'),
          registry_override('m', 'reg.REGISTRY', ['x']), inject('m', 'extra', 'fast.VALUE'),
          replace_import('gone', 'gone_here')),
    group('g', wrap('m.f', 'fast.factory', aliases=['user.f']),
          replace('m.C.method', 'fast.method'),
          replace('user.g', 'fast.f'), replace('alone.k', 'fast_alone.k')),
    group('dependent', replace('late.h', 'fast.f'), depends_on=['g']),
    group('failing', replace('m.other', 'fast.f'), wrap('late.other', 'fast.broken'))
"""
WORKER = """
    import _imp, faulthandler, functools, linecache, signal, threading, traceback
    HISTORY = "gone", "user", "late", "alone"
    stopped = []
    class Alarm(BaseException):
        pass

    def children(work, numbers, report_folder="reports"):
        "Runs `work(number)` in a child for each number."
        for number in numbers:
            pid = os.fork()
            if pid == 0:
                faulthandler.dump_traceback_later(60, exit=True)
                try:
                    work(number)
                except BaseException:
                    print(number, stopped, file=sys.stderr)
                    traceback.print_exc()
                    sys.stderr.flush()
                    os._exit(1)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0, number

    @functools.lru_cache(None)
    def is_ours(code):
        if "turbo_physai" in code.co_filename:
            return any(f"/turbo_physai/{name}/" in code.co_filename
                       for name in ("engine", "plan", "evidence", "report"))
        return code.co_name in ("_run", "_exec_module", "exec_module", "_load_original") and (
            code.co_filename == "<frozen importlib._bootstrap_external>"
            and "events" in code.co_varnames + code.co_freevars + code.co_names)

    @functools.lru_cache(None)
    def is_with(file, line):
        return linecache.getline(file, line).lstrip().startswith("with ")

    def at_each_line(act):
        "Calls `act(frame)` before each line of the engine, but for the end of a `with` block: no"
        "signal is served there, since what follows is a call into C that unlocks the lock."
        def everywhere(frame, event, argument):
            if not is_ours(frame.f_code):
                return None
            last = 0
            def local(frame, event, argument):
                nonlocal last
                if event == "line":
                    before, last = last, frame.f_lineno
                    if before <= last or not is_with(frame.f_code.co_filename, last):
                        act(frame)
                return local
            return local
        sys.settrace(everywhere)

    def play():
        for name in HISTORY:
            importlib.import_module(name)

    def places():
        "Where to stop: at the first and the last time that each line is reached, and in between."
        reader, writer = os.pipe()
        def trace(_):
            apply()
            reached = {}
            count = 0
            def record(frame):
                nonlocal count
                key = frame.f_code.co_filename, frame.f_lineno
                reached.setdefault(key, []).append(count)
                count += 1
            at_each_line(record)
            play()
            sys.settrace(None)
            chosen = {n for ns in reached.values() for n in (ns[0], ns[len(ns) // 2], ns[-1])}
            assert len(reached) > 300, len(reached)
            os.write(writer, json.dumps(sorted(chosen)).encode())
        children(trace, [0])
        os.close(writer)
        with open(reader) as file:
            return json.load(file)

    def stop_at(number, act):
        count = 0
        def each(frame):
            nonlocal count
            count += 1
            if count == number + 1:
                sys.settrace(None)
                frame.f_trace = None
                stopped[:] = frame.f_code.co_filename, frame.f_lineno
                act(frame)
        at_each_line(each)

    def is_sound(report):
        "Each Group is wholly live or wholly not, as the report says."
        import alone, gone, gone_here, late, m, reg, user
        sys.settrace(None)
        live = report.execution["imports"].state.value == "applied"
        assert gone is gone_here and live, str(report)
        assert reg.hook() == "original" and set(reg.seen) == {"during"}, reg.seen
        assert reg.REGISTRY == {"x": "of m"} and m.extra == 7
        for id_, shown in {
            "g": [m.f(1), user.f(1), m.C().method(1), user.g(1), alone.k(1)],
            "dependent": [late.h(1)],
            "failing": [m.other(1), late.other(1)],
        }.items():
            group = report.execution[id_]
            if group.state.value == "applied":
                assert set(shown) == {"new"} and id_ != "failing", (id_, shown, str(report))
                assert all(x.state.value == "bound" for x in group.members)
            else:
                assert set(shown) == {"old"}, (id_, shown, str(report))
                assert group.state.value in ("rolled_back", "blocked", "not_started"), str(report)
                assert group.reason
        assert report.final and not report.summary["pending"]
        told = journal(report)["execution"]
        assert {k: v["state"] for k, v in told.items()} == {
            k: v.state.value for k, v in report.execution.items()}
        free = []
        thread = threading.Thread(target=lambda: free.append(report.lock.acquire(blocking=False)))
        thread.start(), thread.join()
        assert free == [True]
"""


@pytest.fixture
def history(project):
    return attrs.evolve(project, timeout=3600).write(FILES).declare(GROUPS)


@pytest.fixture
def share():
    """A slice that takes a share of the moments."""
    if hypothesis.settings.default.max_examples >= 5000:
        return "::1"
    first = random.randrange(SHARE)
    print("share:", first)
    return f"{first}::{SHARE}"


@pytest.mark.slow
@pytest.mark.parametrize("error", ["KeyboardInterrupt", "SystemExit", "Alarm"])
def test_an_interrupt_at_any_line(history, share, error):
    """The import fails with it, untouched; the next attempt completes what was cut short."""
    history.run(f"""{WORKER}
    def interrupted(number):
        report = apply()
        mine = {error}("mine")
        def act(frame):
            raise mine
        stop_at(number, act)
        for attempt in 1, 2:
            try:
                play()
            except {error} as error:
                assert error is mine and attempt == 1
        is_sound(report)
    children(interrupted, places()[{share}])
    """)


@pytest.mark.slow
def test_two_interrupts(history, share):
    """The second meets the engine while it cleans up after the first."""
    history.run(f"""{WORKER}
    import random
    numbers = places()
    def interrupted(number):
        report = apply()
        count = 0
        chance = random.Random(number)
        at = {{number, number + chance.choice([1, 2, 3, 5, 8, 13, 21, 34, 55])}}
        def each(frame):
            nonlocal count
            count += 1
            if count - 1 in at:
                raise KeyboardInterrupt
        at_each_line(each)
        for attempt in 1, 2, 3:
            try:
                play()
            except KeyboardInterrupt:
                pass
        is_sound(report)
    children(interrupted, numbers[{share}])
    """)


@pytest.mark.slow
def test_real_signals(history):
    """At random moments, in the midst of a line as well, with a handler of the program's own."""
    history.run(f"""{WORKER}
    import random, time
    def handler(*_):
        raise Alarm
    def interrupted(number):
        report = apply()
        signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 0.03))
            play()
        except Alarm:
            pass
        finally:
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
        play()
        is_sound(report)
    children(interrupted, range(100))
    """)


@pytest.mark.slow
def test_a_fork_at_any_line_of_another_thread(history, share):
    """The child cannot import what that thread was importing, in Python as such. Everything else
    it can, and the Groups are patched there; nothing is locked, and nothing import-scoped is left.
    """
    history.run(f"""{WORKER}
    from turbo_physai.engine.import_state import is_orphaned
    def check_child(report):
        assert report.lock.acquire(blocking=False)
        report.lock.release()
        reg = sys.modules.get("reg")
        if hasattr(reg, "seen"):
            assert reg.hook() == "original"
            assert reg.REGISTRY["x"] == ("of m" if hasattr(sys.modules["m"], "f") else
                                         "the registry's own"), reg.REGISTRY
        if is_orphaned("alone"):
            return
        import alone
        g = report.execution["g"]
        if g.state.is_open:
            assert alone.k(1) == "new", str(report)
        else:
            assert alone.k(1) == "old" and "forked" in g.reason, str(report)
    def forked(number):
        report = apply()
        reached, go, threads = threading.Event(), threading.Event(), []
        def act(frame):
            reached.set()
            if not _imp.lock_held():  # a fork waits until no search for a module is under way
                go.wait()
        def run():
            stop_at(number, act)
            play()
            sys.settrace(None)
            reached.set()
        thread = threading.Thread(target=run)
        thread.start()
        reached.wait()
        pid = os.fork()
        if pid == 0:
            signal.alarm(30)
            try:
                check_child(report)
            except BaseException:
                print(number, stopped, file=sys.stderr)
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0, stopped
        go.set()
        thread.join()
        is_sound(report)
    children(forked, places()[{share}])
    """)
