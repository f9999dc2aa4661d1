"""Gathers the evidence for one Group, from source, before its first change."""

from __future__ import annotations

import pkgutil
from collections.abc import Collection, Iterable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, Final, NamedTuple

import attrs

from turbo_physai.config import Compatibility, Trust
from turbo_physai.declarations import Declaration, Group, Replacement
from turbo_physai.evidence import compatibility, examine, surroundings
from turbo_physai.evidence.check import Check
from turbo_physai.evidence.repository import Repositories

_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


class Evidence(NamedTuple):
    """What was found out for the config as a whole, and for one Group."""

    config: list[Check]
    group: list[Check]


@attrs.frozen(eq=False)
class Examiner:
    """Asks all questions about one Group.

    Nothing is imported but the Group's own `compatibility_check`, so no lock may be held.

    Attributes:
        group: the Group.
        trust: the code that it was validated on.
        options: an instance of its schema.
        stated: what the config was made for.
        repositories: the git work trees that were asked for before.
    """

    group: Group
    trust: Trust
    options: Any
    stated: Compatibility
    repositories: Repositories

    def gather(self, known: ModuleSpec | None = None) -> Evidence:
        """All checks, before anything of the Group is changed. `known` is the spec of the module
        that is about to run."""
        checks = list(self._examined(self._replacements, known))
        folders = [] if self._is_undemanding else self._folders(known)
        if self.group.compatibility_check is not None:
            checks.append(self._ask(folders[0] if folders else None))
        return Evidence(list(self._repository(folders)), checks)

    def gather_again(self, known: ModuleSpec) -> Evidence:
        """The checks of those members whose module is about to run, or to run again."""
        members = (m for m in self._replacements if known.name in m.modules)
        return Evidence([], list(self._examined(members, known)))

    def confirm(self, member: Declaration, paths: Collection[str]) -> Evidence:
        """The checks of a member that are about `paths`, objects that are there now: what the
        source left open is answered."""
        checks = examine.confirmed(member, self.trust) if isinstance(member, Replacement) else ()
        return Evidence([], [check for check in checks if check.subject in paths])

    @property
    def _replacements(self) -> list[Replacement]:
        return [member for member in self.group.members if isinstance(member, Replacement)]

    @property
    def _is_undemanding(self) -> bool:
        """Whether nobody asks where the targets lie."""
        asks = self.group.compatibility_check is not None
        return not (asks or surroundings.asks_for_repository(self.stated))

    def _examined(
        self, members: Iterable[Replacement], known: ModuleSpec | None
    ) -> Iterator[Check]:
        return (check for m in members for check in examine.member(m, self.trust, known))

    def _folders(self, known: ModuleSpec | None) -> list[Path]:
        """Where the targets lie whose files are known."""
        files = (examine.read(m.target, known).file for m in self._replacements)
        return [Path(file).parent for file in files if file is not None and Path(file).is_file()]

    def _repository(self, folders: list[Path]) -> Iterator[Check]:
        # A package that was installed is not the model: a work tree around it, if any, is that of
        # something else. A Group that only changes imports has no place.
        models = [each for each in folders if not _INSTALLED & set(each.parts)]
        if not self._replacements or (folders and not models):
            return iter(())
        found = models[0] if models else None
        return surroundings.repository(self.stated, found, self.repositories)

    def _ask(self, folder: Path | None) -> Check:
        path = self.group.compatibility_check
        assert path is not None
        repository = None if folder is None else self.repositories.around(folder)
        told = compatibility.context(self.group.id, self.options, repository)
        try:
            answer = pkgutil.resolve_name(path)(told)
        except Exception as error:
            reason = f"its compatibility_check {path} failed: {type(error).__name__}: {error}"
            return Check("compatibility", "fail", self.group.id, reason=reason)
        return compatibility.verdict(answer, self.group.id)
