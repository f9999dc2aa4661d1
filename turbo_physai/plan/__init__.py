"""What will be done with each Group, decided before anything is changed."""

from turbo_physai.plan.prepare import collect, prepare
from turbo_physai.plan.prepared import Conflict, PreparedExecution, PreparedGroup

__all__ = [
    "Conflict",
    "PreparedExecution",
    "PreparedGroup",
    "collect",
    "prepare",
]
