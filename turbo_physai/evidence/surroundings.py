"""The checks of a config as a whole: is this the world that it was made for?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from turbo_physai.config import Compatibility
from turbo_physai.evidence.check import Check
from turbo_physai.evidence.packages import version
from turbo_physai.evidence.repository import Repositories, Repository

# NVIDIA's driver shows the first, Windows' Linux subsystem the second.
_DEVICES: Final = (Path("/dev/nvidiactl"), Path("/dev/dxg"))


def backend() -> str:
    """``cuda`` or ``cpu``: what torch will find, told from its metadata and the driver's device
    files, since importing torch for it would cost every process seconds."""
    build = version("torch") or ""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "all") in ("", "-1")
    has_device = any(device.exists() for device in _DEVICES)
    return "cuda" if has_device and not hidden and "+cpu" not in build else "cpu"


def packages_and_backend(stated: Compatibility) -> Iterator[Check]:
    """The checks that need not know where the model lies."""
    for distribution, specifier in (stated.dependencies or {}).items():
        yield _dependency(distribution, specifier)
    if stated.backend is not None:
        actual, expected = backend(), " or ".join(stated.backend)
        outcome = "pass" if actual in stated.backend else "fail"
        yield Check("backend", outcome, "", expected, actual)  # type: ignore[arg-type]


def _dependency(distribution: str, specifier: str) -> Check:
    actual = version(distribution)
    if actual is None:
        return Check("dependency", "unknown", distribution, specifier, "not installed")
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # few configs state any

    try:
        fits = SpecifierSet(specifier).contains(actual, prereleases=True)
    except InvalidSpecifier:
        reason = "it is no version specifier such as '>=1.4,<2'"
        return Check("dependency", "fail", distribution, specifier, actual, reason)
    return Check("dependency", "pass" if fits else "fail", distribution, specifier, actual)


def asks_for_repository(stated: Compatibility) -> bool:
    """Whether the config says anything of the work tree that the model lies in."""
    asked = stated.commits is not None or stated.repository is not None
    return asked or stated.allow_dirty is False


def repository(stated: Compatibility, folder: Path | None, known: Repositories) -> Iterator[Check]:
    """The checks of the work tree that `folder`, where a target lies, is part of."""
    if not asks_for_repository(stated):
        return
    found = None if folder is None else known.around(folder)
    if found is None:
        yield Check(
            "repository", "unknown", reason=f"{folder or 'the model'} is in no git work tree"
        )
        return
    commit = found.commit or "no commit"
    is_stated_commit = stated.commits is not None and commit in stated.commits
    if stated.repository is not None:
        yield _name(found, stated.repository, is_certain=is_stated_commit)
    if stated.commits is not None:
        yield _mild("commit", is_stated_commit, stated.commits, commit)
    if stated.allow_dirty is False:
        actual = {None: "unknown", True: "changed files", False: "clean"}[found.is_dirty]
        outcome = {None: "unknown", True: "fail", False: "pass"}[found.is_dirty]
        yield Check("dirty", outcome, str(found.folder), "clean", actual)  # type: ignore[arg-type]


def _name(found: Repository, expected: tuple[str, ...], *, is_certain: bool) -> Check:
    """Whether a work tree is a clone of one of these repositories.

    Its commit answers that best: a commit has the same id in every clone. Else the addresses of its
    remotes do, unless they are those of a mirror or of a folder, which are named as anyone likes.
    """
    actual = ", ".join(found.remotes) or "no remote"
    if is_certain or any(map(found.is_clone_of, expected)):
        return Check("repository", "pass", "", " or ".join(expected), actual)
    if any(map(found.is_fork_of, expected)):
        return Check("repository", "warning", "", " or ".join(expected), actual)
    reason = "its remotes do not tell what it is a clone of"
    return Check("repository", "unknown", "", " or ".join(expected), actual, reason)


def _mild(name: str, fits: bool, expected: tuple[str, ...], actual: str) -> Check:
    """Another commit or a fork is only worth a warning: hashes say what the code really is."""
    return Check(name, "pass" if fits else "warning", "", " or ".join(expected), actual)
