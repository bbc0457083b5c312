"""The types that every part of the reliability tests uses: the scale of a run, and its outcome."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Final, Protocol

PARTS: Final[tuple[str, ...]] = (
    "walks",
    "machine",
    "load",
    "curve",
    "cancel",
    "interrupts",
    "truth",
    "flat",
    "model",
    "models",
    "batches",
    "schedules",
    "chaos",
    "endings",
    "mutants",
    "coverage",
    "lag",
    "stuck",
)


class Scale(Enum):
    """How much of a part is run."""

    QUICK = "quick"  # a sample: all parts together take half a minute
    DEFAULT = "default"  # what CI runs
    SLOW = "slow"  # everything

    def pick(self, quick: int, default: int, slow: int) -> int:
        """Returns the number for this scale."""
        return {Scale.QUICK: quick, Scale.DEFAULT: default, Scale.SLOW: slow}[self]


@dataclass(slots=True)
class Outcome:
    """The measurements and the findings of a part. The text of a finding includes how to reproduce it."""

    figures: dict[str, Any] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    not_run: str = ""  # what is missing on this machine, and how to get it
    seconds: float = 0.0

    def expect(self, holds: object, finding: str) -> None:
        """Notes a finding unless the condition holds."""
        if not holds:
            self.findings.append(finding)

    def plain(self) -> dict[str, Any]:
        """Returns a dict for JSON."""
        return asdict(self)


class Part(Protocol):
    """A module of this package that tests one property of aioacl. The first line of its docstring describes it."""

    LIMIT_SECONDS: dict[Scale, float]  # a process that takes longer counts as hung

    @staticmethod
    def run(scale: Scale, seed: int) -> Outcome:
        """Runs the part. The process runs no other part, and has not used aioacl yet."""
        ...
