"""Each public await succeeds, fails, times out and is cancelled; the same with `.result()`."""

from __future__ import annotations

import inspect
import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib
from aioacl._lifecycle.manager import manager_of
from tests.kit import (
    FAULT,
    TASK_FAULT,
    Raised,
    Waiting,
    fill_queue,
    held_fill,
    in_thread,
    raises,
    until,
    until_now,
)
from tests.support import offline

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    from tests.kit import OpenDevice

# Without a cache, each request and each close is a call that can be stalled.
pytestmark = pytest.mark.uncached

MEGABYTE = 1 << 20


@dataclass
class Setup:
    """A device with a stream and buffers, and handles to close."""

    open_device: OpenDevice
    device: aioacl.Device
    stream: aioacl.Stream
    memory: aioacl.DeviceBuffer
    large: aioacl.DeviceBuffer
    spare: dict[str, Any]
    started: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    job_waits: bool = False
    job_error: aioacl.AclError | None = None

    def release(self) -> None:
        """Releases held streams, hung calls and jobs."""
        simulator.clear()  # a call that begins later must not hang
        simulator.release_all()
        self.go_on.set()

    def job(self) -> None:
        """A job of the executor, which waits or fails if the test has chosen that."""
        self.started.set()
        if self.job_waits:
            self.go_on.wait()
        error, self.job_error = self.job_error, None
        if error is not None:
            raise error


@asynccontextmanager
async def setup_on(open_device: OpenDevice, entry: Await | None = None) -> AsyncGenerator[Setup]:
    async with (
        open_device() as device,
        device.create_stream() as stream,
        device.allocate(64) as memory,
        device.allocate(6 * MEGABYTE) as large,
    ):
        spare: dict[str, Any] = {
            name: await make(device)
            for name, make in SPARE.items()
            if entry is not None and entry.spare == name
        }
        yield Setup(open_device, device, stream, memory, large, spare)
        for made in spare.values():
            await made.close()


SPARE: dict[str, Callable[[aioacl.Device], Any]] = {
    "device": lambda _: aioacl.open_device(1),
    "stream": lambda device: device.create_stream(),
    "event": lambda device: device.create_event(),
    "buffer": lambda device: device.allocate(64),
    "block": lambda device: device.allocate(512),  # of the whole size of a class
    "pinned buffer": lambda device: device.pinned(64),
    "model": lambda device: device.load_model(offline.product()),
}


def nothing(_: Setup) -> None:
    """Changes nothing."""


def hold(prepared: Setup) -> None:
    held_fill(prepared.stream, prepared.memory)


def hold_a_full_queue(prepared: Setup) -> None:
    simulator.hold(prepared.stream)
    fill_queue(prepared.stream, prepared.memory)


def hang(function: str) -> Callable[[Setup], None]:
    return lambda _: simulator.hang_call(function)


def hangs(function: str) -> Callable[[Setup], bool]:
    return lambda _: simulator.hung(function) > 0


def waits(_: Setup) -> bool:
    return bool(lib.aio_device_waits(0))


def fail_task(prepared: Setup) -> None:
    simulator.fail_next(prepared.stream, TASK_FAULT)


def fail(function: str, code: int) -> Callable[[Setup], None]:
    return lambda _: simulator.fail_call(function, code)


def copied(prepared: Setup) -> aioacl.Ticket:
    return prepared.stream.copy(prepared.memory, bytes(64))


def recorded(prepared: Setup) -> aioacl.Event:
    copied(prepared)
    return prepared.stream.record()


class Streamed:
    """`await stream`, with a copy before it."""

    def __init__(self, prepared: Setup) -> None:
        copied(prepared)
        self.stream = prepared.stream
        self.result = prepared.stream.result

    def __await__(self) -> Any:
        return self.stream.__await__()


def device_synchronized(prepared: Setup) -> Any:
    copied(prepared)
    return prepared.device.synchronize()


