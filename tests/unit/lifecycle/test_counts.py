"""ACL's set counts. The state table, aioacl.lowlevel and the simulator return the codes in the vendor's documents."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, ClassVar, Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aioacl
from aioacl import lowlevel, simulator
from aioacl._base import states
from aioacl._base.ffi import lib
from aioacl._lifecycle.gate import context_lives

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

RELEASED = 507007
BAD_DEVICE = 107001
DEVICE = 1

SEQUENCES = {
    "set force set force": (0, 0, 0, 0),
    "set set force": (0, 0, 0),
    "set reset set force": (0, 0, 0, 0),
    "set set reset force": (0, 0, 0, 0),
    "set set reset reset force": (0, 0, 0, 0, RELEASED),
    "set set reset force force": (0, 0, 0, 0, RELEASED),
    "set set force reset": (0, 0, 0, RELEASED),
    "1:set 2:set 1:force 2:force": (0, 0, 0, RELEASED),
    "1:set 2:set 2:force": (0, 0, 0),
    "reset": (RELEASED,),
    "force": (RELEASED,),
}


class Subject(Protocol):
    """An implementation of the rules."""

    def __call__(self, act: str) -> int:
        """Performs set, reset or force, and returns the code."""
        ...


class Table:
    """The rules of the state table."""

    rules: ClassVar = {
        "set": states.set_device,
        "reset": states.reset_device,
        "force": states.reset_device_force,
    }

    def __init__(self) -> None:
        self.counts = states.Counts()
        self.released = False  # whether the last act released the device

    def __call__(self, act: str) -> int:
        outcome = self.rules[act](self.counts)
        self.counts, self.released = outcome.counts, outcome.releases
        return outcome.code


def in_c(act: str) -> int:
    """Makes the call in the simulator."""
    calls = {
        "set": lib.aio_u_aclrtSetDevice,
        "reset": lib.aio_u_aclrtResetDevice,
        "force": lib.aio_u_aclrtResetDeviceForce,
    }
    return calls[act](DEVICE)


def by_hand(act: str) -> int:
    """Makes the call with aioacl.lowlevel."""
    calls = {
        "set": lowlevel.set_device,
        "reset": lowlevel.reset_device,
        "force": lowlevel.reset_device_force,
    }
    try:
        calls[act](DEVICE)
    except aioacl.AclError as error:
        return error.code or -1
    return 0


class ActingThread:
    """A thread that performs the given acts, one after another."""

    def __init__(self, subject: Subject) -> None:
        self._acts: SimpleQueue[str | None] = SimpleQueue()
        self._codes: SimpleQueue[int] = SimpleQueue()
        self._subject = subject
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (act := self._acts.get()) is not None:
            self._codes.put(self._subject(act))

    def __call__(self, act: str) -> int:
        self._acts.put(act)
        return self._codes.get(timeout=20)

    def end(self) -> None:
        """Ends the thread."""
        self._acts.put(None)
        self._thread.join()


def table() -> Subject:
    """A new table, without counts of earlier sequences."""
    return Table()


def simulated() -> Subject:
    """The functions of the simulator."""
    return in_c


def by_lowlevel() -> Subject:
    """The functions of aioacl.lowlevel."""
    return by_hand


@pytest.fixture(autouse=True)
def _device_unset() -> Generator[None]:
    yield
    while simulator.retain_count(DEVICE):
        if by_hand("force"):
            in_c("force")


@pytest.mark.parametrize("make", [table, simulated, by_lowlevel])
@pytest.mark.parametrize(("sequence", "codes"), SEQUENCES.items(), ids=list(SEQUENCES))
def test_sequence_of_the_vendors_documents_returns_their_codes(
    make: Callable[[], Subject], sequence: str, codes: tuple[int, ...]
) -> None:
    subject = make()
    actors: dict[str, ActingThread] = {}
    try:
        answers: list[int] = []
        for step in sequence.split():
            thread, _, act = step.rpartition(":")
            if thread not in actors:
                actors[thread] = ActingThread(subject)
            answers.append(actors[thread](act))
    finally:
        for actor in actors.values():
            actor.end()
    assert tuple(answers) == codes


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["set", "reset", "force"]), max_size=25))
def test_table_lowlevel_and_simulator_agree_on_random_sequences(acts: list[str]) -> None:
    rules = Table()
    actor = ActingThread(by_hand)
    try:
        for act in acts:
            before = simulator.resets(DEVICE)
            assert actor(act) == rules(act)
            assert simulator.retain_count(DEVICE) == rules.counts.retained
            assert simulator.resets(DEVICE) - before == rules.released
        while rules.counts.retained:
            assert actor("force") == rules("force")
    finally:
        actor.end()


def test_lowlevel_reset_that_the_runtime_would_refuse_does_not_reach_it() -> None:
    before = simulator.calls("aclrtResetDeviceForce"), simulator.calls("aclrtResetDevice")
    assert (by_hand("force"), by_hand("reset")) == (RELEASED, RELEASED)
    assert (simulator.calls("aclrtResetDeviceForce"), simulator.calls("aclrtResetDevice")) == before


@pytest.mark.parametrize("act", ["reset", "force"])
def test_set_released_by_other_code_is_forgotten_after_one_refusal_of_the_runtime(act: str) -> None:
    assert (by_hand("set"), by_hand("set"), in_c("force")) == (0, 0, 0)
    assert by_hand(act) == RELEASED
    before = simulator.stats().calls
    assert (by_hand("reset"), by_hand("force")) == (RELEASED, RELEASED)
    assert simulator.stats().calls == before
    assert (by_hand("set"), by_hand("reset"), by_hand("reset")) == (0, 0, RELEASED)


def test_context_lives_reports_whether_the_device_is_set() -> None:
    lives = [context_lives(DEVICE)]
    for act in ("set", "set", "reset", "reset"):
        in_c(act)
        lives.append(context_lives(DEVICE))
    assert lives == [False, True, True, True, False]


def test_set_of_a_missing_device_raises_107001() -> None:
    missing = len(aioacl.list_devices())
    with pytest.raises(aioacl.ParameterError) as caught:
        lowlevel.set_device(missing)
    assert caught.value.code == BAD_DEVICE


@pytest.mark.parametrize("index", [-1, 64, True, 1.0, "0", None])
def test_value_that_is_not_an_index_is_refused_before_c(index: object) -> None:
    simulator.forget()
    with pytest.raises(aioacl.ParameterError, match="list_devices"):
        lowlevel.set_device(index)  # type: ignore[arg-type]  # the test passes wrong types
    assert simulator.stats().calls == 0 or not simulator.calls("aclrtSetDevice")


@pytest.mark.parametrize("act", [lowlevel.set_device, lowlevel.reset_device, lowlevel.reset_device_force])
def test_lowlevel_counts_are_refused_while_the_device_is_open(act: Callable[[int], None]) -> None:
    device = aioacl.open_device(DEVICE).result()
    try:
        with pytest.raises(aioacl.ParameterError, match=r"force_reset|Close it"):
            act(DEVICE)
        assert simulator.retain_count(DEVICE) == 1
    finally:
        device.close().result()
