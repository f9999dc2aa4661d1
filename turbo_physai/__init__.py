"""Makes Physical-AI training faster without touching the model's source.

`apply` watches the modules that a config names and changes declared objects as they are imported;
`check` tells beforehand what it would do. The other names declare what can be changed.
"""

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
