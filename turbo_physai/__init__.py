"""Makes Physical-AI training faster without touching the model's source.

`apply` watches the modules that a config names and changes declared objects as they are imported;
`check` tells beforehand what it would do. The other names declare what can be changed.

The names are imported on their first use, so that importing a module of the package costs, and
needs, no more than that module itself.
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from turbo_physai.api import apply, check
    from turbo_physai.config import OptimizationConfigCatalog
    from turbo_physai.declarations import (
        Group,
        Registry,
        during_import,
        group,
        import_alias,
        inject,
        optional_import,
        registry_override,
        replace,
        replace_import,
        wrap,
    )
    from turbo_physai.errors import (
        OptimizationConfigError,
        OptimizationConfigNotFoundError,
        OptimizationRollbackError,
        TurboPhysAIError,
    )
    from turbo_physai.evidence import CompatibilityContext, CompatibilityResult
    from turbo_physai.plan import PreparedExecution
    from turbo_physai.report import OptimizationReport, facts

__all__ = [
    "CompatibilityContext",
    "CompatibilityResult",
    "Group",
    "OptimizationConfigCatalog",
    "OptimizationConfigError",
    "OptimizationConfigNotFoundError",
    "OptimizationReport",
    "OptimizationRollbackError",
    "PreparedExecution",
    "Registry",
    "TurboPhysAIError",
    "apply",
    "check",
    "during_import",
    "facts",
    "group",
    "import_alias",
    "inject",
    "optional_import",
    "registry_override",
    "replace",
    "replace_import",
    "wrap",
]

_HOMES: Final = {
    "api": ("apply", "check"),
    "config": ("OptimizationConfigCatalog",),
    "declarations": (
        "Group",
        "Registry",
        "during_import",
        "group",
        "import_alias",
        "inject",
        "optional_import",
        "registry_override",
        "replace",
        "replace_import",
        "wrap",
    ),
    "errors": (
        "OptimizationConfigError",
        "OptimizationConfigNotFoundError",
        "OptimizationRollbackError",
        "TurboPhysAIError",
    ),
    "evidence": ("CompatibilityContext", "CompatibilityResult"),
    "plan": ("PreparedExecution",),
    "report": ("OptimizationReport", "facts"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            from importlib import import_module

            value = globals()[name] = getattr(import_module(f"turbo_physai.{home}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
