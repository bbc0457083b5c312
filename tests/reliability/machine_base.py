"""The base of the machine: how a step is run and counted, and what is checked after each step and at the end."""

from __future__ import annotations

from collections import Counter
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import aioacl
from aioacl import State, simulator
from aioacl._lifecycle.manager import manager_of
from aioacl.testing import Audit, force_close, release_everything
from tests.reliability.machine_model import Card, Device, Event, Point, Stream, Thing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DEVICES: Final = (0, 1)
BYTES: Final = 64
PATIENCE_SECONDS: Final = 20.0
NEWEST: Final = 4  # only the newest of the existing objects are used
LAST_PICK: Final = NEWEST - 1
PICK: Final = st.integers(0, LAST_PICK)
NOTHING_LEFT: Final = ("contexts", "streams", "device_blocks", "host_blocks", "inside")


def expect(call: Callable[..., Any], *expected: type[BaseException] | None) -> tuple[Any, Any]:
    """Makes the call. Returns its value and its error's class, which must be in `expected`. None means no error."""
    try:
        value, raised = call(), None
    except aioacl.AclError as error:
        value, raised = error, type(error)
    names = [it.__name__ if it else "no error" for it in expected]
    assert raised in expected, (
        f"expected {' or '.join(names)}, got {raised.__name__ if raised else 'no error'}: {value!r}"
    )
    return value, raised


def step(kind: Callable[..., Any] = rule, /, **strategies: Any) -> Any:
    """Marks a method as a step, which is a rule or an initializer. Steps are counted by name."""

    def wrap(function: Callable[..., None]) -> Any:
        @wraps(function)
        def counted(self: Base, **drawn: Any) -> None:
            self.steps[function.__name__] += 1
            try:
                function(self, **drawn)
            except BaseException:
                self.broken = True
                raise

        return kind(**strategies)(counted)

    return wrap


class Base(RuleBasedStateMachine):
    """A state machine that begins with two closed devices, and records the objects that its steps create."""

    steps: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        simulator.forget()
        self._audit = Audit()
        self._audit.begin()
        self.broken = False
        self.abandoned: set[str] = set()  # kinds of objects that destroyed contexts leave behind
        self.cards = [Card(index, State.CLOSED, manager_of(index).generation) for index in DEVICES]
        self.devices: list[Device] = []
        self.streams: list[Stream] = []
        self.buffers: list[Thing] = []
        self.events: list[Event] = []
        self.points: list[Point] = []

    @property
    def things(self) -> list[Thing]:
        """All handles."""
        return [*self.streams, *self.buffers, *self.events]

    @staticmethod
    def of(things: Sequence[Any], pick: int) -> Any:
        """Returns one of the newest objects."""
        return things[-1 - pick % min(len(things), NEWEST)]

    def device(self, pick: int) -> Device:
        """Returns one of the newest devices, in most cases an open one."""
        opened = [device for device in self.devices if not device.closed]
        device: Device = self.of(self.devices if pick == LAST_PICK or not opened else opened, pick)
        return device

    @invariant()
    def every_query_matches_the_model(self) -> None:
        """Checks states, generations, health and counts, with each function that returns them."""
        for card in self.cards:
            manager = manager_of(card.index)
            now = (manager.admission.state, manager.generation)
            assert now == (card.state, card.generation), (now, card)
            assert simulator.retain_count(card.index) == card.retained
        for device in self.devices[-NEWEST:]:
            self._check_queries(device)
        for thing in self.things[-NEWEST:]:
            assert thing.made.stale is thing.stale
            assert thing.made.generation == thing.generation
        assert simulator.stats().violations == 0, simulator.violations()

    @staticmethod
    def _check_queries(device: Device) -> None:
        card, health = device.card, device.made.health
        poisoned = card.faulted or card.state is State.QUARANTINED
        assert (device.made.state, device.made.generation) == (card.state, card.generation)
        assert (health.state, health.generation) == (card.state, card.generation)
        assert health.status == ("poisoned" if poisoned else "ok"), health
        assert health.ready is (card.state is State.OPEN and not poisoned)
        assert bool(health.last_fault) is card.faulted
        assert health.leases == len(card.leases)

    # --- the end --------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Closes everything, and checks that nothing is left."""
        try:
            if not self.broken:
                self._close_everything()
        finally:
            if self.broken:
                self._clear_away()
                self._audit._patience = 0  # the audit need not wait, because everything was closed
            findings = self._audit.left() + self._audit.counted(*self.abandoned)
        assert self.broken or not findings, "\n".join(map(str, findings))

    def _close_everything(self) -> None:
        self.broken = True  # set to False at the end, if closing has succeeded
        for card in self.cards:
            for lease in [*card.leases, *card.lost]:
                lease.__exit__()
        simulator.release_all()
        for made in [it.made for it in self.things] + [it.made for it in self.devices]:
            made.close().result(PATIENCE_SECONDS)
        for card in self.cards:
            assert manager_of(card.index).admission.state is State.CLOSED
            assert simulator.retain_count(card.index) == 0
        left = {name: count for name in NOTHING_LEFT if (count := getattr(simulator.stats(), name))}
        assert left == {}
        assert simulator.violations() == []
        self.broken = False

    def _clear_away(self) -> None:
        """Closes the devices after a failure, because the next example must begin with closed devices."""
        release_everything()
        for card in self.cards:
            for lease in [*card.leases, *card.lost]:
                lease.__exit__()
        force_close()
