"""The steps of `doctor --timing` on an open device. Each step returns its samples."""

from __future__ import annotations

import asyncio
import itertools
import resource
import threading
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from aioacl._base.ffi import ffi, lib, make_pass
from aioacl._cli._doctor_rows import STEP_SECONDS, Wait
from aioacl._lifecycle.gate import error_of
from aioacl.lowlevel import constants, handle, on

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sized

    from aioacl._base.ffi import CData
    from aioacl._device import Device
    from aioacl._handles.event import Event, Ticket
    from aioacl._handles.memory import DeviceBuffer
    from aioacl._handles.pinned import PinnedBuffer
    from aioacl._handles.stream import Stream

LIMIT_MS: Final = 1000  # the limit of one wait in ACL
AWAIT_SECONDS: Final = 1.0  # the limit of one await; a test changes it
CALLS: Final = 1000
AWAITS: Final = 200
WORKS: Final = 15  # the number of waits, each for work of a few milliseconds
RECORDS_AT_ONCE: Final = 50
CHUNK: Final = 4 << 20
MOST_COPIES: Final = 256
WORK_NS: Final = 3_000_000
SHORTEST_NS: Final = 500_000  # a shorter wait does not count: the work was almost done when the wait began


@contextmanager
def bench_on(device: Device, stopped: threading.Event) -> Generator[Bench]:
    """Makes the objects that the steps use, and finds an amount of work that takes a few milliseconds."""
    with (
        device.create_stream() as stream,
        device.allocate(CHUNK) as memory,
        device.allocate(64) as little,
        device.pinned(CHUNK) as source,
    ):
        bench = Bench(device, stopped, stream, memory, little, source)
        bench.calibrate()
        yield bench


async def _limited(work: Event | Ticket) -> None:
    try:
        async with asyncio.timeout(AWAIT_SECONDS):
            await work
    except TimeoutError:
        raise TimeoutError(f"an await did not end within {AWAIT_SECONDS:g} s") from None


