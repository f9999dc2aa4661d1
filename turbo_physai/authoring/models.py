"""The configs that `--model` finds, and where they come from."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from turbo_physai.config import OptimizationConfigCatalog, load
from turbo_physai.config.installed import installed_configs, locate
from turbo_physai.config.selection import packaged_configs
from turbo_physai.errors import TurboPhysAIError
from turbo_physai.evidence.packages import version

_OURS = "turbo_physai"


class Model(NamedTuple):
    """One name that ``--model`` takes.

    Attributes:
        name: the name.
        model: what the config says that it is for.
        commits: those of the model that the config was made for.
        groups: ids of its Groups, those that it extends included.
        origin: the distribution that it comes from, with its version.
        path: the file; None where it was not found.
        fault: why the name cannot be used; empty if it can.
    """

    name: str
    model: str = ""
    commits: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    origin: str = ""
    path: Path | None = None
    fault: str = ""


def models() -> list[Model]:
    """All of them, ours first."""
    ours = f"{_OURS} {version(_OURS) or ''}".strip()
    packaged, installed = packaged_configs(), installed_configs()
    holders = {name: [ours] for name in packaged}
    for each in installed:
        holders.setdefault(each.name, []).append(each.origin)
    found = [_read(Model(name, origin=ours), path) for name, path in packaged.items()]
    for each in installed:
        model = Model(each.name, origin=each.origin)
        others = [origin for origin in holders[each.name] if origin != each.origin]
        if others:
            found.append(model._replace(fault=f"{' and '.join(others)} has that name, too"))
            continue
        try:
            path = locate(each.reference, "its entry point")
        except TurboPhysAIError as error:
            found.append(model._replace(fault=str(error)))
        else:
            found.append(_read(model, path))
    return found


def _read(model: Model, path: Path) -> Model:
    try:
        config = OptimizationConfigCatalog.installed().resolve(load(path))
    except TurboPhysAIError as error:
        return model._replace(path=path, fault=str(error))
    return model._replace(
        model=config.model_name or "",
        commits=config.compatibility.commits or (),
        groups=tuple(entry.id for entry in config.groups),
        path=path,
    )
