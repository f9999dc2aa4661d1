"""The OptimizationConfigCatalog: configs by id, to resolve what a config extends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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

    @classmethod
    def packaged(cls) -> OptimizationConfigCatalog:
        """The configs that ship with turbo_physai."""
        return cls(packaged_configs().values())

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._load())

    def resolve(self, config: OptimizationConfig) -> OptimizationConfig:
        """`config` with everything it extends merged under it; itself if it extends nothing.

        Raises:
            OptimizationConfigError: an id is unknown, or configs extend one another in a circle.
        """
        return self._resolve(config, (config.id,))

    def _resolve(self, config: OptimizationConfig, above: tuple[str, ...]) -> OptimizationConfig:
        resolved = config
        for i, parent in reversed(list(enumerate(config.extends))):
            known = self._load()
            if parent in above or parent not in known:
                circle = " -> ".join((*above, parent))
                found = f"a circle: {circle}" if parent in above else repr(parent)
                accepted = f"an id from the catalog: {', '.join(known) or 'none'}"
                raise OptimizationConfigError(
                    Fault(str(config.path), found, accepted, f"extends[{i}]")
                )
            resolved = resolved.over(self._resolve(known[parent], (*above, parent)))
        return resolved

    def _load(self) -> dict[str, OptimizationConfig]:
        if self._configs is None:
            configs: dict[str, OptimizationConfig] = {}
            for path in self._paths:
                config = load(path)
                other = configs.setdefault(config.id, config)
                if other is not config:
                    found = f"{config.id!r}, which is also the id of {other.path}"
                    raise OptimizationConfigError(
                        Fault(str(path), found, "an id of its own", "metadata.id")
                    )
            self._configs = configs
        return self._configs
