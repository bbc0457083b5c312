"""The state of a device, the waits for a change of it, and the rights that leases and turns give.

`apply` makes the transitions of the state table. It changes the state here and in the gate's word, under the lock of
the admission. Only a foreign reset closes the gate in C before the state changes here. An operation that waits for a
change takes the lock, checks the version again, and subscribes for the next change. So no wake-up is lost on any thread
or event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioacl._base import states, sync
from aioacl._base.errors import DeviceQuarantined, DeviceReset, DeviceResetting, DeviceTimeout, ParameterError
from aioacl._base.ffi import generation_of, lib, next_generation
from aioacl._base.states import State, Trigger
from aioacl._library.runtime import must_not_be_forked
from aioacl._lifecycle.gate import context_lives
from aioacl._lifecycle.lease import Lease, Leases, SharedLease
from aioacl._lifecycle.notifications import KINDS, Listeners
from aioacl._lifecycle.turns import Turns, Waiter
from aioacl._wait.current import current_holder, current_port
from aioacl._wait.job_scope import JobScope, current_job_scope
from aioacl._wait.port import TIMED_OUT, Port

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import CData
    from aioacl._base.records import ResetReport

CONTEXT_IS_NULL = 107002
NOT_CLOSED = (
    "Open the device again after the named call has returned. If that does not help, end the process."
)
OPEN_AGAIN = "Open the device again, make new handles and repeat the work."
NOTHING_BEGUN = "No work was started: try again, or pass a longer timeout=."


def _nothing(*_: object) -> None:
    """The default callback, for an admission without a manager."""


class Admission:
    """The Python side of a device's gate.

    The attributes that `__init__` sets after `changed` are written only with the lock `changed` held, except
    `stop_generation`. Reading a single attribute needs no lock.

    `defer` leaves work to the maintenance thread. `applied` is called after each transition, with the lock held. Its
    arguments are the event, and whether the device was OPEN or DRAINING before.
    """

    def __init__(
        self,
        index: int,
        *,
        defer: Callable[[Callable[[], object]], object] = _nothing,
        applied: Callable[[Trigger, bool], object] = _nothing,
    ) -> None:
        self.index = index
        self._defer = defer
        self._applied = applied
        self.changed = sync.condition()
        self.state = State.CLOSED
        self.version = 0
        self.users: set[object] = set()  # one for each open that is not closed
        self.leases = Leases()
        self.turns = Turns(self.changed)
        self.listeners = Listeners(index)
        self.report: ResetReport | None = None  # of the force reset that led to this state, if any
        self.problem = ""  # why the device is quarantined
        self._subscribers: dict[tuple[Port, int], None] = {}
        self.observers: dict[object, Callable[[], object]] = {}  # a finalizer may remove one without the lock
        self._heard = 0  # the newest generation that the listeners got
        self._closed_generation = 0  # the generation that the newest close ended
        self.unready_since: float | None = None  # when the device was last ready; None if it is ready
        self.stop_generation = -1  # the newest generation with a stream of on_failure="stop"

    # --- state -----------------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """The generation in the gate. It is read from C, because a foreign reset raises it there."""
        return generation_of(self.index)

    @property
    def opens(self) -> int:
        """The number of opens that are not closed."""
        return len(self.users)

    def is_open_for(self, user: object) -> bool:
        """Whether the user was added and not removed. Takes no lock."""
        return user in self.users

    @property
    def shown(self) -> State:
        """The state as users see it: RESETTING from the moment that a foreign reset closes the gate in C."""
        open_still = self.state in (State.OPEN, State.DRAINING)
        return State.RESETTING if open_still and lib.aio_gate_foreign(self.index) else self.state

    def apply(self, event: Trigger, report: ResetReport | None = None, problem: str = "") -> None:
        """Makes a transition of the state table.

        Call it with the lock held. `problem` is the reason of a FAIL event.
        """
        step = states.step(self.state, event)
        served = self.state in (State.OPEN, State.DRAINING)
        generation = self.generation
        if event is Trigger.RELEASE:
            self._closed_generation = generation
        unheard = generation != self._heard and lib.aio_gate_foreign(self.index)
        # The foreign reset came while a procedure was running, and that procedure sets the device again.
        if unheard and event is not Trigger.FOREIGN:
            self.listeners.tell("foreign reset", self.shown, generation)
        if step.new_generation and event is not Trigger.FOREIGN:  # a foreign reset has raised it in C
            generation = next_generation(generation)
        generation = self._heard = generation or 1
        heard = self.state is step.state and not unheard
        if event is not Trigger.DRAIN:  # operations that the last reset ended may still need its report
            self.report, self.problem = report, problem
        lib.aio_gate_set(self.index, int(step.state), generation)
        # Readers without the lock must not see the new state with the old generation, so the gate is written first.
        # They must not see an open device while a foreign reset is handled, so the flag that makes `shown` RESETTING
        # is cleared last.
        self.state = step.state
        if event is Trigger.FOREIGN:
            lib.aio_gate_met(self.index)
        if self.state is State.OPEN:
            self.turns.give()
            self.unready_since = None
        else:
            self.note_unready()
        if not heard:
            self.listeners.tell(KINDS[event], self.state, self.generation, report=report, text=problem)
        self.announce()
        self._applied(event, served)

    def note_unready(self) -> None:
        """Notes that the device is not ready from now on, if it was ready before. Call it with the lock held."""
        if self.unready_since is None:
            self.unready_since = sync.monotonic()

    def announce(self) -> None:
        """Calls the observers and wakes all waits for a change. Call it with the lock held.

        Each subscriber is woken before it is removed, because Ctrl-C may interrupt the loop. A second wake-up is
        harmless.
        """
        self.version += 1
        for changed in tuple(self.observers.values()):
            changed()
        for port, key in tuple(self._subscribers):
            port.post(key)
            del self._subscribers[port, key]
        self.changed.notify_all()

    async def change(self, seen: int, deadline: float | None, hint: str = NOTHING_BEGUN) -> None:
        """Returns when the version differs from `seen`. Raises DeviceTimeout, with the hint, after the deadline."""
        port = current_port()
        subscription: list[tuple[Port, int]] = []

        def start(_: CData, key: int) -> int:
            port.take_token(key)
            with self.changed:
                if self.version == seen:
                    subscription.append((port, key))
                    self._subscribers[port, key] = None
                else:
                    port.post(key)
            return 0

        try:
            result = await port.wait(start, deadline=deadline)
        except GeneratorExit:
            raise  # from a finalizer, which takes no lock; the port is garbage as well
        except BaseException:
            self._unsubscribe(subscription)
            raise
        if result == TIMED_OUT:
            self._unsubscribe(subscription)
            raise DeviceTimeout(
                f"device {self.index} was still {self.shown.name} at the deadline",
                device=self.index,
                hint=hint,
            )

    def _unsubscribe(self, subscription: list[tuple[Port, int]]) -> None:
        """Removes the subscription of a wait that has ended. A change that was already posted still arrives."""
        for port, key in subscription:
            with self.changed:
                waits = (port, key) in self._subscribers
                if waits:
                    del self._subscribers[port, key]
            if waits:
                port.refuse(key)

    def quarantined(self) -> DeviceQuarantined:
        """The error of a quarantined device, with the reason and the report."""
        return DeviceQuarantined(
            f"the device is quarantined: {self.problem}",
            device=self.index,
            generation=self.generation,
            report=self.report,
            hint=None if self.opens else NOT_CLOSED,
        )

    def _how_ended(self, generation: int) -> str:
        """Returns how a generation ended, or is about to end.

        For generations before the newest close, the result is "reset or closed".
        """
        if generation == self.generation:
            return "reset" if self.opens else "closed"
        if generation == self._closed_generation:
            return "closed"
        return "reset" if generation > self._closed_generation else "reset or closed"

    def was_ended(self, generation: int, call: str) -> DeviceReset:
        """The error of work that a reset or a close dropped, with the report of that reset if it is the newest."""
        how, report = self._how_ended(generation), self.report
        known = report is not None and report.generation in (generation, next_generation(generation))
        return DeviceReset(
            f"the device was {how} before the work was done",
            call=call,
            device=self.index,
            generation=generation,
            report=report if known else None,
            hint=None if how == "reset" else OPEN_AGAIN,
        )

    def resetting(self) -> DeviceResetting:
        return DeviceResetting(
            f"the device is {self.shown.name}",
            device=self.index,
            generation=self.generation,
        )

    def admits_now(self) -> bool:
        """Whether the current task or thread may start an operation without waiting. Raises what `may_pass` raises."""
        with self.changed:
            return self.may_pass(current_holder())

    async def until_open(
        self, place: Waiter | None = None, *, wait: bool = True, deadline: float | None = None
    ) -> None:
        """Returns when the device is OPEN. Holders of a lease and jobs may also continue while it is DRAINING.

        An operation that had to wait gets a turn when the device opens. It keeps the turn until the block of `place`
        is left.
        """
        while True:
            with self.changed:
                seen = self.version
                if self.may_pass(current_holder()):
                    return
                if not wait:
                    raise self.resetting()
                if place is not None:
                    self.turns.wait(place)
            await self.change(seen, deadline)

    def _revoked(self) -> DeviceResetting:
        return DeviceResetting(
            "the lease was revoked by a reset or by the last close",
            device=self.index,
            generation=self.generation,
            hint="Leave the lease, then acquire a new one.",
        )

    def may_pass(self, holder: object) -> bool:
        """Whether this holder may start an operation now. Call it with the lock held.

        Raises an error if waiting cannot help: the holder's lease was revoked, or the device is closed or quarantined.
        """
        if self.leases.lost(holder):
            raise self._revoked()
        if self.state is State.CLOSED:
            raise self.closed()
        if self.state is State.QUARANTINED:
            raise self.quarantined()
        state = self.shown
        return state is State.OPEN or (state is State.DRAINING and self.holds_off(holder))

    def holds_off(self, holder: object) -> bool:
        """Whether a reset waits for the holder: for its lease or for its job. Call it with the lock held.

        If the holder is the JobScope of a job on this device, that job counts. Otherwise the holder's leases count, and
        so does a job that runs on this thread.
        """
        if isinstance(holder, JobScope) and holder.index == self.index:
            return not holder.over
        scope = current_job_scope()
        return self.leases.holds(holder) or (scope is not None and scope.index == self.index)

    def holds_now(self) -> bool:
        """Whether the caller may enqueue if the device drains."""
        if not self.leases.ever and current_job_scope() is None:
            return False
        with self.changed:
            return self.holds_off(current_holder())

    def closed(self) -> ParameterError:
        """The error for using a closed device."""
        return ParameterError(
            "the device is closed",
            device=self.index,
            hint="Use the device inside `async with open_device()`.",
        )

    def found_reset(self, generation: int | None, code: int | None) -> bool:
        """Whether a foreign reset is the reason for `code`, which a call of `generation` returned.

        The gate made aioacl's context current before the call. So the code 107002 means that the context is gone,
        unless the generation is the same and the device is still set. The reset is noted in C at once, because the
        state callback reports it later, or never if the runtime has no such callback.
        """
        if code != CONTEXT_IS_NULL or generation is None or lib.aio_forked():
            return False
        if self.generation == generation and context_lives(self.index):
            return False
        lib.aio_foreign_found(self.index, generation)
        return True

    # --- leases ----------------------------------------------------------------------------------------------

    async def grant(self, lease: Lease, *, wait: bool, deadline: float | None) -> None:
        """Makes the current task a holder when the device is open.

        A holder also gets another lease while the device drains.
        """
        must_not_be_forked()
        lease._must_be_new()
        holder = current_holder()
        with self.turns.place() as place:
            while True:
                await self.until_open(place, wait=wait, deadline=deadline)
                with self.changed:
                    if self.may_pass(holder):
                        self.leases.grant(lease, holder, self.generation)
                        return

    def share_lease(self, shared: SharedLease, holder: object) -> None:
        """Makes another task a holder of a lease that is already held."""
        must_not_be_forked()
        with self.changed:
            shared._must_be_new()
            if self.leases.was_revoked(shared._lease):
                raise self._revoked()
            self.leases.join(shared, holder)

    def _entered(self, lease: Lease, holder: object) -> bool:
        """Whether the holder has the lease, or had it when the lease was revoked. Takes no lock."""
        return not lib.aio_forked() and self.leases.concerns(lease, holder)

    def entered(self, lease: Lease, holder: object) -> int:
        """How many times the holder has entered the lease and not left it."""
        if not self._entered(lease, holder):
            return 0
        with self.changed:
            return self.leases.entered(lease, holder)

    def give_back(self, lease: Lease, holder: object, left: int) -> None:
        """Removes entries of the holder until `left` remain. If no holder is left, a running drain is woken."""
        if self._entered(lease, holder):
            with self.changed:
                if self.leases.remove(lease, holder, left):
                    self.announce()

    def abandon_lease(self, lease: Lease, holder: object) -> None:
        """For finalizers: removes one entry of the holder. Takes no lock."""
        if lib.aio_forked():
            return
        self.leases.abandon(lease, holder)
        self._defer(self.tidy_leases)

    def forget_lease(self) -> None:
        """For finalizers: an entered lease was garbage-collected. Takes no lock."""
        self._defer(self.tidy_leases)

    def tidy_leases(self) -> None:
        """Drops the leases whose last holder was removed by a finalizer, which takes no lock."""
        with self.changed:
            self.leases.tidy()
            self.announce()

    def revoke_leases(self) -> None:
        """Revokes all leases, because a reset or a close is about to interrupt the steps that they protect.

        Call it with the lock held.
        """
        revoked = self.leases.revoke()
        if revoked:
            text = f"{revoked} {'lease' if revoked == 1 else 'leases'}"
            self.listeners.tell("revoked", self.shown, self.generation, text=text)

    def may_enqueue_while_draining(self) -> bool:
        """Whether the device is draining and the caller may still enqueue: it holds a lease, or is a job."""
        with self.changed:
            return self.state is State.DRAINING and self.holds_off(current_holder())
