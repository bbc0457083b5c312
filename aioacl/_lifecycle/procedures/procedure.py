"""Closing a device, and taking it back after a foreign reset: each a flight on a thread of its own.

A flight happens once and may be awaited by many. One that breaks off leaves the device quarantined, never half shut.
"""

from __future__ import annotations

import copy
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from aioacl._base import states as _law
from aioacl._base import sync as _sync
from aioacl._base.errors import AclError, AclWarning
from aioacl._base.ffi import ffi, lib
from aioacl._base.options import ResetReport
from aioacl._base.states import RELEASED_ALREADY, Event, State
from aioacl._library import runtime as _runtime
from aioacl._lifecycle import failures as _failures
from aioacl._lifecycle.gate import error_of, inside
from aioacl._wait.workers import Job, LaneStuck

if TYPE_CHECKING:
    from aioacl._base.options import Stuck
    from aioacl._lifecycle.manager import Manager

ATTEMPTS: Final = 3
LEAVE_SECONDS: Final = 0.5
EVENTS_SECONDS: Final = 5.0  # to destroy the native events before a reset
RESET_SECONDS: Final = 5.0
DROP_SECONDS: Final = 3.5  # what the runtime takes to drop the work of one stream, one after another
OPEN_SECONDS: Final = 60.0  # of each step of an open: the driver may start the card
CLOSE_SECONDS: Final = 5.0
HOPELESS_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 1.0  # how long a barrier may not notice that nobody has the device open any more
POOL_EVENTS: Final = 32

_ENQUEUE = 1 << lib.AIO_ENQUEUE
_WAIT = 1 << lib.AIO_WAIT
_LIFETIME = 1 << lib.AIO_LIFETIME
EVERYBODY: Final = _ENQUEUE | _WAIT | _LIFETIME


def named(stuck: tuple[Stuck, ...]) -> str:
    """The calls, for a sentence; without one it is a job of the library's own."""
    return ", ".join(f"{call.function} on thread {call.thread}" for call in stuck) or "a job"


