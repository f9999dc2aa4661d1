"""Answers for detectron2 and its modules where it is not installed.

Importing BEVFormer's plugin imports a head of BEVFormerV2 that is made of parts of detectron2. A
name that is imported from here stands for such a part, and says so as soon as it is used.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

import attrs

__path__: list[str] = []  # a package without modules of its own: those needed are declared

CURE: Final = "install it (https://github.com/facebookresearch/detectron2) to use this part"


@attrs.frozen(eq=False)
class Missing:
    """A part of detectron2 that is not there: whatever is done with it raises."""

    name: str

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ModuleNotFoundError(
            f"detectron2's {self.name!r} is needed here, but detectron2 is not installed and "
            f"turbo_physai only lets it be imported: {CURE}",
            name="detectron2",
        )

    __call__ = __mro_entries__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __getitem__ = __iter__ = _refuse

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # asked of any object, by `inspect` and others
            raise AttributeError(name)
        self._refuse()


def __getattr__(name: str) -> Missing:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return Missing(name)
