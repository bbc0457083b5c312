"""An enqueue, and an await on an event loop, have the same outcome in C and in Python."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from aioacl._base.ffi import plain_awaits
from tests.kit import enqueue_in_python
from tests.support.two_ways import RandomAwait, World, run_calls, run_states

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import aioacl
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


# --- awaits ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def restored() -> Generator[None]:
    yield
    plain_awaits(False)


async def compare_awaits(world: World, count: int) -> list[tuple[object, ...]]:
    differences: list[tuple[object, ...]] = []
    for _ in range(count):
        one = RandomAwait(world)
        outcomes: list[Outcome] = []
        for plain in (False, True):
            plain_awaits(plain)
            outcomes.append(await one.run())
        if outcomes[0] != outcomes[1]:
            differences.append((one.text, *outcomes))
    return differences


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 11))])
@pytest.mark.usefixtures("restored")
def test_random_awaits_have_the_same_outcome_in_both_ways(open_device: OpenDevice, seed: int) -> None:
    world = World(open_device, seed)
    try:
        assert asyncio.run(compare_awaits(world, 1000 if seed else 200)) == []
    finally:
        world.close()


@pytest.mark.usefixtures("restored")
def test_plain_awaits_run_in_python_on_a_loop(memory: aioacl.DeviceBuffer, stream: aioacl.Stream) -> None:
    async def types() -> list[str]:
        made = [thing.__await__() for thing in (stream.fill(memory, 1), stream.record(), stream)]
        names = [type(each).__name__ for each in made]
        for each in made:
            each.close()
        return names

    assert asyncio.run(types()) == ["Await"] * 3
    plain_awaits(True)
    assert asyncio.run(types()) == ["generator"] * 3
