"""Random models, random Groups, random histories: the engine against an oracle.

Each example writes a small model and Groups for it, and runs it in two fresh interpreters, one with
the engine and one without. Both import, reload, delete and fail alike. What the twin without the
engine shows is what every module, name and exception must look like; only the targets of Groups
that the oracle calls live may differ from it, and those must show the replacement.

Run longer with ``--hypothesis-profile=long``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import hypothesis
import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

ROOT = Path(__file__).parents[2]
MODULES = ("pk.b", "pk.sub.c", "pk.sub", "pk", "lone", "pk.a")
EXAMPLES = 250
OPEN = ("pending", "applied")

WORLD = """\
begun, ended, failing, calls = {}, {}, {}, {}
ERRORS = {e.__name__: e for e in (ImportError, ValueError, SystemExit)}

def begin(module):
    begun[module] = begun.get(module, 0) + 1
    return begun[module]

def end(module):
    ended[module] = ended.get(module, 0) + 1

def may_fail(module):
    if failing.get(module):
        raise ERRORS[failing[module]](module)

def called(member):
    calls[member] = calls.get(member, 0) + 1
    return calls[member]
"""

# Every value tells which definition it comes from, and in which run of its module it was made.
FUNCTION = """
def f(x, *, run=RUN):
    return ["{module}.f", run]
"""
CLASS = """
class C:
    TAG = ["{module}.C", RUN]
    def m(self, x, *, run=RUN):
        return ["{module}.C.m", run]
    @staticmethod
    def s(x, *, run=RUN):
        return ["{module}.C.s", run]
    @classmethod
    def k(cls, x, *, run=RUN):
        return ["{module}.C.k", run]
"""
IMPORTS = {
    "import": "import {module}",
    "name": "from {module} import {name} as {alias}",
    # These hold the object in ways that cannot all be rebound.
    "attribute": "class H{alias}:\n    from {module} import f\n    held = f\n    del f",
    "default": (
        "from {module} import f as {alias}\ndef d{alias}(x, held={alias}):\n    return held(x)"
    ),
    "subclass": "from {module} import C as {alias}\nclass S{alias}({alias}):\n    pass",
}
REPLACEMENT = """\
import sys, world
kept = getattr(sys.modules.get("{module}"), "f", None)
{raises}
def f(x, *, run=0):
    return ["new", {name!r}]

class C:
    TAG = ["new", {name!r}]
    def m(self, x, *, run=0):
        return ["new", {name!r}]
    @staticmethod
    def s(x, *, run=0):
        return ["new", {name!r}]
    @classmethod
    def k(cls, x, *, run=0):
        return ["new", {name!r}]

def unfit():
    return None

def factory(original, options):
    if world.called({name!r}) >= {good_calls}:
        raise OSError("no driver")
    def wrapper({first}x, *, run=None):
        kept = {{}} if run is None else {{"run": run}}
        return ["wrapped", {name!r}, original({first}x, **kept)]
    return unfit if {unfit} else wrapper
