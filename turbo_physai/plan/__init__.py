"""What will be done with each Group, decided before anything is changed."""

from turbo_physai.plan.evidence import confirm, gather, regather
from turbo_physai.plan.prepare import collect, prepare
from turbo_physai.plan.prepared import Conflict, Evidence, PreparedExecution, PreparedGroup

__all__ = [
    "Conflict",
    "Evidence",
    "PreparedExecution",
    "PreparedGroup",
    "collect",
    "confirm",
    "gather",
    "prepare",
    "regather",
]
