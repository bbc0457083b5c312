"""The control thread and the maintenance thread of a device. Each runs internal calls one after another.

An internal call is a function that aioacl runs on one of these threads. A job, which is a function of the user, runs on
`device.executor` instead.

A worker thread waits on the descriptor of its own port. So one wait serves internal calls, completions of streams that
the thread watches, and kicks from C. The port is never closed, because the engine may kick it at any time.

An await of a clean-up ends early if the device is quarantined, and after ENDED_SECONDS if the device is closed.

If an internal call does not return for long, `relieve` starts another thread, which goes on with the queue. The thread
of that call ends when the call returns.
"""

from __future__ import annotations

import threading
import warnings
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aioacl._base import logs, sync
from aioacl._base.errors import AclWarning, DeviceTimeout
from aioacl._base.ffi import lib
from aioacl._wait.current import current_port
from aioacl._wait.internal_call import CleanUp, InternalCall
from aioacl._wait.port import TIMED_OUT, Port
from aioacl._wait.thread import ThreadPort

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import CData

T = TypeVar("T")
ENDED_SECONDS: Final = 5.0
MOST_RELIEVED: Final = 16
RELIEVED_SECONDS: Final = 1.0
SOON_RELIEVED_SECONDS: Final = 0.05  # of the calls that follow one from which the thread was relieved
STUCK_HINT: Final = (
    "A call inside C continues. `device.health` shows its duration, and `device.events()` reports its return. No reset "
    "can stop it."
)


class WorkerStuck(Exception):
    """An internal call has not returned in time. If it had begun, it continues."""


class _LastingPort(Port):
    """A port that is never closed: the engine and finalizers may kick it until the process ends."""

    def __del__(self) -> None:
        pass


