"""The OptimizationConfigCatalog: configs by id, to resolve what a config extends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from turbo_physai.config.installed import installed_configs, locate
from turbo_physai.config.optimization import OptimizationConfig, load
from turbo_physai.config.selection import packaged_configs
from turbo_physai.errors import Fault, OptimizationConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable


class OptimizationConfigCatalog:
    """OptimizationConfigs by id. Files are read only when an id is first asked for."""

    def __init__(self, paths: Iterable[str | Path] = ()) -> None:
        self._paths = [Path(path) for path in paths]
        self._configs: dict[str, OptimizationConfig] | None = None
        self._is_packaged = False
        self._has_others = False

    @classmethod
    def packaged(cls) -> OptimizationConfigCatalog:
        """The configs that ship with turbo_physai."""
        catalog = cls(packaged_configs().values())
        catalog._is_packaged = True
        return catalog

    @classmethod
    def installed(cls) -> OptimizationConfigCatalog:
        """The configs that ship with turbo_physai and with other installed packages."""
        catalog = cls.packaged()
        catalog._has_others = True
        return catalog

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._load())

    def get(self, id_: str) -> OptimizationConfig | None:
        """The config of an id, without what it extends; None if there is none."""
        return self._find(id_)

    def resolve(self, config: OptimizationConfig) -> OptimizationConfig:
        """`config` with everything it extends merged under it; itself if it extends nothing.

        Raises:
            OptimizationConfigError: an id is unknown, or configs extend one another in a circle.
        """
        return self._resolve(config, (config.id,))

    def _resolve(self, config: OptimizationConfig, above: tuple[str, ...]) -> OptimizationConfig:
        resolved = config
        for i, parent in reversed(list(enumerate(config.extends))):
            inherited = None if parent in above else self._find(parent)
            if inherited is None:
                circle = " -> ".join((*above, parent))
                found = f"a circle: {circle}" if parent in above else repr(parent)
                accepted = f"an id from the catalog: {', '.join(self.ids) or 'none'}"
                raise OptimizationConfigError(
                    Fault(str(config.path), found, accepted, f"extends[{i}]")
                )
            resolved = resolved.over(self._resolve(inherited, (*above, parent)))
        return resolved

    def _find(self, id_: str) -> OptimizationConfig | None:
        if self._is_packaged:
            # Every process that is activated looks for one of ours. They are known to have ids of
            # their own, and to be written so that those that matter show.
            stated = f"  id: {id_}\n".encode()
            for path in self._paths:
                if stated in path.read_bytes():
                    return load(path)
        return self._load().get(id_)

    def _load(self) -> dict[str, OptimizationConfig]:
        if self._configs is None:
            configs: dict[str, OptimizationConfig] = {}
            paths = dict.fromkeys(self._paths)
            if self._has_others:
                paths |= dict.fromkeys(
                    locate(each.reference, f"the entry point {each.name} of {each.origin}")
                    for each in installed_configs()
                )
            for path in paths:
                config = load(path)
                other = configs.setdefault(config.id, config)
                if other is not config:
                    found = f"{config.id!r}, which is also the id of {other.path}"
                    raise OptimizationConfigError(
                        Fault(str(path), found, "an id of its own", "metadata.id")
                    )
            self._configs = configs
        return self._configs
