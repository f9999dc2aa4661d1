"""`python -m turbo_physai.run` is plain python to the program: every form, flag and way to end."""

import json
import re
import shutil
import sys
import zipapp

import pytest

PROBE = """\
'''The probe's documentation.'''
import atexit, json, os, sys
here: int = 1
class Local:
    pass
main = sys.modules["__main__"]
def describe(value):
    known = (str, int, float, bool, list, dict, type(None))
    return value if isinstance(value, known) else type(value).__name__
spec = main.__spec__
world = {
    "argv": sys.argv,
    "path": sys.path,
    "flags": str(sys.flags),
    "cwd": os.getcwd(),
    "is_main": main.__dict__ is globals(),
    "main": {k: describe(v) for k, v in vars(main).items() if k.startswith("__")},
    "spec": spec and {k: describe(v) for k, v in vars(spec).items()},
    "class": [Local.__module__, Local.__qualname__],
    "warnoptions": sys.warnoptions,
    "hooks": [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__],
}
print(json.dumps(world, default=repr, sort_keys=True))
atexit.register(lambda: print("at exit", sys.modules["__main__"] is main, main.here))
"""
ADDRESS = re.compile("0x[0-9a-f]+")
RUN = ("-m", "turbo_physai.run", "--optimization-config", "optimization.yaml")

EMPTY = """\
schema_version: turbophysai/optimization-config/v1
kind: OptimizationConfig
metadata: {id: empty, version: "1"}
"""

FORMS = {
    "script": ["probe.py", "a", "-b", "--model", "c"],
    "dotted path": ["./probe.py"],
    "absolute": ["{path}/probe.py", "a"],
    "in a folder": ["tools/probe.py", "--log-report"],
    "detour": ["tools/../probe.py"],
    "symlink": ["link.py", "a"],
    "without suffix": ["probe"],
    "compiled": ["probe.pyc", "a"],
    "folder": ["application", "a", "b"],
    "folder, absolute": ["{path}/application"],
    "zip": ["application.pyz", "a"],
    "module": ["-m", "probe", "a", "-m", "b"],
    "package": ["-m", "package", "-x"],
    "submodule": ["-m", "package.inner", "--", "a"],
    "standard input": ["<probe.py", "a", "-b", "-"],
}
FLAGS = [[], ["-I"], ["-u"], ["-OO"], ["-Wignore", "-X", "dev"], ["-E", "-s"]]
if sys.version_info >= (3, 11):
    FLAGS.append(["-P"])


@pytest.fixture
def both(launch):
    """Runs a program by plain python and by ours, and returns both outcomes."""
    launch.project.write(
        {
            "empty.yaml": EMPTY,
            "probe.py": PROBE,
            "probe": PROBE,
            "tools/probe.py": PROBE,
            "application/__main__.py": PROBE,
            "package/__init__.py": "before = 1\n",
            "package/__main__.py": PROBE,
            "package/inner.py": PROBE,
        }
    )
    path = launch.path
    (path / "link.py").symlink_to(path / "tools" / "probe.py")
    zipapp.create_archive(path / "application")
    launch.python("-c", "import py_compile; py_compile.compile('probe.py', 'probe.pyc')")

    def run(program, flags=(), config="empty.yaml"):
        program = [part.format(path=path) for part in program]
        given = path / program[0].removeprefix("<")
        stdin = {"stdin": given.read_text()} if program[0].startswith("<") else {}
        program = ["-" if part.startswith("<") else part for part in program]
        plain = launch.python(*flags, *program, code=None, **stdin)
        ours = launch.python(*flags, *RUN[:-1], config, *program, code=None, **stdin)
        return plain, ours

    return run


def mostly_slow(cases, *fast):
    """All cases as parameters; those that are not named here are for the whole suite only."""
    return [pytest.param(c, marks=() if c in fast else pytest.mark.slow) for c in cases]


def same(plain, ours):
    assert ADDRESS.sub("", ours.stderr) == ADDRESS.sub("", plain.stderr)
    assert ours.stdout == plain.stdout
    assert ours.returncode == plain.returncode


@pytest.mark.parametrize(
    "form", mostly_slow(FORMS, "symlink", "folder", "package", "standard input")
)
def test_a_program_finds_the_world_as_plain_python_makes_it(both, form):
    plain, ours = both(FORMS[form])
    assert plain.returncode == 0, plain.stderr
    assert json.loads(ours.stdout.splitlines()[0]) == json.loads(plain.stdout.splitlines()[0])
    same(plain, ours)


@pytest.mark.slow
@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
@pytest.mark.parametrize("form", ["in a folder", "folder", "module", "standard input"])
def test_the_flags_of_python_mean_what_they_mean(both, form, flags):
    plain, ours = both(FORMS[form], flags)
    same(plain, ours)  # also where the program cannot be found: -I and -P hide the folder


