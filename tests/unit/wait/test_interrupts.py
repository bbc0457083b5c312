"""Ctrl-C on a plain thread: after an interrupt at any step of its code, aioacl's state is consistent."""

from __future__ import annotations

import _thread
import asyncio
import concurrent.futures._base
import gc
import itertools
import signal
import sys
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import aioacl
from aioacl import lowlevel, simulator
from aioacl._base import sync
from aioacl._base.ffi import lib
from aioacl._base.states import State
from aioacl._handles.event import Event
from aioacl._handles.operation import Operation
from aioacl._handles.stream import Stream
from aioacl._handles.stream_core import StreamCore
from aioacl._lifecycle import executor
from aioacl._lifecycle.manager import manager_of
from aioacl._wait.current import run_blocking
from tests.kit import PATIENCE_SECONDS, Raised, live_streams, until, until_now, wait_for
from tests.support.interrupts import PLACE, interrupted, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from tests.kit import OpenDevice

STANDARD: Final = tuple(str(module.__file__) for module in (concurrent.futures._base, threading))


def closed() -> bool:
    manager = manager_of(0)
    return (
        manager.admission.state is State.CLOSED and manager.procedure is None and not manager.admission.opens
    )


@pytest.mark.uncached
@pytest.mark.thorough
def test_open_or_close_that_is_interrupted_leaves_the_device_closed(open_device: OpenDevice) -> None:
    def check() -> None:
        assert until_now(closed), manager_of(0).procedure
        open_device().result(PATIENCE_SECONDS).close().result(PATIENCE_SECONDS)

    assert walk(lambda: open_device().result().close().result(), check) > 100


def works(device: aioacl.Device) -> None:
    """Asserts that resets and jobs work. They would time out if a procedure was started but no thread ran it."""
    assert device.force_reset(grace=0).result(PATIENCE_SECONDS).ok
    assert device.run(int).result(PATIENCE_SECONDS) == 0


SIZES: Final = (512, 1024, 2048)  # three size classes


@pytest.mark.thorough
def test_request_for_cached_memory_that_is_interrupted_loses_and_doubles_no_block(
    open_device: OpenDevice,
) -> None:
    device = open_device().result()

    def take() -> list[aioacl.PinnedBuffer]:
        return [device.pinned(size).result() for size in SIZES]

    def give(buffers: list[aioacl.PinnedBuffer]) -> None:
        for buffer in buffers:
            buffer.close().result()

    def operation() -> None:
        made.append(device.pinned(SIZES[0]).result())

    def check() -> None:
        give(made)
        made.clear()
        buffers = take() + take()
        assert len({buffer.address for buffer in buffers}) == len(buffers)
        give(buffers)
        assert simulator.stats().host_blocks == before + 2 * len(SIZES)

    made: list[aioacl.PinnedBuffer] = []
    before = simulator.stats().host_blocks
    give(take() + take())
    assert walk(operation, check) > 20
    give(made)
    device.close().result()
    assert simulator.stats().host_blocks == 0


@pytest.mark.thorough
def test_close_of_a_stream_with_a_ticket_that_is_interrupted_loses_no_native_stream(
    device: aioacl.Device, memory: aioacl.DeviceBuffer
) -> None:
    def prepare() -> None:
        stream = device.create_stream().result()
        tickets.append(stream.fill(memory, 1))  # it refers to the record of the stream after the close
        tickets[-1].result()
        streams.append(stream)

    def operation() -> None:
        streams[-1].close().result()

    def check() -> None:
        streams[-1].close().result()
        assert live_streams() == manager_of(0).cache.counts[0]
        prepare()

    streams: list[aioacl.Stream] = []
    tickets: list[aioacl.Ticket] = []
    prepare()
    assert walk(operation, check) > 20
    streams[-1].close().result()


@pytest.mark.thorough
def test_reset_that_is_interrupted_leaves_the_device_working(device: aioacl.Device) -> None:
    assert walk(lambda: device.force_reset(grace=0).result(), lambda: works(device)) > 50


@pytest.mark.thorough
def test_job_that_is_interrupted_does_not_delay_later_operations(device: aioacl.Device) -> None:
    assert walk(lambda: device.run(int).result(), lambda: works(device)) > 50


@pytest.mark.thorough
@pytest.mark.parametrize("submit", [False, True])
def test_job_interrupted_inside_the_standard_library_is_no_longer_in_flight(
    device: aioacl.Device, submit: bool
) -> None:
    def operation() -> None:
        job = device.executor.submit(int) if submit else device.run(int)
        job.result()

    assert walk(operation, lambda: works(device), PLACE + STANDARD) > 80
    # A round of the watcher counts as in flight.
    assert until_now(lambda: not device.health.in_flight)


