"""Configs that use the Groups which ship with turbo_physai."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def use(project: Any) -> Callable[..., Any]:
    """Writes a config that takes Groups from one of our catalogs, without hashes: the packages of a
    test are shaped like the real ones and have other code."""

    def use(catalog: str, *groups: str, options: str = "{}") -> Any:
        lines = [
            "schema_version: turbophysai/optimization-config/v1",
            "kind: OptimizationConfig",
            'metadata: {id: test, version: "1"}',
            f"optimization_modules: [turbo_physai.optimizations.{catalog}.catalog]",
            "optimization_groups:",
            *(f"  - {{id: {group}, options: {options}}}" for group in groups),
        ]
        return project.write({"optimization.yaml": "\n".join(lines) + "\n"})

    return use
