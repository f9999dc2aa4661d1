"""One question that was asked before a change, and its answer."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

Outcome = Literal["pass", "warning", "fail", "unknown", "not_applicable"]

# A failed check of these names may be let through by force_groups: the code differs from what was
# validated, but the change can still be made. Every other failure is structural.
HASHES: Final = frozenset({"source_hash", "ast_hash", "artifact_hash"})
OVERRIDABLE: Final = HASHES | {"dirty", "dependency"}

# What the source may leave open, and the object answers as soon as it is there.
LIVE: Final = frozenset({"target", "replacement", "runtime_condition", *HASHES})


class Check(NamedTuple):
    """The answer to one question.

    Attributes:
        name: what was asked, such as ``signature``.
        outcome: how it came out.
        subject: what it was asked of, such as a target.
        expected, actual: what was wanted and what was found.
        reason: why, in a sentence; may be empty where expected and actual say it.
    """

    name: str
    outcome: Outcome
    subject: str = ""
    expected: str = ""
    actual: str = ""
    reason: str = ""

    @property
    def overridable(self) -> bool:
        return self.name in OVERRIDABLE

    @property
    def leaves_open(self) -> bool:
        """Whether only the live object can answer it."""
        return self.outcome == "unknown" and self.name in LIVE

    def blocks(self, *, forced: bool) -> bool:
        """Whether it keeps a Group from being applied."""
        return self.outcome == "fail" and not (forced and self.overridable)

    def __str__(self) -> str:
        found = f"expected {self.expected}, found {self.actual}" if self.expected else self.actual
        text = ": ".join(filter(None, (self.reason, found)))
        subject = f" of {self.subject}" if self.subject else ""
        return f"{self.name}{subject}: {text or self.outcome}"

    def to_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "overridable": self.overridable}
