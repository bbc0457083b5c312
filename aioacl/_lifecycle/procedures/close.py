"""The last close of a device, which releases what the first open acquired."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import TYPE_CHECKING

from aioacl._base.errors import AclWarning
from aioacl._base.ffi import failure, lib
from aioacl._base.states import RELEASED_ALREADY, State, Trigger
from aioacl._library import runtime
from aioacl._lifecycle.procedures import limits
from aioacl._lifecycle.procedures.procedure import Procedure, named
from aioacl._wait.workers import WorkerStuck

if TYPE_CHECKING:
    from aioacl._lifecycle.procedures.procedure import Host


class CloseProcedure(Procedure):
    """The last close of a device: one aclrtResetDevice."""

    name = "close"
    goes_on = "The close continues. A later close() or open_device() waits for it."
    closed_after = (State.OPEN,)  # after a failed close, the next open starts another close

    def __init__(self, host: Host, *, hopeless: bool = False) -> None:
        super().__init__(host)
        self._hopeless = hopeless  # a reset has already waited for the calls that are stuck

    def run(self) -> None:
        admission = self.admission
        self.host.jobs.end_executor()
        patience = limits.HOPELESS_SECONDS if self._hopeless else limits.CLOSE_SECONDS
        stopped = self.host.maintenance.stop(patience)
        if not self._hopeless:
            self._empty_cache(patience)
            self._ask_streams(patience)
        with admission.changed:
            admission.revoke_leases()  # otherwise they would delay resets after the next open
            admission.apply(Trigger.SEIZE)
        self.host.models.choose()
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
        if any(self.host.cache.counts):
            with suppress(WorkerStuck):
                self.host.control.call(self.host.cache.empty, seconds)

    def _end_models(self, seconds: float) -> None:
        """Unloads the idle models. If another library has set the device too, aclrtResetDevice does not do so."""
        models = self.host.models
        if models.ids:
            healthy = not self._hopeless and self.host.failures.last_fault is None
            with suppress(WorkerStuck):
                self.host.control.call(lambda: models.end_all(healthy=healthy), seconds)

    def _ask_streams(self, seconds: float) -> None:
        """Finds out which streams are done and which have failed, while the gate still admits queries.

        If a query hangs, the barrier finds it.
        """
        with suppress(WorkerStuck):
            self.host.control.call(self._ask, seconds)

    def _ask(self) -> None:
        lib.aio_device_busy(self.index)
        self.host.failures.collect()

    def _unfinished(self) -> int:
        """The number of streams whose work the reset has to drop."""
        dropped = self.host.counts.ended_generation == self.admission.generation
        return 0 if dropped else lib.aio_device_unfinished(self.index)

    def _give_up(self) -> None:
        stuck = self._stuck()
        problem = f"stays set: {named(stuck)} did not return in time"
        self._quarantine(f"it {problem}", stuck)
        advice = "open it again after the call has returned, then close it"
        warnings.warn(f"device {self.index} {problem}; {advice}", AclWarning, stacklevel=2)

    def _reset_all(self) -> int:
        """Calls aclrtResetDevice once for each set by aioacl.

        These are the set of this open, and the sets that remain after failed closes.
        """
        code = 0
        while code == 0:
            code = self._reset_plain()
        return code

    def _release(self) -> None:
        """Resets the device and stops its threads. Each step that calls ACL has a time limit.

        A step that takes longer continues, and the next close waits for it.
        """
        limit = limits.RESET_SECONDS + limits.DROP_SECONDS * self._unfinished()
        try:
            self.host.control.call(self._destroy_events, limits.EVENTS_SECONDS)
            code = self.host.control.call(self._reset_all, limit)
            lib.aio_device_stop(self.index)
            self.host.failures.collect_known()  # the reset wakes the runtime, which reports pending failures
            self._apply(Trigger.RELEASE)
            lib.aio_device_flush(self.index)
            self._let_go()
        except WorkerStuck:
            self._give_up()
            return
        if code not in (0, RELEASED_ALREADY):
            warnings.warn(
                f"aclrtResetDevice returned {code} when device {self.index} was closed",
                AclWarning,
                stacklevel=2,
            )
        self.host.failures.warn_at_close()

    def _let_go(self) -> None:
        control = self.host.control
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
        try:
            self.host.maintenance.end_watches(failure(lib.AIO_WAS_RESET))
            self.host.clean_up()
        finally:
            runtime.release(self.host)
