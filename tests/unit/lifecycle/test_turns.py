"""Turns: who waited for a reset goes before the next one, and who waits for a turn hears of its end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from aioacl._base import sync
from aioacl._lifecycle.turns import Turns
from tests.kit import PATIENCE_SECONDS, Raised

if TYPE_CHECKING:
    from collections.abc import Generator


def test_nobody_waits_for_who_was_thrown_away_in_his_place() -> None:
    turns = Turns(sync.condition())

    def wait_in_vain() -> Generator[None]:
        with turns.place() as place:
            with turns.changed:
                turns.wait(place)
            yield

    for given in (False, True):
        waiting = wait_in_vain()
        next(waiting)
        with turns.changed:
            if given:
                turns.give()
            waiting.close()  # as a finalizer does it, on a thread that has the lock
            turns.give()
            assert not turns.due


def test_a_turn_ends_for_who_waits_for_it_when_its_owner_has_to_wait_again() -> None:
    turns = Turns(sync.condition())
    place = turns.place()
    waits = threading.Event()

    def until_all_were_taken() -> bool:
        with turns.changed:
            waits.set()
            while turns.due:
                if not turns.changed.wait(PATIENCE_SECONDS):
                    return False
        return True

    with place:
        with turns.changed:
            turns.wait(place)
            turns.give()
        waiter = Raised(until_all_were_taken)
        waits.wait()
        with turns.changed:  # the lock is free only when he waits
            turns.wait(place)
        assert waiter.join(2 * PATIENCE_SECONDS)
