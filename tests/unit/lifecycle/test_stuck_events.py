"""The events "stuck" and "recovered": each call that does not return from C sends one of each."""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aioacl import simulator
from aioacl._base import sync
from aioacl._lifecycle import stuck
from aioacl._lifecycle.gate import inside
from aioacl._lifecycle.manager import manager_of
from tests.kit import FewThreads, Raised, held_fill, until
from tests.support import offline

if TYPE_CHECKING:
    from collections.abc import Callable

    import aioacl
    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio
SOON = 0.01


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes calls count as stuck, and look for their return, after a short time."""
    monkeypatch.setattr(stuck, "STUCK_SECONDS", SOON)
    monkeypatch.setattr(stuck, "RETURN_SECONDS", SOON)


@pytest.fixture(params=["watch", "thread"])
def waits(request: pytest.FixtureRequest) -> str:
    """The strategy under test: the events are the same."""
    return str(request.param)


async def next_of(events: aioacl.DeviceEvents, function: str) -> aioacl.DeviceEvent:
    """The next event about a call of the function. On a slow machine, other calls may count as stuck too."""
    with anyio.fail_after(20):
        while not (event := await anext(events)).text.startswith(f"{function} on thread "):
            pass
    return event


async def stuck_and_recovered(device: aioacl.Device, function: str, begin: Callable[[], Any]) -> None:
    """Begins a call that hangs, lets it return, and checks its two events."""
    events = device.events()
    call = Raised.hung_in(function, begin)
    first = await next_of(events, function)
    assert (first.kind, first.device, first.state, first.generation) == (
        "stuck",
        device.index,
        device.state,
        device.generation,
    )
    assert first.seconds > SOON
    assert int(first.text.rpartition(" ")[2]) > 0
    simulator.release_call(function)
    second = await next_of(events, function)
    assert (second.kind, second.text) == ("recovered", first.text)
    assert second.seconds >= first.seconds
    await until(lambda: not call.running)


@pytest.mark.usefixtures("soon")
async def test_enqueue_that_hangs_sends_stuck_and_then_recovered(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        await stuck_and_recovered(device, "aclrtMemsetAsync", lambda: stream.fill(memory, 1))
        await stream


@pytest.mark.usefixtures("soon")
async def test_create_that_hangs_sends_stuck_and_then_recovered(open_device: OpenDevice) -> None:
    made: list[aioacl.DeviceBuffer] = []
    async with open_device() as device:
        await stuck_and_recovered(device, "aclrtMalloc", lambda: made.append(device.allocate(64).result()))
        await made[0].close()


@pytest.mark.uncached
@pytest.mark.usefixtures("soon")
async def test_destroy_that_hangs_sends_stuck_and_then_recovered(open_device: OpenDevice) -> None:
    async with open_device() as device:
        memory = await device.allocate(64)
        await stuck_and_recovered(device, "aclrtFree", lambda: memory.close().result())


@pytest.mark.usefixtures("soon")
async def test_query_of_the_watcher_that_hangs_sends_stuck_and_then_recovered(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        held_fill(stream, memory)
        await stuck_and_recovered(device, "aclrtStreamQuery", lambda: None)  # only the watcher queries
        simulator.release(stream)
        await stream


@offline.needs_onnxruntime
@pytest.mark.usefixtures("soon")
async def test_execution_that_hangs_sends_stuck_and_then_recovered(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(offline.product()) as model:
        await stuck_and_recovered(device, "aclmdlExecuteAsync", model(offline.rows()).result)


@pytest.mark.usefixtures("soon")
async def test_call_of_a_job_that_hangs_sends_stuck_and_then_recovered_for_the_call_only(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        events = device.events()
        job = device.run(stream.fill, memory, 1)
        await stuck_and_recovered(device, "aclrtMemsetAsync", job.result)
    assert not [event async for event in events if event.text.startswith("a job")]


@pytest.mark.usefixtures("soon")
async def test_call_that_stays_inside_sends_stuck_once(open_device: OpenDevice) -> None:
    async with open_device() as device:
        events = device.events()
        simulator.hang_call("aclrtGetMemInfo")
        first = Raised(device.memory_info().result)
        sent = await next_of(events, "aclrtGetMemInfo")
        looks = counted_looks(device)
        await until(lambda: looks() > 2)
        simulator.release_call("aclrtGetMemInfo")
        assert (await next_of(events, "aclrtGetMemInfo")).kind == "recovered"
        assert sent.kind == "stuck"
        await until(lambda: not first.running)


def counted_looks(device: aioacl.Device) -> Callable[[], int]:
    """Returns a function that returns how often the thread has looked for stuck calls since."""
    calls = manager_of(device.index).stuck_calls
    looks, look = [0], calls._look

    def counted() -> float | None:
        looks[0] += 1
        return look()

    calls._look = counted  # type: ignore[method-assign]
    return lambda: looks[0]


class Recording(sync.Threads):
    """A backend that records the time limit of the newest wait for each descriptor."""

    def __init__(self) -> None:
        self.limits: defaultdict[int, list[float | None]] = defaultdict(list)

    def readable(self, fd: int, timeout: float | None) -> bool:
        self.limits[fd].append(timeout)
        return super().readable(fd, timeout)


@pytest.mark.usefixtures("soon")
async def test_thread_sleeps_without_a_limit_while_no_call_is_inside(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = Recording()
    async with open_device() as device:
        monkeypatch.setattr(sync, "backend", recording)
        events = device.events()
        limits = recording.limits[manager_of(0).stuck_calls.eventfd]
        await until(lambda: limits and limits[-1] is None)
        before = len(limits)
        await (await device.allocate(64)).close()
        await until(lambda: any(limit is not None for limit in limits[before:]) and limits[-1] is None)
        del events


async def test_no_thread_looks_for_stuck_calls_without_a_listener(open_device: OpenDevice) -> None:
    async with open_device() as device:
        assert manager_of(0).stuck_calls._thread is None
        listeners = [device.events(), device.events()]
        assert manager_of(0).stuck_calls._thread is not None
        del listeners
    await until(lambda: manager_of(0).stuck_calls._thread is None)


async def test_thread_that_cannot_start_makes_events_raise_resource_exhausted(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_device() as device:
        with monkeypatch.context() as patch:
            patch.setattr(sync, "backend", FewThreads(0))
            with pytest.raises(Exception, match="no thread could be started") as caught:
                device.events()
            assert type(caught.value).__name__ == "ResourceExhausted"
        device.events()


@offline.needs_onnxruntime
async def test_load_of_a_model_that_takes_long_does_not_count_as_stuck(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = "aclmdlLoadFromMemWithMem"
    monkeypatch.setattr(stuck, "STUCK_SECONDS", 0.0)
    async with open_device() as device:
        loading = Raised.hung_in(load, lambda: device.load_model(offline.product()).result().close().result())
        calls = [call for call in inside(device.index) if call.function == load]
        assert [stuck.is_stuck(manager_of(device.index), call) for call in calls] == [False]
        simulator.release_call(load)
        await until(lambda: not loading.running)


@pytest.mark.usefixtures("soon")
async def test_events_go_on_after_a_look_that_had_no_memory(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    calls = manager_of(0).stuck_calls
    look, failing = calls._look, [True]

    def look_without_memory() -> float | None:
        if failing:
            failing.pop()
            raise MemoryError
        return look()

    monkeypatch.setattr(calls, "_look", look_without_memory)
    async with open_device() as device:
        await stuck_and_recovered(device, "aclrtGetMemInfo", device.memory_info().result)
    assert len(reported) == 1