def stream_synchronized(prepared: Setup) -> Any:
    copied(prepared)
    return prepared.stream.synchronize()


@dataclass(frozen=True)
class Await:
    """One await: its error code, and functions that begin it, stall it, check that it is stalled, and make it fail."""

    begin: Callable[[Setup], Any]
    stall: Callable[[Setup], None] = nothing
    stalled: Callable[[Setup], bool] | None = None
    fail: Callable[[Setup], None] = nothing
    code: int = 0
    spare: str = ""

    def is_stalled(self, prepared: Setup) -> bool:
        return self.stalled is not None and self.stalled(prepared)


def calling(function: str, code: int, begin: Callable[[Setup], Any]) -> Await:
    """An await that calls this ACL function and ends when the function returns."""
    return Await(begin, hang(function), hangs(function), fail(function, code), code)


def watching(begin: Callable[[Setup], Any]) -> Await:
    """An await that waits for the stream."""
    return Await(begin, hold, waits, fail_task, TASK_FAULT)


def closing(name: str, function: str = "") -> Await:
    """The close of a spare handle. It calls this ACL function, whose failure is a warning, not an error."""
    if not function:
        return Await(lambda s: s.spare[name].close(), spare=name)
    return Await(lambda s: s.spare[name].close(), hang(function), hangs(function), spare=name)


def synchronized_event(prepared: Setup) -> Any:
    return recorded(prepared).synchronize()


def hold_model(prepared: Setup) -> None:
    """Holds the model's stream, so that each execution waits for one that was enqueued before."""
    simulator.hold(prepared.spare["model"].stream)
    enqueued(prepared)


def enqueued(prepared: Setup) -> aioacl.Ticket:
    """An execution with memory of the caller."""
    ticket: aioacl.Ticket = prepared.spare["model"].enqueue(prepared.memory, prepared.large)
    return ticket


def waited_for(prepared: Setup) -> aioacl.Ticket:
    return prepared.stream.wait_event(recorded(prepared))


def hold_jobs(prepared: Setup) -> None:
    prepared.job_waits = True


def fail_job(prepared: Setup) -> None:
    prepared.job_error = aioacl.AclError("the job failed", code=TASK_FAULT, device=0)


class Entered:
    """`async with device.create_stream()`, or `with` on a plain thread."""

    def __init__(self, prepared: Setup) -> None:
        self.device = prepared.device

    async def _enter(self) -> None:
        async with self.device.create_stream():
            pass

    def __await__(self) -> Any:
        return self._enter().__await__()

    def result(self, timeout: float | None = None) -> None:
        with self.device.create_stream(timeout=timeout):
            pass


class Leased:
    """`async with device.lease()`, or `with` on a plain thread."""

    def __init__(self, prepared: Setup) -> None:
        self.prepared = prepared

    async def _enter(self) -> None:
        self.prepared.started.set()
        async with self.prepared.spare["device"].lease():
            pass

    def __await__(self) -> Any:
        return self._enter().__await__()

    def result(self, timeout: float | None = None) -> None:
        self.prepared.started.set()
        with self.prepared.spare["device"].lease(timeout=timeout):
            pass


def begin_a_reset_that_hangs(prepared: Setup) -> None:
    Raised.hung_in("aclrtResetDeviceForce", lambda: prepared.spare["device"].force_reset(grace=0).result())


def waits_for_the_reset(prepared: Setup) -> bool:
    return prepared.started.is_set() and simulator.hung("aclrtResetDeviceForce") > 0


def emptied(prepared: Setup) -> Any:
    """Closes the spare buffer with a cache in use, and then empties the cache."""
    cache = manager_of(0).cache
    cache.enabled = True
    prepared.spare["block"]._closing()
    cache.enabled = False
    return prepared.device.empty_cache()


