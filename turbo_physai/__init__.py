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
        NoOptions,
        Registry,
        during_import,
        group,
        import_alias,
        inject,
        option,
        optional_import,
        registry_override,
        replace,
        replace_import,
        wrap,
    )
    from turbo_physai.engine.metrics import metrics
    from turbo_physai.errors import (
        OptimizationConfigError,
        OptimizationConfigNotFoundError,
        OptimizationNotAppliedError,
        OptimizationRollbackError,
        TurboPhysAIError,
    )
    from turbo_physai.evidence import BackendResult, CompatibilityContext, CompatibilityResult
    from turbo_physai.plan import PreparedExecution
    from turbo_physai.report import OptimizationReport

__all__ = [
    "BackendResult",
    "CompatibilityContext",
    "CompatibilityResult",
    "Group",
    "NoOptions",
    "OptimizationConfigCatalog",
    "OptimizationConfigError",
    "OptimizationConfigNotFoundError",
    "OptimizationNotAppliedError",
    "OptimizationReport",
    "OptimizationRollbackError",
    "PreparedExecution",
    "Registry",
    "TurboPhysAIError",
    "apply",
    "check",
    "during_import",
    "group",
    "import_alias",
    "inject",
    "metrics",
    "option",
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
        "NoOptions",
        "Registry",
        "during_import",
        "group",
        "import_alias",
        "inject",
        "option",
        "optional_import",
        "registry_override",
        "replace",
        "replace_import",
        "wrap",
    ),
    "engine.metrics": ("metrics",),
    "errors": (
        "OptimizationConfigError",
        "OptimizationConfigNotFoundError",
        "OptimizationNotAppliedError",
        "OptimizationRollbackError",
        "TurboPhysAIError",
    ),
    "evidence": ("BackendResult", "CompatibilityContext", "CompatibilityResult"),
    "plan": ("PreparedExecution",),
    "report": ("OptimizationReport",),
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
