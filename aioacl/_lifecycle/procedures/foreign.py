"""What follows a reset by other code of the process: the device is set again."""

from __future__ import annotations

from aioacl._base.errors import AclError
from aioacl._base.ffi import lib
from aioacl._base.states import Trigger
from aioacl._lifecycle.procedures import limits
from aioacl._lifecycle.procedures.procedure import Procedure
from aioacl._wait.workers import Job, WorkerStuck


class ForeignProcedure(Procedure):
    """Somebody else has reset the device: set it again for ourselves."""

    name = "foreign"

    def run(self) -> None:
        lib.aio_device_flush(self.index)
        # Our set gives the primary context its life back, at the same address: a call from before the reset that is
        # still inside would make something that nobody owns. Who does not leave in time is not waited for.
        self._all_leave_within(limits.CLOSE_SECONDS, limits.HOPELESS_SECONDS)
        try:
            self.host.control.call(self._checked_set, limits.RESET_SECONDS)
        except (WorkerStuck, AclError) as error:
            why = str(error) or f"{self._holds_up() or 'aclrtSetDevice'} has not returned within its time"
            with self.admission.changed:
                problem = f"it could not be set again after a foreign reset: {why}"
                self.admission.apply(Trigger.FAIL, problem=problem)
            return
        with self.admission.changed:
            self.host.failures.last_fault = None  # of the generation before
            self.admission.apply(Trigger.RETAKE)
            self._settle_foreign()
        lib.aio_device_flush(self.index)
        self.host.maintenance.submit(Job(self._prepare))
