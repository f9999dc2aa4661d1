"""The account of what was decided and what happened: live, as a file and as text."""

from turbo_physai.report.execution import (
    Failure,
    GroupExecution,
    GroupState,
    MemberExecution,
    MemberState,
    Origin,
)
from turbo_physai.report.facts import Facts, ReportedFacts, facts, telling
from turbo_physai.report.journal import Journal
from turbo_physai.report.report import OptimizationReport

__all__ = [
    "Facts",
    "Failure",
    "GroupExecution",
    "GroupState",
    "Journal",
    "MemberExecution",
    "MemberState",
    "OptimizationReport",
    "Origin",
    "ReportedFacts",
    "facts",
    "telling",
]
