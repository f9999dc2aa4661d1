"""Binds Replacements to targets as their modules are imported.

Follow one import through finder.py (spots a watched module), loader.py (tells when its body has
run), engine.py (decides what is due), binding.py (makes and puts the new object), outcome.py (how
the Group ends).
"""

from turbo_physai.engine.engine import Engine
from turbo_physai.engine.state import bindings

__all__ = ["Engine", "bindings"]
