"""What an assumption is: a sentence about the runtime, the modules that rely on it, and a function that tests it.

A family is a table of assumptions in the order in which they are tested. Each row is a function with a decorator. The
decorator has the name, the mark, the ACL functions, and the modules that rely on the assumption. The docstring is the
assumption, and the types of the parameters are what the bench makes for the check. The check returns if the assumption
holds. It raises Broken, with what happened instead, or NotTestable, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

CheckT = TypeVar("CheckT", bound="Callable[..., None]")
Mark = Literal["H", "H*", "H/D", "D", "doc"]
"""How certain an assumption is.

H: decided on the host, and seen on the real runtime over an emulated driver. H*: like H, and older releases have the
same code. H/D: the structure comes from the runtime, a number or a trigger from the emulator. D: seen on the emulated
device only. doc: from the vendor's documents or headers."""

Outcome = Literal["held", "broken", "known_trait", "not_testable"]

SIMULATOR_ONLY: Final = "simulator"
"""Used in place of a module: aioacl does not rely on the assumption, but the simulator behaves that way."""

NO_DOCSTRINGS: Final = "The sentence is missing, because `python -OO` removes docstrings."


class Needs(Enum):
    """A permission or a facility that a check needs."""

    RESET = "it resets the device; pass --reset to allow that"
    FAULTS = "on a card, no task can be made to fail"
    NO_CARD = "on a card, it might crash the process"
    OM_FILE = "on a card, it needs a model that CANN's atc has made; pass --model FILE.om"
    MODEL = "releases of CANN differ here, and aioacl relies on neither behaviour"


@dataclass(frozen=True, slots=True)
class Assumption:
    """One assumption about the runtime."""

    family: str
    name: str
    says: str
    calls: tuple[str, ...]
    used_by: tuple[str, ...]
    mark: Mark
    check: Callable[..., None]  # Bench.run calls it
    needs: frozenset[Needs] = frozenset()
    alone: bool = False  # tested in its own process, in which nothing has set the device yet
    begins: bool = True  # ACL is initialised before the check
    leaves: bool = False  # the check is about the end of its process, which must end normally, with status 0
    crash: str = ""  # if the runtime is known to crash in the check: what aioacl does about it

    @property
    def id(self) -> str:
        """The name, which does not change between versions, because scripts may compare it."""
        return f"{self.family}.{self.name}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of the check of an assumption."""

    assumption: Assumption
    outcome: Outcome
    detail: str = ""


@dataclass
class Family:
    """Assumptions that are tested in one process, one after another."""

    name: str
    title: str
    alone: bool = False
    begins: bool = True  # ACL is initialised before each check
    needs: Needs | None = None
    members: list[Assumption] = field(default_factory=list[Assumption])

    def assumes(
        self,
        name: str,
        mark: Mark,
        calls: str,
        used_by: str,
        *,
        needs: Needs | None = None,
        leaves: bool = False,
        crash: str = "",
    ) -> Callable[[CheckT], CheckT]:
        """Makes the decorated function the check of a new assumption; `calls` and `used_by` are lists of words."""

        def keep(check: CheckT) -> CheckT:
            assumption = Assumption(
                family=self.name,
                name=name,
                says=" ".join((check.__doc__ or NO_DOCSTRINGS).split()),
                calls=tuple(calls.split()),
                used_by=tuple(used_by.split()),
                mark=mark,
                check=check,
                needs=frozenset(each for each in (needs, self.needs) if each),
                alone=self.alone,
                begins=self.begins,
                leaves=leaves,
                crash=crash,
            )
            self.members.append(assumption)
            return check

        return keep
