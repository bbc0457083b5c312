"""One manager per device, for the whole process: opens, leases, and the procedures that open, reset and close it.

Whatever takes time runs as a *procedure*, on a thread of its own, one at a time for each device; those who ask for the
same thing while it runs share it, and it goes on when they leave. Procedures use the device's two threads: the
control thread keeps ACL's per-thread state, the maintenance thread makes and destroys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from aioacl._base import sync
from aioacl._base.errors import (
    AclError,
    ContextError,
    DeviceFault,
    DeviceQuarantined,
    DeviceResetting,
    LeaseHeldError,
    ParameterError,
    StaleHandleError,
)
from aioacl._base.ffi import generation_of, lib
from aioacl._base.options import Strategy, whole_of
from aioacl._base.states import Counts, State, Trigger
from aioacl._library.runtime import must_not_be_forked
from aioacl._lifecycle.admission import NOTHING_BEGUN, Admission
from aioacl._lifecycle.counts import SetCounts
from aioacl._lifecycle.deferred import Deferred
from aioacl._lifecycle.failures import Failures, TrackedStream
from aioacl._lifecycle.gate import error_of
from aioacl._lifecycle.jobs import Jobs
from aioacl._lifecycle.procedures import limits
from aioacl._lifecycle.procedures.close import CloseProcedure
from aioacl._lifecycle.procedures.foreign import ForeignProcedure
from aioacl._lifecycle.procedures.open import OpenProcedure
from aioacl._lifecycle.procedures.reset import ResetProcedure
from aioacl._wait.current import current_holder
from aioacl._wait.workers import WorkerThread, call_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.records import ResetReport
    from aioacl._lifecycle.procedures.procedure import Procedure

T = TypeVar("T")
DEVICES = 64


class Manager:
    """The lifecycle of one device: owns an object for each concern, and runs one procedure at a time.

    Attributes:
        admission: the state, who may enter, leases and turns; all the others are written with its lock held.
        counts: how often ACL's device is set.
        jobs: the user's jobs.
        failures: faults and failed tasks.
        deferred: what is left to the maintenance thread.
        streams: those whose native streams are not destroyed yet.
        control: the thread that keeps ACL's state of a thread.
        maintenance: the thread that makes and destroys.
        procedure: the procedure that runs, or None.
        strategy: how waits wait; the first open says so.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.strategy: Strategy = "watch"
        self.procedure: Procedure | None = None
        self.control = WorkerThread(f"aioacl-ctl-{index}")
        self.maintenance = WorkerThread(f"aioacl-mnt-{index}", self._on_wake, self._refusal)
        self.deferred = Deferred(self.maintenance.kick)
        self.admission = Admission(index, defer=self.deferred.leave_note, applied=self._applied)
        self.counts = SetCounts(index, self.admission.changed)
        self.jobs = Jobs(self.admission, self.meet_foreign)
        self.streams: sync.WeakSet[TrackedStream] = sync.WeakSet()
        self.failures = Failures(self.admission, self.streams)

    @property
    def generation(self) -> int:
        """The gate's generation: a foreign reset raises it in C."""
        return generation_of(self.index)

    # --- opening and closing ---------------------------------------------------------------------------------

    async def open(self, user: object, strategy: Strategy, *, wait: bool, deadline: float | None) -> None:
        """Counts one more in, who counts himself out; the first sets the device (aclrtSetDevice)."""
        try:
            await self._open(user, strategy, wait=wait, deadline=deadline)
        except GeneratorExit:
            raise  # by a finalizer, perhaps on a thread that has the lock: the device's own leaves a note
        except BaseException:
            self.count_out(user)
            raise

    async def _open(self, user: object, strategy: Strategy, *, wait: bool, deadline: float | None) -> None:
        repaired = False
        while True:
            with self.admission.changed:
                seen = self.admission.version
                if self.admission.state is State.QUARANTINED and (self.admission.opens or repaired):
                    raise self.admission.quarantined()
                if self._count_in(user, strategy):
                    return
                procedure, counted = self.procedure, user in self.admission.users
            if counted and procedure is not None:
                await procedure.wait(deadline)
                return
            if not wait:
                raise self._refusal() or self.admission.resetting()
            closing = isinstance(procedure, CloseProcedure)
            repaired = repaired or closing
            await self.admission.change(seen, deadline, CloseProcedure.goes_on if closing else NOTHING_BEGUN)

    def _count_in(self, user: object, strategy: Strategy) -> bool:
        """Counts the open if the device is open, or about to be; True when it is open."""
        closed = self.procedure is None and self.admission.state is State.CLOSED
        if self.admission.opens and strategy != self.strategy and not closed:
            raise ParameterError(
                f"device {self.index} is open with waits={self.strategy!r}",
                hint="The first open fixes it: pass the same, or close the device first.",
            )
        if closed:
            self.strategy = strategy
            self.start_procedure(OpenProcedure(self))
        elif self.procedure is None and self.admission.state is State.QUARANTINED:
            self.start_procedure(CloseProcedure(self))
        if strategy != self.strategy:  # of those who have left, and whose procedure still runs
            return False
        is_open, opening = (
            self.admission.shown is State.OPEN or self._may_join(),
            isinstance(self.procedure, OpenProcedure),
        )
        if is_open or opening:
            self.admission.users.add(user)
        return is_open and not opening

    def _may_join(self) -> bool:
        """Whether a running reset waits for the caller, who opens the device once more."""
        draining = self.admission.shown is State.DRAINING and isinstance(self.procedure, ResetProcedure)
        return draining and self.admission.holds_off(current_holder())

    async def close(self, user: object) -> None:
        """Counts him out, and returns when the device is closed if he was the last."""
        closing = self.count_out(user)
        while True:
            with self.admission.changed:
                seen = self.admission.version
                closing = self.procedure if isinstance(self.procedure, CloseProcedure) else closing
                if self.left():
                    break
            await self.admission.change(seen, None, CloseProcedure.goes_on)
        if closing is not None:
            closing.raise_error()

    def left(self) -> bool:
        """Whether it is over for those who have counted out: others have it open, or the last close has ended."""
        over = self.procedure is None or self.procedure.manual
        return self.admission.opens > 0 or (
            over and self.admission.state in (State.CLOSED, State.QUARANTINED)
        )

    def count_out(self, user: object) -> Procedure | None:
        """One less, if he was counted in; the last one starts the procedure that closes the device."""
        with self.admission.changed:
            if user not in self.admission.users:
                return None
            try:
                return self._leave(user)
            except AclError:
                raise
            except BaseException:  # Ctrl-C, in the middle of it: now it is done from the start
                self._leave(user)
                raise

    def _leave(self, user: object) -> Procedure | None:
        self.admission.users.discard(user)
        self.admission.announce()
        return self.close_if_unused(State.OPEN, State.DRAINING, State.QUARANTINED)

    def close_if_unused(self, *states: State) -> Procedure | None:
        """Starts closing when nobody has the device open; call it with the lock held."""
        if self.admission.opens or self.procedure is not None or self.admission.state not in states:
            return None
        if self.admission.state is State.OPEN:
            self.admission.apply(
                Trigger.DRAIN
            )  # at once: nobody may count himself in while the procedure starts
        procedure = CloseProcedure(self, hopeless=self.admission.state is State.QUARANTINED)
        self.start_procedure(procedure)
        return procedure

    def start_procedure(self, procedure: Procedure) -> None:
        """Starts a procedure, wholly or not at all. With the lock held."""
        try:  # without a thread the gate is not left half shut; after Ctrl-C, a thread that was started just ends
            self.procedure = procedure
            sync.spawn(f"aioacl-{procedure.name}-{self.index}", procedure.execute)
        except BaseException as error:
            self.procedure = None
            if not isinstance(error, RuntimeError):
                raise
            self.break_off("no thread could be started to bring it back")
            self.admission.announce()
            raise error_of(lib.AIO_NO_THREAD, "pthread_create", self.index, self.generation) from error

    def _refusal(self) -> DeviceQuarantined | None:
        return self.admission.quarantined() if self.admission.state is State.QUARANTINED else None

    def break_off(self, problem: str) -> None:
        """A procedure that cannot go on must not leave the gate half shut; with the lock held."""
        if self.admission.state is State.DRAINING:
            self.admission.apply(Trigger.SEIZE)
        if self.admission.state is State.RESETTING:
            self.admission.apply(Trigger.FAIL, problem=problem)

    # --- reset -----------------------------------------------------------------------------------------------

    async def force_reset(self, *, grace: float, timeout: float, reason: str) -> ResetReport:
        """Joins the running reset, or starts one, and returns its report."""
        while True:
            with self.admission.changed:
                seen = self.admission.version
                if self.admission.holds_off(current_holder()):
                    raise self._held_off()
                procedure = self._reset_procedure(grace, timeout, reason)
            if procedure is not None:
                await procedure.wait(None)
                return procedure.report
            await self.admission.change(seen, None)

    def _held_off(self) -> LeaseHeldError:
        """The error of who calls for a reset that would wait for himself; with the lock held."""
        if self.admission.leases.holds(current_holder()):
            return LeaseHeldError(f"the caller holds a lease on device {self.index}", device=self.index)
        return LeaseHeldError(
            f"the caller is a job on device {self.index}",
            device=self.index,
            hint="Call for the reset outside of its executor, for instance when the job has returned.",
        )

    def _reset_procedure(self, grace: float, timeout: float, reason: str) -> ResetProcedure | None:
        if self.admission.state is State.CLOSED and (self.procedure is None or self.procedure.manual):
            raise self.admission.closed()
        if isinstance(self.procedure, ResetProcedure) and not self.procedure.finished:
            self.procedure.joined += 1
            return self.procedure
        if self.procedure is not None:
            return None
        procedure = ResetProcedure(self, grace=grace, timeout=timeout, reason=reason, by=current_holder())
        self.start_procedure(procedure)
        return procedure

    # --- work ------------------------------------------------------------------------------------------------

    async def make(
        self,
        work: Callable[[int], T],
        *,
        discard: Callable[[T], object] | None = None,
        wait: bool = True,
        deadline: float | None = None,
    ) -> T:
        """Makes something new on the maintenance thread, once the device is open; `work` gets the generation."""
        with self.admission.turns.place() as place:
            while True:
                await self.admission.until_open(place, wait=wait, deadline=deadline)
                try:
                    return await call_on(
                        self.maintenance, lambda: work(self.generation), discard=discard, deadline=deadline
                    )
                except (DeviceResetting, StaleHandleError):  # a reset came in between
                    if not wait:
                        raise
                except ContextError as error:
                    if not self.admission.found_reset(error.generation, error.code):
                        raise
                    if not wait:
                        raise error_of(
                            lib.AIO_RESETTING_NOW, error.call, self.index, self.generation
                        ) from error
                except DeviceFault as error:
                    self.failures.note_fault(error)
                    raise

    # --- the maintenance thread --------------------------------------------------------------------------------

    def clean_up(self) -> None:
        """What could not be done before the device was reset or closed."""
        self._answer(lib.AIO_KICK_DONE)
        self.deferred.do_all()

    def _on_wake(self) -> None:
        try:
            self.deferred.do_notes()
        finally:  # a note may raise, and nobody kicks again for what has been kicked for
            self._answer(lib.aio_device_kicks(self.index))

    def _answer(self, kicks: int) -> None:
        if kicks & lib.AIO_KICK_REFILL:
            lib.aio_device_refill(self.index, 0, limits.POOL_EVENTS)
        for kick, large in ((lib.AIO_KICK_SMALL, 0), (lib.AIO_KICK_LARGE, 1)):
            if kicks & kick:
                lib.aio_stage_grow(self.index, large)
        if kicks & lib.AIO_KICK_NUDGE:
            lib.aio_device_equip(self.index)
        if kicks & lib.AIO_KICK_DONE:  # their references go, whether an await has looked or not
            for stream in self.streams.members():
                stream.release_done()
        if kicks & lib.AIO_KICK_FAULT:
            self.failures.collect()
        if kicks & lib.AIO_KICK_FOREIGN:
            with self.admission.changed:
                self.meet_foreign()

    def meet_foreign(self) -> None:
        """Answers a foreign reset, unless a procedure is running: it asks again when it ends. With the lock held."""
        if self.procedure is not None or not lib.aio_gate_foreign(self.index):
            return
        if self.admission.state is State.CLOSED:
            lib.aio_gate_met(self.index)
            return
        self.admission.revoke_leases()
        self.admission.apply(Trigger.FOREIGN)
        if self.admission.state is State.RESETTING:
            self.start_procedure(ForeignProcedure(self))

    # --- what the admission does not know of ---------------------------------------------------------------------

    def _applied(self, event: Trigger, served: bool) -> None:
        """After a step of the states. A foreign reset that a call has found out, and nobody has told, is counted."""
        if event is Trigger.FAIL:
            self.maintenance.fail_all(
                self.admission.quarantined
            )  # what waits for a thread that may be stuck ends
        unserved = event is Trigger.FOREIGN or (event is Trigger.SEIZE and lib.aio_gate_foreign(self.index))
        if served and unserved:  # from here on no call can find one
            self.counts.change(Counts())


_managers: dict[int, Manager] = {}
_managers_lock = sync.lock()


def manager_of(index: Any) -> Manager:
    """The manager of a device. ParameterError for what is no device's index."""
    number = whole_of(index)
    if number is None or not 0 <= number < DEVICES:
        raise ParameterError(
            f"{index!r} is not the index of a device", hint="list_devices() tells which there are."
        )
    must_not_be_forked()
    with _managers_lock:
        # A signal handler of this thread may have made one while this one was being made.
        return _managers.get(number) or _managers.setdefault(number, Manager(number))
