"""The types that every part of the proofs uses: how much of it to run, and its outcome."""

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

    QUICK = "quick"  # an extract: all parts together in half a minute
    DEFAULT = "default"  # what CI runs
    SLOW = "slow"  # everything

    def pick(self, quick: int, default: int, slow: int) -> int:
        """The number that belongs to the scale."""
        return {Scale.QUICK: quick, Scale.DEFAULT: default, Scale.SLOW: slow}[self]


@dataclass(slots=True)
class Outcome:
    """What a part measured and what it found. A finding includes how to reproduce it."""

    figures: dict[str, Any] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    not_run: str = ""  # what this machine lacks, and how to get it
    seconds: float = 0.0

    def expect(self, holds: object, finding: str) -> None:
        """Notes a finding unless the condition holds."""
        if not holds:
            self.findings.append(finding)

    def plain(self) -> dict[str, Any]:
        """Returns a dict for JSON."""
        return asdict(self)


class Part(Protocol):
    """A module of this package that proves something. The first line of its docstring describes it."""

    LIMIT_SECONDS: dict[Scale, float]  # a process that takes longer counts as hung

    @staticmethod
    def run(scale: Scale, seed: int) -> Outcome:
        """Runs it in a process of its own, in which aioacl has not been used yet."""
        ...
