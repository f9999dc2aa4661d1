"""Reads YAML with its line numbers and reports every fault in a file at once.

PyYAML's loaders drop positions and let a repeated key win silently, so documents are composed into
nodes and read from those. A reading function takes a node and the path of its key and returns the
value, or notes a fault and returns None: the readers go on, and `Reader.finish` raises once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from turbo_physai.errors import Fault, OptimizationConfigError

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")
Read = Callable[[yaml.Node, str], T]

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_KINDS = {"str": "text", "int": "number", "float": "number", "bool": "boolean", "null": "nothing"}


class Reader:
    """The faults of one file, and the functions that read its nodes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.faults: list[Fault] = []

    def document(self) -> yaml.Node | None:
        """The root node of the file; None, with a fault, where it is no YAML document."""
        try:
            text = self.file.read_text(encoding="utf-8")
            root: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
        except (OSError, UnicodeDecodeError) as error:
            self.faults.append(Fault(str(self.file), str(error), "a readable UTF-8 file"))
            return None
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            found = getattr(error, "problem", None) or str(error)
            line = None if mark is None else mark.line + 1
            self.faults.append(Fault(str(self.file), found, "valid YAML", line=line))
            return None
        if root is None:
            self.faults.append(Fault(str(self.file), "an empty file", "a YAML mapping"))
        return root

    def finish(self) -> None:
        """Raises OptimizationConfigError if there was any fault, all of them in it."""
        if self.faults:
            raise OptimizationConfigError(*self.faults)

    def fault(self, node: yaml.Node, key: str, accepted: str, found: str | None = None) -> None:
        found = describe(node) if found is None else found
        line = node.start_mark.line + 1
        self.faults.append(Fault(str(self.file), found, accepted, key, line))

    # Readers of one value each.

    def text(self, node: yaml.Node, key: str) -> str | None:
        if _tag(node) != "str":
            quotable = isinstance(node, yaml.ScalarNode) and _tag(node) != "null"
            hint = f', in quotes: "{node.value}"' if quotable else ""
            return self.fault(node, key, f"a text{hint}")
        return str(node.value)

    def boolean(self, node: yaml.Node, key: str) -> bool | None:
        if _tag(node) != "bool":
            return self.fault(node, key, "true or false")
        return bool(_scalar(node))

    def constant(self, expected: str) -> Read[str | None]:
        def read(node: yaml.Node, key: str) -> str | None:
            if _tag(node) != "str" or node.value != expected:
                return self.fault(node, key, expected)
            return expected

        return read

    def sequence(self, item: Read[T | None]) -> Read[tuple[T, ...] | None]:
        def read(node: yaml.Node, key: str) -> tuple[T, ...] | None:
            if not isinstance(node, yaml.SequenceNode):
                return self.fault(node, key, "a list")
            items = (item(child, f"{key}[{i}]") for i, child in enumerate(node.value))
            return tuple(value for value in items if value is not None)

        return read

    def mapping_of(self, value: Read[T | None]) -> Read[dict[str, T] | None]:
        """A mapping with any keys, all of them texts."""

        def read(node: yaml.Node, key: str) -> dict[str, T] | None:
            if not isinstance(node, yaml.MappingNode):
                return self.fault(node, key, "a mapping")
            read_items = (
                (name, value(child, f"{key}.{name}")) for name, child in self._items(node, key)
            )
            return {name: result for name, result in read_items if result is not None}

        return read

    def fields(
        self,
        node: yaml.Node,
        key: str,
        known: Mapping[str, Read[Any]],
        required: tuple[str, ...] = (),
    ) -> dict[str, Any] | None:
        """A mapping whose keys are `known`; those that stand in it, read."""
        if not isinstance(node, yaml.MappingNode):
            return self.fault(node, key, f"a mapping with the keys {', '.join(known)}")
        values = {}
        for name, child in self._items(node, key):
            path = f"{key}.{name}" if key else name
            if name in known:
                values[name] = known[name](child, path)
            else:
                self.fault(child, path, f"one of the keys {', '.join(known)}", "an unknown key")
        for name in required:
            if name not in values:
                path = f"{key}.{name}" if key else name
                self.fault(node, path, "a value: the key is required", "nothing")
        return values

    def plain(self, node: yaml.Node, key: str) -> Any:
        """Any value made of mappings, lists and scalars, as Python holds it."""
        return self._plain(node, key, ())

    def _plain(self, node: yaml.Node, key: str, above: tuple[yaml.Node, ...]) -> Any:
        if node in above:
            return self.fault(
                node, key, "a value that does not contain itself", "an alias of its parent"
            )
        if isinstance(node, yaml.MappingNode):
            items = self._items(node, key)
            return {
                name: self._plain(child, f"{key}.{name}", (*above, node)) for name, child in items
            }
        if isinstance(node, yaml.SequenceNode):
            items_ = enumerate(node.value)
            return [self._plain(child, f"{key}[{i}]", (*above, node)) for i, child in items_]
        try:
            return _scalar(node)
        except (yaml.YAMLError, ValueError):
            return self.fault(node, key, "a text, number, boolean, date or nothing")

    def _items(self, node: yaml.MappingNode, key: str) -> list[tuple[str, yaml.Node]]:
        items: dict[str, yaml.Node] = {}
        for name_node, child in node.value:
            name = (
                name_node.value if isinstance(name_node, yaml.ScalarNode) else describe(name_node)
            )
            path = f"{key}.{name}" if key else str(name)
            if _tag(name_node) != "str":
                self.fault(name_node, path, "a text as the key")
            elif name in items:
                first = items[name].start_mark.line + 1
                self.fault(
                    name_node, path, "each key once", f"a second one, the first in line {first}"
                )
            else:
                items[name] = child
        return list(items.items())


def describe(node: yaml.Node) -> str:
    """What stands at a node, in words for a message."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    kind = _KINDS.get(_tag(node), _tag(node))
    return kind if kind == "nothing" else f"{node.value!r} ({kind})"


def _tag(node: yaml.Node) -> str:
    return str(node.tag).rpartition(":")[2]


def _scalar(node: yaml.Node) -> Any:
    return yaml.constructor.SafeConstructor().construct_object(node)