class Flight:
    """Something that takes time, happens once, and may be awaited by many."""

    name = "flight"
    goes_on = "It goes on."  # for whoever has not the time to see it land
    by_hand = False  # whether it is of the device's counts only, and none of the face's
    # What a device that nobody has open any more is closed from.
    closed_after: tuple[State, ...] = (State.OPEN, State.QUARANTINED)

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.index = manager.index
        self.done = False
        self.error: BaseException | None = None
        self._began = _sync.monotonic()

    def run(self) -> None:
        """The thread's body: flies, unless it was taken back, and says so to everybody, whatever happens."""
        with self.manager.changed:
            if self.manager.flight is not self:
                return
        try:
            self.fly()
        except BaseException as error:  # noqa: BLE001 - it is raised in whoever awaits the flight
            self.error = error
            with self.manager.changed:
                self.manager.break_off(f"its {self.name} broke off: {error!r}")
            lib.aio_device_flush(self.index)
        manager = self.manager
        with manager.changed:
            self.done = True
            manager.flight = None
            manager.announce()
            manager.meet_foreign()
            manager.close_if_unused(*self.closed_after)

    def fly(self) -> None:
        """What the flight does."""
        raise NotImplementedError

    async def arrive(self, deadline: float | None) -> None:
        """Returns when the flight has landed; raises what ended it."""
        manager = self.manager
        while True:
            with manager.changed:
                seen, done = manager.version, self.done
            if done:
                break
            await manager.change(seen, deadline, self.goes_on)
        self.raise_error()

    def raise_error(self) -> None:
        """Raises what has ended the flight before its time."""
        if self.error is not None:
            # Each gets a copy of his own: a raised error collects the traces of whoever raises it.
            raise copy.copy(self.error).with_traceback(self.error.__traceback__) from self.error.__cause__

    # --- on the control lane ------------------------------------------------------------------------------------
    # What a call has done is counted there, when it returns: the flight may have given it up by then.

    def _set(self) -> int:
        """Sets the device; again, if somebody else has reset it before we were back.

        After the last time it is left at that: then his reset is yet to be met.
        """
        lib.aio_control_thread(self.index)
        made: Any = ffi.new("aio_counted *")
        code = 0
        for _ in range(ATTEMPTS):
            lib.aio_count_set(self.index, made)
            code = made.code
            if code == 0:
                self.manager.count_set(made.told)
                code = self._adopt_context()
            if lib.aio_device_foreign(self.index) == made.told:
                break
        return code

    def _adopt_context(self) -> int:
        """A device whose context cannot be had is not left set."""
        context = ffi.new("aclrtContext *")
        code = lib.aio_u_aclrtGetCurrentContext(context)
        if code == 0:
            lib.aio_set_context(self.index, context[0])
        else:
            self._reset_plain()
        return code

    def _settle_foreign(self) -> None:
        """Foreign resets before our set are made up for by it, later ones are yet to be met. With the lock held."""
        lib.aio_foreign_settle(self.index, self.manager.told)

    def _checked_set(self) -> None:
        code = self._set()
        if code:
            raise error_of(code, "aclrtSetDevice", self.index, self.manager.generation)

    def _reset_plain(self) -> int:
        """Gives one set back, unless a foreign reset has: by now, the device may be set by others."""
        with self.manager.changed:
            self.manager.standing()
            if not self.manager.ours:
                return RELEASED_ALREADY
        lib.aio_control_thread(self.index)
        code = lib.aio_u_aclrtResetDevice(self.index)
        self.manager.count_reset(code, _law.reset_device)
        return code

    def _reset_force(self) -> int:
        lib.aio_control_thread(self.index)
        code = lib.aio_u_aclrtResetDeviceForce(self.index)
        self.manager.count_reset(code, _law.reset_device_force)
        return code

    def _destroy_events(self) -> int:
        """The runtime does not free native events with their device, and after its tear-down nobody can."""
        if self.manager.ended != self.manager.generation:
            lib.aio_device_destroy_events(self.index)
        return 0

    def _holds_up(self) -> str:
        """The function that keeps the control lane, which may be another than the one that it was given last."""
        lane = self.manager.control.thread
        return next((call.function for call in inside(self.index) if call.thread == lane), "")

    def _acquire(self) -> None:
        lib.aio_control_thread(self.index)
        _runtime.acquire(self.manager)

    def _stuck(self) -> tuple[Stuck, ...]:
        """The calls that do not leave, or those of another device that keep this one from ACL.

        The gate is closed first, and calls that are about to return get half a second to do so.
        """
        with self.manager.changed:
            if self.manager.state in (State.OPEN, State.DRAINING):
                self.manager.apply(Event.SEIZE)
        self._all_have_left(EVERYBODY, LEAVE_SECONDS)
        others = [user.index for user in _runtime.busy() if isinstance(user, type(self.manager))]
        return inside(self.index) or tuple(call for other in others for call in inside(other))

    # --- shared steps ---------------------------------------------------------------------------------------------

    def _apply(self, event: Event) -> None:
        with self.manager.changed:
            self.manager.apply(event)

    def _quarantine(self, problem: str, stuck: tuple[Stuck, ...]) -> None:
        """A call of an open or a close has not returned in time."""
        manager = self.manager
        with manager.changed:
            manager.apply(Event.FAIL, self._failed(problem, stuck), problem)
        lib.aio_device_flush(self.index)

    def _failed(self, problem: str, stuck: tuple[Stuck, ...]) -> ResetReport:
        spent = (_sync.monotonic() - self._began) * 1000
        return ResetReport(
            device=self.index,
            ok=False,
            generation=self.manager.generation,
            reason=self.name,
            stuck=stuck,
            stages={self.name: spent},
            problem=problem,
        )

    def _prepare(self) -> None:
        """Fills the pool of events and the first staging memory; on the maintenance lane."""
        self.manager.clean_up()
        lib.aio_device_refill(self.index, 0, POOL_EVENTS)
        for large in (0, 1):
            if not lib.aio_stage_free_slots(self.index, 1 << 20 if large else 1):
                lib.aio_stage_grow(self.index, large)

    def _all_have_left(self, kinds: int, seconds: float) -> bool:
        """Waits until nobody of those kinds is inside C; False after the time."""
        return _sync.settled(
            lambda left: bool(lib.aio_gate_wait(self.index, kinds, int(left * 1e6))), seconds
        )

    def _must_be_empty(self) -> int:
        sitters_may_stay = self.manager.strategy == "thread"
        return EVERYBODY | (lib.AIO_BLOCKED_MAY_STAY if sitters_may_stay else 0)

    def _barrier_is_clear(self, seconds: float) -> bool:
        """Whether nobody is inside any more whom a reset would harm; False after the time.

        A wait that may stay must be in its call by then, not on the way to it: so all are given time to leave, but
        never all the time that there is.
        """
        end = _sync.monotonic() + seconds
        if self._all_have_left(EVERYBODY, min(LEAVE_SECONDS, seconds / 2)):
            return True
        return self._all_have_left(self._must_be_empty(), max(0.0, end - _sync.monotonic()))

    def _all_leave_within(self, seconds: float, if_forsaken: float) -> bool:
        """Whether the barrier is clear in that time; a shorter one once the last close waits for it."""
        began = _sync.monotonic()
        while not self._barrier_is_clear(min(LOOK_SECONDS, began + seconds - _sync.monotonic())):
            if _sync.monotonic() - began >= (min(if_forsaken, seconds) if self._forsaken() else seconds):
                return False
        return True

    def _forsaken(self) -> bool:
        """Whether nobody has the device open any more, and the last to leave waits."""
        return not self.manager.opens


