"""Reads YAML with its line numbers and reports every fault in a file at once.

PyYAML's loaders drop positions and let a repeated key win silently, so documents are composed into
nodes and read from those. A reading function takes a node and the path of its key and returns the
value, or notes a fault and returns None: the readers go on, and `Reader.finish` raises once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import yaml

from turbo_physai.errors import Fault, OptimizationConfigError

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")
Read = Callable[[yaml.Node, str], T]

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_YAML: Final = "tag:yaml.org,2002:"
# Far beyond what people write, and read within a second.
_MOST_BYTES: Final = 1_000_000
_MOST_VALUES: Final = 100_000
_MOST_LEVELS: Final = 50
_MOST_FAULTS: Final = 50
_LONGEST_NUMBER: Final = 100
_SCALARS: Final = ("str", "int", "float", "bool", "null", "timestamp", "binary")
_KINDS = {"str": "text", "int": "number", "float": "number", "bool": "boolean", "null": "nothing"}


class Reader:
    """The faults of one file, and the functions that read its nodes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.faults: list[Fault] = []

    def document(self) -> yaml.Node | None:
        """The root node of the file; None, with a fault, where it is no YAML document."""
        try:
            with self.file.open("rb") as file:
                content = file.read(_MOST_BYTES + 1)
            text = content.decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            return self._fault(str(error), "a readable UTF-8 file")
        if len(content) > _MOST_BYTES:
            return self._fault("a longer file", f"a file of at most {_MOST_BYTES:,} bytes")
        try:
            root: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
            if root is not None and "*" in text and _size(root) > _MOST_VALUES:
                found = f"aliases that stand for more than {_MOST_VALUES:,} values"
                return self._fault(found, "a file that says what it means at about that length")
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            found = getattr(error, "problem", None) or " ".join(str(error).split())
            return self._fault(found, "valid YAML", None if mark is None else mark.line + 1)
        except RecursionError:
            return self._fault("values in values in values ...", f"{_MOST_LEVELS} levels of them")
        if root is None:
            return self._fault("an empty file", "a YAML mapping")
        return root

    def finish(self) -> None:
        """Raises OptimizationConfigError if there was any fault, with all of them; only a file that
        is no config at all has so many that the last are left out."""
        if len(self.faults) > _MOST_FAULTS:
            left_out = len(self.faults) - _MOST_FAULTS
            del self.faults[_MOST_FAULTS:]
            self._fault(f"{left_out} more faults", "none")
        if self.faults:
            raise OptimizationConfigError(*self.faults)

    def fault(self, node: yaml.Node, key: str, accepted: str, found: str | None = None) -> None:
        found = describe(node) if found is None else found
        key = key if key.isprintable() else repr(key)
        self._fault(found, accepted, node.start_mark.line + 1, _short(key))

    def _fault(self, found: str, accepted: str, line: int | None = None, key: str = "") -> None:
        self.faults.append(Fault(str(self.file), found, accepted, key, line))

    # Readers of one value each.

    def text(self, node: yaml.Node, key: str) -> str | None:
        if _tag(node) != "str":
            scalar = isinstance(node, yaml.ScalarNode) and _tag(node) != "null"
            quotable = scalar and node.value.isprintable()
            hint = f', in quotes: "{_short(node.value)}"' if quotable else ""
            return self.fault(node, key, f"a text{hint}")
        return str(node.value)

    def boolean(self, node: yaml.Node, key: str) -> bool | None:
        try:
            value = _scalar(node) if _tag(node) == "bool" else None
        except ValueError:
            value = None
        return self.fault(node, key, "true or false") if value is None else bool(value)

    def constant(self, expected: str) -> Read[str | None]:
        def read(node: yaml.Node, key: str) -> str | None:
            if _tag(node) != "str" or node.value != expected:
                return self.fault(node, key, expected)
            return expected

        return read

    def sequence(self, item: Read[T | None]) -> Read[tuple[T, ...] | None]:
        def read(node: yaml.Node, key: str) -> tuple[T, ...] | None:
            if _tag(node) != "seq":
                return self.fault(node, key, "a list")
            items = (item(child, f"{key}[{i}]") for i, child in enumerate(node.value))
            return tuple(value for value in items if value is not None)

        return read

    def mapping_of(self, value: Read[T | None]) -> Read[dict[str, T] | None]:
        """A mapping with any keys, all of them texts."""

        def read(node: yaml.Node, key: str) -> dict[str, T] | None:
            if _tag(node) != "map":
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
        if _tag(node) != "map":
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
        if len(above) > _MOST_LEVELS:
            return self.fault(node, key, f"{_MOST_LEVELS} levels of values", "one more")
        if _tag(node) == "map":
            items = self._items(node, key)
            return {
                name: self._plain(child, f"{key}.{name}", (*above, node)) for name, child in items
            }
        if _tag(node) == "seq":
            items_ = enumerate(node.value)
            return [self._plain(child, f"{key}[{i}]", (*above, node)) for i, child in items_]
        try:
            return _scalar(node)
        except ValueError:
            return self.fault(node, key, "a text, number, boolean, date or nothing")

    def _items(
        self, node: yaml.Node, key: str, merging: tuple[yaml.Node, ...] = ()
    ) -> list[tuple[str, yaml.Node]]:
        items: dict[str, yaml.Node] = {}
        merged: dict[str, yaml.Node] = {}
        for name_node, child in node.value:
            name = (
                name_node.value if isinstance(name_node, yaml.ScalarNode) else describe(name_node)
            )
            path = f"{key}.{name}" if key else str(name)
            if _tag(name_node) == "merge":
                for inherited, value in self._merged(child, path, (*merging, node)):
                    merged.setdefault(inherited, value)
            elif _tag(name_node) != "str":
                self.fault(name_node, path, "a text as the key")
            elif name in items:
                first = items[name].start_mark.line + 1
                self.fault(
                    name_node, path, "each key once", f"a second one, the first in line {first}"
                )
            else:
                items[name] = child
        return list({**merged, **items}.items())

    def _merged(
        self, node: yaml.Node, key: str, merging: tuple[yaml.Node, ...]
    ) -> Iterator[tuple[str, yaml.Node]]:
        """What stands at ``<<``: a mapping, or a list of them of which the first wins."""
        for each in node.value if _tag(node) == "seq" else [node]:
            if _tag(each) != "map" or each in merging or len(merging) > _MOST_LEVELS:
                self.fault(each, key, "another mapping, or a list of such")
            else:
                yield from self._items(each, key, merging)


