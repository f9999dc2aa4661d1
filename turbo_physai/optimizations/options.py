"""Options that Groups of any model may have. Nothing heavy is imported here."""

from __future__ import annotations

from typing import Any

import attrs

from turbo_physai.declarations import option


def _instead_of_mode(instance: CompileOptions, attribute: object, value: Any) -> None:
    if value is not None and instance.mode is not None:
        raise ValueError("torch.compile takes either a mode or options")


@attrs.frozen
class CompileOptions:
    """What `turbo_physai.optimizations.compiled:compiled` hands on to `torch.compile`."""

    mode: str | None = option(None, help="a set of options by its name in torch.compile")
    dynamic: bool | None = option(
        None, help="whether shapes are symbols; null: as soon as one has changed"
    )
    backend: str = option("inductor", help="what compiles the graphs")
    fullgraph: bool = option(
        False, help="whether a function that is no single graph is left uncompiled"
    )
    options: dict[str, Any] | None = option(
        None, help="options of the backend", validator=_instead_of_mode
    )
