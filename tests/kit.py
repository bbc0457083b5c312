"""Shared by the tests: opening devices with the strategy under test, waiting for a state, and held work."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import threading
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import anyio

from aioacl import QueueFull, State, open_device, simulator
from aioacl._base import sync
from aioacl._base.ffi import ffi, lib
from aioacl._handles import stream as stream_module
from aioacl._lifecycle.manager import manager_of
from aioacl._wait.workers import WorkerStuck
from aioacl.testing._snapshot import open_devices, stats_and_equipped
from aioacl.testing._waiting import holds_within

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
    from typing import Self

    import pytest
    from anyio.abc import TaskGroup

    from aioacl import Device, DeviceBuffer, DeviceEvent, DeviceEvents, Opening, ResetReport, Stream, Ticket

T = TypeVar("T")
Raises = TypeVar("Raises", bound=BaseException)

PATIENCE_SECONDS = 20.0
NAP_SECONDS = 0.0005
SLICE_SECONDS = 0.002
SETTLE_SECONDS = 1.0
GRACE_SECONDS = 20.0
MANY_READS = 20
LONG_SECONDS = 1000.0  # longer than a test; ends only if the test advances the clock
FAULT = 507013  # a fault of the device: needs a reset
TASK_FAULT = 507015  # a fault of one task: needs a new stream
BACKENDS = {
    "asyncio": ("asyncio", {}),
    "uvloop": ("asyncio", {"use_uvloop": True}),
    "trio": ("trio", {}),
}


class OpenDevice(Protocol):
    """`aioacl.open_device` with the strategy under test."""

    def __call__(
        self, index: int = 0, *, wait: bool = True, timeout: float | None = None
    ) -> Opening[Device]: ...


CALLS_OF_RESETS = {"primary": "aclrtResetDeviceForce", "own": "aclrtDestroyContext"}
context: Any = "primary"  # whose context the devices under test use; conftest.py sets it


def reset_call() -> str:
    """The ACL function with which a force reset ends the context under test."""
    return CALLS_OF_RESETS[context]


def opener(waits: Any, *, cache: bool = True) -> OpenDevice:
    """Returns a function that opens devices with that strategy, with or without a cache."""

    def open_it(index: int = 0, *, wait: bool = True, timeout: float | None = None) -> Opening[Device]:
        return open_device(index, waits, context=context, cache=cache, wait=wait, timeout=timeout)

    return open_it


@asynccontextmanager
async def equipped(
    open_device: OpenDevice, nbytes: int = 64
) -> AsyncGenerator[tuple[Device, Stream, DeviceBuffer]]:
    """Opens a device, with a stream and that much memory."""
    async with open_device() as device, device.create_stream() as stream, device.allocate(nbytes) as memory:
        yield device, stream, memory


@asynccontextmanager
async def streams(device: Device, count: int) -> AsyncGenerator[list[Stream]]:
    """Creates that many streams."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(device.create_stream()) for _ in range(count)]


def live_streams() -> int:
    """The number of native streams in the simulator, except those with which the engine wakes the runtime."""
    stats, equipped = stats_and_equipped()
    return stats.streams - equipped


def simulated() -> tuple[int, int, int]:
    """The numbers of blocks of device memory, of blocks of pinned memory and of streams in the simulator."""
    stats = simulator.stats()
    return stats.device_blocks, stats.host_blocks, stats.streams


def instances(kind: type) -> int:
    """Collects garbage, and returns the number of objects of this class that the collector still knows."""
    gc.collect()
    return sum(type(each) is kind for each in gc.get_objects())


# --- waiting for a state ------------------------------------------------------------------------------------------


