"""The last close of a device, which releases what the first open acquired."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aioacl._base import logs, sync
from aioacl._base.errors import AclWarning
from aioacl._base.ffi import failure, ffi, lib
from aioacl._base.states import RELEASED_ALREADY, State, Trigger
from aioacl._library import runtime
from aioacl._lifecycle.procedures import limits
from aioacl._lifecycle.procedures.procedure import Procedure, named
from aioacl._wait.workers import WorkerStuck

if TYPE_CHECKING:
    from aioacl._base.records import Stuck
    from aioacl._lifecycle.manager import Manager


NO_FAILURE: Final = (0, RELEASED_ALREADY)


class CloseProcedure(Procedure):
    """The last close of a device: one aclrtResetDevice."""

    name = "close"
    goes_on = "The close continues. A later close() or open_device() waits for it."
    closed_after = (State.OPEN,)  # after a failed close, the next open starts another close

    def __init__(self, manager: Manager, *, hopeless: bool = False) -> None:
        super().__init__(manager)
        self._end_call = ""  # the newest call of the control thread
        self._hopeless = hopeless  # a reset has already waited for the calls that are stuck

    def run(self) -> None:
        admission = self.admission
        self.manager.jobs.end_executor()
        patience = limits.HOPELESS_SECONDS if self._hopeless else limits.CLOSE_SECONDS
        stopped = self.manager.maintenance.stop(patience)
        if not self._hopeless:
            self._empty_cache(patience)
            self._ask_streams(patience)
        with admission.changed:
            admission.revoke_leases()  # otherwise they would delay resets after the next open
            admission.apply(Trigger.SEIZE)
        self.manager.models.choose()
        lib.aio_watcher_wake(self.index)
        empty = self._barrier_is_clear(patience)
        if not (stopped and empty):
            self._give_up()
            return
        self._end_models(patience)  # not earlier: a thread could be inside aclmdlExecuteAsync
        self._release()

    def _empty_cache(self, seconds: float) -> None:
        """Frees what is cached. If another library has set the device too, aclrtResetDevice frees nothing.

        The maintenance thread has stopped, so no handle gives anything to the cache any more.
        """
        if any(self.manager.cache.counts):
            with suppress(WorkerStuck):
                self.manager.control.call(self.manager.cache.empty, seconds)

    def _end_models(self, seconds: float) -> None:
        """Unloads the idle models. If another library has set the device too, aclrtResetDevice does not do so."""
        models = self.manager.models
        if models.ids:
            healthy = not self._hopeless and self.manager.failures.last_fault is None
            with suppress(WorkerStuck):
                self.manager.control.call(lambda: models.end_all(healthy=healthy), seconds)

    def _ask_streams(self, seconds: float) -> None:
        """Finds out which streams are done and which have failed, while the gate still admits queries.

        If a query hangs, the barrier finds it.
        """
        with suppress(WorkerStuck):
            self.manager.control.call(self._ask, seconds)

    def _ask(self) -> None:
        lib.aio_device_busy(self.index)
        self.manager.failures.collect()

    def _unfinished(self) -> int:
        """The number of streams with unfinished work, unless an earlier reset has dropped that work."""
        dropped = self.manager.counts.ended_generation == self.admission.generation
        return 0 if dropped else lib.aio_device_unfinished(self.index)

    def _give_up(self) -> None:
        stuck = self._stuck()
        self._stay_set(f"{named(stuck)} did not return in time", stuck, "the call has returned")

    def _stay_set(self, why: str, stuck: tuple[Stuck, ...], until: str) -> None:
        self._quarantine(f"it stays set: {why}", stuck)
        advice = f"open it again after {until}, then close it"
        sentence = f"device {self.index} stays set: {why}; {advice}"
        logs.warning(sentence, device=self.index)
        warnings.warn(sentence, AclWarning, stacklevel=2)

    def _reset_all(self) -> int:
        """Destroys the context of aioacl's own, and calls aclrtResetDevice once for each set by aioacl.

        These are the set of this open, and the sets that failed closes and failed resets have left. With `keep`, one
        set remains, unless one of an earlier close still stands. What failed resets owe is made again first.
        """
        counts, own = self.manager.counts, self.manager.own_context
        self._end_call = "aclrtDestroyContext"
        code = own.end() if own.wanted else RELEASED_ALREADY
        if code in NO_FAILURE:
            self._end_call = "aclrtSetDevice"
            code = self._restore_sets()
        if code in NO_FAILURE:
            self._end_call = "aclrtResetDevice"
            kept = int(self.manager.policy.keep and not own.wanted and not counts.has_left_set)
            while code == 0 and counts.own_sets + counts.added > kept:
                code = self._reset_plain()
            if kept and code == 0:
                counts.leave_set()
        return code or RELEASED_ALREADY

    def _keep_device(self) -> None:
        """Keeps the runtime from releasing the device before `_free_memory`.

        Buffers that are not closed have memory. If other code uses the device, the runtime never frees this memory. It
        can be freed only when the work that uses it is done or dropped, and only while the device is not released.
        After a failure of the device, the next open frees it, if the device was not released meanwhile.
        """
        healthy = not self._hopeless and self.manager.failures.last_fault is None
        if self.manager.blocks.any and healthy:
            self.manager.own_context.keep_device()

    def _free_memory(self) -> None:
        own = self.manager.own_context
        if own.keeps_device:
            self._free_kept()
            own.let_device_go()
        elif not runtime.is_told_of_resets():
            self.manager.blocks.forget()  # the next open could not know whether the memory still exists

    def _release(self) -> None:
        """Resets the device and stops its threads. Each step that calls ACL has a time limit.

        A step that takes longer continues, and the next close waits for it.
        """
        limit = limits.RESET_SECONDS + limits.DROP_SECONDS * self._unfinished()
        try:
            self.manager.control.call(self._destroy_events, limits.EVENTS_SECONDS)
            self.manager.control.call(self._keep_device, limits.RESET_SECONDS)
            before = lib.aio_device_teardowns(self.index)
            code = self.manager.control.call(self._reset_all, limit)
            torn = self.manager.own_context.wanted or lib.aio_device_teardowns(self.index) != before
            if not self._work_is_gone(code, torn=torn):
                self.manager.control.call(self.manager.own_context.let_device_go, limits.RESET_SECONDS)
                self._stay_set(f"{self._why_set(code)}, and work still runs", (), "the work has ended")
                return
            self.manager.control.call(self._free_memory, limits.RESET_SECONDS)
            lib.aio_device_stop(self.index)
            self.manager.failures.collect_known()  # the reset wakes the runtime, which reports pending failures
            self._apply(Trigger.RELEASE)
            lib.aio_device_flush(self.index)
            self._wait_for_slots()
            self._let_go()
        except WorkerStuck:
            self._give_up()
            return
        if code not in NO_FAILURE:
            sentence = f"{self._end_call} returned {code} when device {self.index} was closed"
            logs.warning(sentence, device=self.index, code=code, call=self._end_call)
            warnings.warn(sentence, AclWarning, stacklevel=2)
        self.manager.failures.warn_at_close()

    def _why_set(self, code: int) -> str:
        if code not in NO_FAILURE:
            return f"{self._end_call} returned {code}"
        kept = self.manager.policy.keep and not self.manager.own_context.wanted
        return "it was opened with keep=True or without resets" if kept else "other code has set it too"

    def _work_is_gone(self, code: int, *, torn: bool) -> bool:
        """Whether no work can use memory any more. If the reset has torn nothing down, aborts the unfinished work.

        If other code has set the device too, aclrtResetDevice tears nothing down. After a tear-down that failed the
        streams may be destroyed, so they are not aborted.
        """
        presumed = torn or not runtime.is_told_of_resets()
        if not self._unfinished() or (code in NO_FAILURE and presumed):
            return True
        if torn:  # pragma: no cover - the simulator has no reset that fails after its tear-down
            return False
        outcome = ffi.new("int32_t[3]")
        lib.aio_device_abort(self.index, int(limits.ABORT_SECONDS * 1e6), outcome)
        return bool(outcome[1] + outcome[2] == 0)

    def _wait_for_slots(self) -> None:
        """Waits for the slots of closed models. Their threads give them back now, and `_let_go` frees their memory."""
        end, changed = sync.monotonic() + limits.SLOTS_SECONDS, self.admission.changed
        while self.manager.models.are_ending and sync.monotonic() < end:
            with changed:
                changed.wait(limits.SHORTEST_NAP)

    def _let_go(self) -> None:
        control = self.manager.control
        try:
            control.call(self._give_back, limits.CLOSE_SECONDS)
        except WorkerStuck:
            raise
        except BaseException:  # a clean-up may raise, for example if warnings are errors
            control.stop(limits.CLOSE_SECONDS)
            raise
        control.stop(limits.CLOSE_SECONDS)

    def _give_back(self) -> None:
        """On the control thread: frees staging memory, does the deferred work, and ends the device's use of ACL."""
        lib.aio_control_thread(self.index)
        lib.aio_stage_close(self.index)
        self.manager.own_context.choose(own=False)  # resets by other code count as foreign again
        try:
            self.manager.maintenance.end_watches(failure(lib.AIO_WAS_RESET))
            self.manager.clean_up()
        finally:
            runtime.release(self.manager)
