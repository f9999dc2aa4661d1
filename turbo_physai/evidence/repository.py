"""The git work tree that a model's code lies in, as git itself tells it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import attrs

_FORGE = "github.com"  # where the repositories that configs name are

_PATIENCE = 10.0  # seconds; a work tree on a slow network disk must not hold up a training


@attrs.define(slots=False)
class Repository:
    """A git work tree. Each answer is asked of git once; None where git gives none."""

    folder: Path

    @classmethod
    def around(cls, folder: Path) -> Repository | None:
        """The work tree that `folder` is part of; None if it is in none."""
        top = _git(folder, "rev-parse", "--show-toplevel")
        return None if not top else cls(Path(top))

    @cached_property
    def commit(self) -> str | None:
        return _git(self.folder, "rev-parse", "HEAD")

    @cached_property
    def is_dirty(self) -> bool | None:
        """Whether tracked files differ from the commit."""
        changes = _git(self.folder, "status", "--porcelain", "--untracked-files=no")
        return None if changes is None else bool(changes)

    @cached_property
    def remotes(self) -> tuple[str, ...]:
        """The addresses of its remotes."""
        lines = (_git(self.folder, "remote", "-v") or "").splitlines()
        return tuple(dict.fromkeys(line.split()[1] for line in lines if len(line.split()) > 1))

    def is_clone_of(self, name: str) -> bool:
        """Whether a remote is the repository ``owner/name``."""
        ends = (remote.removesuffix(".git").replace(":", "/") for remote in self.remotes)
        return any(f"/{end}".lower().endswith(f"/{name.lower()}") for end in ends)

    def is_fork_of(self, name: str) -> bool:
        """Whether a remote is a repository of the same forge that has another ``owner/name``."""
        return any(_FORGE in remote and not self.is_clone_of(name) for remote in self.remotes)


class Repositories:
    """The work trees that one run asks about. Each is looked for once."""

    def __init__(self) -> None:
        self._found: dict[Path, Repository | None] = {}

    def around(self, folder: Path) -> Repository | None:
        """The work tree that `folder` is part of; None if it is in none."""
        if folder not in self._found:
            self._found[folder] = Repository.around(folder)
        return self._found[folder]


def _git(folder: Path, *arguments: str) -> str | None:
    import subprocess

    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