AWAITS = {
    "open_device": calling("aclrtSetDevice", 507033, lambda s: s.open_device(1)),
    "create_stream": calling("aclrtCreateStream", 207008, lambda s: s.device.create_stream()),
    "create_stream with a priority": calling(
        "aclrtCreateStreamWithConfig", 207008, lambda s: s.device.create_stream(priority=2)
    ),
    "create_event": calling(
        "aclrtCreateEventExWithFlag", 207007, lambda s: s.device.create_event(timing=True)
    ),
    "allocate": calling("aclrtMalloc", 207001, lambda s: s.device.allocate(64)),
    "pinned": calling("aclrtMallocHost", 207001, lambda s: s.device.pinned(64)),
    "load_model": calling(
        "aclmdlLoadFromMemWithMem", 145006, lambda s: s.device.load_model(offline.product())
    ),
    "memory_info": calling("aclrtGetMemInfo", FAULT, lambda s: s.device.memory_info()),
    "abort": calling("aclrtStreamAbort", FAULT, lambda s: s.stream.abort()),
    "await stream": watching(Streamed),
    "stream.synchronize": watching(stream_synchronized),
    "await ticket": watching(copied),
    "await event": watching(recorded),
    "event.synchronize": watching(synchronized_event),
    "upload": watching(lambda s: s.stream.upload(s.large, bytes(6 * MEGABYTE))),
    "download": watching(lambda s: s.stream.download(bytearray(6 * MEGABYTE), s.large)),
    "device.synchronize": watching(device_synchronized),
    "device.synchronize, others' work": calling(
        "aclrtSynchronizeDeviceWithTimeout", FAULT, lambda s: s.device.synchronize()
    ),
    "renew": Await(lambda s: s.stream.renew(), hold, waits, fail("aclrtCreateStream", 207008), 207008),
    "ready": Await(lambda s: s.stream.ready(), hold_a_full_queue, waits),
    "fill": watching(lambda s: s.stream.fill(s.memory, 1)),
    "wait_event": watching(waited_for),
    "async with": calling("aclrtCreateStream", 207008, Entered),
    "run": Await(
        lambda s: s.device.run(s.job), hold_jobs, lambda s: s.started.is_set(), fail_job, TASK_FAULT
    ),
    "model()": Await(
        lambda s: s.spare["model"](offline.rows()),
        hold_model,
        waits,
        fail("aclmdlExecuteAsync", 145003),
        145003,
        spare="model",
    ),
    "model.enqueue": Await(enqueued, hold_model, waits, spare="model"),
    "lease": Await(Leased, begin_a_reset_that_hangs, waits_for_the_reset, spare="device"),
    "force_reset": Await(
        lambda s: s.spare["device"].force_reset(grace=0),
        hang("aclrtResetDeviceForce"),
        hangs("aclrtResetDeviceForce"),
        spare="device",
    ),
    "empty_cache": Await(emptied, hang("aclrtFree"), hangs("aclrtFree"), spare="block"),
    "device.close": closing("device", "aclrtResetDevice"),
    "stream.close": closing("stream", "aclrtDestroyStream"),
    "event.close": closing("event"),
    "buffer.close": closing("buffer", "aclrtFree"),
    "pinned buffer.close": closing("pinned buffer", "aclrtFreeHost"),
    "model.close": closing("model", "aclmdlUnload"),
}
STALLING = {name: entry for name, entry in AWAITS.items() if entry.stalled}
FAILING = {name: entry for name, entry in AWAITS.items() if entry.code}
# For each way in which an await is woken, one await. ./test runs them on each loop, and the others on asyncio.
WAYS_TO_WAKE = {
    "open_device",  # the control thread
    "create_stream",  # the maintenance thread
    "await stream",  # the watcher, for a stream
    "await ticket",  # the watcher, for a task
    "await event",  # the watcher, for an event
    "upload",  # the watcher, for each chunk
    "run",  # a thread of the executor
    "model()",  # the call that had the slot before
    "lease",  # the end of a reset
}


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    on_loops = pytest.mark.every_loop if name in WAYS_TO_WAKE else pytest.mark.every_loop_in_ci
    return [on_loops, offline.needs_onnxruntime] if "model" in name else [on_loops]


