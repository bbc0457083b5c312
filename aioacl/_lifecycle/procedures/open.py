"""The first open of a device: a procedure on a thread of its own.

Each step that calls ACL runs on one of the device's two threads and has a time limit. If a call does not return in
time, the device is quarantined, with a report. The thread continues when the call returns, and the next open releases
what the call acquired.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from aioacl._base.codes import DEVICE_ACTIONS, lookup
from aioacl._base.errors import DeviceFault
from aioacl._base.ffi import lib
from aioacl._base.states import RELEASED_ALREADY, Trigger
from aioacl._library import detection, runtime
from aioacl._lifecycle.gate import error_of, is_set
from aioacl._lifecycle.probe import probe
from aioacl._lifecycle.procedures import limits
from aioacl._lifecycle.procedures.procedure import Procedure, named
from aioacl._wait.workers import WorkerStuck

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._lifecycle.probe import Failure

CANNOT_BE_HEALED: Final = "ACL cannot reset a device that cannot be set, so heal=True does not help."
FORBIDDEN: Final = (
    "heal=True did not reset the device, because other code has perhaps set it, or because resets=False or "
    "AIOACL_RESETS=never forbids it."
)
NO_HELP: Final = "heal=True has reset the device, which did not help."


class OpenProcedure(Procedure):
    """The first open of a device."""

    name = "open"
    goes_on = (
        "The open continues. If no other open joins it, the device is closed again: pass a longer timeout=."
    )

    def run(self) -> None:
        try:
            self._start()
            self._open()
        except WorkerStuck:
            self._give_up()
        except BaseException:
            self._undo()
            raise

    def _start(self) -> None:
        admission = self.admission
        try:
            self.manager.control.start()
            self.manager.maintenance.start()
        except RuntimeError as error:
            raise error_of(lib.AIO_NO_THREAD, "pthread_create", self.index, admission.generation) from error
        self.manager.control.call(self._acquire, limits.OPEN_SECONDS)
        detection.warn_of_limit()
        self.manager.control.call(self._first_set, limits.OPEN_SECONDS)
        if self.manager.policy.heal:
            self.manager.control.call(self._heal, limits.OPEN_SECONDS)
        strategy = lib.AIO_WATCH if self.manager.strategy == "watch" else lib.AIO_THREAD
        code = lib.aio_device_start(self.index, strategy, self.manager.maintenance.port.handle)
        if code:
            self.manager.control.call(self._undo_set, limits.RESET_SECONDS)
            raise error_of(code, "pthread_create", self.index, admission.generation)
        lib.aio_device_relieve_by(self.index, self.manager.control.port.handle)

    def _first_set(self) -> None:
        """Sets the device. If it is set already, other code perhaps uses it: aioacl's own sets are known."""
        counts = self.manager.counts
        counts.catch_up()
        self.manager.own_context.end()  # one that an earlier close could not destroy
        now = is_set(self.index)
        with self.admission.changed:
            counts.are_known = now is not None and runtime.is_told_of_resets()
            if not counts.standing().retained:
                counts.was_set = bool(now)
        code = self._set()
        if code and self._may_reset_for_a_context(code):
            code = self._reset_force(faulty=True) or self._set()
        if code:
            error = error_of(code, self._set_call, self.index, self.admission.generation)
            if self.manager.policy.heal:
                error.hint = f"{CANNOT_BE_HEALED} {error.hint}"
            raise error

    def _heal(self) -> None:
        """Probes the device. If the probe fails, resets the device once, and probes it again."""
        failed, what = self._probe(), FORBIDDEN
        if failed and self.manager.may_repair_device(foreign=False):
            failed, what = self._reset_once() or self._probe(), NO_HELP
        if not failed:
            return
        call, code = failed
        where = self.index, self.admission.generation
        error = (
            error_of(code, call, *where)
            if code
            else DeviceFault(f"the probe failed: {call}", device=where[0])
        )
        error.hint = f"{what} {error.hint}"
        self._undo_set()
        raise error

    def _probe(self) -> Failure | None:
        return probe(self.index, self.manager.counts.foreign_resets_seen)

    def _reset_once(self) -> Failure | None:
        """Resets the device and sets it again. Returns the call that failed and its code, or None."""
        own = self.manager.own_context
        steps: tuple[tuple[str, Callable[[], int]], ...] = (
            ("aclrtDestroyContext", lambda: own.end() if own.wanted else 0),
            ("aclrtResetDeviceForce", lambda: self._reset_force(faulty=True)),
            (self._set_call, self._set),
        )
        codes = ((call, step()) for call, step in steps)
        return next(((call, code) for call, code in codes if code not in (0, RELEASED_ALREADY)), None)

    def _may_reset_for_a_context(self, code: int) -> bool:
        """Whether a reset helps and hurts no one. A faulty device can be set, and reset later, but makes no context."""
        faulty = self.manager.own_context.wanted and lookup(code).action in DEVICE_ACTIONS
        return faulty and self.manager.policy.resets and not self.manager.counts.are_shared

    def _open(self) -> None:
        admission = self.admission
        with admission.changed:
            self.manager.failures.forget_faults()
            admission.apply(Trigger.OPEN)
            self._settle_foreign()  # the gate was closed until now, so it recorded no foreign reset
        self.manager.maintenance.call(self._prepare, limits.OPEN_SECONDS)

    def _give_up(self) -> NoReturn:
        stuck = self._stuck()
        self._quarantine(f"the open was given up because {named(stuck)} did not return in time", stuck)
        raise self.admission.quarantined()

    def _undo(self) -> None:
        try:
            if self.manager.control.running:
                self.manager.control.call(lambda: runtime.release(self.manager), limits.CLOSE_SECONDS)
        except WorkerStuck:
            self._give_up()
        self.manager.control.stop(limits.CLOSE_SECONDS)
        self.manager.maintenance.stop(limits.CLOSE_SECONDS)
        self.manager.clean_up()  # does the notes of finalizers, because the maintenance thread has ended