ENDS = {
    "exit code": "import sys; sys.exit(5)",
    "exit message": "import sys; sys.exit('enough')",
    "at once": "import os; os._exit(7)",
    "error": "def f():\n    raise ValueError('no')\nf()\n",
    "cause": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e\n",
    "syntax": "print('never')\nif True print(1)\n",
    "missing import": "import absent_module",
    "import with an error": "import broken",
    "own hook": "import sys\nsys.excepthook = lambda *a: print(a[0], a[2].tb_lineno)\n1/0\n",
    "thread": "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='t')\n"
    "t.start(); t.join()\n",
    "unraisable": "class A:\n    def __del__(self): 1 / 0\ndel (A(),)[0:0]\nA()\n",
    "interrupt": "raise KeyboardInterrupt",
    "terminated": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "error at exit": "import atexit\natexit.register(lambda: 1 / 0)\n",
}
if sys.version_info >= (3, 11):
    ENDS["group"] = "raise ExceptionGroup('several', [ValueError(1), TypeError(2)])"


@pytest.mark.parametrize("end", mostly_slow(ENDS, "exit code", "cause", "syntax", "own hook"))
def test_a_program_ends_as_under_plain_python(both, launch, end):
    launch.project.write({"end.py": ENDS[end], "broken.py": "x = = 1\n"})
    same(*both(["end.py"]))


@pytest.mark.parametrize("end", mostly_slow(ENDS, "cause", "own hook"))
def test_a_program_on_standard_input_ends_as_under_plain_python(both, launch, end):
    launch.project.write({"end.py": ENDS[end], "broken.py": "x = = 1\n"})
    same(*both(["<end.py"]))


@pytest.mark.parametrize(
    "source",
    [
        "print('\u00e9'.encode())\n",
        "print(input('more? '))\nleft over\n",
        "",
        "import sys; print(sys.stdin.read())",
        "print(1)\r\nprint(2)\r\n",
    ],
)
def test_a_program_on_standard_input_is_read_as_by_plain_python(both, launch, source):
    (launch.path / "given.py").write_bytes(source.encode())
    same(*both(["<given.py"]))


def test_a_program_on_standard_input_is_patched(launch):
    source = (launch.path / "main.py").read_text()
    for name in ("-", "/dev/stdin"):  # the latter is a pipe like any other, and read once
        done = launch.python(*RUN, name, stdin=source, PYTHONPATH=str(launch.path))
        assert (done.stdout, done.stderr) == ("fast\n", "")
    assert [report["summary"]["applied"] for report in launch.reports] == [1, 1]


@pytest.mark.parametrize("form", ["module", "folder"])
def test_the_traceback_of_a_module_is_that_of_plain_python(both, launch, form):
    launch.project.write({"failing/__main__.py": "def f():\n    1 / 0\nf()\n"})
    same(*both(["-m", "failing"] if form == "module" else ["failing"]))


@pytest.mark.parametrize("name", ["absent", "package.absent", "model.inner"])
def test_a_module_that_is_not_there_is_missed_in_the_words_of_python(both, name):
    same(*both(["-m", name]))


def test_a_script_that_is_not_there_ends_with_the_code_2(launch):
    done = launch.python(*RUN, "absent.py", code=2)
    assert done.stderr == (
        f"turbo_physai: can't open file '{launch.path}/absent.py': no such file\n"
    )


def test_standard_input_belongs_to_the_program(launch):
    launch.project.write({"echo.py": "print(input()[::-1])\n"})
    done = launch("sh", "-c", f"echo abc | {launch.interpreter} {' '.join(RUN)} echo.py")
    assert done.stdout == "cba\n"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("form", ["script", "module"])
def test_children_of_multiprocessing_unpickle_classes_of_the_program(both, launch, method, form):
    source = f"""\
        import multiprocessing as mp
        import model
        class Local:
            def __init__(self, x): self.x = x
        def double(local): return Local(2 * local.x)
        def how(_): return model.f()
        if __name__ == "__main__":
            with mp.get_context("{method}").Pool(2) as pool:
                print([local.x for local in pool.map(double, [Local(1), Local(2)])])
                print(pool.map(how, [1, 2]))
        """
    launch.project.write({"work/__main__.py": source, "parallel.py": source})
    shutil.copy(launch.path / "model.py", launch.path / "work")
    program = {"script": ["parallel.py"], "module": ["-m", "parallel"], "folder": ["work"]}[form]
    plain, ours = both(program, config="optimization.yaml")
    assert plain.stdout == "[2, 4]\n['slow', 'slow']\n"
    assert ours.stdout == "[2, 4]\n['fast', 'fast']\n"
    assert ours.stderr == plain.stderr == ""


def test_nothing_of_ours_is_imported_twice(launch):
    launch.project.write(
        {
            "once.py": """\
            import collections, sys
            import model
            import turbo_physai.run
            files = [getattr(m, "__file__", None) for m in list(sys.modules.values())]
            count = collections.Counter(f for f in files if f and "turbo_physai" in f)
            print(model.f(), [f for f, n in count.items() if n > 1])
            """
        }
    )
    assert launch.python(*RUN, "once.py").stdout == "fast []\n"


def test_the_modules_beside_a_program_may_declare_groups(launch):
    (launch.path / "tools").mkdir()
    for name in ("declared.py", "main.py", "model.py", "quick.py"):
        (launch.path / name).rename(launch.path / "tools" / name)
    assert launch.python(*RUN, "tools/main.py").stdout == "fast\n"
