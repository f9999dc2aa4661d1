"""Installed distributions, told from their metadata: nothing is imported."""

from __future__ import annotations

from importlib import metadata


def version(distribution: str) -> str | None:
    """The installed version of a distribution; None if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
