"""Ctrl-C on a plain thread while it opens, uses or closes a pool or a batcher: nothing stays open."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from aioacl import open_batcher, open_device, open_pool, simulator, testing
from aioacl.testing._snapshot import POOLED
from tests.kit import PATIENCE_SECONDS, until_now
from tests.support.interrupts import PLACE, walk
from tests.unit.batches.test_models import BATCHES, first_ten, is_right, item

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.thorough

# Without the driver, which puts the signal off. A walk raises the exception anyway.
PLACES = tuple(
    f"{PLACE[0]}/{path}"
    for path in (
        "_pool/",
        "_batches/batcher.py",
        "_batches/items.py",
        "_batches/models.py",
        "_batches/opening.py",
        "_handles/operation.py",
    )
)


def leaves_nothing(body: Callable[[], object], places: tuple[str, ...] = PLACES) -> int:
    """Interrupts the body at each step, and drops what it has made. Returns the number of steps."""

    def left() -> dict[str, tuple[int, int]]:
        return testing.snapshot().more_than(before, *POOLED)  # the device of a batcher stays open

    def nothing_is_left() -> bool:
        gc.collect()
        return not left()

    def check() -> None:
        assert until_now(nothing_is_left), left()

    with simulator.register_model("digits_batches", first_ten):
        body()
        before = testing.snapshot()
        return walk(body, check, places)


def test_75_interrupted_use_of_a_pool_leaves_nothing_open() -> None:
    def body() -> None:
        infer = open_pool(BATCHES, (0,)).result()
        assert is_right(infer(item(0)).result(PATIENCE_SECONDS), item(0))
        infer.close().result()

    assert leaves_nothing(body) > 200


def test_75_interrupted_block_of_a_pool_leaves_nothing_open() -> None:
    def body() -> None:
        with open_pool(BATCHES, (0,)) as infer:
            assert is_right(infer(item(0)).result(PATIENCE_SECONDS), item(0))

    assert leaves_nothing(body) > 200


def test_interrupted_use_of_a_batcher_leaves_nothing_open() -> None:
    with open_device() as device, device.load_model(BATCHES) as old, device.load_model(BATCHES) as new:

        def body() -> None:
            infer = open_batcher(old).result()
            assert is_right(infer(item(0)).result(PATIENCE_SECONDS), item(0))
            infer.replace(new).result()
            infer.close().result()

        assert leaves_nothing(body) > 200
