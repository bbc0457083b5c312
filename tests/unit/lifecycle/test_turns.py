"""Turns: operations that waited for a reset are tried before the next reset drains."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from aioacl._base import sync
from aioacl._lifecycle.turns import Turns
from tests.kit import PATIENCE_SECONDS, Raised

if TYPE_CHECKING:
    from collections.abc import Generator


def test_operation_that_is_dropped_while_it_waits_leaves_no_turn_due() -> None:
    turns = Turns(sync.condition())

    def waits() -> Generator[None]:
        with turns.place() as place:
            with turns.changed:
                turns.wait(place)
            yield

    for given in (False, True):
        waiting = waits()
        next(waiting)
        with turns.changed:
            if given:
                turns.give()
            waiting.close()  # like a finalizer on a thread that holds the lock
            turns.give()
            assert not turns.due


def test_turn_whose_owner_waits_again_wakes_the_thread_that_waits_for_its_end() -> None:
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
        with turns.changed:  # the lock is free only while the other thread waits
            turns.wait(place)
        assert waiter.join(2 * PATIENCE_SECONDS)
