"""What a user must know at once: one line on the logger ``turbo_physai``.

A program that has not set up logging sees it on standard error.
"""

from __future__ import annotations


def warn(message: str) -> None:
    """Logs a WARNING."""
    import logging

    logging.getLogger("turbo_physai").warning("turbo_physai: %s", message)
