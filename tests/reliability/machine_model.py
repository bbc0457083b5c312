"""What must hold of devices and of what lives on them, for a single thread that waits for everything it begins.

A `Card` is a device as its public methods show it; a `Thing` is a handle. Neither asks the library.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

import aioacl
from aioacl import State

KEPT: Final = 64  # events that wait for a listener
Refusal = type[aioacl.AclError] | None


@dataclass(frozen=True)
class Reset:
    """How a force reset goes: what is wrong with the device meanwhile, and what comes of it."""

    rule: str = ""
    opens: bool = True
    releases: bool = True
    sets: bool = True
    attempts: int = 1


RESETS: Final = {
    "plain": Reset(),
    "fails once": Reset("aclrtResetDeviceForce:dev={}:reset-fail=1", attempts=2),
    "fails twice": Reset("aclrtResetDeviceForce:dev={}:reset-fail=2:rc=507899", attempts=3),
    "fails": Reset("aclrtResetDeviceForce:dev={}:reset-fail=3", opens=False, releases=False, attempts=3),
    "lies once": Reset("aclrtResetDeviceForce:dev={}:times=1:reset-lies=507015", attempts=2),
    "lies": Reset("aclrtResetDeviceForce:dev={}:reset-lies=507015", opens=False, attempts=3),
    "cannot set": Reset("aclrtSetDevice:dev={}:rc=507033", opens=False, sets=False, attempts=3),
}


@dataclass
class Listener:
    """A listener, and the kinds of events that wait for it."""

    events: aioacl.DeviceEvents
    by: Device  # that was asked for it
    expected: deque[tuple[str, State, int]] = field(default_factory=deque[tuple[str, State, int]])
    missed: int = 0

    def put(self, event: tuple[str, State, int]) -> None:
        """One more; the oldest goes when there are too many."""
        if len(self.expected) == KEPT:
            self.expected.popleft()
            self.missed += 1
        self.expected.append(event)

    def taken(self) -> list[tuple[str, State, int]]:
        """All of them, which wait no longer."""
        taken = list(self.expected)
        self.expected.clear()
        self.missed = 0
        return taken


@dataclass
class Card:
    """A device: its state, its generation, how often it is open and set, and what it has told."""

    index: int
    state: State
    generation: int
    opens: int = 0
    waits: str = "watch"
    retained: int = 0
    faulted: bool = False
    leases: list[Any] = field(default_factory=list[Any])  # held by this thread, in the order of entering
    lost: list[Any] = field(default_factory=list[Any])  # revoked, and not left yet
    listeners: list[Listener] = field(default_factory=list[Listener])

    def tell(self, kind: str) -> None:
        """An event, for all who listen."""
        for listener in self.listeners:
            listener.put((kind, self.state, self.generation))

    def becomes(self, state: State, kind: str, *, generation: bool = False) -> None:
        """A step of the state table."""
        self.state = state
        self.generation += generation
        self.tell(kind)

    # --- what happens --------------------------------------------------------------------------------------------

    def opened(self, waits: str) -> None:
        """One open more."""
        self.opens += 1
        if self.opens == 1:
            self.waits, self.retained, self.faulted = waits, 1, False
            self.generation = max(1, self.generation)
            self.becomes(State.OPEN, "opened")

    def closed(self) -> None:
        """One open less."""
        self.opens -= 1
        if self.opens:
            return
        if self.state is State.OPEN:
            self.becomes(State.DRAINING, "draining")
        self.revoked()
        self.becomes(State.RESETTING, "resetting")
        self.retained = 0
        self.becomes(State.CLOSED, "closed", generation=True)

    def reset(self, how: str) -> Reset:
        """A force reset of ours, with no grace. One that is not set is just set: what ails resets does not matter."""
        comes = RESETS[how] if self.retained or not RESETS[how].sets else RESETS["plain"]
        if self.state is State.OPEN:
            self.becomes(State.DRAINING, "draining")
        self.revoked()
        self.becomes(State.RESETTING, "resetting")
        if comes.opens:
            self.faulted, self.retained = False, 1
            self.becomes(State.OPEN, "reopened", generation=True)
        else:
            self.retained = int(comes.sets) if comes.releases else self.retained
            self.becomes(State.QUARANTINED, "quarantined")
        return comes

    def revoked(self) -> None:
        """Leases that are held end."""
        if self.leases:
            self.tell("revoked")
        self.lost += self.leases
        self.leases.clear()

    def foreign_reset(self) -> int:
        """Somebody else resets it: the code that he gets."""
        if not self.retained:
            return 507007
        self.generation += 1
        if self.state is State.QUARANTINED:
            self.retained = 0
            self.becomes(State.QUARANTINED, "foreign reset")
        else:
            self.state, self.faulted = State.RESETTING, False
            self.revoked()
            self.becomes(State.RESETTING, "foreign reset")
            self.becomes(State.OPEN, "reopened")
        return 0

    # --- what is refused -----------------------------------------------------------------------------------------

    @property
    def shut(self) -> Refusal:
        """What new work meets."""
        return {State.OPEN: None, State.QUARANTINED: aioacl.DeviceQuarantined}.get(
            self.state, aioacl.ParameterError
        )

    def refusal(self, opened: Device) -> Refusal:
        """What making something by that open of it meets."""
        if opened.closed:
            return aioacl.ParameterError
        return aioacl.DeviceResetting if self.lost else self.shut


@dataclass(eq=False)
class Device:
    """What open_device has given."""

    made: aioacl.Device
    card: Card
    closed: bool = False


@dataclass(eq=False)
class Thing:
    """A handle, of a generation."""

    made: Any
    card: Card
    generation: int
    closed: bool = False

    @property
    def stale(self) -> bool:
        """Whether its device was reset since, or closed."""
        return self.generation != self.card.generation

    @property
    def refusal(self) -> Refusal:
        """What every use meets that does not reach the device."""
        return aioacl.StaleHandleError if self.stale else aioacl.ParameterError if self.closed else None

    @property
    def usable(self) -> bool:
        """Whether work on it is taken."""
        return self.refusal is None and self.card.state is State.OPEN


@dataclass(eq=False)
class Pinned(Thing):
    """Pinned memory: it outlives resets."""

    @property
    def stale(self) -> bool:
        return False


@dataclass(eq=False)
class Stream(Thing):
    """A stream; while it is held, or waits for one that is, nothing that is enqueued on it ends."""

    held: bool = False
    waits_for: list[Stream] = field(default_factory=list["Stream"])
    points: list[Point] = field(default_factory=list["Point"])

    @property
    def stands(self) -> bool:
        """Whether it stands still."""
        return self.held or bool(self.waits_for)

    @property
    def unfinished(self) -> bool:
        """Whether there is work that cannot end."""
        return any(point.stands for point in self.points)

    @property
    def goes(self) -> bool:
        """Whether work on it is taken, and ends."""
        return self.usable and not self.stands

    @property
    def last(self) -> Refusal:
        """What waiting for all of it raises, once all of it has ended."""
        return self.points[-1].error if self.points else None

    def goes_on(self) -> None:
        """It stands no longer, nor do those that waited for it alone."""
        self.held = False
        for point in self.points:
            point.stands = False


@dataclass(eq=False)
class Point:
    """A ticket, or a record of an event: what was enqueued, and whether it is known to have ended, and how."""

    stream: Stream
    made: Any
    stands: bool = False
    known: bool = False
    error: Refusal = None

    @property
    def ends(self) -> tuple[Refusal, ...]:
        """What waiting for it may come to: with no time if it stands still, with enough if it does not."""
        card = self.stream.card
        if self.known:
            return (self.error,)
        if self.stream.generation != card.generation:
            is_ticket = isinstance(self.made, aioacl.Ticket)
            lost: Refusal = aioacl.DeviceReset if is_ticket else aioacl.StaleHandleError
        elif card.state is State.QUARANTINED:
            lost = aioacl.DeviceQuarantined
        else:
            return (aioacl.DeviceTimeout if self.stands else None,)
        return (lost,) if self.stands else (None, lost)  # it may have ended before, and been seen


@dataclass(eq=False)
class Event(Thing):
    """An event, with its newest record."""

    point: Point | None = None
