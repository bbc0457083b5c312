"""What takes time in the life of a device: each procedure happens once, on a thread of its own.

Many may wait for one. A procedure that breaks off leaves the device quarantined, never half shut.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final, Protocol

from aioacl._base import states, sync
from aioacl._base.ffi import ffi, lib
from aioacl._base.records import ResetReport
from aioacl._base.states import RELEASED_ALREADY, State, Trigger
from aioacl._library import runtime
from aioacl._lifecycle.gate import error_of, inside
from aioacl._lifecycle.procedures import limits

if TYPE_CHECKING:
    from aioacl._base.options import Strategy
    from aioacl._base.records import Stuck
    from aioacl._lifecycle.admission import Admission
    from aioacl._lifecycle.counts import SetCounts
    from aioacl._lifecycle.failures import Failures
    from aioacl._lifecycle.jobs import Jobs
    from aioacl._wait.workers import WorkerThread

_ENQUEUE = 1 << lib.AIO_ENQUEUE
_WAIT = 1 << lib.AIO_WAIT
_LIFETIME = 1 << lib.AIO_LIFETIME
EVERYBODY: Final = _ENQUEUE | _WAIT | _LIFETIME


def named(stuck: tuple[Stuck, ...]) -> str:
    """The calls, for a sentence; without one it is a job of the library's own."""
    return ", ".join(f"{call.function} on thread {call.thread}" for call in stuck) or "a job"


class Host(Protocol):
    """What a procedure needs of the manager of its device."""

    @property
    def index(self) -> int:
        """The device's."""
        ...

    @property
    def admission(self) -> Admission:
        """The gate; its lock guards the rest."""
        ...

    @property
    def counts(self) -> SetCounts:
        """How often the device is set."""
        ...

    @property
    def failures(self) -> Failures:
        """Faults and failed tasks."""
        ...

    @property
    def jobs(self) -> Jobs:
        """The user's."""
        ...

    @property
    def control(self) -> WorkerThread:
        """Keeps ACL's state of a thread."""
        ...

    @property
    def maintenance(self) -> WorkerThread:
        """Makes and destroys."""
        ...

    @property
    def strategy(self) -> Strategy:
        """How waits wait."""
        ...

    procedure: Procedure | None

    def clean_up(self) -> None:
        """Does what could not be done before the device was reset or closed."""
        ...

    def break_off(self, problem: str) -> None:
        """The gate is not left half shut; with the lock held."""
        ...

    def meet_foreign(self) -> None:
        """Answers a foreign reset, if one is to be answered; with the lock held."""
        ...

    def close_if_unused(self, *states: State) -> Procedure | None:
        """Starts closing when nothing has the device open; with the lock held."""
        ...


