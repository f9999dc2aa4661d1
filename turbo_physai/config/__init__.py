"""Configuration files: how they are chosen, read, checked and merged."""

from turbo_physai.config.catalog import OptimizationConfigCatalog
from turbo_physai.config.optimization import (
    Compatibility,
    GroupEntry,
    OptimizationConfig,
    Trust,
    load,
)
from turbo_physai.config.selection import select

__all__ = [
    "Compatibility",
    "GroupEntry",
    "OptimizationConfig",
    "OptimizationConfigCatalog",
    "Trust",
    "load",
    "select",
]
