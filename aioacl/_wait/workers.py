"""A device's own threads: each runs jobs one after another, and wakes for completions and for the engine's kicks.

A worker thread sleeps on the descriptor of a port of its own, so one wait serves all: jobs from Python, completions of
streams that it watches, and kicks from C. Its port lives as long as the process: the engine may kick it at any time.

A job belongs to the task that awaits it until that task leaves. Then a job that has not begun is withdrawn; otherwise
its result is given to `discard` on the thread, so that nothing that was made is lost. A clean-up is done in any case: a
task that awaits it waits for the doing only, and no longer than the device can be expected to do anything.
"""

from __future__ import annotations

import threading
import warnings
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from aioacl._base import sync
from aioacl._base.errors import AclWarning, DeviceTimeout
from aioacl._base.ffi import lib
from aioacl._wait.current import current_port
from aioacl._wait.port import KICK, TIMED_OUT, Port
from aioacl._wait.thread import ThreadPort

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import CData

T = TypeVar("T")
ENDED_SECONDS: Final = 5.0


class WorkerStuck(Exception):
    """The job did not come back in time; the thread is still in it."""


class Job(Generic[T]):
    """One piece of work, its outcome, and whom to tell."""

    def __init__(self, work: Callable[[], T], discard: Callable[[T], object] | None = None) -> None:
        self._work = work
        self._discard = discard
        self._changed = sync.condition(lasting=False)
        self._tell: tuple[Port, int] | None = None
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._started = self._finished = self._abandoned = False

    def run(self) -> None:
        """On the thread: does the work, unless it was withdrawn."""
        with self._changed:
            if self._abandoned or self._finished:
                return
            self._started = True
        try:
            result = [self._work()]
        except BaseException as error:  # noqa: BLE001 - it is handed to whoever awaits the job
            self._end([], error)
        else:
            self._end(result, None)

    def _end(self, result: list[T], error: BaseException | None) -> None:
        with self._changed:
            late = self._abandoned or self._finished
            if not self._finished:
                self._result, self._error, self._finished = result, error, True
            self._changed.notify_all()
            tell, self._tell = self._tell, None
        if tell is not None:
            lib.aio_port_post(tell[0].handle, tell[1], 0)
        if late and result and self._discard is not None:
            self._discard(result[0])

    def tell(self, port: Port, key: int) -> None:
        """Posts to the port when the job has ended."""
        with self._changed:
            if not self._finished:
                self._tell = (port, key)
                return
        lib.aio_port_post(port.handle, key, 0)

    def fail(self, error: BaseException) -> None:
        """Ends the job for whoever awaits it, whether it runs or not."""
        self._end([], error)

    def abandon(self, worker: WorkerThread) -> None:
        """Nobody awaits the job any more; one that has not begun by now never will, and posts nothing."""
        withdrawn: tuple[Port, int] | None = None
        with self._changed:
            late = self._finished and bool(self._result)
            self._abandoned = True
            if not self._started:
                withdrawn, self._tell = self._tell, None
        if withdrawn is not None:
            withdrawn[0].refuse(withdrawn[1])
        if late and self._discard is not None:
            discard, result = self._discard, self._result[0]
            worker.entrust(CleanUp(lambda: discard(result)))

    def outcome(self) -> T:
        """The result, or the error raised; once, when the job has ended. The thread keeps no reference to it."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # the traceback keeps the frame, and the frame would keep the error
        return self._result.pop()  # from the list that the thread's frame may still have in hand

    def wait(self, timeout: float | None) -> bool:
        """Blocks until the job has ended; False after the time."""
        end = None if timeout is None else sync.monotonic() + timeout
        with self._changed:
            while not self._finished:
                left = None if end is None else end - sync.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(left)
        return True


class CleanUp(Job[object]):
    """A job that is done whoever waits for it, and whatever ends the waiting."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(work)

    def run(self) -> None:
        with self._changed:
            self._started, nobody = True, self._abandoned or self._finished
        try:
            self._work()
        except BaseException as error:
            if nobody:
                raise
            self._end([], error)
        else:
            self._end([None], None)

    def fail(self, error: BaseException) -> None:  # noqa: ARG002 - that of other jobs
        """Ends the waiting, and that without an error: what is closed is closed for whoever had it."""
        self._end([None], None)

    def abandon(self, worker: WorkerThread) -> None:  # noqa: ARG002 - it is on its thread already
        """Nobody awaits it any more; it is done all the same."""
        with self._changed:
            self._abandoned = True


class _LastingPort(Port):
    """A port that is never closed: the engine, and finalizers, may kick it until the process ends."""

    def __del__(self) -> None:
        pass


