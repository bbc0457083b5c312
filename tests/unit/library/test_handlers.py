"""An enqueue or a wait in a signal handler works or raises at once, at every line that the signal interrupts."""

from __future__ import annotations

import signal
import sys
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import aioacl
from aioacl import simulator
from aioacl._base import sync
from tests.kit import FAULT, PATIENCE_SECONDS, enqueue_in_python, until_now

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType

    from tests.kit import OpenDevice

PLACE: Final = str(Path(aioacl.__file__).parent)
REFUSED: Final = "do not block in the handler"


class Things:
    """The handles that the interrupted code and the handler use."""

    def __init__(self, device: aioacl.Device) -> None:
        self.device = device
        self.stream: Any = device.create_stream().result()
        self.memory: Any = device.allocate(64).result()
        self.pinned: Any = device.pinned(64).result()
        self.large: Any = device.allocate(3 << 20).result()
        self.event: Any = device.create_event().result()

    def close(self) -> None:
        for thing in (self.stream, self.memory, self.pinned, self.large, self.event):
            thing.close().result()


@pytest.fixture
def things(open_device: OpenDevice) -> Generator[Things]:
    device = open_device().result()
    made = Things(device)
    yield made
    made.close()
    device.close().result()


class Signals:
    """Sends a signal at the nth line that aioacl executes on this thread; its handler runs before the line."""

    def __init__(self, step: int) -> None:
        self.left = step

    def __call__(self, frame: FrameType, event: str, _argument: object) -> Signals | None:
        if not frame.f_code.co_filename.startswith(PLACE):
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGUSR1)
        return self


@contextmanager
def handling(body: Callable[[], object]) -> Generator[None]:
    def handler(_number: int, _frame: object) -> None:
        body()

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def interrupted(step: int, operation: Callable[[], object]) -> bool:
    """Runs the operation with a signal before line number `step`; returns whether it has that many lines."""
    signals, before = Signals(step), sys.gettrace()
    sys.settrace(signals)
    try:
        operation()
    finally:
        sys.settrace(before)
    return signals.left <= 0


def walk(operation: Callable[[], object], body: Callable[[], object]) -> int:
    """Interrupts the operation before each of its lines, one after another; returns the number of lines."""
    step = 1
    with handling(body), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # refused operations are never awaited
        while interrupted(step, operation):
            step += 1
    return step - 1


ENQUEUES: dict[str, Callable[[Things], object]] = {
    "copy": lambda t: t.stream.copy(t.memory, t.pinned),
    "staged upload": lambda t: t.stream.copy(t.memory, bytes(64)),
    "staged download": lambda t: t.stream.copy(bytearray(64), t.memory),
    "fill": lambda t: t.stream.fill(t.memory, 1),
    "record": lambda t: t.stream.record(t.event),
    "wait_event": lambda t: t.stream.wait_event(t.stream.record()),
}
WAITS: dict[str, Callable[[Things], object]] = {
    "ticket": lambda t: t.stream.fill(t.memory, 1).result(),
    "stream": lambda t: t.stream.result(),
    "event": lambda t: t.stream.record().result(),
    "upload": lambda t: t.stream.upload(t.large, bytes(3 << 20)).result(),
}
OTHERS: dict[str, Callable[[Things], object]] = {
    "allocate": lambda t: t.device.allocate(64).result().close().result(),
    "memory_info": lambda t: t.device.memory_info().result(),
    "synchronize": lambda t: t.device.synchronize().result(),
    "health": lambda t: t.device.health,
    "run": lambda t: t.device.executor,
}


@pytest.mark.parametrize("what", ENQUEUES)
@pytest.mark.parametrize("way", ["C", "Python"])
def test_enqueue_in_a_handler_that_interrupts_an_enqueue_works(
    things: Things, monkeypatch: pytest.MonkeyPatch, what: str, way: str
) -> None:
    if way == "Python":
        enqueue_in_python(monkeypatch)

    def body() -> None:
        for enqueue in ENQUEUES.values():
            with suppress(aioacl.QueueFull):  # the enqueues may be faster than the device
                enqueue(things)

    def operation() -> None:
        with suppress(aioacl.QueueFull):
            ENQUEUES[what](things)

    assert walk(operation, body) > (10 if way == "Python" else 1)
    things.stream.result()


@pytest.mark.parametrize(
    "what",
    # An upload of several chunks has many steps.
    [
        *ENQUEUES,
        *(name for name in WAITS if name != "upload"),
        pytest.param("upload", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize("way", ["C", "Python"])
def test_result_in_a_handler_that_interrupts_an_enqueue_or_a_wait_works(
    things: Things, monkeypatch: pytest.MonkeyPatch, what: str, way: str
) -> None:
    done: list[bool] = []
    if way == "Python":
        enqueue_in_python(monkeypatch)

    def body() -> None:
        things.stream.copy(things.memory, things.pinned).result(PATIENCE_SECONDS)
        done.append(True)

    assert (
        walk(lambda: {**ENQUEUES, **WAITS}[what](things), body) == len(done) > (10 if way == "Python" else 1)
    )
    assert not [kept for kept in things.stream._core.in_flight if kept.position > 1 << 60]


@pytest.mark.parametrize("what", OTHERS)
def test_result_in_a_handler_that_interrupts_another_call_works_or_is_refused(
    things: Things, what: str
) -> None:
    ends: list[str] = []

    def body() -> None:
        try:
            things.stream.fill(things.memory, 1).result(PATIENCE_SECONDS)
            things.device.memory_info().result(PATIENCE_SECONDS)
            ends.append("done")
        except RuntimeError as refused:
            ends.append(str(refused))

    assert walk(lambda: OTHERS[what](things), body) == len(ends) > 3
    assert {end for end in ends if end != "done" and REFUSED not in end} == set()
    assert ends.count("done") > len(ends) / 4  # the others came while the call held a lock


def test_result_on_a_thread_that_holds_a_lock_is_refused_at_once(things: Things) -> None:
    ticket = things.stream.fill(things.memory, 1)
    with things.device._manager.admission.changed, pytest.raises(RuntimeError, match=REFUSED):
        ticket.result()
    ticket.result()


def test_fault_raised_while_the_thread_holds_the_lock_is_recorded_later(things: Things) -> None:
    simulator.fail_call("aclrtMemsetAsync", FAULT)
    with things.device._manager.admission.changed, pytest.raises(aioacl.DeviceFault):
        things.stream.fill(things.memory, 1)
    assert until_now(lambda: things.device.health.status == "poisoned")
    assert things.device.force_reset().result().ok


def test_deleted_lock_is_removed_from_the_list_of_locks() -> None:
    sync.lock()
    kept = sync.lock()
    assert [lock() for lock in sync._lasting].count(None) == 0
    del kept