@pytest.mark.thorough
def test_executor_whose_start_of_a_thread_is_interrupted_counts_only_real_threads(
    device: aioacl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "LINGER_SECONDS", 0.0)

    def check() -> None:
        device.run(int).result(PATIENCE_SECONDS)
        assert until_now(lambda: not device.executor._workers)

    assert walk(lambda: device.executor.submit(int).result(), check) > 20


@pytest.mark.thorough
def test_lease_block_that_is_interrupted_releases_the_lease(device: aioacl.Device) -> None:
    def operation() -> None:
        with device.lease() as lease, lease.share(), device.lease():
            pass

    def check() -> None:
        assert device.health.leases == 0

    assert walk(operation, check) > 50
    works(device)


def test_threads_that_an_interrupted_announcement_has_not_woken_wake_at_the_next_announcement(
    device: aioacl.Device,
) -> None:
    manager, waiting = manager_of(device.index), list[Raised]()

    def wait() -> None:
        seen = manager.admission.version
        run_blocking(lambda: manager.admission.change(seen, None), None)

    def operation() -> None:
        waiting[:] = [Raised(wait) for _ in range(3)]
        assert until_now(lambda: len(manager.admission._subscribers) == 3)
        with manager.admission.changed:
            manager.admission.announce()

    def check() -> None:
        with manager.admission.changed:
            manager.admission.announce()
        for one in waiting:
            one.join()

    assert walk(operation, check) > 5


def test_loop_interrupted_while_its_port_is_drained_loses_no_completion(
    device: aioacl.Device,
) -> None:
    streams = [device.create_stream().result() for _ in range(3)]
    memory = device.allocate(64).result()
    loop = asyncio.new_event_loop()
    tasks: list[asyncio.Task[None]] = []

    async def begin() -> None:
        for stream in streams:
            simulator.hold(stream)
        for stream in streams:
            stream.fill(memory, 1)
        tasks[:] = [asyncio.ensure_future(wait_for(stream.synchronize())) for stream in streams]
        await until(lambda: lib.aio_device_waits(0) == len(streams))

    async def end() -> None:
        await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_SECONDS)

    def step_is_interrupted(step: int) -> bool:
        loop.run_until_complete(begin())
        simulator.release_all()
        has_step = interrupted(step, lambda: loop.run_until_complete(end()), "_deliver_came")
        loop.run_until_complete(end())
        return has_step

    assert next(step for step in itertools.count(1) if not step_is_interrupted(step)) > 20
    loop.close()
    for one in (*streams, memory):
        one.close().result()


def test_copy_that_is_interrupted_after_its_enqueue_keeps_its_buffers(device: aioacl.Device) -> None:
    stream = device.create_stream().result()
    memory = device.allocate(64).result()
    simulator.hold(stream)
    enqueued, target = 0, bytearray()

    def operation() -> None:
        nonlocal target
        target = bytearray(64)
        stream.copy(target, memory)

    def check() -> None:
        nonlocal enqueued
        before, enqueued = enqueued, simulator.calls("aclrtMemcpyAsync") - calls
        if enqueued > before:
            with pytest.raises(BufferError):  # an in-flight reference prevents the resize
                target.append(0)
        assert memory._unused() is (enqueued == 0)

    calls = simulator.calls("aclrtMemcpyAsync")
    assert walk(operation, check) > 20
    simulator.release(stream)
    stream.result()
    assert not stream._core.in_flight
    assert memory._unused()
    stream.close().result()
    memory.close().result()


@pytest.mark.thorough
def test_lowlevel_set_and_reset_that_are_interrupted_leave_the_counts_right() -> None:
    acts = (lowlevel.set_device, lowlevel.set_device, lowlevel.reset_device, lowlevel.reset_device_force)

    def operation() -> None:
        for act in acts:
            act(0)

    def check() -> None:
        retained = manager_of(0).counts.standing().retained
        assert simulator.retain_count(0) == retained
        before = lib.aio_device_foreign(0)
        lib.aio_u_aclrtSetDevice(0)
        lib.aio_u_aclrtResetDeviceForce(0)
        # A reset that does not use lowlevel counts as foreign, even on the thread that was interrupted.
        assert lib.aio_device_foreign(0) == before + 1
        assert manager_of(0).counts.standing().retained == 0

    assert walk(operation, check) > 50


