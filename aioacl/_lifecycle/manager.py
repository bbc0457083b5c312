"""One manager per device, for the whole process: opens, leases, and the flights that open, reset and close it.

Whatever takes time runs as a *flight*, on a thread of its own, one at a time for each device; those who ask for the
same thing while it is in the air share it, and it goes on when they leave. Flights use the device's two lanes: the
control lane keeps ACL's per-thread state, the maintenance lane makes and destroys.
"""

from __future__ import annotations

import copy
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from aioacl._base import states as _law
from aioacl._base import sync as _sync
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
from aioacl._base.ffi import lib
from aioacl._base.options import ResetReport, Strategy, whole_of
from aioacl._base.states import RELEASED_ALREADY, Counts, Event, State
from aioacl._library.runtime import must_not_be_forked
from aioacl._lifecycle import failures as _failures
from aioacl._lifecycle.admission import NOTHING_BEGUN
from aioacl._lifecycle.gate import error_of
from aioacl._lifecycle.jobs import Jobs
from aioacl._lifecycle.procedures.open import OpenFlight
from aioacl._lifecycle.procedures.procedure import POOL_EVENTS, CloseFlight, Flight, ForeignFlight
from aioacl._lifecycle.procedures.reset import ResetFlight
from aioacl._wait.port import current_holder
from aioacl._wait.workers import Lane, call_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._handles.stream_core import StreamCore
    from aioacl._lifecycle.lease import Lease

T = TypeVar("T")
DEVICES = 64


