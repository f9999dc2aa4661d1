"""`apply` and `check`: from a config to watched imports, or to a verdict alone."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import attrs

from turbo_physai.config import OptimizationConfig, OptimizationConfigCatalog, load, select
from turbo_physai.config.selection import COMMON, packaged
from turbo_physai.declarations import Registry
from turbo_physai.declarations.names import texts
from turbo_physai.engine.engine import Engine
from turbo_physai.engine.observing import Observing
from turbo_physai.engine.records import Records
from turbo_physai.errors import TurboPhysAIError
from turbo_physai.plan import PreparedExecution, collect, prepare
from turbo_physai.process import ranks, settings
from turbo_physai.process.role import ProcessRole
from turbo_physai.process.variables import require_valid
from turbo_physai.report import Journal, OptimizationReport
from turbo_physai.report.missed import MissedWarnings
from turbo_physai.report.strict import Strict
from turbo_physai.report.text import log
from turbo_physai.report.unused import warn_of_unused

_once = threading.Lock()
_first: _Applied | None = None


def apply(
    *,
    optimization_config_path: str | os.PathLike[str] | None = None,
    model: str | None = None,
    log_report: bool = False,
    strict: bool = False,
    registry: Registry | None = None,
    catalog: OptimizationConfigCatalog | None = None,
    force_groups: Sequence[str] = (),
    disable_groups: Sequence[str] = (),
) -> OptimizationReport:
    """Watches the targets of a config, so that each is changed as its module is imported.

    Call it once per process, before the model is imported. It imports neither targets nor
    replacements. In a process that a launcher or the environment has activated with the same
    config, it returns the report of that activation.

    Args:
        optimization_config_path: the config, a path or ``package:file``; wins over every other way
            to name one.
        model: the name of a config that ships with turbo_physai or with another installed package;
            case does not matter and ``-`` equals ``_``.
        log_report: rank 0 writes the whole report to the logger ``turbo_physai`` once it is final,
            other ranks one line.
        strict: ends the process with the exit code 3 as soon as it is certain that a Group which
            should have been applied was not.
        registry: Groups besides those of the config's optimization modules.
        catalog: configs that may be extended, instead of those of installed packages.
        force_groups: ids of Groups whose overridable failed checks are let through.
        disable_groups: ids of Groups that are not applied; those that depend on them are skipped.

    Returns:
        The live report.

    Raises:
        OptimizationConfigNotFoundError, OptimizationConfigError: nothing was installed.
        OptimizationRollbackError: a target that was imported before could not be restored.
        TurboPhysAIError: `apply` has run in this process, or the process was activated with
            another config, other Groups, or a Registry or catalog of its own.
        TypeError: an argument is of the wrong type.
    """
    request = _Request(
        optimization_config_path, model, registry, catalog, force_groups, disable_groups
    )
    caller = sys._getframe(1)
    place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    applied, is_first = _claim(place, is_launch=False)
    if not is_first:
        return _join(applied, request, log_report=log_report, strict=strict)
    return _apply(applied, request, log_report=log_report, strict=strict)


def activate() -> None:
    """Applies the config that the environment names, for a launcher or at the start of python. A
    later `apply` in this process gets the report. Errors are those of `apply`."""
    applied, is_first = _claim(
        "the start of this process, by a launcher or the environment", is_launch=True
    )
    if is_first:
        _apply(applied, _Request(), log_report=False, strict=False)


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
    request = _Request(
        optimization_config_path, model, registry, catalog, force_groups, disable_groups
    )
    prepared = _prepare(request)[1]
    for group in prepared.groups.values():
        if group.is_possible:
            prepared.take(group, group.examiner.gather())
    return prepared


def validate() -> None:
    """Raises what `apply` would, of all that can be told from the configuration alone."""
    _prepare(_Request())


@attrs.frozen(eq=False)
class _Request:
    """What one call of `apply` or `check` asks for."""

    path: str | os.PathLike[str] | None = None
    model: str | None = None
    registry: Registry | None = None
    catalog: OptimizationConfigCatalog | None = None
    force_groups: Sequence[str] = ()
    disable_groups: Sequence[str] = ()

    @property
    def selected(self) -> Path:
        return select(self.path, self.model)

    @property
    def force(self) -> tuple[str, ...]:
        return (*texts(self.force_groups, "force_groups"), *settings.FORCE_GROUPS.ids())

    @property
    def disable(self) -> tuple[str, ...]:
        return (*texts(self.disable_groups, "disable_groups"), *settings.DISABLE_GROUPS.ids())


@attrs.define(eq=False)
class _Applied:
    """The one call of `apply` in this process.

    Attributes:
        place: where it was called.
        is_launch: whether a launcher or the environment asked for it, not the program.
        request: what it asked for, once that was found to be right.
        report: its report, from then on.
    """

    place: str
    is_launch: bool
    request: _Request | None = None
    report: OptimizationReport | None = None


def _claim(place: str, *, is_launch: bool) -> tuple[_Applied, bool]:
    """The one call in this process, and whether it is the one that is made now."""
    global _first
    with _once:
        if _first is not None:
            return _first, False
        _first = _Applied(place, is_launch)
        return _first, True


def _apply(
    applied: _Applied, request: _Request, *, log_report: bool, strict: bool
) -> OptimizationReport:
    config, prepared = _prepare(request)
    records = Records(prepared)
    run_id = ranks.run_id()
    report = OptimizationReport(
        run_id,
        config,
        records,
        Journal.of_this_process(run_id),
        ProcessRole(),
        settings.RUNTIME_CONFIG.text(),
    )
    if config.path == packaged(COMMON):
        report.observer = MissedWarnings(report, expects_imports=False)
    applied.request, applied.report = request, report
    _judge(
        report,
        log_report=log_report or settings.LOG_REPORT.flag(),
        strict=strict or settings.STRICT.flag(),
    )
    if settings.DISABLE.flag():
        report.changed()
        return report
    if settings.MEASURE.text() is not None:
        from turbo_physai import measure

        measure.start(report)
    observing = _observing()
    engine = Engine(records, report, observing)

    def close() -> None:
        engine.close()
        if observing.counts:
            warn_of_unused(report)

    atexit.register(lambda: report.observer.end(close))
    engine.start()
    return report


def _observing() -> Observing:
    """What the environment asks to be done about the calls of Replacements."""
    calls, every = settings.VERIFY.count(), settings.VERIFY_EVERY.count()
    if not (calls or every):
        return Observing(settings.OBSERVE.flag())
    from turbo_physai.verify import Verifier

    return Observing(True, Verifier(calls, every, settings.VERIFY_SAVE.text()))


def _join(
    applied: _Applied, request: _Request, *, log_report: bool, strict: bool
) -> OptimizationReport:
    """The report of the call that was made before, if this one asks for the same."""
    report, before = applied.report, applied.request
    if not applied.is_launch or report is None or before is None:
        raise TurboPhysAIError(
            f"apply() works once per process; it was called before, from {applied.place}"
        )
    differs = [
        name
        for name, mine, first in (
            ("config", request.selected, report.optimization_config_path),
            ("registry", request.registry, None),
            ("catalog", request.catalog, None),
            ("force_groups", set(request.force), set(before.force)),
            ("disable_groups", set(request.disable), set(before.disable)),
        )
        if mine != first
    ]
    if differs:
        raise TurboPhysAIError(
            f"apply() works once per process: {report.optimization_config_path} was applied at "
            f"{applied.place}, and this call, for {request.selected}, differs in "
            f"{' and '.join(differs)}. Name the same in both places, or in one place only"
        )
    _judge(report, log_report=log_report and not settings.LOG_REPORT.flag(), strict=strict)
    report.observer.changed()
    return report


def _judge(report: OptimizationReport, *, log_report: bool, strict: bool) -> None:
    if log_report:
        report.on_final(log)
    if strict:
        report.observer = Strict(report)


def _prepare(request: _Request) -> tuple[OptimizationConfig, PreparedExecution]:
    require_valid()
    force, disable = request.force, request.disable
    config = load(request.selected)
    config = (request.catalog or OptimizationConfigCatalog.installed()).resolve(config)
    off = f"{settings.DISABLE.variable} is set" if settings.DISABLE.flag() else ""
    return config, prepare(config, collect(config, request.registry), force, disable, off)