"""

# What is wrong with a member, and whether that shows in its source.
FAULTS = {
    "missing target": True,
    "missing replacement": True,
    "unfit replacement": True,
    "wrong kind": True,
    "unfit wrapper": False,
    "raising factory": False,
    "factory that raises the second time": False,
    "raising module": False,
}
OF_WRAPPERS = {"unfit wrapper", "raising factory", "factory that raises the second time"}
OF_REPLACEMENTS = {"unfit replacement", "wrong kind"}


@attrs.frozen
class Import:
    """An import statement of a generated module: at which of its four places, of what, how."""

    place: int
    module: str
    kind: str
    name: str

    @property
    def alias(self) -> str:
        # Only `name` holds what its name says, and what aliases are declared for.
        stem = f"{self.module.replace('.', '_')}_{self.name}"
        return stem if self.kind == "name" else f"{stem}_{self.kind}"

    def render(self) -> str:
        return IMPORTS[self.kind].format(module=self.module, name=self.name, alias=self.alias)


@attrs.frozen
class Module:
    """A generated module: `f`, then `C`, with imports and a point of failure between them."""

    name: str
    imports: tuple[Import, ...]
    fails_at: int

    @property
    def file(self) -> str:
        path = self.name.replace(".", "/")
        return f"{path}/__init__.py" if self.name in ("pk", "pk.sub") else f"{path}.py"

    def render(self) -> str:
        lines = ["import world", "RUN = world.begin(__name__)"]
        for place, definition in enumerate((FUNCTION, CLASS, "")):
            lines += [each.render() for each in self.imports if each.place == place]
            if self.fails_at == place:
                lines.append("world.may_fail(__name__)")
            lines.append(definition.format(module=self.name))
        return "\n".join([*lines, "world.end(__name__)", ""])


@attrs.frozen
class Member:
    """One Replacement of a generated Group; `id` also names the module of its replacement."""

    id: str
    module: str
    name: str
    kind: str
    fault: str | None
    aliases: tuple[tuple[str, str], ...]

    @property
    def target(self) -> str:
        return f"{self.module}.{self.name}"

    @property
    def paths(self) -> set[str]:
        return {self.declared, *(f"{module}.{name}" for module, name in self.aliases)}

    @property
    def declared(self) -> str:
        return f"{self.target}_nothing" if self.fault == "missing target" else self.target

    @property
    def watched(self) -> set[str]:
        """The modules whose import has the Group's evidence gathered."""
        names = [self.module, *(module for module, _ in self.aliases)]
        return {".".join(n.split(".")[:i]) for n in names for i in range(1, n.count(".") + 2)}

    def covers(self, definition: str) -> bool:
        return f"{definition}.".startswith(f"{self.target}.")

    def replaced(self, value: list[Any]) -> list[Any]:
        """What stands where the twin shows `value`."""
        return ["new", self.id] if self.kind == "replace" else ["wrapped", self.id, value]

    def declare(self) -> str:
        last = self.name if self.kind == "replace" else "factory"
        if self.fault == "missing replacement":
            last = "nothing"
        elif self.fault == "unfit replacement":
            last = "unfit"
        elif self.fault == "wrong kind":
            last = "f" if self.name == "C" else "C"
        aliases = [f"{module}.{name}" for module, name in self.aliases]
        return f"{self.kind}({self.declared!r}, '{self.id}.{last}', aliases={aliases})"

    def render(self) -> str:
        good_calls = {"raising factory": 1, "factory that raises the second time": 2}
        return REPLACEMENT.format(
            name=self.id,
            module=self.module,
            first={"C.m": "self, ", "C.k": "cls, "}.get(self.name, ""),
            unfit=self.fault == "unfit wrapper",
            raises="raise OSError('no driver')" if self.fault == "raising module" else "",
            good_calls=good_calls.get(self.fault or "", 1000),
        )


@attrs.frozen
class Group:
    id: str
    members: tuple[Member, ...]
    depends_on: tuple[str, ...]

    def declare(self) -> str:
        members = ", ".join(member.declare() for member in self.members)
        return f"group({self.id!r}, {members}, depends_on={self.depends_on})"


@attrs.frozen
class Scenario:
    """A model, Groups for it, and the modules that are imported before apply()."""

    modules: tuple[Module, ...]
    groups: tuple[Group, ...]
    early: tuple[str, ...]

    @property
    def members(self) -> list[Member]:
        return [member for group in self.groups for member in group.members]

    def write(self, folder: Path) -> None:
        declarations = ",\n".join(group.declare() for group in self.groups)
        files = {
            "world.py": WORLD,
            "declared.py": f"from turbo_physai import *\nGROUPS = ({declarations},)\n",
            "optimization.yaml": json.dumps(self._config()),
            **{module.file: module.render() for module in self.modules},
            **{f"{member.id}.py": member.render() for member in self.members},
        }
        for name, text in files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def _config(self) -> dict[str, Any]:
        return {
            "schema_version": "turbophysai/optimization-config/v1",
            "kind": "OptimizationConfig",
            "metadata": {"id": "test", "version": "1"},
            "optimization_modules": ["declared"],
            "optimization_groups": [{"id": group.id} for group in self.groups],
        }


# Who imports what by name: (module, name) of the object, then of each name that holds it.
Captured = dict[tuple[str, str], list[tuple[str, str]]]


