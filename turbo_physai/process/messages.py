"""What a user must know at once: one line on the logger ``turbo_physai``.

A program that has not set up logging sees it on standard error.
"""

from __future__ import annotations

import sys


def warn(message: str) -> None:
    """Logs a WARNING."""
    text = f"turbo_physai: {message}"
    if not has_logging():
        print_error(text)
        return
    import logging

    logging.getLogger("turbo_physai").warning("%s", text)


def has_logging() -> bool:
    """Whether the program uses `logging`. Where it does not, a warning would go to standard error
    anyway, and importing `logging` takes long. Imported as late as at the exit of python, it also
    makes python forget that Ctrl-C has ended the program, and exit with 1."""
    return "logging" in sys.modules


def print_error(text: str) -> None:
    """Prints a line on standard error, if there is one."""
    if sys.stderr is not None:
        print(text, file=sys.stderr, flush=True)
