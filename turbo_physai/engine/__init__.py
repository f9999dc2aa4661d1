"""Binds Replacements to targets as their modules are imported.

Follow one import through finder.py (spots a watched module), loader.py (tells when its body has
run) and engine.py (what is due); checking.py gathers evidence, context.py is what a declaration may
do, exchange.py makes and puts the new object, and transitions.py says how its Group ends. Below
them: records.py (what became of each Group), modules.py (what has run), references.py (who else
holds an original), slot.py, adapt.py and transaction.py (one change).
"""
