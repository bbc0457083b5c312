"""Exceptions of signal handlers at any instruction that uses the cache or a model: nothing is lost or used twice."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Final

import pytest

from aioacl import simulator
from aioacl._base.ffi import lib
from tests.kit import settle_maintenance, until_now
from tests.support import cache_ways
from tests.support.signals import RaisingHandler

if TYPE_CHECKING:
    import aioacl

SEED: Final = 35
pytestmark = [
    # An interrupt between the making of a port and its store loses the eventfd of the port.
    pytest.mark.leaves("descriptors"),
    pytest.mark.skipif(
        sys.version_info[:2] == (3, 14),
        reason="Python 3.14 handles signals between the acquire and the block of `with lock` (cpython#148874)",
    ),
]


@pytest.fixture(autouse=True)
def _finalizers_may_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignores the exceptions that a handler raises in a finalizer, because they reach no caller."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)


def interrupts_lose_and_double_nothing(total: int, every: int, seed: int = SEED) -> None:
    finalized = simulator.calls("aclFinalizeReference")
    with RaisingHandler() as handler:
        assert cache_ways.run(handler, total, every, seed) == ""
        assert handler.raised >= total
    assert simulator.calls("aclFinalizeReference") == finalized + 1
    assert simulator.violations() == []


def test_maintenance_is_settled_when_it_has_done_what_its_handler_has_left(
    device: aioacl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    order, begun, go_on = list[str](), threading.Event(), threading.Event()
    manager, equip = device._manager, device._manager._equip

    def equip_later() -> None:
        begun.set()
        go_on.wait()
        order.append("equipped")
        equip()

    monkeypatch.setattr(manager, "_equip", equip_later)
    monkeypatch.setattr(manager, "_on_wake", lambda: manager._answer(lib.AIO_KICK_NUDGE))

    def settle() -> None:
        settle_maintenance()
        order.append("settled")

    settling = threading.Thread(target=settle)
    settling.start()
    begun.wait()
    until_now(lambda: order, 0.1)  # long enough to return too early
    go_on.set()
    settling.join()
    assert order == ["equipped", "settled"]


@pytest.mark.thorough
def test_interrupts_of_takes_and_gives_lose_and_double_nothing() -> None:
    interrupts_lose_and_double_nothing(1000, 50)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_many_interrupts_of_takes_and_gives_lose_and_double_nothing(seed: int) -> None:
    interrupts_lose_and_double_nothing(2000, 100, seed)


FEW: Final = ("pinned memory, closed", "pinned memory, dropped", "model", "model, cancelled on a loop")


@pytest.mark.thorough
@pytest.mark.parametrize("name", FEW)
def test_interrupts_of_one_way_lose_and_double_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_ways, "WAYS", {name: cache_ways.WAYS[name]})
    interrupts_lose_and_double_nothing(50, 5)
