"""Random events for a device's state: the state table, the manager that applies it, and the gate in C must agree.

The table is repeated here in another form, with the calls that may pass in each state. The gate must enforce both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioacl._base.ffi import generation_of, lib, make_pass, state_of
from aioacl._base.states import State, TransitionError, Trigger
from aioacl._lifecycle.admission import Admission

if TYPE_CHECKING:
    import random

EVENTS: Final = tuple(Trigger)
GENERATIONS: Final = 1 << 20  # the number of generations for which the gate's word has room; 0 is not used
LEADS: Final = {
    State.CLOSED: {Trigger.OPEN: State.OPEN, Trigger.FAIL: State.QUARANTINED},
    State.OPEN: {
        Trigger.DRAIN: State.DRAINING,
        Trigger.SEIZE: State.RESETTING,
        Trigger.FOREIGN: State.RESETTING,
    },
    State.DRAINING: {Trigger.SEIZE: State.RESETTING, Trigger.FOREIGN: State.RESETTING},
    State.RESETTING: {
        Trigger.REVIVE: State.OPEN,
        Trigger.RETAKE: State.OPEN,
        Trigger.FAIL: State.QUARANTINED,
        Trigger.RELEASE: State.CLOSED,
        Trigger.FOREIGN: State.RESETTING,
    },
    State.QUARANTINED: {Trigger.SEIZE: State.RESETTING, Trigger.FOREIGN: State.QUARANTINED},
}
ENDS_A_GENERATION: Final = frozenset({Trigger.REVIVE, Trigger.RELEASE, Trigger.FOREIGN})
LONGEST_LEAP: Final = GENERATIONS // 4  # the gate treats a generation that is further ahead as an old one
ENQUEUE, WAIT, LIFETIME = lib.AIO_ENQUEUE, lib.AIO_WAIT, lib.AIO_LIFETIME
ANSWERS: Final = {
    State.CLOSED: lib.AIO_NOT_OPEN,
    State.OPEN: 0,
    State.DRAINING: 0,
    State.RESETTING: lib.AIO_RESETTING_NOW,
    State.QUARANTINED: lib.AIO_QUARANTINE,
}
A_JOB: Final = -1


def following(generation: int) -> int:
    """Returns the generation after this one."""
    return (generation + 1) % GENERATIONS or 1


class States:
    """The state of one device, to which random events are applied. The runtime has no device with this index."""

    def __init__(self, index: int, generation: int) -> None:
        self._gate = Admission(index)
        self._index = index
        self.state = State.CLOSED
        self.generation = generation
        while (ahead := (generation - generation_of(index)) % GENERATIONS) or state_of(index):
            lib.aio_gate_set(index, int(State.CLOSED), generation_of(index) + min(ahead, LONGEST_LEAP))

    def step(self, rng: random.Random) -> str:
        """Applies one event, and checks its effects. Returns a text about the first difference, or ""."""
        event = rng.choice(EVENTS)
        before = self.state
        refused = self._refuses(event)
        leads = LEADS[before].get(event)
        if refused is not (leads is None):
            return f"expected {event} in {before.name} to be {'accepted' if refused else 'refused'}, but it was not"
        if leads is not None:
            self.state = leads
            if event in ENDS_A_GENERATION:
                self.generation = following(self.generation)
        return self._seen(rng.choice((ENQUEUE, WAIT, LIFETIME)))

    def _refuses(self, event: Trigger) -> bool:
        # C has raised the generation before Python is notified.
        if event is Trigger.FOREIGN and event in LEADS[self.state]:
            lib.aio_gate_set(self._index, int(self.state), following(self.generation))
        try:
            with self._gate.changed:
                self._gate.apply(event)
        except TransitionError:
            return True
        return False

    def _seen(self, kind: int) -> str:
        """Compares the manager, the gate's word, and the gate's answers to calls with the model."""
        now = (self.state, self.generation)
        if (self._gate.state, self._gate.generation) != now:
            return f"expected the manager to be {now}, got {self._gate.state.name} at {self._gate.generation}"
        if (state_of(self._index), generation_of(self._index)) != now:
            return (
                f"expected the gate to be {now}, got {state_of(self._index)} at {generation_of(self._index)}"
            )
        drained = self.state is State.DRAINING and kind == ENQUEUE
        expected = lib.AIO_DRAINING_NOW if drained else ANSWERS[self.state]
        current_pass = make_pass(self._index, self.generation)
        older_pass = make_pass(self._index, (self.generation - 1) % GENERATIONS)
        held_pass = make_pass(self._index, self.generation, held=True)
        answers = (
            self._entered(current_pass, kind),
            self._entered(older_pass, kind),
            self._entered(held_pass, kind),
        )
        want = (expected, lib.AIO_STALE, ANSWERS[self.state])
        if answers != want:
            return f"{self.state.name}, kind {kind}: expected {want}, got {answers}"
        return ""

    @staticmethod
    def _entered(current_pass: int, kind: int) -> int:
        answer: int = lib.aio_enter(current_pass, kind, A_JOB)
        if answer == 0:
            lib.aio_leave(current_pass, kind)
        return answer
