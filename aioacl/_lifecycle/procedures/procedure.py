"""The base of the procedures. A procedure runs once, on a thread of its own.

Several callers may wait for one procedure. If a procedure fails, the device is quarantined, so the gate never stays
between two states.
"""

from __future__ import annotations

import copy
from traceback import clear_frames
from typing import TYPE_CHECKING, Any, Final

from aioacl._base import flight, states, sync, totals
from aioacl._base.ffi import ffi, lib
from aioacl._base.records import ResetReport
from aioacl._base.states import RELEASED_ALREADY, State, Trigger
from aioacl._library import runtime
from aioacl._library.plog import log_of
from aioacl._lifecycle.gate import error_of, inside, is_set
from aioacl._lifecycle.procedures import limits

if TYPE_CHECKING:
    from aioacl._base.records import Stuck
    from aioacl._lifecycle.manager import Manager

_ENQUEUE = 1 << lib.AIO_ENQUEUE
_WAIT = 1 << lib.AIO_WAIT
_LIFETIME = 1 << lib.AIO_LIFETIME
EVERY_KIND: Final = _ENQUEUE | _WAIT | _LIFETIME


def named(stuck: tuple[Stuck, ...]) -> str:
    """The calls, for a sentence. If there is none, an internal call has not returned."""
    names = ", ".join(f"{call.function} on thread {call.thread}" for call in stuck)
    return names or "an internal call of aioacl"


