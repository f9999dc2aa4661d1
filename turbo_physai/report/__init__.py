"""The account of what was decided and what happened: live, as a file and as text.

A view of the records that the engine writes: nothing here changes them.
"""

from turbo_physai.report.journal import Journal
from turbo_physai.report.report import OptimizationReport

__all__ = ["Journal", "OptimizationReport"]
