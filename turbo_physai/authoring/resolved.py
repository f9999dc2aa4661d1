"""A config as it is once everything that it extends is merged, and where each value comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import attrs

from turbo_physai.config import GroupEntry, OptimizationConfig, OptimizationConfigCatalog, load
from turbo_physai.declarations.options import options_of
from turbo_physai.plan import PreparedExecution, collect, prepare

DEFAULT: Final = "default"


class Value(NamedTuple):
    """One value of a config.

    Attributes:
        key: its path, with the ids of Groups in brackets.
        value: what it is.
        origin: the file that states it, with the line where that is known, or ``default``.
    """

    key: str
    value: Any
    origin: str


class Resolved(NamedTuple):
    """A config with everything that it extends, and what can be decided from that alone."""

    config: OptimizationConfig
    prepared: PreparedExecution


def resolve(path: Path, force: Iterable[str] = (), disable: Iterable[str] = ()) -> Resolved:
    """Reads a config, and imports the modules that declare its Groups.

    Raises:
        OptimizationConfigError: with everything that is wrong in it.
    """
    config = OptimizationConfigCatalog.installed().resolve(load(path))
    return Resolved(config, prepare(config, collect(config, None), tuple(force), tuple(disable)))


def values(resolved: Resolved) -> list[Value]:
    """All values of it, in the order of a config."""
    return [*_top(resolved.config), *_groups(resolved)]


def differences(
    old: list[Value], new: list[Value]
) -> Iterator[tuple[str, Value | None, Value | None]]:
    """What two configs state differently, by key."""
    before, after = ({each.key: each for each in values} for values in (old, new))
    for key in dict.fromkeys((*before, *after)):
        one, other = before.get(key), after.get(key)
        if one is None or other is None or one.value != other.value:
            yield key, one, other


def _top(config: OptimizationConfig) -> Iterator[Value]:
    for name in ("id", "version", "description"):
        yield Value(f"metadata.{name}", getattr(config, name), str(config.path))
    files = _ancestry(config)

    def value(key: str, stated: Callable[[OptimizationConfig], Any]) -> Iterator[Value]:
        origins = [str(each.path) for each in files if stated(each) not in (None, ())]
        if origins:
            # The modules of all files count, of all else what is stated last, which comes first.
            shown = origins if key == "optimization_modules" else origins[:1]
            yield Value(key, _plain(stated(config)), ", ".join(shown))

    yield from value("model.name", attrgetter("model_name"))
    yield from value("optimization_modules", attrgetter("optimization_modules"))
    for field in attrs.fields(type(config.compatibility)):
        read = attrgetter(f"compatibility.{field.name}")
        yield from value(f"compatibility.{field.name}", read)


def _ancestry(config: OptimizationConfig) -> list[OptimizationConfig]:
    """The files that it was made from, each after those that win over it."""
    catalog = OptimizationConfigCatalog.installed()
    found = [load(config.path)]
    for each in found:
        found += [parent for id_ in reversed(each.extends) if (parent := catalog.get(id_))]
    return found


def _groups(resolved: Resolved) -> Iterator[Value]:
    for entry in resolved.config.groups:
        key = f"optimization_groups[{entry.id}]"
        group = resolved.prepared.groups[entry.id]
        yield Value(f"{key}.enabled", entry.is_enabled, _origin(entry, "enabled"))
        if entry.optional is not None:
            yield Value(f"{key}.optional", entry.optional, _origin(entry, "optional"))
        for option in options_of(group.declared.options):
            value = _plain(getattr(group.options, option.name))
            path = f"options.{option.name}"
            yield Value(f"{key}.{path}", value, _origin(entry, path))
        for kind, hashes in entry.trust.hashes.items() if entry.trust else ():
            for target, stated in hashes.items():
                origin = _origin(entry, f"trust.{kind}") if hashes else DEFAULT
                yield Value(f"{key}.trust.{kind}[{target}]", _plain(stated), origin)


def _origin(entry: GroupEntry, path: str) -> str:
    if path not in entry.places:
        return DEFAULT
    file, line, _ = entry.places[path]
    return f"{file}:{line}"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
