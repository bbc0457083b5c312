"""What an assumption is: a sentence about the runtime, who relies on it, and a function that tries it.

A family is a list of them in the order in which they are tried. The check of an assumption returns if it holds; it
raises Broken, with what was seen instead, or NotTestable, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._selftest._bench import Bench

Mark = Literal["H", "H*", "H/D", "D", "doc"]
"""How sure it is. H: decided on the host, seen on the real runtime over an emulated driver; H*: and the same code in
older releases; H/D: the structure is the runtime's, a number or a trigger the emulator's; D: seen on the emulated
device only; doc: from the vendor's documents or headers."""

Outcome = Literal["held", "broken", "not_testable"]

NOBODY: Final = "simulator"
"""In place of a module: aioacl gets by without it, but the simulator says that the runtime is like this."""


class Needs(Enum):
    """What a check must be allowed, or be given."""

    RESET = "it resets the device: allow that with --reset"
    FAULTS = "a fault cannot be made on a card"
    NO_CARD = "on a card it might crash the process"
    MODEL = "releases of CANN differ in it, and aioacl relies on neither way"


@dataclass(frozen=True, slots=True)
class Assumption:
    """One thing that is taken for granted."""

    family: str
    name: str
    says: str
    calls: tuple[str, ...]
    used_by: tuple[str, ...]
    mark: Mark
    check: Callable[[Bench], None]
    needs: frozenset[Needs] = frozenset()
    alone: bool = False  # in a process of its own, in which nothing has set the device yet
    begins: bool = True  # ACL is initialised before the check
    leaves: bool = False  # that process ends like any other, and must do so with 0

    @property
    def id(self) -> str:
        """Its name for good: scripts may compare it."""
        return f"{self.family}.{self.name}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of an assumption."""

    assumption: Assumption
    outcome: Outcome
    detail: str = ""


@dataclass
class Family:
    """Assumptions that are tried in one process, one after another."""

    name: str
    title: str
    alone: bool = False
    begins: bool = True  # ACL is initialised before each check
    needs: Needs | None = None
    members: list[Assumption] = field(default_factory=list[Assumption])

    def assumes(
        self,
        name: str,
        says: str,
        *,
        calls: str,
        used_by: str,
        mark: Mark,
        needs: Needs | None = None,
        leaves: bool = False,
    ) -> Callable[[Callable[[Bench], None]], Callable[[Bench], None]]:
        """Makes the decorated function the check of one more assumption; `calls` and `used_by` are lists of words."""

        def keep(check: Callable[[Bench], None]) -> Callable[[Bench], None]:
            self.members.append(
                Assumption(
                    self.name,
                    name,
                    says,
                    tuple(calls.split()),
                    tuple(used_by.split()),
                    mark,
                    check,
                    frozenset(each for each in (needs, self.needs) if each),
                    self.alone,
                    self.begins,
                    leaves,
                )
            )
            return check

        return keep
