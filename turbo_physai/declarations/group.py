"""A Group: Replacements that are applied, checked and rolled back as one."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING, Any

import attrs

from turbo_physai.declarations.declaration import Declaration
from turbo_physai.declarations.names import ObjectPath, object_path, overlap, texts
from turbo_physai.declarations.options import NoOptions, options_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_ID = re.compile(r"[A-Za-z0-9_]+([.-][A-Za-z0-9_]+)*")


@attrs.frozen
class Group:
    """Members that live and die together under one stable id.

    Attributes:
        id: such as ``bevformer.msda``.
        members: its Replacements, or its import-compatibility declarations; never both.
        depends_on: ids of Groups that must be applied before this one binds.
        compatibility_check: path of ``check(context) -> CompatibilityResult``, run once.
        options: the attrs class whose fields are its options.
        compatibility: whether it is there to let a repository run, not to make it faster.
    """

    id: str
    members: tuple[Declaration, ...]
    depends_on: tuple[str, ...] = ()
    compatibility_check: ObjectPath | None = None
    options: type[Any] = NoOptions
    compatibility: bool = False

    @property
    def changes_imports(self) -> bool:
        """Whether it consists of import-compatibility declarations."""
        return not self.members[0].targets


def group(
    id: str,
    *members: Declaration,
    depends_on: Sequence[str] = (),
    compatibility_check: str | None = None,
    options: type[Any] = NoOptions,
    compatibility: bool = False,
) -> Group:
    """Declares a Group.

    Args:
        id: such as ``bevformer.msda``.
        members: what `replace`, `wrap` and the import-compatibility declarations return.
        depends_on: ids of Groups that must be applied before this one binds.
        compatibility_check: path of ``check(context) -> CompatibilityResult``, run once.
        options: a frozen attrs class, each field of which is an option: its name, its type (bool,
            int, float, str, Literal, Any, ``tuple[T, ...]``, ``list[T]``, ``dict[str, T]`` and
            unions), its default, and a help text; see `option`. Wrapper factories and checks get
            an instance of it. By default there are no options.
        compatibility: True if the Group is there to let a repository run at all, on a newer PyTorch
            or without a GPU, and not to make it faster. ``turbo-physai compare --only-compat``
            keeps such Groups on both sides.

    Raises:
        TypeError: a member is no declaration, `depends_on` is a plain text, `options` is not such
            a class, or `compatibility` is no bool.
        ValueError: the id is malformed, there are no members, the members mix Replacements with
            import-compatibility declarations, or two of them change the same path.
    """
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise ValueError(f"a Group's id is a text such as 'model.operator', found {id!r}")
    if not members:
        raise ValueError(f"Group {id}: has no members")
    for member in members:
        if not isinstance(member, Declaration):
            raise TypeError(f"Group {id}: {member!r} is not a declaration such as replace(...)")
    if len({bool(member.targets) for member in members}) > 1:
        raise ValueError(
            f"Group {id}: import-compatibility declarations form Groups of their own, "
            "found them beside replace or wrap"
        )
    claims = Counter(ObjectPath(path).dotted for m in members for path in m.paths)
    twice = [path for path, count in claims.items() if count > 1]
    if twice:
        raise ValueError(f"Group {id}: changes {', '.join(twice)} more than once")
    replaced = [member.module for member in members if member.claims_module and member.module]
    for one, other in combinations(replaced, 2):
        if overlap(one, other):
            raise ValueError(f"Group {id}: replaces {one} and {other}, which contain one another")
    check = None
    if compatibility_check is not None:
        check = object_path(compatibility_check, f"Group {id}: compatibility_check")
    try:
        options_of(options)
    except TypeError as error:
        raise TypeError(f"Group {id}: options: {error}") from None
    if not isinstance(compatibility, bool):
        raise TypeError(f"Group {id}: compatibility: found {compatibility!r}; accepted: a bool")
    needed = texts(depends_on, f"Group {id}: depends_on")
    return Group(id, members, needed, check, options, compatibility)
