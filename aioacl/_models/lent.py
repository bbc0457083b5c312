"""The slot that a call takes: its job, the wait for its work, and when the slot can be given back.

One wait covers the job and the work on the device: the job itself begins the engine's wait for the last position, on
the port of the caller. So the caller is woken once, when the results are there.

A call that ends early, because it was cancelled or has failed, does not stop its job, nor the work on the device. The
slot is given back when both have ended, so late writes go to the memory of the slot only.

An exception of a signal handler may end the call between any two steps, also in `give`. Then the finalizer of the Lent
leaves `give` to the maintenance thread. So only the call and its job refer to the Lent before `give` is called.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING

from aioacl._base.errors import DeviceFault, DeviceResetting, DeviceTimeout
from aioacl._base.ffi import failure, lib
from aioacl._handles.in_flight import leave_note, leave_until_reset
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
NOT_BEGUN_HINT = "The call was not begun: try again, or pass a longer timeout."


def _leave(lent: weakref.ref[Lent]) -> None:
    """What a port does for a call if the loop is closed."""
    exists = lent()
    if exists is not None:
        exists.leave()


class Lent:
    """The slot of one call. It is made before the call gets the slot, so that the slot has an owner at each moment.

    Attributes:
        taken: the slot; empty before the call has got it, and after it was given back.
        key: the key of the wait for a slot; 0 if the call does not wait for one.
        port: a weak reference to the port of the call, because the waits of the port refer to the tasks of the calls.
        reference: a weak reference to this object.
        done: whether all work of the call is known to be done.
    """

    _over = True  # until `__init__` is done

    def __init__(self, load: Load, call: Call) -> None:
        self.taken: list[Slot] = []
        self.key = 0
        self.done = False
        self._load = load
        self._call = call
        self._manager: Manager = load.manager
        self._job: JobFuture[None] | None = None
        self._decided: dict[str, bool] = {}  # "begins": whether the job begins. The job or `give` decides it.
        self._given_up = self._ran = False
        self._ticket: Ticket | None = None
        self._error: BaseException | None = None
        port = current_port()
        self.port = weakref.ref(port)
        self.reference: weakref.ref[Lent] = weakref.ref(self)
        self._over = False  # whether `slots.give` has ended
        port.if_closed[self.reference] = partial(_leave, self.reference)

    def __del__(self) -> None:
        if not self._over and not lib.aio_forked():
            self.leave()

    async def run(self, deadline: float | None) -> bool:
        """Runs the call, and waits for its work. Returns False if a reset or a close came before the call began."""
        if not self.taken:
            return False
        port, slot = current_port(), self.taken[0]

        def start(_: CData, key: int) -> int:
            port.take_token(key)
            try:
                self._job = slot.instance.executor._queue(partial(self._begin, slot, port, key))
            except RuntimeError as error:
                # If the executor has ended, the model or the device was closed, and the call then finds out which.
                if not slot.instance.executor.ended:  # no thread could be started
                    self._error = error
                port.post(key)
            else:
                self._job.add_done_callback(lambda job: self._dropped(job, port, key))
            return 0

        result = await port.wait(start, deadline=deadline, after=partial(_release, slot))
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # the traceback refers to the frame, and the frame to this object
        if result == TIMED_OUT:
            begins = self._decided.setdefault("begins", False)
            raise DeviceTimeout(
                "the call of the model was not done in time",
                device=self._manager.index,
                hint=TIMED_OUT_HINT if begins else NOT_BEGUN_HINT,
                started=begins,
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

    def _begin(self, slot: Slot, port: Port, key: int) -> None:
        """The job of the call."""
        if not self._decided.setdefault("begins", True):
            return
        try:
            self._enqueue(slot, port, key)
        finally:
            self._ran = True
            if self._given_up and not self.done:
                self._leave()

    def _enqueue(self, slot: Slot, port: Port, key: int) -> None:
        try:
            self._ticket = ticket = begin(self._load, slot, self._call)
        except BaseException as error:  # noqa: BLE001 - the call raises it
            self._error = error
            ticket = None
        code = 0 if ticket is None else lib.aio_watch(ticket._core.handle, ticket.position, port.handle, key)
        if ticket is None or code:
            port.post(key, failure(code) if code else 0)

    def _dropped(self, job: Future[None], port: Port, key: int) -> None:
        """Ends the wait for a job that could not begin: the device is quarantined, or was closed."""
        if not self._decided.get("begins"):
            closed = self._manager.admission.closed()
            self._error = closed if job.cancelled() else job.exception() or closed
            port.post(key)

    def give(self) -> None:
        """Gives the slot back, now or when its work is done. May be called again."""
        self._forget_loop()
        self._given_up = True
        if self.done or not self._decided.setdefault("begins", False):
            self._give()
            if self._job is not None:
                self._job.cancel()
        elif self._ran:
            self._leave()

    def _forget_loop(self) -> None:
        port = self.port()
        if port is not None:
            port.if_closed.pop(self.reference, None)

    def leave(self) -> None:
        """Leaves `give` to the maintenance thread. For finalizers, and when the loop is closed: takes no lock."""
        self._manager.deferred.leave_note(self.give)
        self._forget_loop()  # last, so that the port calls this method again if an exception has ended it

    def _leave(self) -> None:
        """Leaves the rest to the maintenance thread. After the last close there is none, but the work has ended."""
        self._error = None  # no caller raises it; see `run`
        leave_note(self._manager, self._reclaim)

    def _reclaim(self) -> None:
        """Gives the slot back when the device is done with its stream. Runs on the maintenance thread."""
        if self._is_over():
            self._give()
            return
        handle = self.taken[0].stream._core.handle
        if self._manager.maintenance.watch(handle, lib.aio_stream_tail(handle), self._ended):
            leave_until_reset(self._manager, self._give, self._is_over)

    def _ended(self, _: int) -> None:
        """Runs on the maintenance thread. If the wait has failed, the work may run until the next reset."""
        if self._is_over():
            self._give()
        else:
            leave_until_reset(self._manager, self._give, self._is_over)

    def _give(self) -> None:
        """Gives the slot back. A second call changes nothing."""
        self._load.slots.give(self)
        self._over = True

    def _is_over(self) -> bool:
        """Whether no work of the call runs, because it is done, or because the slot was given back before."""
        cores = [slot.stream._core for slot in self.taken]
        return all(core.passed(lib.aio_stream_tail(core.handle)) for core in cores)


def _release(slot: Slot) -> None:
    slot.stream._core.release_done()
