"""Imports run one way, for types too: what docs/architecture.md draws is what the code does."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "turbo_physai"
PAGE = ROOT / "docs" / "architecture.md"


def imported(file):
    """The modules of ours that a file names in its import statements, wherever these stand."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("turbo_physai"):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("turbo_physai"))


def name(file):
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name(file): file for file in PACKAGE.rglob("*.py")}


def arrows():
    """From each module to those that it imports."""
    found = {}
    for module, file in MODULES.items():
        targets = {t if t in MODULES else t.rpartition(".")[0] for t in imported(file)}
        found[module] = {target for target in targets if target in MODULES} - {module}
    return found


def floor(module):
    """The package, or the module at the top, that a module belongs to."""
    return module.split(".")[1] if "." in module else ""


def drawn():
    """The floors of the page's drawing, from the ground up."""
    text = PAGE.read_text().split("```text\n")[1].split("```")[0]
    lines = [line for line in text.splitlines() if line.strip()]
    return [set(re.findall(r"\b[a-z_]+\b", line.partition("  #")[0])) for line in reversed(lines)]


def test_every_package_stands_on_one_floor_of_the_drawing():
    floors = [room for rooms in drawn() for room in rooms]
    assert sorted(floors) == sorted({floor(module) for module in MODULES} - {""})


def test_packages_import_from_lower_floors_only():
    level = {room: i for i, rooms in enumerate(drawn()) for room in rooms}
    wrong = [
        f"{module} imports {target}"
        for module, targets in arrows().items()
        for target in targets
        if floor(module) and floor(target) and floor(module) != floor(target)
        if level[floor(target)] >= level[floor(module)]
    ]
    assert not wrong


def test_no_modules_import_one_another_in_a_circle():
    graph, done = arrows(), set()

    def visit(module, above):
        assert module not in above, " -> ".join((*above, module))
        if module not in done:
            for target in sorted(graph[module]):
                # A package's own __init__ only hands names on.
                if not module.startswith(f"{target}."):
                    visit(target, (*above, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_the_engine_asks_no_declaration_for_its_kind():
    source = (PACKAGE / "engine" / "engine.py").read_text()
    assert "isinstance(" not in source
    kinds = ("Replacement", "ReplaceImport", "OptionalImport", "DuringImport", "RegistryOverride")
    assert not [kind for kind in kinds if re.search(rf"\b{kind}\b", source)]


@pytest.mark.parametrize("heading", ["The floors", "The life of an import", "The life of a Group"])
def test_the_page_has_its_chapters(heading):
    assert f"## {heading}" in PAGE.read_text()


def test_the_state_table_of_the_page_is_that_of_the_engine():
    from turbo_physai.engine.records import TRANSITIONS

    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE.read_text(), re.M)
    shown = {state: set(re.findall(r"`(\w+)`", targets)) for state, targets in rows}
    assert shown == {
        state.value: {target.value for target in targets} for state, targets in TRANSITIONS.items()
    }