async def until(condition: Callable[[], object]) -> None:
    """Returns once the condition is true."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - the simulator and threads send no signal
            await anyio.sleep(NAP_SECONDS)


def until_now(condition: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> bool:
    """Blocks until the condition is true. Returns False if the condition is still false after `seconds`."""
    return holds_within(condition, seconds)


async def turns(count: int = 20) -> None:
    """Yields to the event loop `count` times, so that each task that is ready runs."""
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


async def wait_for(thing: Any) -> None:
    """Awaits a ticket, an event, a stream or another awaitable."""
    await thing


class Waiting:
    """Awaits in a separate task, and keeps the outcome of the await."""

    def __init__(self, group: TaskGroup, begin: Callable[[], Awaitable[object]]) -> None:
        self.ended = False
        self.cancelled = False
        self.value: Any = None
        self.error: Exception | None = None
        self._scope = anyio.CancelScope()
        group.start_soon(self._run, begin)

    async def _run(self, begin: Callable[[], Awaitable[object]]) -> None:
        try:
            with self._scope:
                self.value = await begin()
        except Exception as error:
            self.error = error
        finally:
            self.cancelled = self._scope.cancelled_caught
            self.ended = True

    def cancel(self) -> None:
        """Cancels the task."""
        self._scope.cancel()

    async def cancel_and_wait(self) -> None:
        """Cancels the task, and returns when the task has ended."""
        self.cancel()
        await until(lambda: self.ended)

    async def outcome(self) -> Any:
        """Returns the result of the await, or raises the error of the await."""
        await until(lambda: self.ended)
        if self.error is not None:
            raise self.error
        return self.value


async def hung_in(call: str, group: TaskGroup, begin: Callable[[], Awaitable[object]]) -> Waiting:
    """Begins an await in a separate task. Returns when a thread hangs in this ACL function."""
    simulator.hang_call(call)
    waiting = Waiting(group, begin)
    await until(hanging(call))
    return waiting


async def draining(group: TaskGroup, device: Device) -> Waiting:
    """Begins a force reset in a separate task. Returns when the device drains."""
    resetting = Waiting(group, lambda: device.force_reset(grace=GRACE_SECONDS))
    await until(lambda: device.state is State.DRAINING)
    return resetting


async def raises(kind: type[Raises], awaitable: Awaitable[object]) -> Raises:
    """Asserts that the await raises an error of this kind, and returns the error."""
    try:
        await awaitable
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}, the await raised no error")


async def next_event(events: DeviceEvents, kind: str) -> DeviceEvent:
    """Returns the next device event of that kind."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while (event := await anext(events)).kind != kind:
            pass
    return event


class Raised:
    """Runs the body on a thread, and keeps its result or error."""

    def __init__(self, body: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self.value: Any = None
        self._body = body
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @classmethod
    def hung_in(cls, call: str, body: Callable[[], object]) -> Self:
        """Runs the body on a thread. Returns when a thread hangs in this ACL function."""
        simulator.hang_call(call)
        raised = cls(body)
        assert until_now(hanging(call))
        return raised

    def _run(self) -> None:
        try:
            self.value = self._body()
        except BaseException as error:
            self.error = error

    @property
    def running(self) -> bool:
        """Whether the thread is still running."""
        return self._thread.is_alive()

    def join(self, seconds: float = PATIENCE_SECONDS) -> Any:
        """Returns the result of the body, or raises the error of the body."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the thread hangs"
        if self.error is not None:
            raise self.error
        return self.value


class Stop:
    """Work that begins and then blocks until `go_on` is set: it keeps a thread busy."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.go_on.wait(PATIENCE_SECONDS), (
            f"expected go_on to be set within {PATIENCE_SECONDS} s, it was not"
        )


def in_thread(body: Callable[[], T]) -> T:
    """Runs the body on a plain thread without a loop, and returns its result."""
    result: T = Raised(body).join()
    return result


# --- time limits ---------------------------------------------------------------------------------------------------


class SlicedCondition(sync.Uninterrupted):
    """A condition variable. Each wait returns after at most SLICE_SECONDS, so that the caller reads the clock again."""

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(timeout if timeout is None else min(timeout, SLICE_SECONDS))


class Clock(sync.Threads):
    """A clock that a test advances, so that a time limit of the library ends without a real wait.

    The time limits of resets, of foreign resets and of calls on the control thread use this clock, and so do the pauses
    of supervisors. The engine in C, the timers of event loops and the stop of an older thread use the real clock.
    """

    def __init__(self) -> None:
        self._ahead = 0.0
        self._reads = 0

    def advance(self, seconds: float) -> None:
        """Advances the clock."""
        self._ahead += seconds

    async def advance_until(self, condition: Callable[[], object]) -> None:
        """Advances the clock repeatedly until the condition is true, because a wait may read the clock late."""

        def moved() -> object:
            self.advance(LONG_SECONDS)
            return condition()

        await until(moved)

    async def ends_no_wait(self) -> None:
        """Returns once the clock has been read many times. By then, each wait has found that time is left."""
        before = self._reads
        await until(lambda: self._reads >= before + MANY_READS)

    def monotonic(self) -> float:
        self._reads += 1
        return super().monotonic() + self._ahead

    def condition(self) -> sync.Condition:
        return SlicedCondition()

    def readable(self, fd: int, timeout: float | None) -> bool:
        if timeout is None:
            return super().readable(fd, None)
        end = self.monotonic() + timeout
        while not super().readable(fd, min(SLICE_SECONDS, timeout)):
            if self.monotonic() >= end:
                return False
        return True

    def settled(self, ask: Callable[[float], bool], timeout: float) -> bool:
        end = self.monotonic() + timeout
        while True:
            left = end - self.monotonic()
            if ask(min(SLICE_SECONDS, left)):
                return True
            if left <= 0:
                return False