def each(entries: dict[str, Await]) -> pytest.MarkDecorator:
    """Runs a test with each of the awaits."""
    rows = [pytest.param(entry, id=name, marks=marks_of(name)) for name, entry in entries.items()]
    return pytest.mark.parametrize("entry", rows)


every_await, every_stalling, every_failing = each(AWAITS), each(STALLING), each(FAILING)


# Awaitables of other shapes, and where they are tested.
ELSEWHERE = {
    "BatchItem.__await__": "batches/test_checks.py",
    "BatchResults.__aenter__": "batches/test_checks.py; it never waits",
    "BatchResults.__anext__": "batches/test_checks.py",
    "Batcher.close": "batches/test_checks.py",
    "Batcher.replace": "batches/test_models.py",
    "Pool.close": "pool/test_pool.py",
    "Pool.replace": "pool/test_pool.py",
    "DeviceEvents.__anext__": "test_notifications.py",
    "SharedLease.__aenter__": "test_lease.py; it never waits",
    "Trace.__aenter__": "test_trace.py; it never waits",
    "Supervisor.__aenter__": "lifecycle/test_supervisor.py; it never waits",
    "open_batcher": "batches/test_models.py",
    "open_pool": "pool/test_pool.py",
    "ModelResults.__aenter__": "models/test_map.py; it never waits",
    "ModelResults.__anext__": "models/test_map.py",
    "Event.from_handle": "test_borrowed_events.py",
    "Model.reload": "models/test_load_options.py",
    "DeviceExecutor.submit": "test_executor.py; its result is a concurrent.futures.Future",
}
ENTRY_OF = {
    "open_device": "open_device",
    "Device.allocate": "allocate",
    "Device.close": "device.close",
    "Device.create_event": "create_event",
    "Device.create_stream": "create_stream",
    "Device.empty_cache": "empty_cache",
    "Device.force_reset": "force_reset",
    "Device.load_model": "load_model",
    "Device.memory_info": "memory_info",
    "Device.pinned": "pinned",
    "Device.run": "run",
    "Device.synchronize": "device.synchronize",
    "DeviceBuffer.close": "buffer.close",
    "Event.__await__": "await event",
    "Event.close": "event.close",
    "Event.record": "await event",
    "Event.synchronize": "event.synchronize",
    "Lease.__aenter__": "lease",
    "Model.close": "model.close",
    "Model.enqueue": "model.enqueue",
    "Opening.__aenter__": "async with",
    "Opening.__await__": "create_stream",
    "Operation.__await__": "stream.synchronize",
    "PinnedBuffer.close": "pinned buffer.close",
    "Stream.__await__": "await stream",
    "Stream.abort": "abort",
    "Stream.close": "stream.close",
    "Stream.copy": "await ticket",
    "Stream.download": "download",
    "Stream.fill": "fill",
    "Stream.ready": "ready",
    "Stream.record": "await event",
    "Stream.renew": "renew",
    "Stream.synchronize": "stream.synchronize",
    "Stream.upload": "upload",
    "Stream.wait_event": "wait_event",
    "Ticket.__await__": "await ticket",
}
AWAITABLE = ("Operation", "Opening", "Ticket", "Event", "JobFuture", "Coroutine", "Awaitable")
WAITING_METHODS = ("__await__", "__aenter__", "__anext__")


def returned(thing: Any) -> str:
    """The name of the type that a function returns, without its parameters."""
    try:
        return str(inspect.signature(thing).return_annotation).partition("[")[0]
    except (TypeError, ValueError):
        return ""


