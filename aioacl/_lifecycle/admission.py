"""Who may pass: a device's state, who waits for it to change, and what a lease or a turn is good for.

`apply` makes the transitions of the state table. The state is written to the gate's word under its lock, so that what C
admits and what Python believes are the same thing. An operation that waits for a change subscribes for the next one
under that lock and looks again: no wake-up can be lost, on whatever thread or loop it runs.
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
NOT_CLOSED = "Open it again after the named call has returned. If that does not help, end the process."
OPEN_AGAIN = "Open the device again, make new handles and repeat the work."
NOTHING_BEGUN = "Nothing was begun: try again, or pass a longer timeout=."


def _nothing(*_: object) -> None:
    """For an admission that has no manager."""


class Admission:
    """The gate of one device, from Python's side.

    Attributes below `changed` are written with that lock held, except `stop_generation`; a single read needs no lock.

    `defer` leaves work to the maintenance thread. `applied` is called with the lock held after each step: with the
    event, and whether the device was served before.
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
        self.users: set[object] = set()  # who has the device open
        self.leases = Leases()
        self.turns = Turns(self.changed)
        self.listeners = Listeners(index)
        self.report: ResetReport | None = None  # of our reset, if it was one that led to this state
        self.problem = ""  # why the device is quarantined
        self._subscribers: dict[tuple[Port, int], None] = {}
        self._heard = 0  # the generation that listeners know of
        self._closed_generation = 0  # the one that the newest close has ended
        self.stop_generation = -1  # the newest in which a stream with on_failure="stop" was made

    # --- state -----------------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """The gate's generation: a foreign reset raises it in C."""
        return generation_of(self.index)

    @property
    def opens(self) -> int:
        """How often the device is open."""
        return len(self.users)

    def is_open_for(self, user: object) -> bool:
        """Whether he has been counted in, and not out again; takes no lock."""
        return user in self.users

    @property
    def shown(self) -> State:
        """The state for others: somebody else's reset has shut the gate before it is met."""
        open_still = self.state in (State.OPEN, State.DRAINING)
        return State.RESETTING if open_still and lib.aio_gate_foreign(self.index) else self.state

    def apply(self, event: Trigger, report: ResetReport | None = None, problem: str = "") -> None:
        """Makes the transition of the state table; call it with the lock held. What fails says by which problem."""
        step = states.step(self.state, event)
        served = self.state in (State.OPEN, State.DRAINING)
        generation = self.generation
        if event is Trigger.RELEASE:
            self._closed_generation = generation
        unheard = generation != self._heard and lib.aio_gate_foreign(self.index)
        if (
            unheard and event is not Trigger.FOREIGN
        ):  # it came while a procedure was running, which makes up for it
            self.listeners.tell("foreign reset", self.shown, generation)
        if step.new_generation and event is not Trigger.FOREIGN:  # that one was raised in C
            generation = next_generation(generation)
        generation = self._heard = generation or 1
        heard = self.state is step.state and not unheard
        if event is not Trigger.DRAIN:  # those whom the last reset has ended may still be on their way out
            self.report, self.problem = report, problem
        lib.aio_gate_set(self.index, int(step.state), generation)
        # Readers without the lock must not see the state with the generation before it, so the gate comes first; nor
        # an open device while a foreign reset is noticed, so the flag that makes `shown` RESETTING is cleared last.
        self.state = step.state
        if event is Trigger.FOREIGN:
            lib.aio_gate_met(self.index)
        if self.state is State.OPEN:
            self.turns.give()
        if not heard:
            self.listeners.tell(KINDS[event], self.state, self.generation, report=report, text=problem)
        self.announce()
        self._applied(event, served)

    def announce(self) -> None:
        """Wakes everybody who waits for a change; call it with the lock held.

        Nobody leaves the book before he is woken, for Ctrl-C may break it off; to be woken twice does no harm.
        """
        self.version += 1
        for port, key in tuple(self._subscribers):
            lib.aio_port_post(port.handle, key, 0)
            del self._subscribers[port, key]
        self.changed.notify_all()

    async def change(self, seen: int, deadline: float | None, hint: str = NOTHING_BEGUN) -> None:
        """Returns once something has changed since version `seen`; DeviceTimeout, with the hint, after the deadline."""
        port = current_port()
        subscription: list[tuple[Port, int]] = []

        def start(handle: CData, key: int) -> int:
            with self.changed:
                if self.version == seen:
                    subscription.append((port, key))
                    self._subscribers[port, key] = None
                else:
                    lib.aio_port_post(handle, key, 0)
            return 0

        try:
            result = await port.wait(start, deadline=deadline)
        except GeneratorExit:
            raise  # by a finalizer, which takes no lock; the port goes as well
        except BaseException:
            self._unsubscribe(subscription)
            raise
        if result == TIMED_OUT:
            self._unsubscribe(subscription)
            raise DeviceTimeout(
                f"device {self.index} was {self.shown.name} until the deadline", device=self.index, hint=hint
            )

    def _unsubscribe(self, subscription: list[tuple[Port, int]]) -> None:
        """Nobody waits for the change any more; one that has been posted by now is on its way all the same."""
        for port, key in subscription:
            with self.changed:
                waits = (port, key) in self._subscribers
                if waits:
                    del self._subscribers[port, key]
            if waits:
                port.refuse(key)

    def quarantined(self) -> DeviceQuarantined:
        """The error that says why."""
        return DeviceQuarantined(
            f"expected an open device, got a quarantined one: {self.problem}",
            device=self.index,
            generation=self.generation,
            report=self.report,
            hint=None if self.opens else NOT_CLOSED,
        )

    def _how_ended(self, generation: int) -> str:
        """What has ended a generation, or is about to; of one before the newest close it is not known any more."""
        if generation == self.generation:
            return "reset" if self.opens else "closed"
        if generation == self._closed_generation:
            return "closed"
        return "reset" if generation > self._closed_generation else "reset or closed"

    def was_ended(self, generation: int, call: str) -> DeviceReset:
        """The error of what a reset or a close has dropped, with the report of that reset if it is the newest."""
        how, report = self._how_ended(generation), self.report
        known = report is not None and report.generation in (generation, next_generation(generation))
        return DeviceReset(
            f"the device was {how} before this was done",
            call=call,
            device=self.index,
            generation=generation,
            report=report if known else None,
            hint=None if how == "reset" else OPEN_AGAIN,
        )

    def resetting(self) -> DeviceResetting:
        return DeviceResetting(
            f"device {self.index} is {self.shown.name}", device=self.index, generation=self.generation
        )

    async def until_open(
        self, place: Waiter | None = None, *, wait: bool = True, deadline: float | None = None
    ) -> None:
        """Returns when the device is OPEN; holders of a lease, and jobs, pass while it is DRAINING.

        Who comes to wait has a turn once the device is open, for as long as he is in his place.
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
            "the lease was revoked",
            device=self.index,
            generation=self.generation,
            hint="Leave the lease and enter it anew: a reset or the last close has parted its steps.",
        )

    def may_pass(self, holder: object) -> bool:
        """Whether something new may begin now, for this holder; raises if it never may. With the lock held."""
        if self.leases.lost(holder):
            raise self._revoked()
        if self.state is State.CLOSED:
            raise self.closed()
        if self.state is State.QUARANTINED:
            raise self.quarantined()
        state = self.shown
        return state is State.OPEN or (state is State.DRAINING and self.holds_off(holder))

    def holds_off(self, holder: object) -> bool:
        """Whether a reset waits for the holder: for its lease, or for its job. With the lock held.

        The job is the one that runs here, or the one that has submitted the holder's.
        """
        if isinstance(holder, JobScope) and holder.index == self.index:
            return not holder.over
        scope = current_job_scope()
        return self.leases.holds(holder) or (scope is not None and scope.index == self.index)

    def closed(self) -> ParameterError:
        """The error of whoever uses a device that nobody has open."""
        return ParameterError(
            "the device is closed",
            device=self.index,
            hint="Use it inside `async with open_device()`.",
        )

    def found_reset(self, generation: int | None, code: int | None) -> bool:
        """Whether a code that a call of that generation got means that somebody else has reset the device.

        The gate has made our context current, so a thread without one says that the context is gone. What the state
        callback tells comes later than that, or never where the runtime has no such callback.
        """
        if code != CONTEXT_IS_NULL or generation is None or lib.aio_forked():
            return False
        if self.generation == generation and context_lives(self.index):
            return False
        lib.aio_foreign_found(self.index, generation)
        return True

    # --- leases ----------------------------------------------------------------------------------------------

    async def grant(self, lease: Lease, *, wait: bool, deadline: float | None) -> None:
        """Makes the current task a holder once the device is open; holders get another one while it drains."""
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
        """Makes another task a holder of a lease that is held."""
        must_not_be_forked()
        with self.changed:
            shared._must_be_new()
            if self.leases.was_revoked(shared._lease):
                raise self._revoked()
            self.leases.join(shared, holder)

    def _entered(self, lease: Lease, holder: object) -> bool:
        """Whether he has it to give back. Who has not takes no lock."""
        return not lib.aio_forked() and self.leases.concerns(lease, holder)

    def entered(self, lease: Lease, holder: object) -> int:
        """How often he has entered the lease and not left it yet."""
        if not self._entered(lease, holder):
            return 0
        with self.changed:
            return self.leases.entered(lease, holder)

    def give_back(self, lease: Lease, holder: object, left: int) -> None:
        """Until he has entered it so often and no more; a drain looks whether he was the last."""
        if self._entered(lease, holder):
            with self.changed:
                if self.leases.remove(lease, holder, left):
                    self.announce()

    def forsake_lease(self, lease: Lease, holder: object) -> None:
        """For finalizers: the holder has left the lease; takes no lock."""
        if lib.aio_forked():
            return
        self.leases.forsake(lease, holder)
        self._defer(self.tidy_leases)

    def forget_lease(self) -> None:
        """For finalizers: a lease that was entered is gone; takes no lock."""
        self._defer(self.tidy_leases)

    def tidy_leases(self) -> None:
        """Holders have left theirs without the lock."""
        with self.changed:
            self.leases.tidy()
            self.announce()

    def revoke_leases(self) -> None:
        """The steps that they hold together are about to be parted; call it with the lock held."""
        revoked = self.leases.revoke()
        if revoked:
            text = f"{revoked} {'lease' if revoked == 1 else 'leases'}"
            self.listeners.tell("revoked", self.shown, self.generation, text=text)

    def may_enqueue_while_draining(self) -> bool:
        """Whether the current task holds a lease that is not revoked, or is a job."""
        with self.changed:
            return self.state is State.DRAINING and self.holds_off(current_holder())