def modules() -> st.SearchStrategy[tuple[Module, ...]]:
    def of(name: str) -> st.SearchStrategy[Module]:
        # Mostly of modules further down, so that not every import ends in a circle.
        below = MODULES[MODULES.index(name) + 1 :] or ("lone",)
        others = st.sampled_from([*below * 6, *MODULES])
        imports = st.builds(
            Import,
            place=st.integers(0, 2),
            module=others.filter(lambda other: other != name),
            kind=st.sampled_from([*sorted(IMPORTS), "name"]),
            name=st.sampled_from("fC"),
        )
        unique = st.lists(imports, max_size=3, unique_by=lambda i: (i.kind, i.module))
        return st.builds(Module, st.just(name), unique.map(tuple), st.integers(0, 2))

    return st.tuples(*map(of, MODULES))


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    model = draw(modules())
    captured: Captured = {}
    for module in model:
        for each in module.imports:
            if each.kind == "name":
                path = each.module, each.name
                captured.setdefault(path, []).append((module.name, each.alias))
    groups: list[Group] = []
    used: set[str] = set()
    for number in range(draw(st.integers(1, 3))):
        members: dict[str, Member] = {}
        for _ in range(draw(st.integers(1, 4))):
            member = draw(_members(captured))
            # A class and its methods are not replaced both; one target in two Groups is a conflict.
            overlaps = any(
                member.covers(other) != (member.target == other)
                or f"{member.target}.".startswith(f"{other}.") != (member.target == other)
                for other in used
            )
            if not overlaps and member.target not in members:
                used.add(member.target)
                members[member.target] = attrs.evolve(member, id=f"fast{number}{len(members)}")
        earlier = [group.id for group in groups]
        depends = draw(st.lists(st.sampled_from(earlier), max_size=1)) if earlier else []
        if members:
            groups.append(Group(f"g{number}", tuple(members.values()), tuple(depends)))
    early = draw(st.lists(st.sampled_from(MODULES), max_size=2)) if draw(st.booleans()) else []
    return Scenario(model, tuple(groups), tuple(early))


@st.composite
def _members(draw: st.DrawFn, captured: Captured) -> Member:
    everywhere = [(module, name) for module in MODULES for name in ("f", "C.m", "C.s", "C.k", "C")]
    module, name = draw(st.sampled_from([*everywhere, *4 * sorted(captured)]))
    kind = "replace" if name == "C" else draw(st.sampled_from(["replace", "wrap"]))
    fault = None
    if draw(st.integers(0, 4)) == 4:
        fitting = set(FAULTS) - (OF_REPLACEMENTS if kind == "wrap" else OF_WRAPPERS)
        if name == "C":
            fitting.discard("unfit replacement")
        late = [fault for fault in sorted(fitting) if not FAULTS[fault]]  # these are met half-way
        fault = draw(st.sampled_from(sorted(fitting) + 3 * late))
    holders = captured.get((module, name), [])
    aliases = draw(st.lists(st.sampled_from(holders), max_size=1)) if holders else []
    return Member("", module, name, kind, fault, tuple(aliases))


