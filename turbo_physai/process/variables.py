"""Looks at all variables of ours at once, before any of them is used."""

from __future__ import annotations

import os
from collections.abc import MutableMapping, Sequence

from turbo_physai.process import ranks, settings
from turbo_physai.process.messages import warn


def require_valid(environment: MutableMapping[str, str] = os.environ) -> None:
    """Warns of variables that look like ours and are not, once for all processes of a launch.

    Raises:
        OptimizationConfigError: variables have values that they cannot have.
    """
    known = {setting.variable for setting in settings.ALL}
    unknown = {name for name in environment if name.startswith(settings.PREFIX)} - known
    if unknown and ranks.rank() == 0:
        _warn_of(unknown, environment)
    faults = [fault for each in settings.ALL if (fault := each.fault(environment)) is not None]
    if faults:
        from turbo_physai.errors import OptimizationConfigError

        raise OptimizationConfigError(*faults)


def make_paths_absolute(environment: MutableMapping[str, str] = os.environ) -> None:
    """Lets processes that start in another folder find what relative paths mean in this one."""
    for setting in settings.ALL:
        value = setting.text(environment)
        is_path = setting.kind == "path" or (setting.kind == "config" and not is_name(value or ""))
        if value is not None and is_path:
            environment[setting.variable] = absolute(value)


def is_name(config: str) -> bool:
    """Whether a ``config`` names a model, or is ``package:file``. A path to a file has a folder or
    an ending: ``./config`` or ``config.yaml``."""
    package, colon, file = config.partition(":")
    if colon:
        return bool(file) and all(part.isidentifier() for part in package.split("."))
    return config.replace("-", "_").isidentifier()


def absolute(path: str) -> str:
    """`path` from the root; as it is where the working directory has been deleted."""
    # Not normalized: ".." behind a symbolic link is not what it looks like.
    return os.path.join(working_directory() or "", path)


def working_directory() -> str | None:
    """The working directory; None where it has been deleted or may not be looked at."""
    try:
        return os.getcwd()
    except OSError:
        return None


def _warn_of(unknown: set[str], environment: MutableMapping[str, str]) -> None:
    reported = settings.REPORTED_UNKNOWN.ids(environment)
    new = sorted(unknown.difference(reported))
    if not new:
        return
    for name in new:
        warn(f"there is no variable {name}; {_suggestion(name)}")
    environment[settings.REPORTED_UNKNOWN.variable] = ",".join((*reported, *new))


def _suggestion(name: str) -> str:
    from difflib import get_close_matches

    users: Sequence[str] = [each.variable for each in settings.ALL if not each.is_internal]
    near = get_close_matches(name, users, n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(users)}"
