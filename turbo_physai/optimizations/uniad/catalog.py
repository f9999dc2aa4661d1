"""The Groups for UniAD, which has BEVFormer's modules in a package of its own. Nothing is imported
here."""

from __future__ import annotations

from typing import Final

from turbo_physai.optimizations.bevformer.groups import PLUGIN, attention_groups

MODULES: Final = f"{PLUGIN}.uniad.modules"

GROUPS = attention_groups("uniad", MODULES)