def public_awaits() -> set[str]:
    """Every public function that returns an awaitable, and every method by which Python awaits an object."""
    found = {name for name in aioacl.__all__ if returned(getattr(aioacl, name)) in AWAITABLE}
    for each in filter(inspect.isclass, (getattr(aioacl, name) for name in aioacl.__all__)):
        for name, member in inspect.getmembers(each, callable):
            waits_by = name in WAITING_METHODS and returned(member) != "NoReturn"
            if waits_by or (not name.startswith("_") and returned(member) in AWAITABLE):
                found.add(f"{each.__name__}.{name}")
    return found


def test_every_way_to_wake_has_an_await() -> None:
    assert set(STALLING) >= WAYS_TO_WAKE


def test_every_public_await_has_an_entry() -> None:
    assert public_awaits() == {*ENTRY_OF, *ELSEWHERE}
    assert set(ENTRY_OF.values()) <= set(AWAITS)


async def close_if_handle(made: Any) -> None:
    if hasattr(made, "close"):
        await made.close()


class TestOnALoop:
    pytestmark = pytest.mark.anyio

    @every_await
    async def test_await_succeeds(self, open_device: OpenDevice, entry: Await) -> None:
        async with setup_on(open_device, entry) as prepared:
            await close_if_handle(await entry.begin(prepared))

    @every_failing
    async def test_await_raises_the_device_error(self, open_device: OpenDevice, entry: Await) -> None:
        async with setup_on(open_device, entry) as prepared:
            entry.fail(prepared)
            error = await raises(aioacl.AclError, entry.begin(prepared))
            assert error.code == entry.code
            assert error.device in (0, 1)
            await prepared.stream.renew()
            await close_if_handle(await entry.begin(prepared))

    @every_stalling
    async def test_stalled_await_ends_at_the_timeout_around_it(
        self, open_device: OpenDevice, entry: Await
    ) -> None:
        async with setup_on(open_device, entry) as prepared:
            entry.stall(prepared)
            with pytest.raises(TimeoutError), anyio.fail_after(0.02):
                await entry.begin(prepared)
            prepared.release()
            await prepared.stream
            await close_if_handle(await entry.begin(prepared))

    @every_stalling
    async def test_cancelled_await_returns_at_once_and_later_awaits_succeed(
        self, open_device: OpenDevice, entry: Await
    ) -> None:
        async with setup_on(open_device, entry) as prepared:
            entry.stall(prepared)
            async with anyio.create_task_group() as group:
                waiting = Waiting(group, lambda: entry.begin(prepared))
                await until(lambda: entry.is_stalled(prepared))
                await waiting.cancel_and_wait()
                assert waiting.cancelled
                assert entry.is_stalled(prepared)
            prepared.release()
            await prepared.stream
            await close_if_handle(await entry.begin(prepared))

    @every_stalling
    async def test_stalled_await_succeeds_after_the_release(
        self, open_device: OpenDevice, entry: Await
    ) -> None:
        async with setup_on(open_device, entry) as prepared:
            entry.stall(prepared)
            async with anyio.create_task_group() as group:
                waiting = Waiting(group, lambda: entry.begin(prepared))
                await until(lambda: entry.is_stalled(prepared))
                assert not waiting.ended
                prepared.release()
                await close_if_handle(await waiting.outcome())

    @every_await
    async def test_result_is_refused_on_a_thread_whose_loop_runs(
        self, open_device: OpenDevice, entry: Await
    ) -> None:
        async with setup_on(open_device, entry) as prepared:
            begun = entry.begin(prepared)
            with pytest.raises(RuntimeError, match="this thread runs an event loop"):
                begun.result()
            await close_if_handle(await begun)


@pytest.fixture
def prepared(open_device: OpenDevice, entry: Await) -> Iterator[Setup]:
    device = open_device().result()
    stream = device.create_stream().result()
    memory, large = device.allocate(64).result(), device.allocate(6 * MEGABYTE).result()
    spare = {name: make(device).result() for name, make in SPARE.items() if entry.spare == name}
    prepared = Setup(open_device, device, stream, memory, large, spare)
    yield prepared
    prepared.release()
    for made in (*spare.values(), large, memory, stream, device):
        made.close().result()