class WorkerThread:
    """A control or maintenance thread, its internal calls, and the streams that the thread watches."""

    def __init__(
        self,
        name: str,
        on_wake: Callable[[], object] | None = None,
        refusal: Callable[[], BaseException | None] = lambda: None,
        hint: Callable[[], str] = lambda: STUCK_HINT,
    ) -> None:
        self.hint = hint  # what to do if a call is not done in time
        self._name = name
        self._on_wake = on_wake
        self._refusal = refusal  # the error for new calls, or None if calls are accepted
        self._calls: deque[InternalCall[Any]] = deque()
        self._unawaited: deque[InternalCall[Any]] = deque()
        self._changed = sync.condition()
        self._running = False
        self._stopping = False
        self._current: InternalCall[Any] | None = None
        self._began = 0.0  # the time at which the current call began
        self._relieved: list[
            InternalCall[Any]
        ] = []  # calls that have not returned, and whose threads were relieved
        self._shift = 0  # raised by each start and relief; the thread of an earlier shift ends
        self._port: Port | None = None
        self.thread = 0  # the kernel's id of the thread

    @property
    def running(self) -> bool:
        """Whether the thread runs and accepts internal calls.

        Takes no lock, because a finalizer may read it on a thread that holds the lock.
        """
        return self._running and not self._stopping

    @property
    def port(self) -> Port:
        """The port of the worker, after its first start."""
        assert self._port is not None, "the thread was started before"
        return self._port

    def start(self) -> None:
        """Starts the thread. If the worker's previous thread is ending, waits for its end first."""
        with self._changed:
            while self._running and self._stopping:
                self._changed.wait()
            self._stopping = False
            if self._running:
                return
            if self._port is None:
                self._port = _LastingPort()
            self._running = True
            self._shift = shift = self._shift + 1
        try:
            sync.spawn(self._name, partial(self._run, shift))
        except RuntimeError:
            with self._changed:
                self._running = False
            raise

    def stop(self, timeout: float) -> bool:
        """Ends the thread after the queued calls. Returns False if it has not ended within `timeout` seconds."""
        end = sync.monotonic() + timeout
        with self._changed:
            self._stopping = True
        self.kick()
        with self._changed:
            while self._running and sync.monotonic() < end:
                self._changed.wait(end - sync.monotonic())
            return not self._running

    def relieve(self) -> None:
        """Starts another thread if an internal call has run for too long. At most MOST_RELIEVED are started."""
        with self._changed:
            call = self._current
            patience = SOON_RELIEVED_SECONDS if self._relieved else RELIEVED_SECONDS
            young = sync.monotonic() - self._began < patience
            if call is None or young or len(self._relieved) >= MOST_RELIEVED:
                return
            try:
                sync.spawn(self._name, partial(self._run, self._shift + 1))
            except RuntimeError:
                return
            self._shift += 1
            self._current = None
            self._relieved.append(call)

    def kick(self) -> None:
        """Wakes the thread, which then runs its queued calls. Takes no lock, so a finalizer may call it."""
        if self._port is not None:
            self._port.kick()

    def _queue(self, call: InternalCall[Any]) -> bool:
        """Queues an internal call. Returns False if the thread has ended.

        A thread that is stopping still takes calls, because it ends only after its queued calls. If there is a refusal,
        the call fails at once with that error, and is queued only if it is a clean-up.
        """
        with self._changed:
            if not self._running:
                return False
            refusal = self._refusal()
            if refusal is None or isinstance(call, CleanUp):
                self._calls.append(call)
        if refusal is not None:
            call.fail(refusal)
        self.kick()
        return True

    def submit(self, call: InternalCall[Any]) -> None:
        """Queues an internal call. If the thread has ended, this method runs the call at once."""
        if not self._queue(call):
            call.run()

    def leave(self, work: Callable[[], object]) -> None:
        """Queues a clean-up that no task awaits. If the thread has ended, this method runs it at once."""
        call = CleanUp(work)
        call.abandon(self)
        self.submit(call)

    def entrust(self, call: InternalCall[Any]) -> None:
        """Queues an internal call without blocking. If the thread has ended, a new thread runs the call.

        If no thread can be started, this method runs the call and may block.
        """
        if self._queue(call):
            return
        try:
            sync.spawn(self._name, lambda: self._guarded(call.run))
        except RuntimeError:
            call.run()

    def leave_unawaited(self, call: InternalCall[Any]) -> None:
        """For finalizers, when no task awaits the call any more. Takes no lock; the thread abandons the call."""
        self._unawaited.append(call)
        self.kick()

    def call(self, work: Callable[[], T], timeout: float | None) -> T:
        """Blocks until the thread has run `work`; returns its result. Raises WorkerStuck after `timeout` seconds."""
        call = InternalCall(work)
        self.submit(call)
        if not call.wait(timeout):
            call.abandon(self)
            raise WorkerStuck
        return call.outcome()

    def watch(self, stream: CData, position: int, then: Callable[[int], object]) -> int:
        """Calls `then` with the result once the position is done. Returns 0, or the code of a refusal.

        Runs on the worker thread.
        """
        return self.port.begin(lambda port, key: lib.aio_watch(stream, position, port, key), then, None)

    def end_watches(self, result: int) -> None:
        """Ends the waits of `watch` after the thread has ended and the device is closed.

        The engine may end them later, for example if one of its threads is still inside C. Nothing reads the port then.
        """
        self._guarded(self.port.drain)
        for then in self.port.withdraw_all():
            self._guarded(partial(then, result))

    def fail_all(self, error: Callable[[], BaseException]) -> None:
        """Ends the awaits of all queued and running calls. Awaits of clean-ups end without an error.

        The error of the other awaits is the result of `error`. Clean-ups still run.
        """
        with self._changed:
            calls = [*self._relieved, *self._calls]
        current = self._current
        for call in calls if current is None else (current, *calls):
            call.fail(error())

    def _run(self, shift: int) -> None:
        with self._changed:  # a relief raises the shift after it has started this thread
            self.thread = threading.get_native_id()
        self.kick()  # an earlier shift may have taken a kick
        while not self._done(shift):
            try:  # not `_guarded`, whose arguments would be made outside of it
                self._turn(shift)
            except Exception as error:  # noqa: BLE001 - it is reported
                sync.report(error)

    def _turn(self, shift: int) -> None:
        sync.readable(self.port.fd, None)
        while self._unawaited:
            self._unawaited.popleft().abandon(self)
        self._guarded(self.port.drain)
        if self._on_wake is not None:
            step = CleanUp(self._on_wake)  # a call too, so that the thread can be relieved of it
            step.abandon(self)
            with self._changed:
                begins = self._begin(step, shift)
            if begins:
                self._do(step, shift)
        self._run_calls(shift)

    @staticmethod
    def _guarded(step: Callable[[], object]) -> None:
        """Runs a step and reports its exception, for instance a warning that became an error. The thread continues."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - it is reported
            sync.report(error)

    def _run_calls(self, shift: int) -> None:
        while (call := self._next(shift)) is not None:
            self._do(call, shift)

    def _do(self, call: InternalCall[Any], shift: int) -> None:
        self._guarded(call.run)
        with self._changed:
            if shift == self._shift:
                self._current = None
            else:
                self._relieved.remove(call)

    def _next(self, shift: int) -> InternalCall[Any] | None:
        with self._changed:
            return self._calls.popleft() if self._calls and self._begin(self._calls[0], shift) else None

    def _begin(self, call: InternalCall[Any], shift: int) -> bool:
        """Makes a call the current one. Returns False if the thread was relieved. Call it with the lock held."""
        if shift != self._shift:
            return False
        self._began = sync.monotonic()
        self._current = call
        return True

    def _done(self, shift: int) -> bool:
        with self._changed:
            if shift != self._shift:
                return True
            if not self._stopping or self._calls:
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
    """Awaits an internal call on a worker thread. If the await ends first, `discard` gets the result of the call."""
    return await _outcome_on(worker, InternalCall(work, discard), deadline)


async def clean_up_on(worker: WorkerThread, work: Callable[[], object]) -> None:
    """Awaits a clean-up on a worker thread. The clean-up runs even if no task waits for it any more.

    If the device is closed, no reset ends the wait, so the wait is limited to ENDED_SECONDS.
    """
    deadline = None if worker.running else sync.monotonic() + ENDED_SECONDS
    try:
        await _outcome_on(worker, CleanUp(work), deadline)
    except DeviceTimeout:
        if deadline is None or sync.monotonic() < deadline:  # the caller's own timeout
            raise
        sentence = f"a clean-up after the close of its device has not returned within {ENDED_SECONDS} s"
        logs.warning(f"{sentence}; it continues", duration=ENDED_SECONDS)
        warnings.warn(f"{sentence}; it continues", AclWarning, stacklevel=2)


async def _outcome_on(worker: WorkerThread, call: InternalCall[T], deadline: float | None) -> T:
    port = current_port()

    def start(_: CData, key: int) -> int:
        port.take_token(key)
        call.tell(port, key)
        worker.entrust(call)
        return 0

    try:
        if isinstance(port, ThreadPort):
            port.locks.append(call._changed)
        result = await port.wait(start, deadline=deadline)
    except GeneratorExit:
        worker.leave_unawaited(call)
        raise
    except BaseException:
        call.abandon(worker)
        raise
    if result == TIMED_OUT:
        call.abandon(worker)
        raise DeviceTimeout(
            "the work on the device's maintenance thread was not done in time",
            hint=worker.hint(),
        )
    return call.outcome()
