"""The account of what was decided and what happened: live, as a file and as text."""

from turbo_physai.report.execution import (
    Failure,
    GroupExecution,
    GroupState,
    MemberExecution,
    MemberState,
    Origin,
)
from turbo_physai.report.journal import Journal
from turbo_physai.report.process import Reporter
from turbo_physai.report.report import OptimizationReport

__all__ = [
    "Failure",
    "GroupExecution",
    "GroupState",
    "Journal",
    "MemberExecution",
    "MemberState",
    "OptimizationReport",
    "Origin",
    "Reporter",
]