@contextmanager
def clock_in_place() -> Generator[Clock]:
    """Makes the library use a clock that the test advances, inside the block."""
    before, clock = sync.backend, Clock()
    sync.backend = clock
    try:
        yield clock
    finally:
        sync.backend = before


# --- work that is held -------------------------------------------------------------------------------------------


def fill_queue(stream: Stream, memory: DeviceBuffer) -> int:
    """Enqueues until the queue is full; returns the number of enqueued entries."""
    for count in itertools.count():
        try:
            stream.fill(memory, count % 256)
        except QueueFull:
            return count
    raise AssertionError("expected the queue to become full, it did not")


def held_fill(stream: Stream, memory: DeviceBuffer, value: int = 1) -> Ticket:
    """Holds the stream, and enqueues a fill."""
    simulator.hold(stream)
    return stream.fill(memory, value)


def failing_fill(stream: Stream, memory: DeviceBuffer, code: int = TASK_FAULT) -> Ticket:
    """Enqueues a fill that fails on the device."""
    simulator.fail_next(stream, code)
    return stream.fill(memory, 1)


async def fill_staging(device: Device, stream: Stream, memory: DeviceBuffer) -> None:
    """Copies to a held stream until staging memory is exhausted and cannot grow."""
    full = 0
    while True:
        try:
            stream.copy(memory, bytes(memory.nbytes))
        except QueueFull:
            if full:
                return
            full = await device._manager.make(lambda _: lib.aio_stage_grow(device.index, 1))


class Blocker:
    """Makes other streams wait for an event that was recorded after held work, until the work is released."""

    def __init__(self, stream: Stream, memory: DeviceBuffer) -> None:
        self._stream = stream
        simulator.hold(stream)
        stream.fill(memory, 0)
        self._event = stream.record()

    def block(self, stream: Stream) -> None:
        """Makes the stream's later work wait."""
        stream.wait_event(self._event)

    def release(self) -> None:
        """Releases the held work, so that the other streams continue."""
        simulator.release(self._stream)


class FewThreads(sync.Threads):
    """A backend with which only `left` more threads can be started."""

    def __init__(self, left: int) -> None:
        self.left = left

    def spawn(self, name: str, body: Callable[[], object]) -> None:
        if not self.left:
            raise RuntimeError("can't start new thread")
        self.left -= 1
        super().spawn(name, body)


# --- what the simulator records -----------------------------------------------------------------------------------


@contextmanager
def no_call() -> Generator[None]:
    """Asserts that no thread except the watcher calls an ACL function inside the block.

    If nothing awaits work, the watcher checks the work up to 100 ms after the enqueue. The garbage collector is off
    in the block, because finalizers of objects of earlier tests would call ACL.
    """
    settle_maintenance()
    before = simulator.journal()
    last = before[-1]["seq"] if before else -1
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
    watchers = native_threads()
    made = [entry for entry in simulator.journal() if entry["seq"] > last]
    assert [entry for entry in made if entry["tid"] not in watchers] == []


def settle_maintenance() -> None:
    """Returns once the maintenance threads have handled earlier wake-ups.

    The handler may allocate staging memory, for example. A maintenance thread may make queued calls before it handles a
    wake-up. So this function queues a call of the handler. The handler itself leaves the making of the stream that
    wakes the runtime to the queue. The stream exists for a moment before it is counted in `aio_equipped`.
    """
    for manager in open_devices():
        with suppress(WorkerStuck):  # a test may make the thread hang in a call
            manager.maintenance.call(manager._on_wake, SETTLE_SECONDS)
            manager.maintenance.call(lambda: None, SETTLE_SECONDS)


@contextmanager
def no_call_of_mine() -> Generator[None]:
    """Asserts that this thread calls no ACL function inside the block; the device's own threads may."""
    mine = threading.get_native_id()
    before = max((entry["seq"] for entry in simulator.journal()), default=-1)
    yield
    assert [e["call"] for e in simulator.journal() if e["seq"] > before and e["tid"] == mine] == []


def hanging(function: str) -> Callable[[], bool]:
    """Returns a condition that is true while a thread hangs in the ACL function."""
    return lambda: simulator.hung(function) > 0


