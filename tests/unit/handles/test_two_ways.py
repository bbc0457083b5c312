"""An enqueue has the same outcome in one call of C and in the Python code of Stream."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit import enqueue_in_python
from tests.support.two_ways import World, run_calls, run_states

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice
    from tests.support.two_ways import Call, Outcome

A_WORLD = 2900  # calls of one world, of 500 of `count`


class Comparison:
    """Makes each call in both ways, in random order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, world: World) -> None:
        self._monkeypatch, self._world = monkeypatch, world
        self.calls = 0
        self.accepted = 0
        self.differences: list[tuple[str, Outcome, Outcome]] = []

    def check(self, call: Call) -> None:
        ways: list[Callable[[Call], Outcome]] = [self._in_c, self._in_python]
        c_first = self._world.random.random() < 0.5
        first, second = (way(call) for way in (ways if c_first else reversed(ways)))
        self.calls += 1
        self.accepted += first[0] in ("ticket", "event")
        if first != second:
            self.differences.append((call.text, *((first, second) if c_first else (second, first))))

    def _in_c(self, call: Call) -> Outcome:
        return call.run()

    def _in_python(self, call: Call) -> Outcome:
        with self._monkeypatch.context() as patch:
            enqueue_in_python(patch)
            return call.run()


def compare(open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch, seed: int, count: int) -> Comparison:
    world = World(open_device, seed)
    try:
        compared = Comparison(monkeypatch, world)
        run_states(world, count, compared.check)
        return compared
    finally:
        world.close()


@pytest.mark.parametrize("seed", range(3))
def test_random_enqueues_have_the_same_outcome_in_both_ways(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    compared = compare(open_device, monkeypatch, seed, 200)
    assert compared.differences == []
    assert compared.calls == 1160
    assert compared.accepted > 250


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 135))
def test_many_random_enqueues_have_the_same_outcome_in_both_ways(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    compared = compare(open_device, monkeypatch, seed, 500)
    assert compared.differences == []
    assert compared.calls == A_WORLD


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_random_enqueues_in_a_forked_child_have_the_same_outcome_in_both_ways(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(open_device, "fork")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # no code of pytest may run in the child
        try:
            compared = Comparison(monkeypatch, world)
            run_calls(world, 300, compared.check, hold=False)
            told: list[Any] = [compared.calls, compared.accepted, compared.differences]
            os.write(write, json.dumps(told, default=repr)[:60000].encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    world.close()
    assert json.loads(text) == [300, 0, []]
