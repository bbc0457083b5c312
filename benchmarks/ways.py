"""The ways to wait for work: aioacl's, and those of the peers.

Each way enqueues a copy on one of the streams and waits for it. A way has an event loop of its own that lives as long
as the way, so that the threads of its pool are warm.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import anyio.to_thread
import trio
import uvloop

from benchmarks import raw

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable

    from benchmarks.bench import Bench

T = TypeVar("T")
Main = "Callable[[], Coroutine[Any, Any, T]]"

AIOACL: Final = "aioacl"
BLOCKING: Final = "blocking call"
TO_THREAD: Final = "asyncio.to_thread"
EXECUTOR: Final = "run_in_executor"
ANYIO: Final = "anyio.to_thread"
TRIO: Final = "trio.to_thread"
CALLBACK: Final = "callback way"
OURS_UVLOOP: Final = "aioacl on uvloop"
OURS_TRIO: Final = "aioacl on trio"
BARE_TRIO: Final = "bare trio wake"


class Way:
    """A way to wait, on asyncio unless a subclass has another loop."""

    name: ClassVar[str]

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.raw_streams = bench.raw_streams
        self.runner = self._runner()

    def _runner(self) -> asyncio.Runner | None:
        return asyncio.Runner()

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs the function on the way's event loop."""
        assert self.runner is not None
        return self.runner.run(main())

    async def wait(self, index: int) -> None:
        """Enqueues a copy on that stream, and waits for it."""
        raise NotImplementedError

    async def together(self, works: Iterable[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """Runs the functions in tasks, and returns when all have ended."""
        await asyncio.gather(*(work() for work in works))

    def close(self) -> None:
        """Ends the loop and its threads."""
        if self.runner is not None:
            self.runner.close()


class TrioWay(Way):
    """A way to wait on trio."""

    def _runner(self) -> None:
        return None

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs the function in a new run of trio."""
        return trio.run(main)

    async def together(self, works: Iterable[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """Runs the functions in tasks, and returns when all have ended."""
        async with trio.open_nursery() as nursery:
            for work in works:
                nursery.start_soon(work)


class Ours(Way):
    """aioacl on asyncio."""

    name = AIOACL

    async def wait(self, index: int) -> None:
        """Enqueues a copy on that stream, and awaits it."""
        bench = self.bench
        await bench.streams[index].copy(bench.target, bench.source)

    async def waits_inline(self, index: int) -> bool:
        """The same; returns whether the await ended without suspending its task."""
        bench = self.bench
        counted = Counted(bench.streams[index].copy(bench.target, bench.source))
        await counted
        return not counted.suspended


class Counted:
    """An await that records whether it suspended its task. A bare yield, which gives way, does not count."""

    def __init__(self, awaited: Any) -> None:
        self.suspended = False
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, None]:
        for each in self._awaited.__await__():
            self.suspended |= each is not None
            yield each


class OursUvloop(Ours):
    """aioacl on uvloop."""

    name = OURS_UVLOOP

    def _runner(self) -> asyncio.Runner:
        return asyncio.Runner(loop_factory=uvloop.new_event_loop)


class OursTrio(TrioWay):
    """aioacl on trio."""

    name = OURS_TRIO

    async def wait(self, index: int) -> None:
        """Enqueues a copy on that stream, and awaits it."""
        bench = self.bench
        await bench.streams[index].copy(bench.target, bench.source)


class Blocking(Way):
    """The call that blocks the loop: the time of the task itself."""

    name = BLOCKING

    async def wait(self, index: int) -> None:
        """Enqueues a copy on that stream, and blocks the loop until it is done."""
        stream = self.raw_streams[index]
        self.bench.enqueue(stream)
        self.bench.synchronize(stream)


class ToThread(Way):
    """asyncio.to_thread, with the loop's default pool."""

    name = TO_THREAD

    async def wait(self, index: int) -> None:
        """Enqueues a copy on that stream, and synchronizes the stream on a thread."""
        stream = self.raw_streams[index]
        self.bench.enqueue(stream)
        await asyncio.to_thread(self.bench.synchronize, stream)


class RunInExecutor(Way):
    """loop.run_in_executor, with the loop's default pool."""

    name = EXECUTOR

    async def wait(self, index: int) -> None:
        """Enqueues a copy on that stream, and synchronizes the stream on a thread."""
        stream = self.raw_streams[index]
        self.bench.enqueue(stream)
        await asyncio.get_running_loop().run_in_executor(None, self.bench.synchronize, stream)


class AnyioToThread(Way):
    """anyio.to_thread on asyncio, with its default limit of threads."""

    name = ANYIO

    async def wait(self, index: int) -> None:
        """Enqueues a copy on that stream, and synchronizes the stream on a thread."""
        stream = self.raw_streams[index]
        self.bench.enqueue(stream)
        await anyio.to_thread.run_sync(self.bench.synchronize, stream)


class TrioToThread(TrioWay):
    """trio.to_thread, with its default limit of threads."""

    name = TRIO

    async def wait(self, index: int) -> None:
        """Enqueues a copy on that stream, and synchronizes the stream on a thread."""
        stream = self.raw_streams[index]
        self.bench.enqueue(stream)
        await trio.to_thread.run_sync(self.bench.synchronize, stream)


class Callback(Way):
    """A host function behind the copy calls Python, which wakes the loop once for each batch that is not empty."""

    name = CALLBACK

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        assert self.runner is not None
        self._loop = self.runner.get_loop()
        self._keys = itertools.count(1)
        self._futures: dict[int, asyncio.Future[None]] = {}
        self._done: deque[int] = deque()
        self._launch = bench.lib.raw_launch_done
        bench.ffi.def_extern("raw_done")(self._enter)

    def _enter(self, key: int) -> None:
        """Runs on the runtime's thread for host functions."""
        self._done.append(key)
        if len(self._done) == 1:  # after the append: the loop may take the older keys at any time
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        done, futures = self._done, self._futures
        while done:
            futures.pop(done.popleft()).set_result(None)

    async def wait(self, index: int) -> None:
        """Enqueues a copy and a host function on that stream, and awaits the future that the function completes."""
        stream = self.raw_streams[index]
        self.bench.enqueue(stream)
        key = next(self._keys)
        future = self._futures[key] = self._loop.create_future()
        code = self._launch(stream, key)
        if code:
            raw.check(code, "aclrtLaunchHostFunc")
        await future


class BareTrio(TrioWay):
    """The wake of a trio task by a descriptor, without ACL: no library can be faster."""

    name = BARE_TRIO

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    async def wait(self, index: int) -> None:  # noqa: ARG002 - it uses no stream
        """Makes a descriptor readable, and waits for that."""
        os.eventfd_write(self._fd, 1)
        await trio.lowlevel.wait_readable(self._fd)
        os.eventfd_read(self._fd)

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self._fd)
