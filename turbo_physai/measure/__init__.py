"""Measures the run of a program from inside: its optimizer steps, losses and memory.

A process that `turbo-physai compare` or `profile` has started finds a `Request` in its environment,
and leaves one file for its rank. No torch is imported here before the program does so itself.
"""

from turbo_physai.measure.request import PATTERN, SCHEMA, Request
from turbo_physai.measure.start import start

__all__ = ["PATTERN", "SCHEMA", "Request", "start"]
