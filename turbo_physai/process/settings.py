"""The settings that reach a process through its environment: one row for each variable of ours.

Launchers make their options from the rows, children find in the variables what was asked for, and
docs/launching.md shows those that are for users. Every process that is activated imports this, so
it imports next to nothing itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from turbo_physai.errors import Fault

PREFIX: Final = "TURBO_PHYSAI_"

# The start-up files decide about the kill switch before they import anything, and repeat YES.
YES: Final = ("1", "true", "yes", "on")
NO: Final = ("0", "false", "no", "off")

_DIGITS: Final = 10


class Setting(NamedTuple):
    """One variable.

    Attributes:
        variable: its name.
        kind: a ``flag`` is on or off, a ``path`` one file or folder, a ``config`` a file or a name,
            ``ids`` have commas between them, a ``count`` is a whole number, a ``text`` is anything.
        help: what it is for.
        option: the option of the launchers that sets it, with its metavariable.
        is_internal: whether processes of ours set it for those below, and users do not.
    """

    variable: str
    kind: Literal["flag", "path", "config", "ids", "text", "count"]
    help: str
    option: str = ""
    is_internal: bool = False

    def text(self, environment: Mapping[str, str] = os.environ) -> str | None:
        """Its value; None if it is not set. A variable that is empty is not set."""
        return environment.get(self.variable) or None

    def flag(self, environment: Mapping[str, str] = os.environ) -> bool:
        """Whether it is on.

        Raises:
            OptimizationConfigError: its value means neither yes nor no.
        """
        fault = self.fault(environment)
        if fault is not None:
            from turbo_physai.errors import OptimizationConfigError

            raise OptimizationConfigError(fault)
        return self.is_on(environment)

    def is_on(self, environment: Mapping[str, str] = os.environ) -> bool:
        """Whether its value means yes, where a wrong one is refused elsewhere."""
        return environment.get(self.variable, "").strip().lower() in YES

    def count(self, environment: Mapping[str, str] = os.environ) -> int:
        """Its number, 0 if it is not set; where it is wrong, that is refused elsewhere."""
        value = environment.get(self.variable, "").strip()
        return int(value) if _is_count(value) else 0

    def ids(self, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
        """The ids that it lists."""
        ids = (id_.strip() for id_ in environment.get(self.variable, "").split(","))
        return tuple(id_ for id_ in ids if id_)

    def fault(self, environment: Mapping[str, str] = os.environ) -> Fault | None:
        """What is wrong with its value, if anything is."""
        value = environment.get(self.variable, "").strip()
        if self.kind == "count":
            is_wrong, accepted = bool(value) and not _is_count(value), "a whole number from 0"
        else:
            is_wrong = self.kind == "flag" and value.lower() not in ("", *YES, *NO)
            accepted = f"{', '.join(YES)}, {', '.join(NO)} or nothing"
        if not is_wrong:
            return None
        from turbo_physai.errors import Fault

        return Fault(self.variable, repr(environment[self.variable]), accepted)


def _is_count(value: str) -> bool:
    return value.isascii() and value.isdecimal() and len(value) < _DIGITS


OPTIMIZATION_CONFIG: Final = Setting(
    "TURBO_PHYSAI_OPTIMIZATION_CONFIG",
    "config",
    "Use this OptimizationConfig: a file, a model's name or package:file. The variable activates "
    "every Python process that sees it.",
    "--optimization-config CONFIG",
)
RUNTIME_CONFIG: Final = Setting(
    "TURBO_PHYSAI_RUNTIME_CONFIG",
    "path",
    "Apply this RuntimeConfig. The variable only tells reports which one was applied.",
    "--runtime-config FILE",
)
FORCE_GROUPS: Final = Setting(
    "TURBO_PHYSAI_FORCE_GROUPS",
    "ids",
    "Let the overridable failed checks of a Group through.",
    "--force-group ID",
)
DISABLE_GROUPS: Final = Setting(
    "TURBO_PHYSAI_DISABLE_GROUPS", "ids", "Do not apply a Group.", "--disable-group ID"
)
LOG_REPORT: Final = Setting(
    "TURBO_PHYSAI_LOG_REPORT", "flag", "Log the whole report once it is final.", "--log-report"
)
REPORT_DIR: Final = Setting(
    "TURBO_PHYSAI_REPORT_DIR", "path", "Keep the reports in this folder.", "--report-dir DIR"
)
RUN_ID: Final = Setting(
    "TURBO_PHYSAI_RUN_ID", "text", "Name this launch in its reports.", "--run-id ID"
)
STRICT: Final = Setting(
    "TURBO_PHYSAI_STRICT",
    "flag",
    "End with the exit code 3 if a Group that should be applied was not.",
    "--strict",
)
OBSERVE: Final = Setting(
    "TURBO_PHYSAI_OBSERVE",
    "flag",
    "Count the calls of every Replacement, also where that costs a frame per call.",
    "--observe",
)
VERIFY: Final = Setting(
    "TURBO_PHYSAI_VERIFY",
    "count",
    "Compare the first N calls of every Replacement with the original; roll back what differs.",
    "--verify N",
)
VERIFY_EVERY: Final = Setting(
    "TURBO_PHYSAI_VERIFY_EVERY",
    "count",
    "Compare every Kth call after these as well.",
    "--verify-every K",
)
VERIFY_SAVE: Final = Setting(
    "TURBO_PHYSAI_VERIFY_SAVE",
    "path",
    "Keep the arguments of a call that differed in this folder.",
    "--verify-save DIR",
)
DISABLE: Final = Setting(
    "TURBO_PHYSAI_DISABLE",
    "flag",
    "Run the program as if turbo_physai was not there.",
    "--disable",
)
KERNEL_BACKEND: Final = Setting(
    "TURBO_PHYSAI_KERNEL_BACKEND",
    "text",
    "Let every kernel take this backend: cpu, triton or torch.",
)
TRITON_SIZES: Final = Setting(
    "TURBO_PHYSAI_TRITON_SIZES", "path", "Read measured sizes of Triton kernels from this file."
)
NUMA: Final = Setting(
    "TURBO_PHYSAI_NUMA",
    "flag",
    "Bind each local rank to the NUMA node of its GPU.",
    is_internal=True,
)
RANK_AFFINITY: Final = Setting(
    "TURBO_PHYSAI_RANK_AFFINITY", "text", "The CPUs of local ranks.", is_internal=True
)
RANK_NUMA: Final = Setting(
    "TURBO_PHYSAI_RANK_NUMA", "text", "The NUMA nodes of local ranks.", is_internal=True
)
MEASURE: Final = Setting(
    "TURBO_PHYSAI_MEASURE",
    "text",
    "What to measure in the processes that train, as JSON.",
    is_internal=True,
)
LAUNCH_ID: Final = Setting(
    "TURBO_PHYSAI_LAUNCH_ID",
    "text",
    "The id of a launch that nobody named, made up by its first process.",
    is_internal=True,
)
PARENT_RANK: Final = Setting(
    "TURBO_PHYSAI_PARENT_RANK",
    "text",
    "The rank of the nearest process above that was activated.",
    is_internal=True,
)
PROGRAM_FOLDERS: Final = Setting(
    "TURBO_PHYSAI_PROGRAM_FOLDERS",
    "text",
    "The folders of the programs above, nearest first.",
    is_internal=True,
)
REPORTED_UNKNOWN: Final = Setting(
    "TURBO_PHYSAI_REPORTED_UNKNOWN",
    "ids",
    "The unknown variables that a process above has warned of.",
    is_internal=True,
)

ALL: Final = (
    OPTIMIZATION_CONFIG,
    RUNTIME_CONFIG,
    FORCE_GROUPS,
    DISABLE_GROUPS,
    LOG_REPORT,
    REPORT_DIR,
    RUN_ID,
    STRICT,
    OBSERVE,
    VERIFY,
    VERIFY_EVERY,
    VERIFY_SAVE,
    DISABLE,
    KERNEL_BACKEND,
    TRITON_SIZES,
    NUMA,
    RANK_AFFINITY,
    RANK_NUMA,
    MEASURE,
    LAUNCH_ID,
    PARENT_RANK,
    PROGRAM_FOLDERS,
    REPORTED_UNKNOWN,
)
