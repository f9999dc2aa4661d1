"""Binds Replacements to targets as their modules are imported.

Follow one import through finder.py (spots a watched module), loader.py (tells when its body has
run), engine.py (gathers evidence, decides what is due), binding.py (makes and puts the new object);
outcome.py says how its Group ends. Below them: modules.py (what has run), references.py and
captured.py (who else holds an original), slot.py, adapt.py and transaction.py (one change).
"""

from turbo_physai.engine.engine import Engine
from turbo_physai.engine.state import bindings

__all__ = ["Engine", "bindings"]
