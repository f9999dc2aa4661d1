"""Compares Replacements with their originals while a program runs, call by call.

Nothing here imports torch: what needs it asks whether the process has it.
"""

from turbo_physai.verify.verifier import Verifier

__all__ = ["Verifier"]
