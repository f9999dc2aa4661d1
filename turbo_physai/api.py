"""`apply` and `check`: from a config to watched imports, or to a verdict alone."""

from __future__ import annotations

import atexit
import os
import threading
import traceback
from collections.abc import Sequence

from turbo_physai.config import OptimizationConfig, OptimizationConfigCatalog, load, select
from turbo_physai.declarations import Registry
from turbo_physai.declarations.names import texts
from turbo_physai.engine import Engine, bindings
from turbo_physai.errors import TurboPhysAIError
from turbo_physai.plan import PreparedExecution, collect, gather, prepare
from turbo_physai.process import ranks, settings
from turbo_physai.process.role import ProcessRole
from turbo_physai.process.variables import require_valid
from turbo_physai.report import Journal, OptimizationReport
from turbo_physai.report.strict import Strict
from turbo_physai.report.text import log

_once = threading.Lock()
_first_call: str | None = None


def apply(
    *,
    optimization_config_path: str | os.PathLike[str] | None = None,
    model: str | None = None,
    log_report: bool = False,
    registry: Registry | None = None,
    catalog: OptimizationConfigCatalog | None = None,
    force_groups: Sequence[str] = (),
    disable_groups: Sequence[str] = (),
) -> OptimizationReport:
    """Watches the targets of a config, so that each is changed as its module is imported.

    Call it once per process, before the model is imported. It imports neither targets nor
    replacements.

    Args:
        optimization_config_path: the config; wins over every other way to name one.
        model: name of a packaged config; case does not matter and ``-`` equals ``_``.
        log_report: rank 0 writes the whole report to the logger ``turbo_physai`` once it is final,
            other ranks one line.
        registry: Groups besides those of the config's optimization modules.
        catalog: configs that may be extended, instead of the packaged ones.
        force_groups: ids of Groups whose overridable failed checks are let through.
        disable_groups: ids of Groups that are not applied; those that depend on them are skipped.

    Returns:
        The live report.

    Raises:
        OptimizationConfigNotFoundError, OptimizationConfigError: nothing was installed.
        OptimizationRollbackError: a target that was imported before could not be restored.
        TurboPhysAIError: `apply` has run in this process.
        TypeError: an argument is of the wrong type.
    """
    _claim_process()
    config, prepared = _prepare(
        optimization_config_path, model, registry, catalog, force_groups, disable_groups
    )
    is_off = settings.DISABLE.flag()
    if is_off:
        for each in prepared.groups.values():
            each.decision, each.reason = "skip", f"{settings.DISABLE.variable} is set"
    groups = bindings(prepared)
    run_id = ranks.run_id()
    report = OptimizationReport(
        run_id,
        config,
        prepared,
        {group.id: group.execution for group in groups},
        Journal.of_this_process(run_id),
        ProcessRole(),
        settings.RUNTIME_CONFIG.text(),
    )
    if log_report or settings.LOG_REPORT.flag():
        report.on_final(log)
    if is_off:
        report.changed()
    else:
        _start(Engine(report, groups), report)
    return report


def check(
    *,
    optimization_config_path: str | os.PathLike[str] | None = None,
    model: str | None = None,
    registry: Registry | None = None,
    catalog: OptimizationConfigCatalog | None = None,
    force_groups: Sequence[str] = (),
    disable_groups: Sequence[str] = (),
) -> PreparedExecution:
    """Decides exactly as `apply` would, from source alone: nothing is installed or imported.

    What only a live object can tell is ``unknown`` in the checks, with the reason. Arguments and
    errors are those of `apply`.
    """
    config, prepared = _prepare(
        optimization_config_path, model, registry, catalog, force_groups, disable_groups
    )
    for group in prepared.groups.values():
        if group.decision == "apply":
            found = gather(group, config.compatibility)
            prepared.add(found.config)
            group.add(found.group)
    return prepared


def validate() -> None:
    """Raises what `apply` would, of all that can be told from the configuration alone."""
    _prepare(None, None, None, None, (), ())


def _start(engine: Engine, report: OptimizationReport) -> None:
    if settings.STRICT.flag():
        strict = Strict(report)
        report.after_change = strict.enforce
        atexit.register(strict.end, engine.close)
    else:
        atexit.register(engine.close)
    engine.start()


def _prepare(
    path: str | os.PathLike[str] | None,
    model: str | None,
    registry: Registry | None,
    catalog: OptimizationConfigCatalog | None,
    force_groups: Sequence[str],
    disable_groups: Sequence[str],
) -> tuple[OptimizationConfig, PreparedExecution]:
    require_valid()
    force = (*texts(force_groups, "force_groups"), *settings.FORCE_GROUPS.ids())
    disable = (*texts(disable_groups, "disable_groups"), *settings.DISABLE_GROUPS.ids())
    config = load(select(path, model))
    config = (catalog or OptimizationConfigCatalog.packaged()).resolve(config)
    return config, prepare(config, collect(config, registry), force, disable)


def _claim_process() -> None:
    global _first_call
    with _once:
        if _first_call is not None:
            raise TurboPhysAIError(
                f"apply() works once per process; it was called before, from {_first_call}"
            )
        caller = traceback.extract_stack(limit=3)[0]
        _first_call = f"{caller.filename}:{caller.lineno}"
