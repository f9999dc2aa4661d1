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
from turbo_physai.report.metrics import Metrics, ReportedMetrics, collecting, metrics
from turbo_physai.report.report import OptimizationReport

__all__ = [
    "Failure",
    "GroupExecution",
    "GroupState",
    "Journal",
    "MemberExecution",
    "MemberState",
    "Metrics",
    "OptimizationReport",
    "Origin",
    "ReportedMetrics",
    "collecting",
    "metrics",
]
