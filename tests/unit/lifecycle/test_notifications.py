"""device.events(): each listener receives the events of a device in order."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._lifecycle.manager import manager_of
from aioacl._lifecycle.notifications import KEPT
from tests.kit import FAULT, Raised, Waiting, no_call, raises, turns, until, until_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio


async def taken(events: aioacl.DeviceEvents, count: int) -> list[aioacl.DeviceEvent]:
    """The next `count` events."""
    with anyio.fail_after(20):
        return [await anext(events) for _ in range(count)]


async def test_a_thread_without_a_loop_iterates_too_until_the_device_is_closed(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        events = device.events()
        with pytest.raises(RuntimeError, match="iterate with `async for`"):
            next(events)
        listening = Raised(lambda: [event.kind for event in events])
        assert (await device.force_reset()).ok
        assert listening.running
    await until(lambda: not listening.running)
    assert listening.join() == ["draining", "resetting", "reopened", "draining", "resetting", "closed"]


@pytest.mark.uncached
async def test_fault_of_a_clean_up_is_sent_to_listeners(open_device: OpenDevice) -> None:
    async with open_device() as device:
        events, stream = device.events(), await device.create_stream()
        simulator.fail_call("aclrtDestroyStream", FAULT)
        with pytest.warns(aioacl.AclWarning, match="aclrtDestroyStream returned"):
            await stream.close()
        assert (device.health.status, device.health.ready) == ("poisoned", False)
        (received,) = await taken(events, 1)
        assert (received.kind, "aclrtDestroyStream" in received.text) == ("fault", True)
        assert (await device.force_reset()).ok


async def test_event_of_revoked_leases_has_their_number_as_text(open_device: OpenDevice) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        events = device.events()
        async with device.lease(), device.lease():
            assert (await Waiting(group, lambda: device.force_reset(grace=0)).outcome()).ok
        draining, revoked, *_ = await taken(events, 4)
        assert (draining.kind, revoked.kind, revoked.text) == ("draining", "revoked", "2 leases")
        async with device.lease():
            assert (await Waiting(group, lambda: device.force_reset(grace=0)).outcome()).ok
        assert [event.text for event in await taken(events, 4)] == ["", "1 lease", "", ""]


async def test_iterating_waits_for_the_next_and_ends_with_the_last_close(open_device: OpenDevice) -> None:
    device = await open_device()
    kinds: list[str] = []

    async def listen() -> None:
        kinds.extend([event.kind async for event in device.events()])

    async with anyio.create_task_group() as group:
        listening = Waiting(group, listen)
        await turns()
        with no_call():
            assert not listening.ended
        await device.close()
        await listening.outcome()
    assert kinds == ["draining", "resetting", "closed"]
    with pytest.raises(aioacl.ParameterError, match="open_device"):
        device.events()


async def test_next_that_is_cancelled_or_times_out_loses_no_event(open_device: OpenDevice) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        events = device.events()
        waiting = Waiting(group, lambda: anext(events))
        await turns()
        await waiting.cancel_and_wait()
        assert waiting.cancelled
        with pytest.raises(TimeoutError), anyio.fail_after(0.02):
            await anext(events)
        await device.force_reset()
        assert [event.kind for event in await taken(events, 3)] == ["draining", "resetting", "reopened"]


async def test_events_end_with_their_own_handle_although_the_device_stays_open(
    open_device: OpenDevice,
) -> None:
    async with open_device():
        async with open_device() as second:
            events = second.events()
        await raises(StopAsyncIteration, anext(events))


async def test_slow_listener_loses_the_oldest_events_and_receives_their_number(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        events = device.events()
        await device.force_reset()
        with device._manager.admission.changed:
            for number in range(KEPT):
                device._manager.admission.listeners.tell("fault", aioacl.State.OPEN, 1, text=str(number))
        received = await taken(events, KEPT)
        assert received[0].missed == 3
        assert {event.missed for event in received[1:]} == {0}
        assert [event.text for event in received] == [str(number) for number in range(KEPT)]


async def test_each_event_goes_to_every_iterator_and_to_one_task_of_a_shared_iterator(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        shared, own = device.events(), device.events()
        async with anyio.create_task_group() as group:
            waiting = [Waiting(group, lambda: anext(shared)) for _ in range(3)]
            await turns()
            assert (await device.force_reset()).ok
            await until(lambda: all(one.ended for one in waiting))
            kinds = {(await one.outcome()).kind for one in waiting}
            assert kinds == {"draining", "resetting", "reopened"}
        assert len(await taken(own, 3)) == 3


class _Slow(weakref.WeakSet[aioacl.DeviceEvents]):
    """A set of listeners. While an event is sent to them, another thread tries to add a listener."""

    def __init__(self, there: Iterable[aioacl.DeviceEvents], join: Callable[[], object]) -> None:
        super().__init__(there)
        self._join = join
        self.joins: list[Raised] = []

    def __iter__(self) -> Iterator[aioacl.DeviceEvents]:
        for listener in super().__iter__():
            if not self.joins:
                self.joins.append(Raised(self._join))
                # If the other thread must wait for this thread, the other thread is still running.
                until_now(lambda: not self.joins[0].running, 0.2)
            yield listener


async def test_listener_that_joins_while_an_event_is_sent_does_not_disturb_others(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        listening = [device.events() for _ in range(3)]
        there = _Slow(listening, device.events)
        manager_of(0).admission.listeners._all = there
        assert (await device.force_reset()).ok
        there.joins[0].join()
        assert [(await taken(events, 1))[0].kind for events in listening] == ["draining"] * 3