def describe(node: yaml.Node) -> str:
    """What stands at a node, in words for a message."""
    tag = _tag(node)
    if tag in ("map", "seq"):
        return "a mapping" if tag == "map" else "a list"
    if not isinstance(node, yaml.ScalarNode):
        return f"a value with the tag {tag}"
    kind = _KINDS.get(tag, tag)
    return kind if kind == "nothing" else f"{_short(node.value)!r} ({kind})"


def _tag(node: yaml.Node) -> str:
    """The kind of a value that YAML itself has; the whole tag of any other, also of one on a value
    that it cannot be of."""
    tag = str(node.tag)
    name = tag.removeprefix(_YAML)
    if isinstance(node, yaml.ScalarNode):
        return tag if name in ("map", "seq") else name
    return name if name == ("map" if isinstance(node, yaml.MappingNode) else "seq") else tag


def _scalar(node: yaml.Node) -> Any:
    """The value of a scalar.

    Raises:
        ValueError: its tag and its text do not go together.
    """
    tag = _tag(node)
    if tag not in _SCALARS or (tag in ("int", "float") and len(node.value) > _LONGEST_NUMBER):
        raise ValueError("no scalar")
    try:
        return yaml.constructor.SafeConstructor().construct_object(node)
    except Exception as error:  # PyYAML fails with whatever comes to pass
        raise ValueError(str(error)) from error


def _size(root: yaml.Node) -> int:
    """How many values a document has once every alias in it is followed."""
    sizes: dict[yaml.Node, int] = {}

    def size(node: yaml.Node) -> int:
        if node not in sizes:
            sizes[node] = 1  # all that a value which contains itself adds to itself
            if isinstance(node, yaml.MappingNode):
                sizes[node] += sum(size(name) + size(child) for name, child in node.value)
            elif isinstance(node, yaml.SequenceNode):
                sizes[node] += sum(map(size, node.value))
        return sizes[node]

    return size(root)


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}..."
