"""Configuration files: how they are chosen, read, checked and merged."""

from turbo_physai.config.catalog import OptimizationConfigCatalog
from turbo_physai.config.optimization import (
    Compatibility,
    GroupEntry,
    OptimizationConfig,
    Trust,
    load,
)
from turbo_physai.config.runtime import RuntimeConfig, load_runtime, select_runtime
from turbo_physai.config.selection import select

__all__ = [
    "Compatibility",
    "GroupEntry",
    "OptimizationConfig",
    "OptimizationConfigCatalog",
    "RuntimeConfig",
    "Trust",
    "load",
    "load_runtime",
    "select",
    "select_runtime",
]
