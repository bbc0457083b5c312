"""Exceptions of signal handlers at any instruction that uses the cache or a model: nothing is lost or used twice."""

from __future__ import annotations

import sys
from typing import Final

import pytest

from aioacl import simulator
from tests.support import cache_ways
from tests.support.signals import RaisingHandler

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