class CloseFlight(Flight):
    """The last close of a device: one aclrtResetDevice."""

    name = "close"
    goes_on = "The close goes on: close() once more waits for it, and so does open_device()."
    closed_after = (State.OPEN,)  # one that has failed is made up for by the next open

    def __init__(self, manager: Manager, *, hopeless: bool = False) -> None:
        super().__init__(manager)
        self._hopeless = hopeless  # a reset has waited in vain for whoever is stuck

    def fly(self) -> None:
        manager = self.manager
        manager.end_executor()
        patience = HOPELESS_SECONDS if self._hopeless else CLOSE_SECONDS
        stopped = manager.maintenance.stop(patience)
        if not self._hopeless:
            self._ask_streams(patience)
        with manager.changed:
            manager.revoke_leases()  # else they would hold off resets of whoever opens the device next
            manager.apply(Event.SEIZE)
        lib.aio_device_flush(self.index)
        empty = self._barrier_is_clear(patience)
        if not (stopped and empty):
            self._give_up()
            return
        self._release()

    def _ask_streams(self, seconds: float) -> None:
        """Finds out which streams are done, and which have failed, while the gate still lets queries in.

        The barrier meets one that hangs.
        """
        with suppress(LaneStuck):
            self.manager.control.call(self._ask, seconds)

    def _ask(self) -> None:
        lib.aio_device_busy(self.index)
        _failures.tell(self.manager)

    def _unfinished(self) -> int:
        """Streams whose work the reset has to drop."""
        dropped = self.manager.ended == self.manager.generation
        return 0 if dropped else lib.aio_device_unfinished(self.index)

    def _give_up(self) -> None:
        stuck = self._stuck()
        problem = f"stays set: {named(stuck)} is still inside"
        self._quarantine(f"it {problem}", stuck)
        warnings.warn(f"device {self.index} {problem}", AclWarning, stacklevel=2)

    def _reset_all(self) -> int:
        """One reset for each set of ours: that of this open, and those of closes whose own reset has failed."""
        code = 0
        while code == 0:
            code = self._reset_plain()
        return code

    def _release(self) -> None:
        """Each step that calls ACL has a limit. One that comes back late goes on, and the next close waits for it."""
        manager = self.manager
        limit = RESET_SECONDS + DROP_SECONDS * self._unfinished()
        try:
            manager.control.call(self._destroy_events, EVENTS_SECONDS)
            code = manager.control.call(self._reset_all, limit)
            lib.aio_device_stop(self.index)
            _failures.tell_known(
                manager
            )  # the tear-down wakes the runtime, which then reports what stood still
            self._apply(Event.RELEASE)
            lib.aio_device_flush(self.index)
            self._let_go()
        except LaneStuck:
            self._give_up()
            return
        if code not in (0, RELEASED_ALREADY):
            warnings.warn(f"aclrtResetDevice answered {code}", AclWarning, stacklevel=2)
        _failures.warn_at_close(manager)

    def _let_go(self) -> None:
        control = self.manager.control
        try:
            control.call(self._give_back, CLOSE_SECONDS)
        except LaneStuck:
            raise
        except BaseException:  # where warnings are errors, a clean-up may end so
            control.stop(CLOSE_SECONDS)
            raise
        control.stop(CLOSE_SECONDS)

    def _give_back(self) -> None:
        """On the control lane: what is the host's, and this device's use of ACL."""
        manager = self.manager
        lib.aio_control_thread(self.index)
        lib.aio_stage_close(self.index)
        try:
            manager.maintenance.port.drain()
            manager.clean_up()
        finally:
            _runtime.release(manager)


class ForeignFlight(Flight):
    """Somebody else has reset the device: set it again for ourselves."""

    name = "foreign"

    def fly(self) -> None:
        lib.aio_device_flush(self.index)
        # Our set gives the primary context its life back, at the same address: a call from before the reset that is
        # still inside would make something that nobody owns. Who does not leave in time is not waited for.
        self._all_leave_within(CLOSE_SECONDS, HOPELESS_SECONDS)
        try:
            self.manager.control.call(self._checked_set, RESET_SECONDS)
        except (LaneStuck, AclError) as error:
            why = str(error) or f"{self._holds_up() or 'aclrtSetDevice'} has not returned within its time"
            with self.manager.changed:
                problem = f"it could not be set again after a foreign reset: {why}"
                self.manager.apply(Event.FAIL, problem=problem)
            return
        with self.manager.changed:
            self.manager.last_fault = None  # of the generation before
            self.manager.apply(Event.RETAKE)
            self._settle_foreign()
        lib.aio_device_flush(self.index)
        self.manager.maintenance.submit(Job(self._prepare))
