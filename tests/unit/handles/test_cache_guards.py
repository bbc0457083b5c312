"""What the cache and the clean-up of memory must not do; each test guards one check that other tests do not notice."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib
from aioacl._handles import in_flight
from aioacl._handles.memory import DeviceBuffer
from aioacl._handles.stream_core import StreamCore
from aioacl._lifecycle.manager import manager_of
from tests.kit import FAULT, held_fill, in_thread, live_streams, reset_by_other_code, until, until_now

if TYPE_CHECKING:
    from tests.kit import OpenDevice


def counts() -> tuple[int, int, int]:
    return manager_of(0).cache.counts


# --- memory that work uses ------------------------------------------------------------------------------------------


def test_pinned_memory_that_running_work_uses_is_not_given_to_the_cache(
    device: aioacl.Device, stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    pinned = device.pinned(64).result()
    address = pinned.address
    with simulator.held(stream):
        stream.copy(memory, pinned)
        assert not pinned._close_now()
        pinned._close_later()
        other = device.pinned(64).result()
        assert (counts()[2], other.address != address) == (0, True)
    assert until_now(lambda: counts()[2] == 1)
    other.close().result()


def test_device_memory_that_running_work_uses_is_not_given_to_the_cache(
    device: aioacl.Device, stream: aioacl.Stream
) -> None:
    memory = device.allocate(64).result()
    with simulator.held(stream):
        stream.fill(memory, 1)
        assert not memory._close_now()
        memory._close_later()
        assert counts()[1] == 0
    assert until_now(lambda: counts()[1] == 1)


def test_view_in_running_work_keeps_its_pinned_memory_from_the_cache(
    device: aioacl.Device, stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    pinned = device.pinned(64).result()
    with simulator.held(stream):
        stream.copy(memory, pinned[:8])
        assert not pinned._close_now()
        pinned._close_later()
        assert counts()[2] == 0
    assert until_now(lambda: counts()[2] == 1)


@pytest.mark.anyio
async def test_memory_whose_wait_has_failed_is_not_checked_again_before_the_reset(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[object] = []
    check = DeviceBuffer._free_when_unused

    def counted(buffer: DeviceBuffer) -> None:
        checks.append(buffer)
        check(buffer)

    monkeypatch.setattr(DeviceBuffer, "_free_when_unused", counted)
    async with open_device() as device, device.create_stream() as stream:
        memory = await device.allocate(64)
        held_fill(stream, memory)
        with simulator.fault("query|sync", rc=FAULT) as fault:
            await memory.close()
            await until(lambda: fault.hits and not lib.aio_device_waits(device.index))
            await device.memory_info()  # runs on the maintenance thread after the end of the wait
            await device.memory_info()
        assert len(checks) == 1
        checks.clear()  # it refers to the buffer
        assert stream.error is not None
        assert (await device.force_reset(grace=0)).ok


# --- owners of wrapped memory ---------------------------------------------------------------------------------------


class Owner:
    """An owner of memory that can be referred to weakly."""


def test_reset_releases_the_owner_of_stale_memory_and_plans_nothing_more(device: aioacl.Device) -> None:
    owner = Owner()
    released = weakref.ref(owner)
    wrapped = device.wrap_memory(1 << 20, 64, owner=owner)
    del owner
    assert released() is not None
    assert device.force_reset(grace=0).result().ok
    assert until_now(lambda: released() is None)
    assert until_now(lambda: not manager_of(0).deferred.leftovers)
    wrapped.close().result()


def test_reset_after_the_close_of_wrapped_memory_plans_nothing_more(device: aioacl.Device) -> None:
    device.wrap_memory(1 << 20, 64, owner=Owner()).close().result()
    assert device.force_reset(grace=0).result().ok
    assert until_now(lambda: not manager_of(0).deferred.leftovers)


# --- streams that come back to the cache ----------------------------------------------------------------------------


def test_stream_that_comes_back_to_the_cache_is_listed_once(
    device: aioacl.Device, memory: aioacl.DeviceBuffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tickets = []
    for priority in (0, 1):
        stream = device.create_stream(priority=priority).result()
        tickets.append(stream.fill(memory, 1))  # so the next stream needs a new record
        tickets[-1].result()
        stream.close().result()
    assert counts()[0] == 2

    def interrupted(_: StreamCore) -> StreamCore:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StreamCore, "again", interrupted)
        with pytest.raises(KeyboardInterrupt):
            device.create_stream(priority=0).result()
    assert counts()[0] == 2
    assert device.empty_cache().result() == 2
    assert (counts(), live_streams()) == ((0, 0, 0), 0)


def test_stream_whose_close_fails_before_its_record_ends_is_not_kept(
    device: aioacl.Device, memory: aioacl.DeviceBuffer
) -> None:
    stream = device.create_stream().result()
    ticket = stream.fill(memory, 1)  # it refers to the record, so the close has to end the record
    ticket.result()

    def close() -> None:  # on a thread without a context
        simulator.fail_call("aclrtSetCurrentContext", 207001)
        with pytest.warns(aioacl.AclWarning, match="aclrtDestroyStream returned 207001"):
            stream.close().result()

    in_thread(close)
    assert counts()[0] == 0
    assert device.force_reset(grace=0).result().ok  # frees the stream


# --- a foreign reset that is not handled yet ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pinned", "allocate", "create_stream"])
def test_nothing_is_taken_between_a_foreign_reset_and_its_end(device: aioacl.Device, name: str) -> None:
    arguments: list[Any] = [] if name == "create_stream" else [64]
    make = getattr(device, name)
    make(*arguments).result().close().result()
    kept, manager = counts(), manager_of(0)
    opening = make(*arguments)
    with manager.admission.changed:  # the foreign reset is handled when this lock is free
        reset_by_other_code()
        assert opening._from_cache() is None
        assert counts()[2] == kept[2]
    made = opening.result()
    assert made.generation == manager.generation
    made.close().result()


# --- clean-ups that no thread would do ------------------------------------------------------------------------------


def test_block_of_pinned_memory_that_a_finalizer_leaves_after_the_close_of_the_device_frees_the_memory(
    open_device: OpenDevice,
) -> None:
    device = open_device().result()
    opening = device.pinned(64)
    opening.__enter__()
    device.close().result()
    assert simulator.stats().host_blocks == 1
    opening.__exit__(GeneratorExit)
    assert simulator.stats().host_blocks == 0


def test_clean_up_that_is_left_when_its_work_is_over_runs_at_once(device: aioacl.Device) -> None:
    done: list[int] = []
    in_flight.leave_until_reset(manager_of(0), lambda: done.append(1), lambda: True)
    assert (done, len(manager_of(0).deferred.leftovers)) == ([1], 0)
    in_flight.leave_until_reset(manager_of(0), lambda: done.append(2), lambda: False)
    assert done == [1]
    assert device.force_reset(grace=0).result().ok
    assert until_now(lambda: done == [1, 2])