def enqueue_in_python(monkeypatch: pytest.MonkeyPatch, then: Callable[[], object] | None = None) -> None:
    """Makes Python check the operands of each enqueue, and call `then` between its check and the call of C.

    Without this function, Python checks the operands of unusual enqueues only.
    """

    def unusual_at_first(enqueue: Callable[..., Any], operands: int, *arguments: object) -> Any:
        if len(arguments) == operands:
            return None
        if then is not None:
            then()
        return enqueue(*arguments)

    for name, operands in (("copy", 4), ("fill", 4), ("record", 2), ("wait_event", 2)):
        enqueue = getattr(stream_module, f"enqueue_{name}")
        replaced = functools.partial(unusual_at_first, enqueue, operands)
        monkeypatch.setattr(stream_module, f"enqueue_{name}", replaced)
    if then is not None:
        by_python = stream_module.Stream._ticket

        def after_then(*arguments: Any) -> Any:
            then()
            return by_python(*arguments)

        monkeypatch.setattr(stream_module.Stream, "_ticket", after_then)


class Engine:
    """The engine's functions. A subclass replaces some of them for a test."""

    def __getattr__(self, name: str) -> Any:
        return getattr(lib, name)


# --- the process's resources -----------------------------------------------------------------------------------------


def native_threads(name: str = "aioacl-wait") -> list[int]:
    """The threads of this process with that name."""
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        try:
            if (task / "comm").read_text().strip() == name:
                found.append(int(task.name))
        except OSError:  # the thread has just ended
            continue
    return found


def descriptors() -> int:
    """The number of open descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - an iterator would hold one more


def elsewhere(*calls: str) -> None:
    """Makes the calls for device 0 on a foreign thread, one after another."""
    codes = in_thread(lambda: [getattr(lib, f"aio_u_{call}")(0) for call in calls])
    assert codes == [0] * len(calls)


def sets_by_other_code(count: int) -> None:
    """Sets device 0 so many times, as other code does."""
    elsewhere(*["aclrtSetDevice"] * count)


def forget_uses_of_ended_contexts() -> None:
    """Forgets the misuse that the usage checker reports if a context has ended and aioacl cannot know it.

    This is so if aclrtDestroyContext has failed and yet had an effect, or if other code has destroyed the context.
    """
    calls = {text.partition(":")[0] for text in simulator.violations() if "handle of kind context" in text}
    assert calls <= {"aclrtDestroyContext", "aclrtSetCurrentContext"}
    assert all("handle of kind context" in text for text in simulator.violations())
    simulator.forget()


def reset_by_other_code() -> None:
    """Force-resets device 0 on another thread, as another library of the process might."""
    elsewhere("aclrtResetDeviceForce")


async def works(device: Device) -> bool:
    """Whether bytes can be copied to the device and back."""
    back = bytearray(64)
    async with device.create_stream() as stream, device.allocate(64) as memory:
        await stream.copy(memory, bytes(range(64)))
        await stream.copy(back, memory)
    return bytes(back) == bytes(range(64))


async def runs_out_of_time(
    device: Device, reached: Callable[[], object] | None = None, grace: float = 0
) -> ResetReport:
    """Makes a force reset run out of time once `reached` returns true. Returns the report of the reset.

    Without `reached`, the reset runs out of time in the state RESETTING.
    """
    reports: list[ResetReport] = []

    async def reset() -> None:
        reports.append(await device.force_reset(grace=grace, timeout=LONG_SECONDS))

    with clock_in_place() as clock:
        async with anyio.create_task_group() as group:
            group.start_soon(reset)
            await until(reached or (lambda: device.state is State.RESETTING))
            await clock.advance_until(lambda: reports)
    assert not reports[0].ok
    return reports[0]


async def gives_up_in(device: Device, call: str) -> ResetReport:
    """Makes a force reset run out of time while the ACL function hangs. Returns the report of the reset."""
    simulator.hang_call(call)
    return await runs_out_of_time(device, hanging(call))


def drop_abandoned() -> None:
    """Removes abandoned models from the simulator, which keeps them as the runtime does."""
    assert simulator.violations() == []

    def unload() -> None:
        with open_device(waits=manager_of(0).strategy, context=context) as device:  # a test may have it open
            for each in simulator.models():
                device.run(lib.aio_u_aclmdlUnload, each.id).result()

    in_thread(unload)
    simulator.forget()


def free_refused_memory() -> None:
    """Frees the pinned memory whose aclrtFreeHost has failed in this test. aioacl does not free it a second time."""
    refused: dict[str, None] = {}
    for entry in simulator.journal():
        if entry["call"] == "aclrtFreeHost":
            refused.pop(entry["args"][0], None)
            if entry["rc"]:
                refused[entry["args"][0]] = None
    for address in refused:
        assert lib.aio_u_aclrtFreeHost(ffi.cast("void *", int(address, 16))) == 0