class Manager(Jobs):
    """The lifecycle of one device. What changes is guarded by `changed`, its state's lock."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.strategy: Strategy = "watch"
        self.counts = Counts()
        self.told = 0  # foreign resets that had been told of when what is counted was set
        self.ended = 0  # the generation whose native streams a reset of ours has ended; for flights only
        self.ours = 0  # of those sets, how many are the face's: of this open, and not given back yet
        self.flight: Flight | None = None
        self.last_fault: AclError | None = None
        self.failures = 0  # of tasks, since the first open
        self.last_failure = ""
        self.control = Lane(f"aioacl-ctl-{index}")
        self.maintenance = Lane(f"aioacl-mnt-{index}", self._on_wake, self._refusal)
        self.notes: deque[Callable[[], object]] = deque()
        self.leftovers: deque[Callable[[], object]] = deque()  # clean-ups for after the next reset
        self.cores: _sync.WeakSet[StreamCore] = _sync.WeakSet()  # whose native streams are not destroyed yet

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
            with self.changed:
                seen = self.version
                if self.state is State.QUARANTINED and (self.opens or repaired):
                    raise self.quarantined()
                if self._count_in(user, strategy):
                    return
                flight, counted = self.flight, user in self._users
            if counted and flight is not None:
                await flight.arrive(deadline)
                return
            if not wait:
                raise self._refusal() or self._resetting()
            closing = isinstance(flight, CloseFlight)
            repaired = repaired or closing
            await self.change(seen, deadline, CloseFlight.goes_on if closing else NOTHING_BEGUN)

    def _count_in(self, user: object, strategy: Strategy) -> bool:
        """Counts the open if the device is open, or about to be; True when it is open."""
        closed = self.flight is None and self.state is State.CLOSED
        if self.opens and strategy != self.strategy and not closed:
            raise ParameterError(
                f"device {self.index} is open with waits={self.strategy!r}",
                hint="The first open fixes it: pass the same, or close the device first.",
            )
        if closed:
            self.strategy = strategy
            self.launch(OpenFlight(self))
        elif self.flight is None and self.state is State.QUARANTINED:
            self.launch(CloseFlight(self))
        if strategy != self.strategy:  # of those who have left, and whose flight is still in the air
            return False
        is_open, opening = self.shown is State.OPEN or self._may_join(), isinstance(self.flight, OpenFlight)
        if is_open or opening:
            self._users.add(user)
        return is_open and not opening

    def _may_join(self) -> bool:
        """Whether a reset that is in the air waits for the caller, who opens the device once more."""
        draining = self.shown is State.DRAINING and isinstance(self.flight, ResetFlight)
        return draining and self.holds_off(current_holder())

    async def close(self, user: object) -> None:
        """Counts him out, and returns when the device is closed if he was the last."""
        closing = self.count_out(user)
        while True:
            with self.changed:
                seen = self.version
                closing = self.flight if isinstance(self.flight, CloseFlight) else closing
                if self.left():
                    break
            await self.change(seen, None, CloseFlight.goes_on)
        if closing is not None:
            closing.raise_error()

    def left(self) -> bool:
        """Whether it is over for those who have counted out: others have it open, or the last close has landed."""
        over = self.flight is None or self.flight.by_hand
        return self.opens > 0 or (over and self.state in (State.CLOSED, State.QUARANTINED))

    def count_out(self, user: object) -> Flight | None:
        """One less, if he was counted in; the last one starts the flight that closes the device."""
        with self.changed:
            if user not in self._users:
                return None
            try:
                return self._leave(user)
            except AclError:
                raise
            except BaseException:  # Ctrl-C, in the middle of it: now it is done from the start
                self._leave(user)
                raise

    def _leave(self, user: object) -> Flight | None:
        self._users.discard(user)
        self.announce()
        return self.close_if_unused(State.OPEN, State.DRAINING, State.QUARANTINED)

    def close_if_unused(self, *states: State) -> Flight | None:
        """Starts closing when nobody has the device open; call it with the lock held."""
        if self.opens or self.flight is not None or self.state not in states:
            return None
        if self.state is State.OPEN:
            self.apply(Event.DRAIN)  # at once: nobody may count himself in while the flight gathers speed
        flight = CloseFlight(self, hopeless=self.state is State.QUARANTINED)
        self.launch(flight)
        return flight

    def launch(self, flight: Flight) -> None:
        """Starts a procedure, wholly or not at all. With the lock held."""
        try:  # without a thread the gate is not left half shut; after Ctrl-C, a thread that was started just ends
            self.flight = flight
            _sync.spawn(f"aioacl-{flight.name}-{self.index}", flight.run)
        except BaseException as error:
            self.flight = None
            if not isinstance(error, RuntimeError):
                raise
            self.break_off("no thread could be started to bring it back")
            self.announce()
            raise error_of(lib.AIO_NO_THREAD, "pthread_create", self.index, self.generation) from error

    def _refusal(self) -> DeviceQuarantined | None:
        return self.quarantined() if self.state is State.QUARANTINED else None

    def break_off(self, problem: str) -> None:
        """A flight that cannot go on must not leave the gate half shut; with the lock held."""
        if self.state is State.DRAINING:
            self.apply(Event.SEIZE)
        if self.state is State.RESETTING:
            self.apply(Event.FAIL, problem=problem)

    # --- reset -----------------------------------------------------------------------------------------------

    async def force_reset(self, *, grace: float, timeout: float, reason: str) -> ResetReport:
        """Joins the reset in the air, or starts one, and returns its report."""
        while True:
            with self.changed:
                seen = self.version
                if self.holds_off(current_holder()):
                    raise self._held_off()
                flight = self._reset_flight(grace, timeout, reason)
            if flight is not None:
                await flight.arrive(None)
                return flight.report
            await self.change(seen, None)

    def _held_off(self) -> LeaseHeldError:
        """The error of who calls for a reset that would wait for himself; with the lock held."""
        if self.leases.holds(current_holder()):
            return LeaseHeldError(f"the caller holds a lease on device {self.index}", device=self.index)
        return LeaseHeldError(
            f"the caller is a job on device {self.index}",
            device=self.index,
            hint="Call for the reset outside of its executor, for instance when the job has returned.",
        )

    def _reset_flight(self, grace: float, timeout: float, reason: str) -> ResetFlight | None:
        if self.state is State.CLOSED and (self.flight is None or self.flight.by_hand):
            raise self.closed()
        if isinstance(self.flight, ResetFlight) and not self.flight.landed:
            self.flight.joined += 1
            return self.flight
        if self.flight is not None:
            return None
        flight = ResetFlight(self, grace=grace, timeout=timeout, reason=reason, by=current_holder())
        self.launch(flight)
        return flight

    # --- work ------------------------------------------------------------------------------------------------

    async def make(
        self,
        work: Callable[[int], T],
        *,
        discard: Callable[[T], object] | None = None,
        wait: bool = True,
        deadline: float | None = None,
    ) -> T:
        """Makes something new on the maintenance lane, once the device is open; `work` gets the generation."""
        with self.turns.place() as place:
            while True:
                await self.until_open(place, wait=wait, deadline=deadline)
                try:
                    return await call_on(
                        self.maintenance, lambda: work(self.generation), discard=discard, deadline=deadline
                    )
                except (DeviceResetting, StaleHandleError):  # a reset came in between
                    if not wait:
                        raise
                except ContextError as error:
                    if not self.found_reset(error.generation, error.code):
                        raise
                    if not wait:
                        raise error_of(
                            lib.AIO_RESETTING_NOW, error.call, self.index, self.generation
                        ) from error
                except DeviceFault as error:
                    self.note_fault(error)
                    raise

    # --- health ----------------------------------------------------------------------------------------------

    def note_fault(self, error: AclError, *, told: bool = False) -> None:
        """Remembers a device fault until the next reset, and reports it to the listeners, unless the engine has."""
        with self.changed:
            if self.poison(error) and not told:
                self.listeners.tell("fault", self.state, self.generation, text=str(error))
                self.announce()

    def poison(self, error: AclError) -> bool:
        """With the lock held. Keeps a copy, for a traceback would keep its frames. False if a reset has cured it."""
        if error.generation != self.generation:
            return False
        self.last_fault = copy.copy(error)
        return True

    # --- the maintenance lane --------------------------------------------------------------------------------

    def leave_note(self, thunk: Callable[[], object]) -> None:
        """For finalizers: takes no lock and calls no ACL; the maintenance lane does it later."""
        self.notes.append(thunk)
        self.maintenance.kick()

    def forsake_lease(self, lease: Lease, holder: object) -> None:
        """For finalizers: he has left the lease; takes no lock."""
        if lib.aio_forked():
            return
        self.leases.forsake(lease, holder)
        self.leave_note(self.tidy_leases)

    def clean_up(self) -> None:
        """What could not be done before the device was reset or closed."""
        self._answer(lib.AIO_KICK_DONE)
        self._work_off(self.leftovers)
        self._work_off(self.notes)

    def _work_off(self, queue: deque[Callable[[], object]]) -> None:
        """Does what is in a queue by now; one thing may leave another, for the next time."""
        for _ in range(len(queue)):
            try:
                thunk = queue.popleft()
            except IndexError:  # somebody else does it at the same time
                return
            try:
                thunk()
            except BaseException:
                self.maintenance.kick()  # for the others
                raise

    def _on_wake(self) -> None:
        try:
            self._work_off(self.notes)
        finally:  # a note may raise, and nobody kicks again for what has been kicked for
            self._answer(lib.aio_device_kicks(self.index))

    def _answer(self, kicks: int) -> None:
        if kicks & lib.AIO_KICK_REFILL:
            lib.aio_device_refill(self.index, 0, POOL_EVENTS)
        for kick, large in ((lib.AIO_KICK_SMALL, 0), (lib.AIO_KICK_LARGE, 1)):
            if kicks & kick:
                lib.aio_stage_grow(self.index, large)
        if kicks & lib.AIO_KICK_NUDGE:
            lib.aio_device_equip(self.index)
        if kicks & lib.AIO_KICK_DONE:  # their references go, whether an await has looked or not
            for core in self.cores.members():
                core.sweep()
        if kicks & lib.AIO_KICK_FAULT:
            _failures.tell(self)
        if kicks & lib.AIO_KICK_FOREIGN:
            with self.changed:
                self.meet_foreign()

    def meet_foreign(self) -> None:
        """Answers a foreign reset, unless a flight is in the air: that asks again when it lands. With the lock held."""
        if self.flight is not None or not lib.aio_gate_foreign(self.index):
            return
        if self.state is State.CLOSED:
            lib.aio_gate_met(self.index)
            return
        self.revoke_leases()
        self.apply(Event.FOREIGN)
        if self.state is State.RESETTING:
            self.launch(ForeignFlight(self))

    # --- ACL's count -----------------------------------------------------------------------------------------

    def apply(self, event: Event, report: ResetReport | None = None, problem: str = "") -> None:
        """Performs the law's step; a foreign reset that a call has found out, and nobody has told, is counted here."""
        served = self.state in (State.OPEN, State.DRAINING)
        super().apply(event, report, problem)
        if event is Event.FAIL:
            self.maintenance.fail_all(self.quarantined)  # what waits for a lane that may be stuck ends
        unserved = event is Event.FOREIGN or (event is Event.SEIZE and lib.aio_gate_foreign(self.index))
        if served and unserved:  # from here on no call can find one
            self.count(Counts())

    def count(self, counts: Counts) -> None:
        """What is counted from now on; of less than was ours, all is. With the lock held."""
        self.counts, self.ours = counts, min(self.ours, counts.retained)

    def standing(self) -> Counts:
        """How often the device is set, by the face or by hand; a foreign reset has ended all. With the lock held."""
        if self.told != lib.aio_device_foreign(self.index):
            self.count(Counts())
        return self.counts

    def count_set(self, told: int) -> None:
        """One set more, made when so many foreign resets had been told: the first after the newest of them is alone."""
        with self.changed:
            if self.told != told:
                self.count(Counts())
            self.counts, self.ours, self.told = _law.set_device(self.counts).counts, self.ours + 1, told

    def count_reset(self, code: int, law: Callable[[Counts], _law.Verdict]) -> None:
        """What a reset of ours has come to."""
        with self.changed:
            if code == 0:
                self.ours -= self.ours > 0
                self.count(law(self.counts).counts)
            elif code == RELEASED_ALREADY:
                self.count(Counts())


_managers: dict[int, Manager] = {}
_managers_lock = _sync.lock()


def manager_of(index: Any) -> Manager:
    """The manager of a device. ParameterError for what is no device's index."""
    number = whole_of(index)
    if number is None or not 0 <= number < DEVICES:
        raise ParameterError(
            f"{index!r} is not the index of a device", hint="list_devices() tells which there are."
        )
    must_not_be_forked()
    with _managers_lock:
        if number not in _managers:
            _managers[number] = Manager(number)
        return _managers[number]
