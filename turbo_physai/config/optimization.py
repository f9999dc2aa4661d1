"""The OptimizationConfig: which Groups, with what options, trusted on which code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import yaml

from turbo_physai.config.yaml_reader import Reader
from turbo_physai.errors import Fault

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA: Final = "turbophysai/optimization-config/v1"
KIND: Final = "OptimizationConfig"

BACKENDS: Final = ("cpu", "cuda")

Hashes = Mapping[str, tuple[str, ...]]

# A file, a line in it, and the key of the Group's entry there.
Place = tuple[str, int | None, str]

T = TypeVar("T", bound=attrs.AttrsInstance)


@attrs.frozen
class Trust:
    """The hashes of the target code a Group was validated on, per target.

    Attributes:
        source_hashes, ast_hashes, artifact_hashes: per target.
        file: the config that states them.
    """

    source_hashes: Hashes = attrs.field(factory=dict)
    ast_hashes: Hashes = attrs.field(factory=dict)
    artifact_hashes: Hashes = attrs.field(factory=dict)
    file: Path | None = attrs.field(default=None, eq=False)

    @property
    def hashes(self) -> dict[str, Hashes]:
        """By the name of their kind in a config."""
        return {
            "source_hashes": self.source_hashes,
            "ast_hashes": self.ast_hashes,
            "artifact_hashes": self.artifact_hashes,
        }


@attrs.frozen
class Compatibility:
    """What the config was made for. A field that is None states nothing."""

    commits: tuple[str, ...] | None = None
    allow_dirty: bool | None = None
    dependencies: Mapping[str, str] | None = None
    backend: tuple[str, ...] | None = None
    repository: tuple[str, ...] | None = None


@attrs.frozen
class GroupEntry:
    """What a config says of one Group. A field that is None is inherited, or has its default.

    Attributes:
        id: id of a Group in the Registry.
        enabled: whether it is to be applied; by default true.
        optional: whether it is fine that none of its targets is ever imported, as where a package
            serves several models; by default false.
        options: the values it states, as YAML holds them; by default none.
        trust: the code it was validated on; by default none.
        places: where its parts are stated, for messages, by their path inside the entry, such as
            ``options.factor``; the empty path is the entry itself.
    """

    id: str
    enabled: bool | None = None
    optional: bool | None = None
    options: Mapping[str, Any] | None = None
    trust: Trust | None = None
    places: Mapping[str, Place] = attrs.field(factory=dict, eq=False)

    @property
    def is_enabled(self) -> bool:
        return self.enabled is not False

    def over(self, inherited: GroupEntry | None) -> GroupEntry:
        """This entry, with what it leaves open taken from the one it extends."""
        if inherited is None:
            return self
        # What is stated in both has the place of its own statement.
        return attrs.evolve(_over(self, inherited), places={**inherited.places, **self.places})

    def fault(self, path: str, found: str, accepted: str) -> Fault:
        """A Fault at `path` inside the entry, in the line of the nearest part whose place is
        known."""
        known = path
        while known and known not in self.places:
            known = known[: max(known.rfind("."), known.rfind("["), 0)]
        file, line, entry = self.places.get(known, ("", None, ""))
        return Fault(file, found, accepted, f"{entry}.{path}", line)


@attrs.frozen
class OptimizationConfig:
    """One config file, or what several become once `extends` is resolved.

    Attributes:
        path: the file.
        id, version, description: its `metadata`.
        model_name: name of the model that it is for.
        extends: ids of the configs that it builds on.
        optimization_modules: modules that declare Groups, each in a tuple `GROUPS`.
        compatibility: what it was made for.
        groups: its Groups, in order.
    """

    path: Path
    id: str
    version: str
    description: str = ""
    model_name: str | None = None
    extends: tuple[str, ...] = ()
    optimization_modules: tuple[str, ...] = ()
    compatibility: Compatibility = Compatibility()
    groups: tuple[GroupEntry, ...] = ()

    def over(self, inherited: OptimizationConfig) -> OptimizationConfig:
        """This config on top of one it extends: inherited Groups come first, each field that is
        stated here wins."""
        groups = {entry.id: entry for entry in inherited.groups}
        for entry in self.groups:
            groups[entry.id] = entry.over(groups.get(entry.id))
        modules = (*inherited.optimization_modules, *self.optimization_modules)
        return attrs.evolve(
            self,
            model_name=self.model_name or inherited.model_name,
            optimization_modules=tuple(dict.fromkeys(modules)),
            compatibility=_over(self.compatibility, inherited.compatibility),
            groups=tuple(groups.values()),
        )


def _over(own: T, inherited: T) -> T:
    fields = (field.name for field in attrs.fields(type(own)))
    missing = {name: getattr(inherited, name) for name in fields if getattr(own, name) is None}
    return attrs.evolve(own, **missing)  # type: ignore[misc]


def load(path: Path) -> OptimizationConfig:
    """Reads one config file, without resolving what it extends.

    Raises:
        OptimizationConfigError: with every fault found in the file.
    """
    reader = Reader(path)
    root = reader.document()
    config = None if root is None else _config(reader, root)
    reader.finish()
    assert config is not None
    return config


def _config(reader: Reader, root: yaml.Node) -> OptimizationConfig | None:
    texts = reader.sequence(reader.text)
    top = reader.fields(
        root,
        "",
        {
            "schema_version": reader.constant(SCHEMA),
            "kind": reader.constant(KIND),
            "metadata": lambda node, key: reader.fields(
                node,
                key,
                {"id": reader.text, "version": reader.text, "description": reader.text},
                required=("id", "version"),
            ),
            "model": lambda node, key: reader.fields(node, key, {"name": reader.text}, ("name",)),
            "extends": texts,
            "optimization_modules": texts,
            "compatibility": lambda node, key: _compatibility(reader, node, key),
            "optimization_groups": reader.sequence(lambda node, key: _group(reader, node, key)),
        },
        required=("schema_version", "kind", "metadata"),
    )
    if top is None or reader.faults:
        return None
    _ids_once(reader, top.get("optimization_groups") or ())
    return OptimizationConfig(
        path=reader.file,
        id=top["metadata"]["id"],
        version=top["metadata"]["version"],
        description=top["metadata"].get("description", ""),
        model_name=top["model"]["name"] if "model" in top else None,
        extends=top.get("extends", ()),
        optimization_modules=top.get("optimization_modules", ()),
        compatibility=top.get("compatibility", Compatibility()),
        groups=top.get("optimization_groups", ()),
    )


def _compatibility(reader: Reader, node: yaml.Node, key: str) -> Compatibility | None:
    def backend(node: yaml.Node, key: str) -> str | None:
        value = reader.text(node, key)
        if value is not None and value not in BACKENDS:
            return reader.fault(node, key, " or ".join(BACKENDS))
        return value

    texts = reader.sequence(reader.text)
    values = reader.fields(
        node,
        key,
        {
            "commits": texts,
            "allow_dirty": reader.boolean,
            "dependencies": reader.mapping_of(reader.text),
            "backend": reader.sequence(backend),
            "repository": texts,
        },
    )
    return None if values is None else Compatibility(**values)


def _group(reader: Reader, node: yaml.Node, key: str) -> GroupEntry | None:
    def options(node: yaml.Node, key: str) -> Any:
        value = reader.plain(node, key)
        return value if isinstance(value, dict) else reader.fault(node, key, "a mapping")

    values = reader.fields(
        node,
        key,
        {
            "id": reader.text,
            "enabled": reader.boolean,
            "optional": reader.boolean,
            "options": options,
            "trust": lambda node, key: _trust(reader, node, key),
        },
        required=("id",),
    )
    if values is None or values.get("id") is None:
        return None
    return GroupEntry(**values, places=_places(reader, node, key))


def _places(reader: Reader, node: yaml.Node, key: str) -> dict[str, Place]:
    """The places of an entry, of its fields, and of what these contain."""

    def place(at: yaml.Node) -> Place:
        return str(reader.file), at.start_mark.line + 1, key

    places = {"": place(node)}
    for name, child in node.value:
        places[f"{name.value}"] = place(name)
        if isinstance(child, yaml.MappingNode):
            for inner, _ in child.value:
                places[f"{name.value}.{inner.value}"] = place(inner)
    return places


def _trust(reader: Reader, node: yaml.Node, key: str) -> Trust | None:
    def hashes(prefix: str) -> Any:
        def one(node: yaml.Node, key: str) -> str | None:
            value = reader.text(node, key)
            if value is not None and not value.startswith(f"{prefix}:"):
                return reader.fault(node, key, f"a hash such as {prefix}:0123…")
            return value

        return reader.mapping_of(reader.sequence(one))

    values = reader.fields(
        node,
        key,
        {
            "source_hashes": hashes("source-v1"),
            "ast_hashes": hashes("ast-v1"),
            "artifact_hashes": hashes("artifact-v1"),
        },
    )
    return None if values is None else Trust(**values, file=reader.file)


def _ids_once(reader: Reader, entries: tuple[GroupEntry, ...]) -> None:
    firsts: dict[str, GroupEntry] = {}
    for entry in entries:
        first = firsts.setdefault(entry.id, entry)
        if first is not entry:
            found = f"{entry.id!r} again, the first in line {first.places['id'][1]}"
            reader.faults.append(entry.fault("id", found, "each Group once"))
