"""What is known about the code that is to be changed, and how it compares with what is wanted."""

from turbo_physai.evidence.check import Check, Outcome
from turbo_physai.evidence.compatibility import (
    BackendResult,
    CompatibilityContext,
    CompatibilityResult,
)

__all__ = ["BackendResult", "Check", "CompatibilityContext", "CompatibilityResult", "Outcome"]