class Interrupted(sync.Threads):
    """A backend of threads whose first `spawn` raises KeyboardInterrupt, before or after it starts the thread."""

    def __init__(self, *, started: bool) -> None:
        self._started: bool | None = started

    def spawn(self, name: str, body: Callable[[], object]) -> None:
        started, self._started = self._started, None
        if started is not False:
            super().spawn(name, body)
        if started is not None:
            raise KeyboardInterrupt


@pytest.mark.parametrize("started", [False, True])
def test_close_interrupted_at_the_start_of_its_thread_closes_the_device(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch, started: bool
) -> None:
    opened: Any = open_device().result()
    monkeypatch.setattr(sync, "backend", Interrupted(started=started))
    with pytest.raises(KeyboardInterrupt):
        opened.close().result()
    assert until_now(closed)


class Pending(int):
    """A signal number. Reading `now` sends the signal. Python handles signals after a call, but not after a read."""

    now = property(_thread.interrupt_main)


@pytest.fixture
def sigint() -> Generator[None]:
    """Installs Python's handler of SIGINT, because a process started by a background shell ignores that signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("sigint")
class TestBetweenTheCreationAndTheStartOfACoroutine:
    """A Ctrl-C at this point is raised, and no coroutine emits "was never awaited"."""

    @staticmethod
    async def nothing() -> None:
        pass

    def interrupted(self) -> Coroutine[Any, Any, None]:
        made = self.nothing()
        Pending(signal.SIGINT).now  # noqa: B018 - the read sends the signal
        return made

    @staticmethod
    def warnings_of(awaits: Callable[[], Coroutine[Any, Any, object]]) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            running = awaits()
            with pytest.raises(KeyboardInterrupt):
                running.send(None)
            del running
            gc.collect()
        return [str(warning.message) for warning in caught]

    def test_await_with_a_call_in_between_warns(self) -> None:
        made = self.interrupted

        class Native:
            def __await__(self) -> Generator[Any, Any, None]:
                return made().__await__()

        async def awaits() -> None:
            await Native()

        assert self.warnings_of(awaits) == [f"coroutine '{self.nothing.__qualname__}' was never awaited"]

    def test_await_of_an_operation_does_not_warn(self) -> None:
        async def awaits() -> None:
            await Operation("it", self.interrupted)

        assert self.warnings_of(awaits) == []

    @pytest.mark.parametrize("name", ["stream", "event", "ticket"])
    def test_await_of_a_stream_event_or_ticket_does_not_warn(
        self, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        awaited: dict[str, Any] = {}

        async def awaits() -> None:
            await awaited[name]

        device = aioacl.open_device().result()
        stream, event = device.create_stream().result(), device.create_event().result()
        awaited |= {"stream": stream, "event": event, "ticket": event.record(stream)}
        for owner, method in ((Stream, "_wait"), (Event, "_wait"), (StreamCore, "arrive")):
            monkeypatch.setattr(owner, method, lambda *_: self.interrupted())
        assert self.warnings_of(awaits) == []
        monkeypatch.undo()
        for thing in (event, stream, device):
            thing.close().result()

    def test_blocking_wait_does_not_warn(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with pytest.raises(KeyboardInterrupt):
                run_blocking(self.interrupted, None)
            gc.collect()
        assert [str(warning.message) for warning in caught] == []


def sleeps_in_poll(thread: threading.Thread) -> bool:
    """Whether the thread is blocked in the poll of its port."""
    frame = sys._current_frames()[thread.ident or 0]
    state = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()[0]
    return (frame.f_code.co_name, state) == ("readable", "S")


@pytest.mark.thorough  # slow, because the wait notices the signal only at its next check
@pytest.mark.usefixtures("sigint")
def test_ctrl_c_that_another_thread_received_ends_a_wait(device: aioacl.Device) -> None:
    ended, in_time = threading.Event(), list[bool]()
    with device.create_stream() as stream, device.allocate(64) as memory:
        simulator.hold(stream)
        ticket = stream.copy(memory, bytes(64))

        def receive() -> None:
            assert until_now(lambda: sleeps_in_poll(threading.main_thread()))
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            in_time.append(ended.wait(PATIENCE_SECONDS / 2))
            simulator.release(stream)

        receiver = threading.Thread(target=receive)
        receiver.start()
        with pytest.raises(KeyboardInterrupt):
            ticket.result()
        ended.set()
        receiver.join()
    assert in_time == [True]
