"""What wrapper factories say of options that do not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


def refuse_unknown(options: Iterable[str], accepted: Collection[str]) -> None:
    """Raise a ValueError that names the first of the `options` which is not `accepted`."""
    for key in options:
        if key not in accepted:
            raise ValueError(f"option {key!r}: {_told(accepted)}")


def _told(accepted: Collection[str]) -> str:
    if not accepted:
        return "there are none"
    return f"accepted {'is' if len(accepted) == 1 else 'are'} {', '.join(accepted)}"
