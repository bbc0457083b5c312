"""The manager of a device: one per device and process. It starts the procedures that open, reset and close the device.

An operation that takes time runs as a *procedure* on a thread of its own. Each device runs one procedure at a time.
Callers that request the same operation while it runs share the procedure. The procedure continues even if all its
callers are cancelled. Procedures use the two threads of the device: the control thread keeps ACL's per-thread state,
and the maintenance thread creates and destroys native objects.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from aioacl._base import sync
from aioacl._base.codes import DEVICE_ACTIONS, lookup
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
from aioacl._base.options import ContextKind, Strategy, repr_of, whole_of
from aioacl._base.states import Counts, State, Trigger
from aioacl._library.runtime import must_not_be_forked
from aioacl._library.visible import physical_id
from aioacl._lifecycle.admission import NOTHING_BEGUN, Admission
from aioacl._lifecycle.blocks import DeviceBlocks
from aioacl._lifecycle.cache import HandleCache
from aioacl._lifecycle.counts import SetCounts
from aioacl._lifecycle.deferred import Deferred
from aioacl._lifecycle.failures import Failures
from aioacl._lifecycle.gate import advise_without_device, error_of
from aioacl._lifecycle.hooks import Hooks
from aioacl._lifecycle.jobs import Jobs
from aioacl._lifecycle.loaded_models import LoadedModels
from aioacl._lifecycle.own_context import OwnContext
from aioacl._lifecycle.policy import Policy, refusal
from aioacl._lifecycle.procedures import limits
from aioacl._lifecycle.procedures.close import CloseProcedure
from aioacl._lifecycle.procedures.foreign import ForeignProcedure
from aioacl._lifecycle.procedures.open import OpenProcedure
from aioacl._lifecycle.procedures.reset import SUPERVISOR, ResetProcedure
from aioacl._lifecycle.stream_lock import hint_of, relieve
from aioacl._lifecycle.stuck import StuckCalls
from aioacl._lifecycle.supervisor import Supervision
from aioacl._wait.current import current_holder
from aioacl._wait.workers import WorkerThread, call_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.records import ResetReport, Scope
    from aioacl._handles.stream_core import StreamCore
    from aioacl._lifecycle.procedures.procedure import Procedure

T = TypeVar("T")
DEVICES = 64


class Manager:
    """The lifecycle of one device: owns an object for each concern, and runs one procedure at a time.

    Attributes:
        physical_id: the number of the card, as npu-smi names it; "" if it is not known.
        admission: the state, admission, leases and turns. Its lock is held to write the other attributes.
        counts: how often the device is set in ACL.
        own_context: the context that aioacl has made, if the device uses one.
        blocks: the device memory that is allocated.
        jobs: the user's jobs.
        failures: faults and failed tasks.
        hooks: the user's functions that run before and after a reset.
        deferred: work that is left to the maintenance thread.
        cache: the closed memory and streams that are used again.
        stuck_calls: the events of calls that do not return.
        supervision: the supervisor, if there is one.
        models: the models that are loaded.
        streams: the streams whose native streams are not destroyed yet.
        control: the control thread, which keeps ACL's per-thread state.
        maintenance: the maintenance thread, which creates and destroys native objects.
        procedure: the procedure that runs, or None.
        strategy: how waits are done, "watch" or "thread"; the first open sets it.
        context: whose context the device uses, "primary" or "own"; the first open sets it.
        policy: what the opens of the device forbid.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.physical_id = physical_id(index)
        self.strategy: Strategy = "watch"
        self.context: ContextKind = "primary"
        self.policy = Policy()
        self.procedure: Procedure | None = None
        self.control = WorkerThread(f"aioacl-ctl-{index}", lambda: relieve(index, self.maintenance))
        hint = partial(hint_of, index)
        self.maintenance = WorkerThread(f"aioacl-mnt-{index}", self._on_wake, self._refusal, hint)
        self.deferred = Deferred(self.maintenance.kick)
        self.admission = Admission(index, defer=self.deferred.leave_note, applied=self._applied)
        self.counts = SetCounts(index, self.admission.changed)
        self.own_context = OwnContext(index)
        self.blocks = DeviceBlocks(index, self.own_context)
        self.jobs = Jobs(self.admission, self.meet_foreign)
        self.streams: sync.WeakSet[StreamCore] = sync.WeakSet()
        self.stuck_calls = StuckCalls(self)
        self.supervision = Supervision(self)
        self.failures = Failures(self.admission, self.streams, self.stuck_calls.wake)
        self.hooks = Hooks(self.admission)
        self.cache = HandleCache(self)
        self.models = LoadedModels(index)
        self._equipping = False  # only one thread at a time makes the engine's own stream

    @property
    def generation(self) -> int:
        """The generation in the gate. It is read from C, because a foreign reset raises it there."""
        return generation_of(self.index)

    # --- opening and closing ---------------------------------------------------------------------------------

    async def open(
        self,
        user: object,
        strategy: Strategy,
        context: ContextKind = "primary",
        *,
        cache: bool,
        keep: bool = False,
        resets: bool = True,
        heal: bool = False,
        wait: bool,
        deadline: float | None,
    ) -> None:
        """Adds a user, which `close` or `count_out` removes. The first user sets the device (aclrtSetDevice)."""
        try:
            if not cache:
                self.cache.forbid(user)
            forbid = partial(self.policy.add, keep=keep, resets=resets, heal=heal)
            await self._open(user, (strategy, context), forbid, wait=wait, deadline=deadline)
        except GeneratorExit:
            self.cache.allow(user)
            raise  # from a finalizer, on a thread that may hold the lock; Device.__del__ leaves a note instead
        except BaseException as error:
            self.count_out(user)
            advise_without_device(error)
            raise

    async def _open(
        self,
        user: object,
        settings: tuple[Strategy, ContextKind],
        forbid: Callable[[], None],
        *,
        wait: bool,
        deadline: float | None,
    ) -> None:
        close: CloseProcedure | None = None  # the newest close that this open has waited for
        while True:
            with self.admission.changed:
                seen = self.admission.version
                in_vain = close is not None and close is not self.procedure
                if self.admission.state is State.QUARANTINED and (self.admission.opens or in_vain):
                    raise self.admission.quarantined()
                if self._count_in(user, settings, forbid):
                    return
                procedure, counted = self.procedure, user in self.admission.users
            if counted and procedure is not None:
                await procedure.wait(deadline)
                return
            if not wait:
                raise self._refusal() or self.admission.resetting()
            hint = NOTHING_BEGUN
            if isinstance(procedure, CloseProcedure):
                close, hint = procedure, CloseProcedure.goes_on
            await self.admission.change(seen, deadline, hint)

    def _count_in(
        self, user: object, settings: tuple[Strategy, ContextKind], forbid: Callable[[], None]
    ) -> bool:
        """Adds the user if the device is open or opening; starts a procedure if needed. Returns True if it is open.

        `forbid` is called with the user: an open that is cancelled, and the close after it, keep to what it forbids.
        """
        closed = self.procedure is None and self.admission.state is State.CLOSED
        if self.admission.opens and not closed:
            self._must_be_set_to(settings)
        if closed:
            self.strategy, self.context = settings
            self.own_context.choose(own=self.context == "own")
            self.policy.forget()
            self.start_procedure(OpenProcedure(self))
        elif self.procedure is None and self.admission.state is State.QUARANTINED:
            self.start_procedure(CloseProcedure(self))
        if settings != (
            self.strategy,
            self.context,
        ):  # the earlier users are gone, but their procedure still runs
            return False
        is_open, opening = (
            self.admission.shown is State.OPEN or self._may_join(),
            isinstance(self.procedure, OpenProcedure),
        )
        if is_open or opening:
            forbid()
            self.admission.users.add(user)
        return is_open and not opening

    def _must_be_set_to(self, settings: tuple[Strategy, ContextKind]) -> None:
        """Raises ParameterError unless an open passes the same values as the first open."""
        for name, now, passed in zip(
            ("waits", "context"), (self.strategy, self.context), settings, strict=True
        ):
            if passed != now:
                raise ParameterError(
                    f"expected {name}={now!r}, as in the first open of device {self.index}, "
                    f"got {name}={repr_of(passed)}",
                    hint="Pass the same value, or close the device before you open it with another one.",
                )

    def _may_join(self) -> bool:
        """Returns True if the running reset waits for the caller. Then an open by the caller must not wait for it."""
        draining = self.admission.shown is State.DRAINING and isinstance(self.procedure, ResetProcedure)
        return draining and self.admission.holds_off(current_holder())

    async def close(self, user: object) -> None:
        """Removes the user. After the last user, waits until the device is closed."""
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
        """Returns True if a removed user has nothing to wait for.

        This is so if other users have the device open, or if the last close has ended.
        """
        over = self.procedure is None or self.procedure.manual
        return self.admission.opens > 0 or (
            over and self.admission.state in (State.CLOSED, State.QUARANTINED)
        )

    def count_out(self, user: object) -> Procedure | None:
        """Removes the user, if it was added. Removing the last one starts the procedure that closes the device."""
        self.cache.allow(user)
        with self.admission.changed:
            if user not in self.admission.users:
                return None
            try:
                return self._leave(user)
            except AclError:
                raise
            except BaseException:  # Ctrl-C interrupted the removal: repeat it from the start
                self._leave(user)
                raise

    def _leave(self, user: object) -> Procedure | None:
        self.admission.users.discard(user)
        self.hooks.drop(user)
        self.supervision.drop(user)
        self.stuck_calls.wake()
        self.admission.announce()
        return self.close_if_unused(State.OPEN, State.DRAINING, State.QUARANTINED)

    def close_if_unused(self, *states: State) -> Procedure | None:
        """Starts the close if the device has no users and is in one of the states. Call it with the lock held."""
        if self.admission.opens or self.procedure is not None or self.admission.state not in states:
            return None
        if self.admission.state is State.OPEN:
            # The drain begins here, not in the procedure: no user may be added while the thread starts.
            self.admission.apply(Trigger.DRAIN)
        procedure = CloseProcedure(self, hopeless=self.admission.state is State.QUARANTINED)
        self.start_procedure(procedure)
        return procedure

    def start_procedure(self, procedure: Procedure) -> None:
        """Starts a procedure. If that fails, no procedure is current afterwards. Call it with the lock held."""
        # If no thread starts, the gate must not stay between two states. If Ctrl-C comes after the thread has started,
        # the thread finds that its procedure is not the current one, and ends.
        try:
            self.procedure = procedure
            sync.spawn(f"aioacl-{procedure.name}-{self.index}", procedure.execute)
        except BaseException as error:
            self.procedure = None
            if not isinstance(error, RuntimeError):
                raise
            self.break_off("no thread could be started that would close, reset or set the device")
            self.admission.announce()
            raise error_of(lib.AIO_NO_THREAD, "pthread_create", self.index, self.generation) from error

    def _refusal(self) -> DeviceQuarantined | None:
        return self.admission.quarantined() if self.admission.state is State.QUARANTINED else None

    def break_off(self, problem: str) -> None:
        """Quarantines the device if a procedure ended between two states of the gate. Call it with the lock held."""
        if self.admission.state is State.DRAINING:
            self.admission.apply(Trigger.SEIZE)
        if self.admission.state is State.RESETTING:
            self.admission.apply(Trigger.FAIL, problem=problem)

    # --- reset -----------------------------------------------------------------------------------------------

    async def force_reset(
        self,
        *,
        grace: float,
        timeout: float,
        reason: str,
        scope: Scope | None = None,
        foreign: bool | None = None,
    ) -> ResetReport:
        """Joins the running reset, or starts one, and returns its report.

        Raises:
            LeaseHeldError: the reset would wait for its own caller.
            ParameterError: the device is closed, has no own context for the scope "context", or may not be reset.
        """
        while True:
            with self.admission.changed:
                seen = self.admission.version
                if self.hooks.holds_off(current_holder()) or self.admission.holds_off(current_holder()):
                    raise self._held_off()
                procedure = self._reset_procedure(grace, timeout, reason, scope, foreign)
            if procedure is not None:
                await procedure.wait(None)
                return procedure.report
            await self.admission.change(seen, None)

    def _held_off(self) -> LeaseHeldError:
        """The error for a caller of a reset that would wait for that caller. Call it with the lock held."""
        if self.hooks.holds_off(current_holder()):
            return LeaseHeldError(
                f"expected a caller outside the hooks of a reset, got a hook of device {self.index}",
                device=self.index,
                hint="Call `force_reset()` after the reset that runs the hook has ended.",
            )
        if self.admission.leases.holds(current_holder()):
            return LeaseHeldError(
                f"expected a caller without a lease, got one that holds a lease on device {self.index}",
                device=self.index,
            )
        return LeaseHeldError(
            f"expected a caller outside device.executor, got a job on device {self.index}",
            device=self.index,
            hint="Call `force_reset()` outside the executor, for example after the job has returned.",
        )

    def _reset_procedure(
        self, grace: float, timeout: float, reason: str, scope: Scope | None, foreign: bool | None
    ) -> ResetProcedure | None:
        if self.admission.state is State.CLOSED and (self.procedure is None or self.procedure.manual):
            raise self.admission.closed()
        if isinstance(self.procedure, ResetProcedure) and not self.procedure.finished:
            self.procedure.joined += 1
            return self.procedure
        if self.procedure is not None:
            return None
        permitted = self.policy.resets if foreign is None else foreign
        may_reset_device = permitted or self.counts.are_alone
        chosen = self._scope_of(scope, may_reset_device=may_reset_device)
        procedure = ResetProcedure(
            self,
            grace=grace,
            timeout=timeout,
            reason=reason,
            scope=chosen,
            may_widen=scope is None and may_reset_device,
            permitted=permitted,
            held_back=scope is None and not may_reset_device,
            by=current_holder(),
        )
        self.start_procedure(procedure)
        return procedure

    def _scope_of(self, scope: Scope | None, *, may_reset_device: bool) -> Scope:
        """The scope with which a reset begins.

        A failure of the device itself needs a reset of the device, but if that may disturb other code, only a new
        context of aioacl's own is tried. Raises ParameterError if there is no reset that may be tried.
        """
        own, fault = self.context == "own", self.failures.last_fault
        if scope == "context" and not own:
            raise ParameterError(
                f'expected scope="device", because device {self.index} uses its primary context, got scope="context"',
                hint='Open the device with context="own", or omit the scope.',
            )
        if scope is None and own:
            of_device = fault is not None and lookup(fault.code or 0).action in DEVICE_ACTIONS
            return "device" if of_device and may_reset_device else "context"
        if scope != "context" and not may_reset_device:
            raise refusal(self.index, own=own, known=self.counts.are_known)
        return scope or "device"

    def may_repair_device(self, *, foreign: bool) -> bool:
        """Whether a reset of the device may be made that no caller has asked for. Call it with the lock held."""
        return self.policy.resets and (foreign or self.counts.are_alone)

    def repair(self, grace: float, timeout: float, foreign: bool, *, gently: bool) -> ResetProcedure:
        """Starts the reset of a supervisor. Call it with the lock held, while no procedure runs.

        With `gently`, a context of aioacl's own is replaced first, and the device is reset only if that does not help.
        """
        own, may_reset_device = self.own_context.wanted, self.may_repair_device(foreign=foreign)
        procedure = ResetProcedure(
            self,
            grace=grace,
            timeout=timeout,
            scope="context" if own and (gently or not may_reset_device) else "device",
            may_widen=may_reset_device,
            permitted=foreign,
            held_back=own and not may_reset_device,
            by=SUPERVISOR,
        )
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
        """Waits until the device is open, then runs `work(generation)` on the maintenance thread.

        With `wait=False` it raises DeviceResetting instead of waiting for a reset. After the deadline it raises
        DeviceTimeout. `discard` gets a result that the caller no longer takes.
        """
        with self.admission.turns.place() as place:
            while True:
                await self.admission.until_open(place, wait=wait, deadline=deadline)
                try:
                    return await call_on(
                        self.maintenance, lambda: work(self.generation), discard=discard, deadline=deadline
                    )
                except (DeviceResetting, StaleHandleError):  # a reset came between the two steps
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
        """Does the work that had to wait until the device was reset or closed."""
        with ExitStack() as steps:  # each step is taken even if one before it raises
            steps.callback(self.cache.free_left)
            steps.callback(self.cache.empty)
            steps.callback(self.deferred.do_all)
            steps.callback(self._answer, lib.AIO_KICK_DONE | lib.AIO_KICK_CALLS)

    def _on_wake(self) -> None:
        try:
            self.deferred.do_notes()
        finally:  # also after a note has raised an exception, because the engine does not repeat these kicks
            self._answer(lib.aio_device_kicks(self.index))

    def _supply(self, kicks: int) -> None:
        if kicks & lib.AIO_KICK_REFILL:
            lib.aio_device_refill(self.index, 0, limits.POOL_EVENTS)
        for kick, large in ((lib.AIO_KICK_SMALL, 0), (lib.AIO_KICK_LARGE, 1)):
            if kicks & kick:
                lib.aio_stage_grow(self.index, large)

    def _answer(self, kicks: int) -> None:
        self._supply(kicks)
        if kicks & lib.AIO_KICK_NUDGE and not self._equipping:
            self._equipping = True
            self.maintenance.leave(self._equip)
        if kicks & lib.AIO_KICK_DONE:  # drops in-flight references, even if nothing is awaited
            for stream in self.streams.members():
                stream.release_done()
        try:
            if kicks & lib.AIO_KICK_CALLS:
                self.models.tend()
        finally:  # also after the warning of an uncollected failure was raised
            self._answer_rest(kicks)

    def _answer_rest(self, kicks: int) -> None:
        if kicks & lib.AIO_KICK_MODES:
            lib.aio_device_read_modes(self.index)
        if kicks & lib.AIO_KICK_FAULT:
            self.failures.collect()
        if kicks & lib.AIO_KICK_FOREIGN:
            with self.admission.changed:
                self.meet_foreign()
        if kicks & lib.AIO_KICK_LEFT:  # last, because it may wait for the stream lock
            self.cache.tidy()

    def _equip(self) -> None:
        """Makes the engine's own stream. A call of its own, so that the maintenance thread can be relieved of it."""
        try:
            lib.aio_device_equip(self.index)
        finally:
            self._equipping = False

    def meet_foreign(self) -> None:
        """Starts the procedure that follows a foreign reset, if there was one. Call it with the lock held.

        While another procedure runs, this function does nothing. The end of that procedure calls it again.
        """
        if self.procedure is not None or not lib.aio_gate_foreign(self.index):
            return
        if self.admission.state is State.CLOSED:
            lib.aio_gate_met(self.index)
            return
        self.admission.revoke_leases()
        self.admission.apply(Trigger.FOREIGN)
        if self.admission.state is State.RESETTING:
            self.start_procedure(ForeignProcedure(self))

    # --- what follows a transition -------------------------------------------------------------------------------

    def _applied(self, event: Trigger, served: bool) -> None:
        """Called after each transition. After a failure, ends the waits for the maintenance thread and for slots.

        After a foreign reset, sets ACL's count to 0, because the state callback may not have reported that reset yet.
        """
        if event is Trigger.FAIL:
            # The maintenance thread may be stuck.
            self.maintenance.fail_all(self.admission.quarantined)
            for queue in self.models.queues.members():
                queue.wake()
        self.stuck_calls.wake()  # its thread ends when the device is closed, and lets the supervisor act
        unserved = event is Trigger.FOREIGN or (event is Trigger.SEIZE and lib.aio_gate_foreign(self.index))
        if served and unserved:  # from now on no call can find a foreign reset
            self.counts.change(Counts())


def opened_managers() -> list[Manager]:
    """The managers of the devices that have been open, by their indices."""
    return [manager for _, manager in sorted(_managers.items()) if manager.generation]


_managers: dict[int, Manager] = {}
_managers_lock = sync.lock()


def manager_of(index: Any) -> Manager:
    """The manager of a device. Raises ParameterError if `index` is not the index of a device."""
    number = whole_of(index)
    if number is None or not 0 <= number < DEVICES:
        raise ParameterError(
            f"expected a device index from 0 to {DEVICES - 1}, got {repr_of(index)}",
            hint="list_devices() returns the visible devices.",
        )
    must_not_be_forked()
    with _managers_lock:
        # A signal handler on this thread may have stored a manager while this one was made.
        return _managers.get(number) or _managers.setdefault(number, Manager(number))
