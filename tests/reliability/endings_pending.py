"""Ends of a process with pending coroutines, which the interpreter finalizes in its last phases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.reliability.endings_child import Case
from tests.support import pending

if TYPE_CHECKING:
    import random

MOST_KINDS: Final = 6


def cases(count: int, chance: random.Random) -> list[tuple[Case, str]]:
    """Returns that many cases, each with its loop.

    Each kind of coroutine comes once on each loop in each place, as far as the count allows; mixtures follow.
    """
    alone = [
        ([kind], place, loop) for place in pending.PLACES for loop in pending.LOOPS for kind in pending.KINDS
    ]
    chosen = chance.sample(alone, min(count, len(alone)))
    mixtures = [
        (
            chance.choices([*pending.KINDS], k=MOST_KINDS),
            chance.choice(pending.PLACES),
            chance.choice(pending.LOOPS),
        )
        for _ in range(count - len(chosen))
    ]
    return [(_case(kinds, place), loop) for kinds, place, loop in chosen + mixtures]


def _case(kinds: list[str], place: str) -> Case:
    return Case(
        f"{' and '.join(kinds)} {place}",
        pending.program(kinds, place, f"leave({pending.STATUS})"),
        status=pending.STATUS,
        output=pending.OUTPUT,
        any_end=True,
        destructors_run=False,
        strict=False,
    )
