"""The procedure that follows a reset by other code of the process: it sets the device again."""

from __future__ import annotations

from aioacl._base.errors import AclError
from aioacl._base.ffi import lib
from aioacl._base.states import Trigger
from aioacl._lifecycle.procedures import limits
from aioacl._lifecycle.procedures.procedure import Procedure
from aioacl._wait.internal_call import InternalCall
from aioacl._wait.workers import WorkerStuck


class ForeignProcedure(Procedure):
    """Sets the device again after a foreign reset."""

    name = "foreign"

    def run(self) -> None:
        lib.aio_device_flush(self.index)
        self.manager.models.end_all(healthy=False)
        # The set makes the primary context valid again, at the same address. If a call entered before the reset and is
        # still inside, it could then create an object that no handle owns. The wait for such calls has a limit.
        self._all_leave_within(limits.CLOSE_SECONDS, limits.HOPELESS_SECONDS)
        self.manager.own_context.forget()  # other code has destroyed it
        try:
            self.manager.control.call(self._checked_set, limits.RESET_SECONDS)
        except (WorkerStuck, AclError) as error:
            why = str(error) or f"{self._holds_up() or self._set_call} did not return in time"
            with self.admission.changed:
                problem = f"it could not be set again after a foreign reset: {why}"
                self.admission.apply(Trigger.FAIL, problem=problem)
            self._count("foreign", ok=False)
            return
        with self.admission.changed:
            self.manager.failures.forget_faults()  # they belong to the previous generation
            self.admission.apply(Trigger.RETAKE)
            self._settle_foreign()
        self._count("foreign", ok=True)
        lib.aio_device_flush(self.index)
        self.manager.maintenance.submit(InternalCall(self._prepare))