class Bench:
    """The objects of a measurement. Each step returns its samples: microseconds, or a share in percent."""

    def __init__(
        self,
        device: Device,
        stopped: threading.Event,
        stream: Stream,
        memory: DeviceBuffer,
        little: DeviceBuffer,
        source: PinnedBuffer,
    ) -> None:
        self._device = device
        self._stopped = stopped
        self._stream, self._memory, self._little, self._source = stream, memory, little, source
        self._pass = make_pass(device.index, device.generation)
        self._copies = 1

    # --- work ---

    def calibrate(self) -> None:
        """Finds a number of copies that together take a few milliseconds, and stores it."""
        self._enqueue(self._copies)
        self._wait_for_stream()  # the first copy also maps the memory
        while True:
            self._enqueue(self._copies)
            _, wall = self._wait_for_stream()
            if wall >= WORK_NS or self._copies >= MOST_COPIES or self._stopped.is_set():
                return
            self._copies *= 2

    def _enqueue(self, copies: int) -> None:
        for _ in range(copies):
            _ticket = self._stream.copy(self._memory, self._source)

    def _more(self, samples: Sized, most: int) -> Generator[None]:
        """Yields until there are `most` samples, the time of a step is over, or the measurement is stopped."""
        end = time.monotonic() + STEP_SECONDS
        while len(samples) < most and time.monotonic() < end and not self._stopped.is_set():
            yield

    def _check(self, code: int, call: str) -> None:
        if code:
            raise error_of(code, call, self._device.index, self._device.generation)

    # --- calls ---

    def event_queries(self) -> list[float]:
        """The durations of queries of an event, before the stream has reached it."""
        status, done = ffi.new("aclrtEventRecordedStatus *"), lib.ACL_EVENT_RECORDED_STATUS_COMPLETE
        query = partial(lib.aio_g_aclrtQueryEventStatus, self._pass)
        return self._queries("aclrtQueryEventStatus", self._stream.record, query, status, done)

    def stream_queries(self) -> list[float]:
        """The durations of queries of a stream, before it is idle."""
        status, done = ffi.new("aclrtStreamStatus *"), lib.ACL_STREAM_STATUS_COMPLETE
        query = partial(lib.aio_g_aclrtStreamQuery, self._pass)
        return self._queries("aclrtStreamQuery", lambda: self._stream, query, status, done)

    def _queries(
        self,
        call: str,
        point: Callable[[], Event | Stream],
        query: Callable[[CData, CData], int],
        status: CData,
        done: int,
    ) -> list[float]:
        samples: list[float] = []
        for _ in self._more(samples, CALLS):
            self._enqueue(self._copies)
            queried = point()
            native, status[0] = handle(queried), 1 - done
            while status[0] != done and len(samples) < CALLS:
                begun = time.perf_counter_ns()
                code = query(native, status)
                samples.append((time.perf_counter_ns() - begun) / 1000)
                self._check(code, call)
            self._wait_for_stream()
        return samples

    def records(self) -> list[float]:
        """The durations of records of an event on an idle stream."""
        acl, made = on(self._device), ffi.new("aclrtEvent *")
        acl.aclrtCreateEventExWithFlag(made, constants.ACL_EVENT_SYNC)
        native, samples = handle(self._stream), list[float]()
        try:
            for _ in self._more(samples, CALLS):
                for _ in range(RECORDS_AT_ONCE):
                    begun = time.perf_counter_ns()
                    code = lib.aio_g_aclrtRecordEvent(self._pass, made[0], native)
                    samples.append((time.perf_counter_ns() - begun) / 1000)
                    self._check(code, "aclrtRecordEvent")
                self._wait_for_stream()
        finally:
            acl.aclrtDestroyEvent(made[0])
        return samples

    # --- blocking waits ---

    def _wait(self, call: str, function: Callable[[int, CData, int], int], native: CData) -> tuple[Wait, int]:
        """Waits in ACL. Returns how the wait used the processor, and the duration of the wait in nanoseconds."""
        before, begun = resource.getrusage(resource.RUSAGE_THREAD), time.perf_counter_ns()
        processor = time.thread_time_ns()
        code = function(self._pass, native, LIMIT_MS)
        processor = time.thread_time_ns() - processor
        wall, after = time.perf_counter_ns() - begun, resource.getrusage(resource.RUSAGE_THREAD)
        self._check(code, call)
        return Wait(100 * processor / wall, after.ru_nvcsw - before.ru_nvcsw), wall

    def _wait_for_stream(self) -> tuple[Wait, int]:
        call = "aclrtSynchronizeStreamWithTimeout"
        return self._wait(call, lib.aio_g_aclrtSynchronizeStreamWithTimeout, handle(self._stream))

    def _wait_for_event(self) -> tuple[Wait, int]:
        event, call = self._stream.record(), "aclrtSynchronizeEventWithTimeout"
        return self._wait(call, lib.aio_g_aclrtSynchronizeEventWithTimeout, handle(event))

    def stream_waits(self) -> list[Wait]:
        """Waits for a stream."""
        return self._waits(self._wait_for_stream)

    def event_waits(self) -> list[Wait]:
        """Waits for an event."""
        return self._waits(self._wait_for_event)

    def _waits(self, wait: Callable[[], tuple[Wait, int]]) -> list[Wait]:
        found: list[Wait] = []
        for _ in self._more(found, WORKS):
            self._enqueue(self._copies)
            waited, wall = wait()
            if wall >= SHORTEST_NS:
                found.append(waited)
        return found

    # --- awaits ---

    def empty_tasks(self) -> list[float]:
        """The times from the enqueue of a small fill to the end of its await."""
        return asyncio.run(self._empty_tasks(), debug=False)  # debug mode would add its own time

    async def _empty_tasks(self) -> list[float]:
        samples: list[float] = []
        for _ in self._more(samples, AWAITS):
            begun = time.perf_counter_ns()
            await _limited(self._stream.fill(self._little, 0))
            samples.append((time.perf_counter_ns() - begun) / 1000)
        return samples

    def wake_ups(self) -> list[float]:
        """The times from the completion of work to the resumption of the task that awaits it."""
        return asyncio.run(self._wake_ups(), debug=False)

    async def _wake_ups(self) -> list[float]:
        """The work takes three lengths in turn: the watcher predicts waits of one length, or of two in turn."""
        samples: list[float] = []
        doublings = itertools.cycle(range(3))
        for _ in self._more(samples, WORKS):
            self._enqueue(self._copies << next(doublings))
            event, seen = self._stream.record(), list[int]()
            other = threading.Thread(target=self._see, args=(event, seen), daemon=True)
            other.start()
            await _limited(event)
            resumed = time.perf_counter_ns()
            other.join()
            samples.extend((resumed - completed) / 1000 for completed in seen if completed <= resumed)
        return samples

    def _see(self, event: Event, seen: list[int]) -> None:
        """Notes the time at which queries find an event complete. Notes nothing if the first query does so."""
        status, native = ffi.new("aclrtEventRecordedStatus *"), handle(event)
        end = time.monotonic() + LIMIT_MS / 1000
        pending = False
        while time.monotonic() < end and lib.aio_g_aclrtQueryEventStatus(self._pass, native, status) == 0:
            if status[0] == lib.ACL_EVENT_RECORDED_STATUS_COMPLETE:
                if pending:
                    seen.append(time.perf_counter_ns())
                return
            pending = True