class Procedure:
    """Something that takes time, happens once, and may be awaited by many."""

    name = "procedure"
    goes_on = "It goes on."  # for whoever has not the time to wait for its end
    manual = False  # whether it is of the device's counts only, and of no open
    # What a device that nobody has open any more is closed from.
    closed_after: tuple[State, ...] = (State.OPEN, State.QUARANTINED)

    def __init__(self, host: Host) -> None:
        self.host = host
        self.admission = host.admission
        self.index = host.index
        self.done = False
        self.error: BaseException | None = None
        self._began = sync.monotonic()

    def execute(self) -> None:
        """The thread's body: runs, unless it was taken back, and reports to every caller, whatever happens."""
        with self.admission.changed:
            if self.host.procedure is not self:
                return
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - it is raised in whoever awaits the procedure
            self.error = error
            with self.admission.changed:
                self.host.break_off(f"its {self.name} broke off: {error!r}")
            lib.aio_device_flush(self.index)
        admission = self.admission
        with admission.changed:
            self.done = True
            self.host.procedure = None
            admission.announce()
            self.host.meet_foreign()
            self.host.close_if_unused(*self.closed_after)

    def run(self) -> None:
        """What the procedure does."""
        raise NotImplementedError

    async def wait(self, deadline: float | None) -> None:
        """Returns when the procedure has ended; raises what ended it."""
        admission = self.admission
        while True:
            with admission.changed:
                seen, done = admission.version, self.done
            if done:
                break
            await admission.change(seen, deadline, self.goes_on)
        self.raise_error()

    def raise_error(self) -> None:
        """Raises what has ended the procedure before its time."""
        if self.error is not None:
            # Each gets a copy of his own: a raised error collects the traces of whoever raises it.
            raise copy.copy(self.error).with_traceback(self.error.__traceback__) from self.error.__cause__

    # --- on the control thread ------------------------------------------------------------------------------------
    # What a call has done is counted there, when it returns: the procedure may have given it up by then.

    def _set(self) -> int:
        """Sets the device; again, if somebody else has reset it before we were back.

        After the last time it is left at that: then his reset is yet to be met.
        """
        lib.aio_control_thread(self.index)
        made: Any = ffi.new("aio_counted *")
        code = 0
        for _ in range(limits.SETS_TRIED):
            lib.aio_count_set(self.index, made)
            code = made.code
            if code == 0:
                self.host.counts.note_set(made.told)
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
        lib.aio_foreign_settle(self.index, self.host.counts.foreign_resets_seen)

    def _checked_set(self) -> None:
        code = self._set()
        if code:
            raise error_of(code, "aclrtSetDevice", self.index, self.admission.generation)

    def _reset_plain(self) -> int:
        """Gives one set back, unless a foreign reset has: by now, the device may be set by others."""
        with self.admission.changed:
            self.host.counts.standing()
            if not self.host.counts.own_sets:
                return RELEASED_ALREADY
        lib.aio_control_thread(self.index)
        code = lib.aio_u_aclrtResetDevice(self.index)
        self.host.counts.note_reset(code, states.reset_device)
        return code

    def _reset_force(self) -> int:
        lib.aio_control_thread(self.index)
        code = lib.aio_u_aclrtResetDeviceForce(self.index)
        self.host.counts.note_reset(code, states.reset_device_force)
        return code

    def _destroy_events(self) -> int:
        """The runtime does not free native events with their device, and after its tear-down nobody can."""
        if self.host.counts.ended_generation != self.admission.generation:
            lib.aio_device_destroy_events(self.index)
        return 0

    def _holds_up(self) -> str:
        """The function that keeps the control thread, which may be another than the one that it was given last."""
        worker = self.host.control.thread
        return next((call.function for call in inside(self.index) if call.thread == worker), "")

    def _acquire(self) -> None:
        lib.aio_control_thread(self.index)
        runtime.acquire(self.host)

    def _stuck(self) -> tuple[Stuck, ...]:
        """The calls that do not leave, or those of another device that keep this one from ACL.

        The gate is closed first, and calls that are about to return get half a second to do so.
        """
        with self.admission.changed:
            if self.admission.state in (State.OPEN, State.DRAINING):
                self.admission.apply(Trigger.SEIZE)
        self._all_have_left(EVERYBODY, limits.LEAVE_SECONDS)
        others = [user.index for user in runtime.busy() if isinstance(user, type(self.host))]
        return inside(self.index) or tuple(call for other in others for call in inside(other))

    # --- shared steps ---------------------------------------------------------------------------------------------

    def _apply(self, event: Trigger) -> None:
        with self.admission.changed:
            self.admission.apply(event)

    def _quarantine(self, problem: str, stuck: tuple[Stuck, ...]) -> None:
        """A call of an open or a close has not returned in time."""
        admission = self.admission
        with admission.changed:
            admission.apply(Trigger.FAIL, self._failed(problem, stuck), problem)
        lib.aio_device_flush(self.index)

    def _failed(self, problem: str, stuck: tuple[Stuck, ...]) -> ResetReport:
        spent = (sync.monotonic() - self._began) * 1000
        return ResetReport(
            device=self.index,
            ok=False,
            generation=self.admission.generation,
            reason=self.name,
            stuck=stuck,
            stages={self.name: spent},
            problem=problem,
        )

    def _prepare(self) -> None:
        """Fills the pool of events and the first staging memory; on the maintenance thread."""
        self.host.clean_up()
        lib.aio_device_refill(self.index, 0, limits.POOL_EVENTS)
        for large in (0, 1):
            if not lib.aio_stage_free_slots(self.index, 1 << 20 if large else 1):
                lib.aio_stage_grow(self.index, large)

    def _all_have_left(self, kinds: int, seconds: float) -> bool:
        """Waits until nobody of those kinds is inside C; False after the time."""
        return sync.settled(lambda left: bool(lib.aio_gate_wait(self.index, kinds, int(left * 1e6))), seconds)

    def _must_be_empty(self) -> int:
        blocked_may_stay = self.host.strategy == "thread"
        return EVERYBODY | (lib.AIO_BLOCKED_MAY_STAY if blocked_may_stay else 0)

    def _barrier_is_clear(self, seconds: float) -> bool:
        """Whether nobody is inside any more whom a reset would harm; False after the time.

        A wait that may stay must be in its call by then, not on the way to it: so all are given time to leave, but
        never all the time that there is.
        """
        end = sync.monotonic() + seconds
        if self._all_have_left(EVERYBODY, min(limits.LEAVE_SECONDS, seconds / 2)):
            return True
        return self._all_have_left(self._must_be_empty(), max(0.0, end - sync.monotonic()))

    def _all_leave_within(self, seconds: float, if_forsaken: float) -> bool:
        """Whether the barrier is clear in that time; a shorter one once the last close waits for it."""
        began = sync.monotonic()
        while not self._barrier_is_clear(min(limits.LOOK_SECONDS, began + seconds - sync.monotonic())):
            if sync.monotonic() - began >= (min(if_forsaken, seconds) if self._forsaken() else seconds):
                return False
        return True

    def _forsaken(self) -> bool:
        """Whether nobody has the device open any more, and the last to leave waits."""
        return not self.admission.opens
