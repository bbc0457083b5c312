"""Turns: who waited for a reset goes before the next one, and who waits for a turn hears of its end."""

from __future__ import annotations

import threading

from aioacl import _sync
from aioacl._turns import Turns
from tests.kit import PATIENCE_SECONDS, Raised


def test_a_turn_ends_for_who_waits_for_it_when_its_owner_has_to_wait_again() -> None:
    turns = Turns(_sync.condition())
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