class Oracle:
    """What should be live, told from which bodies the twin has run.

    Attributes:
        runs: how often the body of each module has ended.
        state: per Group, its state; two states joined by ``|`` where either is right.
        bound: the members that are bound, and how often.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.groups = scenario.groups
        self.runs: Counter[str] = Counter()
        self.state = {group.id: "pending" for group in self.groups}
        self.bound: Counter[str] = Counter()
        claimed: set[str] = set()
        for group in self.groups:
            paths = {path for member in group.members for path in member.paths}
            if paths & claimed:
                self.state[group.id] = "blocked"
            else:
                claimed |= paths

    def happened(self, new: Counter[str], begun: set[str], calls: dict[str, int]) -> None:
        """Takes note of a step.

        Args:
            new: how often the body of each module ended in it.
            begun: the modules whose body has begun since apply().
            calls: how often each factory was called.
        """
        self.runs += new
        for group in self.groups:
            for member in group.members:
                if self.bound[member.id]:
                    self.bound[member.id] += new[member.module]
        before = None
        while before != self.state:  # a Group that comes to its end takes others along
            before = dict(self.state)
            for group in self.groups:
                if self.state[group.id] in OPEN:
                    self.state[group.id] = self._next(group, begun, calls)

    def _next(self, group: Group, begun: set[str], calls: dict[str, int]) -> str:
        needed = [self.state[id_] for id_ in group.depends_on]
        if any(state not in OPEN for state in needed):
            if any(self.bound[member.id] for member in group.members):
                return "rolled_back"
            # Within one step it may have begun, or met a fault of its own, before they ended.
            has_fault = any(member.fault for member in group.members)
            return "not_started|rolled_back" + "|blocked" * has_fault
        ready = all(state == "applied" for state in needed)
        due = [member for member in group.members if ready and self.runs[member.module]]
        if any(FAULTS.get(member.fault or "") for member in group.members):
            seen = due or any(member.watched & begun for member in group.members)
            return "blocked" if seen else "pending"
        good = [member for member in due if not self._fails(member, calls)]
        for member in good:
            self.bound[member.id] = self.bound[member.id] or 1
        if good != due:
            return "blocked|rolled_back"
        places = {module for m in group.members for module in (m.module, *dict(m.aliases))}
        complete = len(due) == len(group.members) and all(self.runs[name] for name in places)
        return "applied" if complete else "pending"

    @staticmethod
    def _fails(member: Member, calls: dict[str, int]) -> bool:
        if member.fault == "factory that raises the second time":
            return calls.get(member.id, 0) > 1
        return member.fault is not None


class Interpreter:
    """The worker process: a fresh interpreter per example, asked in JSON."""

    def __init__(self, *arguments: str, reports: Path) -> None:
        own = {
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TURBO_PHYSAI_REPORT_DIR": str(reports),
        }
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("model_worker.py")), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **own},
        )

    def ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the interpreter died: see its standard error"
        told = json.loads(answer)
        assert "crash" not in told, told["crash"]
        return told

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Histories(RuleBasedStateMachine):
    """One example: a scenario and its history, in both interpreters."""

    def __init__(self, plain: Interpreter, engine: Interpreter, folder: Path) -> None:
        super().__init__()
        self.interpreters, self.folder = (plain, engine), folder
        self.started = self.ended = False

    @initialize(scenario=scenarios())
    def start(self, scenario: Scenario) -> None:
        scenario.write(self.folder)
        self.scenario, self.oracle = scenario, Oracle(scenario)
        self.plain, self.engine = self.ask(
            do="begin",
            folder=str(self.folder),
            modules=MODULES,
            replacements=[member.id for member in scenario.members],
            early=scenario.early,
        )
        self.started = True
        self.begun_early = Counter(self.plain["begun"])
        self.oracle.happened(Counter(self.plain["ended"]), set(), self.engine["calls"])
        self.check()

    def step(self, **request: Any) -> None:
        begun, ended = Counter(self.plain["begun"]), Counter(self.plain["ended"])
        self.plain, self.engine = self.ask(**request)
        new_begun, new = Counter(self.plain["begun"]) - begun, Counter(self.plain["ended"]) - ended
        # What a reload has defined before it failed is in force, so that counts as a run as well.
        name = request.get("name")
        if request["do"] == "reload" and self.oracle.runs[name] and new_begun[name]:
            new[name] = 1
        begun_since_apply = set(begun + new_begun - self.begun_early)
        self.oracle.happened(new, begun_since_apply, self.engine["calls"])
        self.check()

    def ask(self, **request: Any) -> list[Any]:
        return [each.ask(**request) for each in self.interpreters]

    @rule(names=st.lists(st.sampled_from(MODULES), min_size=1, max_size=3, unique=True))
    def import_(self, names: list[str]) -> None:
        for name in names:
            self.step(do="import", name=name)

    @precondition(lambda self: self.started and self.plain["modules"])
    @rule(data=st.data())
    def reload(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.plain["modules"])))
        if not self.leaves_an_alias_behind(name):
            self.step(do="reload", name=name)

    @precondition(lambda self: self.started and self.plain["modules"])
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.plain["modules"])))
        if not self.leaves_an_alias_behind(name):
            self.step(do="delete", name=name)

    @rule(
        name=st.sampled_from(MODULES),
        error=st.sampled_from([None, None, "ImportError", "ValueError", "SystemExit"]),
    )
    def fail(self, name: str, error: str | None) -> None:
        self.step(do="fail", name=name, error=error)

    def leaves_an_alias_behind(self, name: str) -> bool:
        """Whether an alias of a target that waits to be bound would go on holding the object of an
        earlier run of its module, which rightly takes the Group back: the oracle has no runs."""
        return any(
            member.aliases and member.module == name and self.oracle.state[group.id] == "pending"
            for group in self.scenario.groups
            for member in group.members
        )

    def only_live_targets_differ_from_the_twin(self) -> None:
        assert self.engine["error"] == self.plain["error"]
        assert self.engine["modules"].keys() == self.plain["modules"].keys()
        for name, module in self.plain["modules"].items():
            shown = self.engine["modules"][name]
            assert shown["face"] == module["face"]
            assert shown["values"].keys() == module["values"].keys()
            for key, value in module["values"].items():
                accepted = self.accepted(key, value)
                assert shown["values"][key] in accepted, f"{name}.{key}"
        for member in self.scenario.members:  # the replacement's module keeps what it imported
            kept = self.engine["kept"].get(member.id)
            assert member.name != "f" or kept is None or kept[0] == member.target

    def accepted(self, key: str, value: list[Any]) -> list[Any]:
        """What may be seen where the twin shows `value`, under the name `key` of some module."""
        for group in self.scenario.groups:
            for member in group.members:
                if member.covers(value[0]) and self.oracle.bound[member.id]:
                    return self.accepted_of(group, member, key, value)
        return [value]

    def accepted_of(self, group: Group, member: Member, key: str, value: list[Any]) -> list[Any]:
        replaced = member.replaced(value)
        # Default arguments and base classes cannot be rebound, and that a class attribute came from
        # the target, not from the replacement's own module, does not show.
        is_open = self.oracle.state[group.id] in OPEN
        is_fixed = key[0] in "dS" or (key[0] == "H" and member.kind == "replace" and not is_open)
        home = self.plain["modules"].get(member.module, {"values": {}})["values"]
        is_stale = home.get(value[0].removeprefix(f"{member.module}.")) != value
        if is_fixed or (is_stale and is_open):
            return [value, replaced]
        if is_stale and member.kind == "replace":  # one replacement stands for several originals
            return [[value[0], run] for run in range(1, value[1] + 100)]
        return [replaced] if is_open else [value]

    def the_report_tells_what_is_so(self) -> None:
        report = self.engine["report"]
        for group in self.scenario.groups:
            told, expected = report["execution"][group.id], self.oracle.state[group.id]
            if self.ended and expected == "pending":
                expected = "not_started"
            assert told["state"] in expected.split("|"), (group.id, told)
            for member, record in zip(group.members, told["members"], strict=True):
                if self.oracle.state[group.id] in OPEN:
                    bound = self.oracle.bound[member.id]
                    assert record["state"] == ("bound" if bound else "waiting"), (member, record)
                    if not member.aliases:
                        assert record["times_bound"] == bound, (member, record)
                else:
                    assert record["state"] in ("waiting", "restored"), record
        states = Counter(group["state"] for group in report["execution"].values())
        assert {k: v for k, v in report["summary"].items() if v} == states
        assert report["final"] == (not states["pending"])
        assert self.engine["journal"] == report

    def the_import_system_is_clean(self) -> None:
        assert self.engine["finders"] == ["WatchingFinder", *self.plain["finders"]]

    def check(self) -> None:
        self.only_live_targets_differ_from_the_twin()
        self.the_report_tells_what_is_so()
        self.the_import_system_is_clean()

    def teardown(self) -> None:
        try:
            if self.started:
                self.ended = True
                self.plain, self.engine = self.ask(do="exit")
                self.check()
                assert self.engine["report"]["final"]
                for group in self.engine["report"]["execution"].values():
                    hypothesis.event(group["state"])
        finally:
            self.ask(do="stop")


@pytest.fixture
def interpreters(tmp_path: Path):
    made = [
        Interpreter(*arguments, reports=tmp_path / "reports") for arguments in ((), ("--engine",))
    ]
    yield made
    for each in made:
        each.close()


@pytest.mark.slow
def test_every_history_leaves_each_target_wholly_original_or_wholly_replaced(
    interpreters, tmp_path
):
    run_state_machine_as_test(
        lambda: Histories(*interpreters, tmp_path),
        settings=settings(
            max_examples=max(EXAMPLES, settings.default.max_examples),
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