class TestOnAPlainThread:
    @every_await
    def test_result_succeeds_on_a_plain_thread(self, prepared: Setup, entry: Await) -> None:
        made = entry.begin(prepared).result()
        if hasattr(made, "close"):
            made.close().result()

    @every_failing
    def test_result_raises_the_device_error(self, prepared: Setup, entry: Await) -> None:
        entry.fail(prepared)
        with pytest.raises(aioacl.AclError) as caught:
            entry.begin(prepared).result()
        assert caught.value.code == entry.code

    @every_stalling
    def test_result_that_times_out_raises_device_timeout_and_the_work_goes_on(
        self, prepared: Setup, entry: Await
    ) -> None:
        entry.stall(prepared)
        with pytest.raises(aioacl.DeviceTimeout):
            entry.begin(prepared).result(timeout=0.02)
        prepared.release()
        prepared.stream.result()

    @every_stalling
    def test_stalled_result_blocks_until_the_release(self, prepared: Setup, entry: Await) -> None:
        entry.stall(prepared)
        blocked = Raised(lambda: entry.begin(prepared).result())
        assert until_now(lambda: entry.is_stalled(prepared))
        assert blocked.running
        prepared.release()
        made = blocked.join()
        if hasattr(made, "close"):
            in_thread(lambda: made.close().result())


OWN_TIMEOUTS = {
    "open_device": (hang("aclrtSetDevice"), lambda s, t: s.open_device(1, timeout=t)),
    "create_stream": (hang("aclrtCreateStream"), lambda s, t: s.device.create_stream(timeout=t)),
    "create_event": (
        hang("aclrtCreateEventExWithFlag"),
        lambda s, t: s.device.create_event(timing=True, timeout=t),
    ),
    "allocate": (hang("aclrtMalloc"), lambda s, t: s.device.allocate(64, timeout=t)),
    "pinned": (hang("aclrtMallocHost"), lambda s, t: s.device.pinned(64, timeout=t)),
    "stream": (hold, lambda s, t: s.stream.synchronize(timeout=t)),
    "renew": (hold, lambda s, t: s.stream.renew(timeout=t)),
    "event": (hold, lambda s, t: recorded(s).synchronize(timeout=t)),
    "device": (hold, lambda s, t: s.device.synchronize(timeout=t)),
    "device, others' work": (
        hang("aclrtSynchronizeDeviceWithTimeout"),
        lambda s, t: s.device.synchronize(timeout=t),
    ),
}


@pytest.mark.anyio
@pytest.mark.every_loop_in_ci
@pytest.mark.parametrize(("stall", "begin"), OWN_TIMEOUTS.values(), ids=OWN_TIMEOUTS)
async def test_await_with_a_timeout_argument_raises_device_timeout(
    open_device: OpenDevice, stall: Callable[[Setup], None], begin: Callable[[Setup, float], Any]
) -> None:
    async with setup_on(open_device) as prepared:
        stall(prepared)
        await raises(aioacl.DeviceTimeout, begin(prepared, 0.02))
        prepared.release()
        await prepared.stream
        await close_if_handle(await begin(prepared, 20.0))


@pytest.mark.anyio
@pytest.mark.parametrize("begin", [begin for _, begin in OWN_TIMEOUTS.values()], ids=OWN_TIMEOUTS)
async def test_await_with_an_invalid_timeout_is_refused_with_the_valid_values(
    open_device: OpenDevice, begin: Callable[[Setup, Any], Any]
) -> None:
    async with setup_on(open_device) as prepared:
        for timeout in (-1, -0.5, float("nan"), "1", True, b"1"):
            with pytest.raises(
                aioacl.ParameterError, match="must be a number of seconds, at least 0, or None"
            ):
                await begin(prepared, timeout)
