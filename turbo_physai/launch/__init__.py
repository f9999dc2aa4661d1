"""Starts programs with optimizations: in this process, or as a command of its own."""