class Procedure:
    """An operation on a device that runs once, on a thread of its own. Several callers may await it."""

    name = "procedure"
    goes_on = "The operation continues."  # the hint for a caller whose timeout ends first
    manual = False  # True if it belongs to no open, and only changes ACL's counts of the device
    # The states from which a device without users is closed when the procedure ends.
    closed_after: tuple[State, ...] = (State.OPEN, State.QUARANTINED)

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.admission = manager.admission
        self.index = manager.index
        self.done = False
        self.error: BaseException | None = None
        self._began = sync.monotonic()
        self._uncounted = False  # whether other code had made more sets than a reset counts

    def execute(self) -> None:
        """The body of the thread. Does nothing if the procedure is not the current one of its device any more.

        Otherwise it runs the procedure, and then wakes every caller, even if the procedure has failed.
        """
        with self.admission.changed:
            if self.manager.procedure is not self:
                return
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - it is raised in the callers that await the procedure
            clear_frames(error.__traceback__)  # their variables refer to this object
            self.error = error
            with self.admission.changed:
                self.manager.break_off(f"its {self.name} procedure failed: {error!r}")
            lib.aio_device_flush(self.index)
        admission = self.admission
        with admission.changed:
            self.done = True
            self.manager.procedure = None
            admission.announce()
            self.manager.meet_foreign()
            self.manager.close_if_unused(*self.closed_after)
            self.manager.stuck_calls.wake()  # for the supervisor
        del self  # the traceback of the error keeps the variables of this frame

    def run(self) -> None:
        """Runs the steps of the procedure."""
        raise NotImplementedError

    async def wait(self, deadline: float | None) -> None:
        """Returns when the procedure has ended. Raises the error that ended it, or DeviceTimeout after the deadline."""
        admission = self.admission
        while True:
            with admission.changed:
                seen, done = admission.version, self.done
            if done:
                break
            await admission.change(seen, deadline, self.goes_on)
        self.raise_error()

    def raise_error(self) -> None:
        """Raises the error that ended the procedure, if there was one."""
        if self.error is not None:
            # Each caller gets a copy, because an error collects the traceback of each thread that raises it.
            error = copy.copy(self.error).with_traceback(self.error.__traceback__)
            if (cause := self.error.__cause__) is not None:
                error.__cause__ = cause
            try:
                raise error  # without `from`, which would hide the error of a block that the close ends
            finally:
                del error  # its traceback refers to this frame

    # --- on the control thread ------------------------------------------------------------------------------------
    # A call is counted on that thread when it returns, because the procedure may have stopped waiting for it by then.

    @property
    def _set_call(self) -> str:
        return "aclrtCreateContext" if self.manager.own_context.wanted else "aclrtSetDevice"

    def _set(self) -> int:
        """Makes the context that aioacl uses, and frees the memory that the end of the last one has left.

        The context is one of aioacl's own, or the primary context.
        """
        lib.aio_control_thread(self.index)
        code = self._restore_sets()
        if code == 0:
            own = self.manager.own_context
            code = own.make() if own.wanted else self._set_device()
        if code == 0:
            self._free_kept()
        return code

    def _free_kept(self) -> int:
        return self.manager.blocks.free_kept(lib.aio_device_foreign(self.index))

    def _set_device(self) -> int:
        """Sets the device, and repeats the call if a foreign reset came before the call returned.

        Stops after `limits.SETS_TRIED` sets. A foreign reset that is left over is handled later.
        """
        made: Any = ffi.new("aio_counted *")
        code = 0
        for _ in range(limits.SETS_TRIED):
            lib.aio_count_set(self.index, made)
            code = made.code
            if code == 0:
                self.manager.counts.note_set(made.foreign_resets)
                code = self._adopt_context()
            if lib.aio_device_foreign(self.index) == made.foreign_resets:
                break
        return code

    def _adopt_context(self) -> int:
        """Stores the device's context for the gate. If the context cannot be read, the set is undone."""
        context = ffi.new("aclrtContext *")
        code = lib.aio_u_aclrtGetCurrentContext(context)
        if code == 0:
            lib.aio_set_context(self.index, context[0])
        else:
            self._reset_plain()
        return code

    def _settle_foreign(self) -> None:
        """Marks the foreign resets before the newest set as handled, but no later ones. Called with the lock held."""
        lib.aio_foreign_settle(self.index, self.manager.counts.foreign_resets_seen)

    def _checked_set(self) -> None:
        code = self._set()
        if code:
            raise error_of(code, self._set_call, self.index, self.admission.generation)

    def _reset_plain(self) -> int:
        """Undoes one set, unless a foreign reset has ended it: the sets that exist then may belong to other code."""
        with self.admission.changed:
            self.manager.counts.standing()
            if not self.manager.counts.own_sets + self.manager.counts.added:
                return RELEASED_ALREADY
        lib.aio_control_thread(self.index)
        code = lib.aio_u_aclrtResetDevice(self.index)
        self.manager.counts.note_reset(code, states.reset_device)
        return code

    def _undo_set(self) -> int:
        """Undoes one `_set`."""
        return self.manager.own_context.end() if self.manager.own_context.wanted else self._reset_plain()

    def _reset_force(self, *, faulty: bool = False) -> int:
        """Resets the device. If other code has perhaps set it too, counts these sets, for `_restore_sets`.

        A faulty device gets aclrtResetDeviceForce in any case.
        """
        lib.aio_control_thread(self.index)
        counts = self.manager.counts
        counts.catch_up()
        counts.note_left_set()
        code = 0
        if self.manager.own_context.wanted and is_set(self.index) is False:
            code = lib.aio_u_aclrtSetDevice(self.index)  # a device that is not set cannot be reset
            counts.added += code == 0
        if code == 0 and counts.are_shared and is_set(self.index):
            code = self._reset_counted_by_force() if faulty else self._reset_counted()
        elif code == 0:
            known = counts.reported if is_set(self.index) is None else 0
            code = lib.aio_u_aclrtResetDeviceForce(self.index)
            if code == 0:
                counts.note_all_undone(known)
        counts.note_reset(code, states.reset_device_force)
        if code in (0, RELEASED_ALREADY) and not runtime.is_told_of_resets():
            self.manager.blocks.forget()  # whether the runtime has released the device is not known
        return code

    def _reset_counted(self) -> int:
        """Undoes all sets one by one, because no function returns their number. The last of these resets the device."""
        counts = self.manager.counts
        limit, code = limits.COUNTED_SETS + counts.of_aioacl, 0
        while code == 0 and counts.owed < limit and is_set(self.index):
            code = lib.aio_u_aclrtResetDevice(self.index)
            counts.owed += code == 0
        if code == 0 and is_set(self.index):
            self._uncounted = True
            code = lib.aio_u_aclrtResetDeviceForce(self.index)
        if code in (0, RELEASED_ALREADY):
            counts.note_all_undone()
            return 0
        return code

    def _reset_counted_by_force(self) -> int:
        """Counts the sets, then sets the device once more and resets it by force."""
        counts = self.manager.counts
        if lib.aio_u_aclrtSetDevice(self.index):
            return self._reset_lost()
        counts.added += 1
        code = self._reset_counted()
        if code:
            return code
        code = lib.aio_u_aclrtSetDevice(self.index) or lib.aio_u_aclrtResetDeviceForce(self.index)
        counts.added = int(code != 0 and bool(is_set(self.index)))
        return code

    def _reset_lost(self) -> int:
        """Counts the sets of a device that cannot be set, and resets it by force.

        Only the reset of the last set reaches the device. If this reset fails, one set is left for the force reset.
        """
        counts = self.manager.counts
        reported, code = counts.reported, self._reset_counted()
        if code == 0:
            return 0
        code = lib.aio_u_aclrtResetDeviceForce(self.index)
        if code == 0:
            counts.owed += 1
            counts.note_all_undone(reported)
            self._uncounted = self._uncounted or counts.owed > limits.COUNTED_SETS
            counts.owed = min(counts.owed, limits.COUNTED_SETS)
        return code

    def _restore_sets(self) -> int:
        """Makes the sets again that a reset has undone. They do not count as sets of aioacl."""
        counts = self.manager.counts
        counts.catch_up()
        code = 0
        while counts.owed > counts.left and code == 0:
            code = lib.aio_set_for_other_code(self.index)
            counts.owed -= code == 0
        if counts.owed and code == 0:
            code = lib.aio_u_aclrtSetDevice(self.index)
            if code == 0:
                counts.note_left_set_again()
        return code

    def _destroy_events(self) -> int:
        """Destroys the native events. A reset does not free them, and aioacl cannot destroy them after a reset.

        First ends waits for the device that the reset would wait for. After a fault, no stream can be made for this.
        """
        if self.manager.counts.ended_generation != self.admission.generation:
            if self.manager.failures.last_fault is None:
                lib.aio_device_pass_lock(self.index)
            lib.aio_device_destroy_events(self.index)
        return 0

    def _holds_up(self) -> str:
        """The ACL function that the control thread is inside. An earlier job may have made the call."""
        worker = self.manager.control.thread
        return next((call.function for call in inside(self.index) if call.thread == worker), "")

    def _acquire(self) -> None:
        lib.aio_control_thread(self.index)
        runtime.acquire(self.manager)

    def _stuck(self) -> tuple[Stuck, ...]:
        """The calls that are still inside. If there are none, calls on other devices that block this device in ACL.

        The gate is closed first. Calls that are about to return then get half a second to do so.
        """
        with self.admission.changed:
            if self.admission.state in (State.OPEN, State.DRAINING):
                self.admission.apply(Trigger.SEIZE)
        self._all_have_left(EVERY_KIND, limits.LEAVE_SECONDS)
        others = [user.index for user in runtime.busy() if isinstance(user, type(self.manager))]
        return inside(self.index) or tuple(call for other in others for call in inside(other))

    # --- shared steps ---------------------------------------------------------------------------------------------

    def _apply(self, event: Trigger) -> None:
        with self.admission.changed:
            self.admission.apply(event)

    def _count(self, cause: str, *, ok: bool) -> None:
        """Counts a reset for the metrics."""
        labels = self.index, "open" if ok else "quarantined", cause
        totals.count("resets_total", *labels)
        totals.observe("reset_duration_seconds", sync.monotonic() - self._began, *labels)

    def _quarantine(self, problem: str, stuck: tuple[Stuck, ...]) -> None:
        """Quarantines the device, because a call of an open or a close has not returned in time."""
        admission = self.admission
        with admission.changed:
            admission.apply(Trigger.FAIL, self._failed(problem, stuck), problem)
        lib.aio_device_flush(self.index)

    def _failed(self, problem: str, stuck: tuple[Stuck, ...]) -> ResetReport:
        spent = (sync.monotonic() - self._began) * 1000
        recent = flight.recent(self.index)
        return ResetReport(
            device=self.index,
            ok=False,
            generation=self.admission.generation,
            reason=self.name,
            stuck=stuck,
            stages={self.name: spent},
            problem=problem,
            recent=recent,
            cann_log=log_of(recent),
        )

    def _prepare(self) -> None:
        """On the maintenance thread: fills the pool of events and allocates the first staging memory."""
        self.manager.clean_up()
        lib.aio_device_refill(self.index, 0, limits.POOL_EVENTS)
        for large in (0, 1):
            if not lib.aio_stage_free_slots(self.index, 1 << 20 if large else 1):
                lib.aio_stage_grow(self.index, large)

    def _all_have_left(self, kinds: int, seconds: float) -> bool:
        """Waits until no call of these kinds is inside C. Returns False after `seconds`."""
        return sync.settled(lambda left: bool(lib.aio_gate_wait(self.index, kinds, int(left * 1e6))), seconds)

    def _barrier_is_clear(self, seconds: float) -> bool:
        """Waits until a reset would neither crash a call that is inside C nor be blocked by one.

        Returns False after `seconds`. A blocking wait may stay, but only once it is inside its ACL function. So all
        calls first get at most half of `seconds` to leave. After that, blocking waits may stay. With waits="watch" such
        a wait is one of an earlier open with waits="thread".
        """
        end = sync.monotonic() + seconds
        if self._all_have_left(EVERY_KIND, min(limits.LEAVE_SECONDS, seconds / 2)):
            return True
        return self._all_have_left(EVERY_KIND | lib.AIO_BLOCKED_MAY_STAY, max(0.0, end - sync.monotonic()))

    def _all_leave_within(self, seconds: float, if_close_waits: float) -> bool:
        """Waits until the barrier is clear. Returns False if it is not clear within `seconds`.

        While the last close waits, the time is at most `if_close_waits`.
        """
        began = sync.monotonic()
        while not self._barrier_is_clear(min(limits.LOOK_SECONDS, began + seconds - sync.monotonic())):
            if sync.monotonic() - began >= (min(if_close_waits, seconds) if self._close_waits() else seconds):
                return False
        return True

    def _close_waits(self) -> bool:
        """Returns True if the last close waits: the last user has closed the device."""
        return not self.admission.opens
