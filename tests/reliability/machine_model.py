"""The model of devices and their handles, for a single thread that waits for everything it begins.

A `Card` is a device as its public methods show it; a `Thing` is a handle. Neither calls the library.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

import aioacl
from aioacl import State
from tests.reliability import setting

KEPT: Final = 64  # the number of events that are kept for a listener
Refusal = type[aioacl.AclError] | None


@dataclass(frozen=True)
class Reset:
    """A force reset: the injected fault, and the expected result."""

    rule: str = ""
    opens: bool = True
    releases: bool = True
    sets: bool = True
    attempts: int = 1


# After a set by other code, a reset by aioacl counts the sets: it calls aclrtResetDevice.
BY_AIOACL: Final = "aclrtResetDeviceForce|aclrtResetDevice"
RESETS_OF_THE_DEVICE: Final = {
    "plain": Reset(),
    "fails once": Reset(f"{BY_AIOACL}:dev={{}}:reset-fail=1", attempts=2),
    "fails twice": Reset(f"{BY_AIOACL}:dev={{}}:reset-fail=2:rc=507899", attempts=3),
    "fails": Reset(f"{BY_AIOACL}:dev={{}}:reset-fail=3", opens=False, releases=False, attempts=3),
    "lies once": Reset(f"{BY_AIOACL}:dev={{}}:times=1:reset-lies=507015", attempts=2),
    "lies": Reset(f"{BY_AIOACL}:dev={{}}:reset-lies=507015", opens=False, attempts=3),
    "cannot set": Reset("aclrtSetDevice:dev={}:rc=507033", opens=False, sets=False, attempts=3),
}
# In a context of aioacl's own, the first attempt replaces the context, and the others reset the device too.
RESETS_OF_A_CONTEXT: Final = {
    "plain": Reset(releases=False),
    "fails once": Reset("aclrtCreateContext:times=1:rc=507899", attempts=2),
    "lies once": Reset("aclrtMemcpy:times=1:rc=507899", attempts=2),
    "cannot make": Reset("aclrtCreateContext:rc=507033", opens=False, attempts=3),
}
RESETS: Final = RESETS_OF_A_CONTEXT if setting.OWN else RESETS_OF_THE_DEVICE


@dataclass
class Listener:
    """A listener, and the events that it must receive next."""

    events: aioacl.DeviceEvents
    by: Device  # the device on which `events()` was called
    expected: deque[tuple[str, State, int]] = field(default_factory=deque[tuple[str, State, int]])
    missed: int = 0

    def put(self, event: tuple[str, State, int]) -> None:
        """Adds an event. If there are too many, the oldest is dropped."""
        if len(self.expected) == KEPT:
            self.expected.popleft()
            self.missed += 1
        self.expected.append(event)

    def taken(self) -> list[tuple[str, State, int]]:
        """Returns all events, and removes them."""
        taken = list(self.expected)
        self.expected.clear()
        self.missed = 0
        return taken


@dataclass
class Card:
    """A device: its state, its generation, how often it is opened and set, and its events."""

    index: int
    state: State
    generation: int
    opens: int = 0
    waits: str = "watch"
    retained: int = 0
    faulted: bool = False
    leases: list[Any] = field(default_factory=list[Any])  # held by this thread, in the order of entering
    lost: list[Any] = field(default_factory=list[Any])  # revoked, but not left yet
    listeners: list[Listener] = field(default_factory=list[Listener])

    def announce(self, kind: str) -> None:
        """Adds an event for all listeners."""
        for listener in self.listeners:
            listener.put((kind, self.state, self.generation))

    def becomes(self, state: State, kind: str, *, generation: bool = False) -> None:
        """Makes a step of the state table."""
        self.state = state
        self.generation += generation
        self.announce(kind)

    # --- what happens --------------------------------------------------------------------------------------------

    def opened(self, waits: str) -> None:
        """Adds one open."""
        self.opens += 1
        if self.opens == 1:
            self.waits, self.retained, self.faulted = waits, int(not setting.OWN), False
            self.generation = max(1, self.generation)
            self.becomes(State.OPEN, "opened")

    def closed(self) -> None:
        """Removes one open."""
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
        """A force reset by aioacl, without grace. If the device is not set, only faults of aclrtSetDevice fire."""
        fires = self.retained or setting.OWN or not RESETS[how].sets
        wanted = RESETS[how] if fires else RESETS["plain"]
        if self.state is State.OPEN:
            self.becomes(State.DRAINING, "draining")
        self.revoked()
        self.becomes(State.RESETTING, "resetting")
        if wanted.opens:
            self.faulted, self.retained = False, int(not setting.OWN)
            self.becomes(State.OPEN, "reopened", generation=True)
        else:
            self.retained = int(wanted.sets and not setting.OWN) if wanted.releases else self.retained
            self.becomes(State.QUARANTINED, "quarantined")
        return wanted

    def revoked(self) -> None:
        """Ends the leases that are held."""
        if self.leases:
            self.announce("revoked")
        self.lost += self.leases
        self.leases.clear()

    def foreign_reset(self) -> int:
        """A foreign reset; returns the code of the call."""
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
    def work_refusal(self) -> Refusal:
        """The error that new work raises."""
        return {State.OPEN: None, State.QUARANTINED: aioacl.DeviceQuarantined}.get(
            self.state, aioacl.ParameterError
        )

    def refusal(self, opened: Device) -> Refusal:
        """The error that the creation of an object by that Device raises."""
        if opened.closed:
            return aioacl.ParameterError
        return aioacl.DeviceResetting if self.lost else self.work_refusal


@dataclass(eq=False)
class Device:
    """The model of a Device that open_device returned."""

    made: aioacl.Device
    card: Card
    closed: bool = False


@dataclass(eq=False)
class Thing:
    """A handle and its generation."""

    made: Any
    card: Card
    generation: int
    closed: bool = False

    @property
    def stale(self) -> bool:
        """Whether the device was reset or closed since the handle was created."""
        return self.generation != self.card.generation

    @property
    def refusal(self) -> Refusal:
        """The error of every use of a stale or closed handle; None if the handle is neither."""
        return aioacl.StaleHandleError if self.stale else aioacl.ParameterError if self.closed else None

    @property
    def usable(self) -> bool:
        """Whether the handle can be used for work."""
        return self.refusal is None and self.card.state is State.OPEN


@dataclass(eq=False)
class Pinned(Thing):
    """Pinned memory, which outlives resets."""

    @property
    def stale(self) -> bool:
        return False


@dataclass(eq=False)
class Stream(Thing):
    """A stream. While it is held, or waits for a held stream, its work does not end."""

    held: bool = False
    waits_for: list[Stream] = field(default_factory=list["Stream"])
    points: list[Point] = field(default_factory=list["Point"])

    @property
    def blocked(self) -> bool:
        """Whether the stream is held, or waits for a held stream."""
        return self.held or bool(self.waits_for)

    @property
    def unfinished(self) -> bool:
        """Whether the stream has work that cannot end."""
        return any(point.blocked for point in self.points)

    @property
    def runs(self) -> bool:
        """Whether the stream accepts work, and the work ends."""
        return self.usable and not self.blocked

    @property
    def last(self) -> Refusal:
        """The error that a wait for all work of the stream raises, once this work has ended."""
        return self.points[-1].error if self.points else None

    def unblock(self) -> None:
        """Releases the stream: its work can end."""
        self.held = False
        for point in self.points:
            point.blocked = False


@dataclass(eq=False)
class Point:
    """A ticket, or a record of an event: whether its work is blocked, whether its end is known, and its error."""

    stream: Stream
    made: Any
    blocked: bool = False
    known: bool = False
    error: Refusal = None

    @property
    def ends(self) -> tuple[Refusal, ...]:
        """The possible errors of a wait for the work. The time-out is zero if the work is blocked, and long if not."""
        card = self.stream.card
        if self.known:
            return (self.error,)
        if self.stream.generation != card.generation:
            is_ticket = isinstance(self.made, aioacl.Ticket)
            lost: Refusal = aioacl.DeviceReset if is_ticket else aioacl.StaleHandleError
        elif card.state is State.QUARANTINED:
            lost = aioacl.DeviceQuarantined
        else:
            return (aioacl.DeviceTimeout if self.blocked else None,)
        return (lost,) if self.blocked else (None, lost)  # unblocked work may have ended before the reset


@dataclass(eq=False)
class Event(Thing):
    """An event, with its newest record."""

    point: Point | None = None