class WorkerThread:
    """One thread, its jobs, and the streams that it watches."""

    def __init__(
        self,
        name: str,
        on_wake: Callable[[], object] | None = None,
        refusal: Callable[[], BaseException | None] = lambda: None,
    ) -> None:
        self._name = name
        self._on_wake = on_wake
        self._refusal = refusal  # why nobody should wait for the thread now
        self._jobs: deque[Job[Any]] = deque()
        self._forsaken: deque[Job[Any]] = deque()
        self._changed = sync.condition()
        self._running = False
        self._stopping = False
        self._current: Job[Any] | None = None
        self._port: Port | None = None
        self.thread = 0  # as the kernel counts them

    @property
    def running(self) -> bool:
        """Whether the thread runs and takes jobs. Takes no lock: a finalizer asks, on a thread that may have it."""
        return self._running and not self._stopping

    @property
    def port(self) -> Port:
        """Its port, once it was started."""
        assert self._port is not None, "the thread was started"
        return self._port

    def start(self) -> None:
        """Starts the thread; waits for an older one of the worker that is about to end."""
        with self._changed:
            while self._running and self._stopping:
                self._changed.wait()
            self._stopping = False
            if self._running:
                return
            if self._port is None:
                self._port = _LastingPort()
            self._running = True
        try:
            sync.spawn(self._name, self._run)
        except RuntimeError:
            with self._changed:
                self._running = False
            raise

    def stop(self, timeout: float) -> bool:
        """Ends the thread after the jobs that are queued; False when it has not ended in time."""
        end = sync.monotonic() + timeout
        with self._changed:
            self._stopping = True
        self.kick()
        with self._changed:
            while self._running and sync.monotonic() < end:
                self._changed.wait(end - sync.monotonic())
            return not self._running

    def kick(self) -> None:
        """Makes the thread look at its jobs. Takes no lock, so a finalizer may call it."""
        if self._port is not None:
            lib.aio_port_post(self._port.handle, KICK, 0)

    def _queue(self, job: Job[Any]) -> bool:
        """Queues a job, also while the thread stops: it ends after its jobs. False when it has ended.

        What nobody should wait for fails at once; of that only clean-ups are queued.
        """
        with self._changed:
            if not self._running:
                return False
            refusal = self._refusal()
            if refusal is None or isinstance(job, CleanUp):
                self._jobs.append(job)
        if refusal is not None:
            job.fail(refusal)
        self.kick()
        return True

    def submit(self, job: Job[Any]) -> None:
        """Queues a job; on a thread that has ended, does it here and now."""
        if not self._queue(job):
            job.run()

    def entrust(self, job: Job[Any]) -> None:
        """Queues a job, for who must not be kept waiting; when the thread has ended a thread of its own does it."""
        if self._queue(job):
            return
        try:
            sync.spawn(self._name, lambda: self._guarded(job.run))
        except RuntimeError:
            job.run()

    def forsake(self, job: Job[Any]) -> None:
        """For finalizers: nobody awaits the job any more. Takes no lock; the thread abandons it."""
        self._forsaken.append(job)
        self.kick()

    def call(self, work: Callable[[], T], timeout: float | None) -> T:
        """Blocks until the thread has done the work; WorkerStuck after the time."""
        job = Job(work)
        self.submit(job)
        if not job.wait(timeout):
            job.abandon(self)
            raise WorkerStuck
        return job.outcome()

    def watch(self, stream: CData, position: int, then: Callable[[int], object]) -> int:
        """On the thread: calls `then` with the result once the position is done. 0, or the refusal."""
        return self.port.begin(lambda port, key: lib.aio_watch(stream, position, port, key), then, None)

    def fail_all(self, error: Callable[[], BaseException]) -> None:
        """Ends every job that is queued or running, for those who await them. Clean-ups stay to be done."""
        with self._changed:
            jobs = self._jobs.copy()
        current = self._current
        for job in jobs if current is None else (current, *jobs):
            job.fail(error())

    def _run(self) -> None:
        self.thread = threading.get_native_id()
        while not self._done():
            sync.readable(self.port.fd, None)
            while self._forsaken:
                self._forsaken.popleft().abandon(self)
            self._guarded(self.port.drain)
            if self._on_wake is not None:
                self._guarded(self._on_wake)
            self._run_jobs()

    @staticmethod
    def _guarded(step: Callable[[], object]) -> None:
        """A clean-up that raises, a warning turned error for instance, is reported; the thread goes on."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - it is reported
            sync.report(error)

    def _run_jobs(self) -> None:
        while self._jobs:
            self._current = self._jobs.popleft()
            self._guarded(self._current.run)
            self._current = None

    def _done(self) -> bool:
        with self._changed:
            if not self._stopping or self._jobs:
                return False
            self._running = self._stopping = False
            self._changed.notify_all()
            return True


async def call_on(
    worker: WorkerThread,
    work: Callable[[], T],
    *,
    discard: Callable[[T], object] | None = None,
    deadline: float | None = None,
) -> T:
    """Awaits a job on a worker thread; what it made is discarded if the caller has left by then."""
    return await _outcome_on(worker, Job(work, discard), deadline)


async def clean_up_on(worker: WorkerThread, work: Callable[[], object]) -> None:
    """Awaits a clean-up on a worker thread; it is done even if nobody waits for it any more.

    No reset ends the wait of one whose device is closed, so that has a limit.
    """
    deadline = None if worker.running else sync.monotonic() + ENDED_SECONDS
    try:
        await _outcome_on(worker, CleanUp(work), deadline)
    except DeviceTimeout:
        if deadline is None or sync.monotonic() < deadline:  # the caller's own timeout
            raise
        sentence = f"a clean-up after the close of its device has not returned within {ENDED_SECONDS} s"
        warnings.warn(f"{sentence}; it goes on", AclWarning, stacklevel=2)


async def _outcome_on(worker: WorkerThread, job: Job[T], deadline: float | None) -> T:
    port = current_port()

    def start(_: CData, key: int) -> int:
        job.tell(port, key)
        worker.entrust(job)
        return 0

    try:
        if isinstance(port, ThreadPort):
            port.locks.append(job._changed)
        result = await port.wait(start, deadline=deadline)
    except GeneratorExit:
        worker.forsake(job)
        raise
    except BaseException:
        job.abandon(worker)
        raise
    if result == TIMED_OUT:
        job.abandon(worker)
        raise DeviceTimeout(
            "the device's thread was not done in time",
            hint="A call inside C goes on: `device.health` tells for how long, and a stuck one needs `force_reset()`.",
        )
    return job.outcome()
