"""A slot that a call has taken: its job, the wait for its work, and when the slot can be given back.

One wait covers the job and the work on the device: the job itself begins the engine's wait for the last position, on
the port of the caller. So the caller is woken once, when the results are there.

A call that ends early, because it was cancelled or has failed, does not stop its job, nor the work on the device. The
slot is given back when both have ended, so late writes go to the memory of the slot only.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from aioacl._base.errors import DeviceFault, DeviceResetting, DeviceTimeout
from aioacl._base.ffi import failure, lib
from aioacl._handles.in_flight import leave_until_reset
from aioacl._models.executing import EXECUTE, begin
from aioacl._wait.current import current_port
from aioacl._wait.port import TIMED_OUT

if TYPE_CHECKING:
    from concurrent.futures import Future

    from aioacl._base.ffi import CData
    from aioacl._handles.event import Ticket
    from aioacl._lifecycle.manager import Manager
    from aioacl._models.arguments import Call
    from aioacl._models.loading import Load
    from aioacl._models.slots import Slot
    from aioacl._wait.job_future import JobFuture
    from aioacl._wait.port import Port

FAILED_HINT = "Call the model again. aioacl renews the stream of the slot."
TIMED_OUT_HINT = (
    "The call continues on the device, and its slot is free again when it ends. Its result is dropped."
)


class Lent:
    """The slot of one call.

    Attributes:
        done: whether all work of the call is known to be done.
    """

    def __init__(self, load: Load, slot: Slot, call: Call) -> None:
        self._load = load
        self._slot = slot
        self._taken = [slot]
        self._call = call
        self._manager: Manager = load.manager
        self._job: JobFuture[None] | None = None
        self._ticket: Ticket | None = None
        self._error: BaseException | None = None
        self._began = False
        self.done = False
        port = current_port()
        port.if_closed[self] = self.leave
        self._port = weakref.ref(port)  # not a reference, because the waits of the port refer to this object

    async def run(self, deadline: float | None) -> bool:
        """Runs the call, and waits for its work. Returns False if a reset or a close came before the call began."""
        port = current_port()

        def start(_: CData, key: int) -> int:
            port.take_token(key)
            try:
                self._job = self._slot.instance.executor._queue(partial(self._enqueue, port, key))
            except RuntimeError as error:
                # If the executor has ended, the model or the device was closed, and the call then finds out which.
                if not self._slot.instance.executor.ended:  # no thread could be started
                    self._error = error
                port.post(key)
            else:
                self._job.add_done_callback(lambda job: self._dropped(job, port, key))
            return 0

        result = await port.wait(start, deadline=deadline, after=self._release)
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # the traceback refers to the frame, and the frame to this object
        if result == TIMED_OUT:
            raise DeviceTimeout(
                "the call of the model was not done in time", device=self._manager.index, hint=TIMED_OUT_HINT
            )
        if self._ticket is None:
            return False
        if result < 0:
            raise self._failure(self._ticket, result)
        self.done = True
        return True

    def _failure(self, ticket: Ticket, result: int) -> Exception:
        error = ticket._core.failure(result, ticket.position, ticket._call)
        if isinstance(error, DeviceResetting):  # the wait began in the reset, but the call began before it
            return self._manager.admission.was_ended(self._load.generation, EXECUTE)
        if isinstance(error, DeviceFault) and error.action == "new_stream":
            error.hint = FAILED_HINT
        return error

    def _enqueue(self, port: Port, key: int) -> None:
        """The job of the call."""
        self._began = True
        try:
            self._ticket = ticket = begin(self._load, self._slot, self._call)
        except BaseException as error:  # noqa: BLE001 - the call raises it
            self._error = error
            ticket = None
        code = 0 if ticket is None else lib.aio_watch(ticket._core.handle, ticket.position, port.handle, key)
        if ticket is None or code:
            port.post(key, failure(code) if code else 0)

    def _dropped(self, job: Future[None], port: Port, key: int) -> None:
        """Ends the wait for a job that could not begin: the device is quarantined, or was closed."""
        if not self._began:
            closed = self._manager.admission.closed()
            self._error = closed if job.cancelled() else job.exception() or closed
            port.post(key)

    def _release(self) -> None:
        self._slot.stream._core.release_done()

    def give(self) -> None:
        """Gives the slot back, now or when its work is done. May be called twice."""
        self._forget_loop()
        if self.done or self._job is None or self._job.cancel():
            self._give()
        else:
            self._job.add_done_callback(lambda _: self._leave())

    def _forget_loop(self) -> None:
        port = self._port()
        if port is not None:
            port.if_closed.pop(self, None)

    def leave(self) -> None:
        """Leaves `give` to the maintenance thread. For finalizers, and when the loop is closed: takes no lock."""
        self._forget_loop()
        self._manager.deferred.leave_note(self.give)

    def _leave(self) -> None:
        """Leaves the rest to the maintenance thread. After the last close there is none, but the work has ended."""
        self._manager.deferred.leave_note(self._reclaim)
        if self._load.stale and not self._manager.maintenance.running:
            self._reclaim()

    def _reclaim(self) -> None:
        """Gives the slot back when the device is done with its stream. Runs on the maintenance thread."""
        if self._is_over():
            self._give()
            return
        handle = self._slot.stream._core.handle
        if self._manager.maintenance.watch(handle, lib.aio_stream_tail(handle), self._ended):
            leave_until_reset(self._manager, self._give)

    def _ended(self, _: int) -> None:
        """Runs on the maintenance thread. If the wait has failed, the work may run until the next reset."""
        if self._is_over():
            self._give()
        else:
            leave_until_reset(self._manager, self._give)

    def _give(self) -> None:
        """Gives the slot back. A second call does nothing."""
        with suppress(IndexError):
            self._load.slots.give(self._taken.pop())

    def _is_over(self) -> bool:
        core = self._slot.stream._core
        return bool(core.passed(lib.aio_stream_tail(core.handle)))
