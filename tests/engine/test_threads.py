"""Import storms: whatever the threads do, each target is bound once and nothing waits for ever.

Each test runs packages of random shape through one interpreter, each with threads of its own.
"""

from __future__ import annotations

import random

import pytest

PACKAGES, MODULES = 6, 5

# A deadlock ends the interpreter with the stacks of all threads.
STORM = """
import faulthandler, threading
faulthandler.dump_traceback_later(60, exit=True)
sys.setswitchinterval(1e-5)

def storm(work, *arguments):
    "Runs `work` once per argument, all at the same time."
    start, errors = threading.Barrier(len(arguments)), []
    def run(argument):
        start.wait()
        try:
            work(argument)
        except BaseException as error:
            errors.append(error)
    threads = [threading.Thread(target=run, args=(each,)) for each in arguments]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert not errors, errors

def settled(report):
    for id_, group in report.execution.items():
        assert group.state.value == "applied", (id_, group)
        assert [m.times_bound for m in group.members] == [1] * len(group.members), (id_, group)
    assert report.final
"""
# Two threads that import in a circle may find each other's module locked before it is in
# sys.modules. Python then refuses one of the imports, with or without hooks; it may be made again.
IMPORT = """
def import_again(name):
    while True:
        try:
            return importlib.import_module(name)
        except importlib._bootstrap._DeadlockError:
            pass
"""
TARGET = "def f(x):\n    return ['old', {name!r}]\n"
REPLACED = "def f(x):\n    return ['new', {name!r}]\n"
FACTORY = """
def factory(original, options):
    import {other}
    def f(x):
        return ['new', original(x)[1]]
    return f
"""


def names(package: int) -> list[str]:
    return [f"p{package}.m{i}" for i in range(MODULES)]


@pytest.fixture
def chance() -> random.Random:
    seed = random.randrange(2**32)
    print("seed:", seed)
    return random.Random(seed)


def declare(project, chance: random.Random, *, circles: bool = True) -> None:
    """Two Groups per package; of each target a replacement, or a factory, that imports another.

    `circles` lets them import modules that import the target. Without threads that is no harm, but
    where two threads meet in a circle Python itself hands out modules whose body has not ended.
    """
    groups = []
    for package in range(PACKAGES):
        members = []
        for i, name in enumerate(names(package)):
            fast = name.replace(".", "_fast_")
            other = chance.choice(names(package) if circles else names(package)[: i + 1])
            if chance.random() < 0.5:
                project.write({f"{fast}.py": f"import {other}\n" + REPLACED.format(name=name)})
                members.append(f"replace('{name}.f', '{fast}.f')")
            else:
                project.write({f"{fast}.py": FACTORY.format(other=other)})
                members.append(f"wrap('{name}.f', '{fast}.factory')")
        one, two = members[:2], members[2:]
        groups.append(f"group('one{package}', {', '.join(one)})")
        depends = f", depends_on=['one{package}']" if package % 2 else ""
        groups.append(f"group('two{package}', {', '.join(two)}{depends})")
    project.declare(",\n".join(groups))


def test_storms_through_circular_packages(project, chance):
    for package in range(PACKAGES):
        for name in names(package):
            before, after = (f"import {chance.choice(names(package))}\n" for _ in range(2))
            text = before + TARGET.format(name=name) + after
            project.write({f"{name.replace('.', '/')}.py": text})
    declare(project, chance)
    project.run(f"""{STORM}{IMPORT}
report = apply()
for package in range({PACKAGES}):
    names = [f"p{{package}}.m{{i}}" for i in range({MODULES})]
    storm(import_again, *names, *names)
    for name in names:
        assert sys.modules[name].f(0) == ["new", name], (name, str(report))
settled(report)
""")


def test_everyone_who_imports_a_name_gets_the_replacement(project, chance):
    """No circle here, so no thread may ever see the original: neither by an import statement of its
    own nor in a module that captured it. Half of the Groups bind late, when names were captured."""
    for package in range(PACKAGES):
        for i, name in enumerate(names(package)):
            lower = chance.sample(names(package)[:i], min(i, 2))
            captured = [f"from {other} import f as {other[-2:]}\n" for other in lower]
            text = "".join(captured) + TARGET.format(name=name)
            project.write({f"{name.replace('.', '/')}.py": text})
    declare(project, chance, circles=False)
    project.run(f"""{STORM}
report = apply()
def load(name):
    exec(f"from {{name}} import f")
for package in range({PACKAGES}):
    names = [f"p{{package}}.m{{i}}" for i in range({MODULES})]
    storm(load, *reversed(names), *names)
    for name in names:
        for key, held in vars(sys.modules[name]).items():
            if callable(held) and not key.startswith("__"):
                assert held(0)[0] == "new", (name, key, str(report))
settled(report)
""")


def test_bodies_may_start_threads_that_import(project, chance):
    for package in range(PACKAGES):
        project.write({f"p{package}/__init__.py": "import threading\nthreads = []\n"})
        for name in names(package):
            other = chance.choice(names(package))
            start = f"""
import threading, p{package}
thread = threading.Thread(target=__import__, args=({other!r},))
thread.start()
p{package}.threads.append(thread)
"""
            text = start + TARGET.format(name=name)
            project.write({f"{name.replace('.', '/')}.py": text})
    declare(project, chance)
    project.run(f"""{STORM}
report = apply()
for package in range({PACKAGES}):
    names = [f"p{{package}}.m{{i}}" for i in range({MODULES})]
    storm(importlib.import_module, *names)
    for thread in sys.modules[f"p{{package}}"].threads:
        thread.join()
    for name in names:
        assert sys.modules[name].f(0) == ["new", name], (name, str(report))
settled(report)
""")
