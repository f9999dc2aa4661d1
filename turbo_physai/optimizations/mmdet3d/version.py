"""Which version of mmcv mmdet3d is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from turbo_physai.declarations import NoOptions

# The releases after 1.7.0, the last that mmdet3d 1.0.0rc6 accepts, mend faults and change nothing
# that it uses.
_LIKE_1_7_0: Final = ("1.7.1", "1.7.2")


def accepted(version: str, options: NoOptions) -> str:
    """The version that mmdet3d's assertion sees in place of `version`: itself in most cases, so
    that an mmcv which mmdet3d is right to refuse is refused."""
    return "1.7.0" if version in _LIKE_1_7_0 else version
