"""A slot that a call has taken: its job, and when the slot can be given back.

A call that ends early, because it was cancelled or has failed, does not stop its job, nor the work on the device. The
slot is given back when both have ended, so late writes go to the memory of the slot only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioacl._base.errors import DeviceTimeout
from aioacl._base.ffi import lib
from aioacl._handles.in_flight import leave_until_reset

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._handles.event import Ticket
    from aioacl._lifecycle.manager import Manager
    from aioacl._models.loading import Load
    from aioacl._models.slots import Slot
    from aioacl._wait.job_future import JobFuture


class Lent:
    """The slot of one call.

    Attributes:
        done: whether all work of the call is known to be done.
    """

    def __init__(self, load: Load, slot: Slot, manager: Manager) -> None:
        self._load = load
        self._slot = slot
        self._manager = manager
        self._job: JobFuture[Ticket | None] | None = None
        self.done = False

    async def run(self, work: Callable[[], Ticket | None], deadline: float | None) -> Ticket | None:
        """Runs the job of the call on the thread of its instance, and returns its result.

        Raises:
            DeviceTimeout: the job has not ended before the deadline.
            ParameterError: the device was closed before the job began.
        """
        executor = self._slot.instance.executor
        try:
            self._job = executor.submit(work)
        except RuntimeError:
            if executor.ended:
                raise self._manager.admission.closed() from None
            raise
        if not await self._job.ended(deadline):
            raise DeviceTimeout(
                "the call of the model had not begun in time, because an earlier one was running",
                device=self._manager.index,
                hint="Pass a longer timeout, or load the model with more instances.",
            )
        return self._manager.jobs.outcome(self._job)

    def give(self) -> None:
        """Gives the slot back, now or when its work is done."""
        if self.done or self._job is None or self._job.cancel():
            self._load.slots.give(self._slot)
        else:
            self._job.add_done_callback(lambda _: self._manager.deferred.leave_note(self._reclaim))

    def _reclaim(self) -> None:
        """Gives the slot back when the device is done with its stream. Runs on the maintenance thread."""
        if self._is_over():
            self._load.slots.give(self._slot)
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
        self._load.slots.give(self._slot)

    def _is_over(self) -> bool:
        core = self._slot.stream._core
        return bool(core.passed(lib.aio_stream_tail(core.handle)))
