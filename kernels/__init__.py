"""Fused operators, one a file. They know nothing of the engine that swaps them in."""
