"""The driver of a batcher, which is in C: one thread at a time handles the news, and none is lost."""

from __future__ import annotations

import gc
import signal
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from aioacl._base.ffi import RunnerBase
from tests.kit import PATIENCE_SECONDS, Raised, Stop, in_thread

if TYPE_CHECKING:
    from collections.abc import Callable


class Recorded(RunnerBase):
    """Notes what the driver calls."""

    def __init__(self) -> None:
        self.log = list[Any]()
        self.idle: Callable[[], bool] = lambda: False

    def note(self, *what: Any) -> None:
        self.log.append(what)

    def _arrive(self, turn: Any) -> None:
        self.log.append(turn)

    def _decide(self) -> bool:
        self.log.append("decide")
        return self.idle()

    def _fail_all(self, error: BaseException, news: tuple[Any, ...] | None) -> None:
        self.log.append((error, news))
        if not isinstance(error, Exception):
            raise error

    def _drive_later(self) -> None:
        self.log.append("later")


def test_news_of_the_driver_itself_is_handled_after_that_which_it_handles() -> None:
    runner = Recorded()

    def first() -> None:
        runner.tell(runner.note, 2, 3)
        runner.tell(runner.note)
        runner.note(1)

    runner.tell(first)
    runner.arrive("turn")  # type: ignore[arg-type]  # on purpose
    assert runner.log == [(1,), (2, 3), (), "decide", "turn", "decide"]


def test_driver_decides_until_nothing_is_left() -> None:
    runner, left = Recorded(), [False, False, True, True]
    runner.idle = left.pop
    runner.tell(runner.note)
    assert runner.log == [(), "decide", "decide", "decide"]
    runner.drive()  # no news
    assert left == [False]


def test_news_of_a_decision_is_handled() -> None:
    runner = Recorded()

    def idle() -> bool:
        runner.idle = lambda: False
        runner.tell(runner.note, "late")
        return False

    runner.idle = idle
    runner.tell(runner.note)
    assert runner.log == [(), "decide", ("late",), "decide"]


def test_news_of_another_thread_is_handled_by_the_driver() -> None:
    runner, stop, drivers = Recorded(), Stop(), set[int]()
    driver = Raised(lambda: runner.tell(stop))
    assert stop.begun.wait(PATIENCE_SECONDS)
    for number in range(3):
        runner.tell(runner.note, number)
        runner.tell(lambda: drivers.add(threading.get_ident()))
    assert runner.log == []
    stop.go_on.set()
    driver.join()
    assert runner.log == [(0,), (1,), (2,), "decide"]
    assert len(drivers) == 1
    assert threading.get_ident() not in drivers


@pytest.mark.parametrize("arguments", [(), ("a",), ("a", "b")])
def test_error_of_news_is_reported_with_the_news(arguments: tuple[str, ...]) -> None:
    runner, error = Recorded(), ValueError("x")

    def fail(*_: object) -> None:
        runner.tell(runner.note, "next")
        raise error

    runner.tell(fail, *arguments)
    assert runner.log == [(error, (fail, *arguments)), ("next",), "decide"]
    assert error.__traceback__ is not None


def test_error_of_a_decision_is_reported_without_news() -> None:
    runner, error = Recorded(), ValueError("x")

    def fail() -> bool:
        runner.idle = lambda: False
        raise error

    runner.idle = fail
    runner.tell(runner.note)
    assert runner.log == [(), "decide", (error, None)]
    runner.tell(runner.note)
    assert runner.log[3:] == [(), "decide"]


def test_exception_of_a_signal_handler_leaves_the_rest_to_the_thread() -> None:
    runner, error = Recorded(), KeyboardInterrupt()

    def fail() -> None:
        runner.tell(runner.note, "rest")
        raise error

    with pytest.raises(KeyboardInterrupt):
        in_thread(lambda: runner.tell(fail))
    assert runner.log == [(error, (fail,)), "later"]
    in_thread(runner.drive)  # as the thread does
    assert runner.log[2:] == [("rest",), "decide"]


def test_exception_of_a_signal_handler_at_the_end_needs_no_thread() -> None:
    runner, error = Recorded(), KeyboardInterrupt()

    def fail() -> None:
        raise error

    with pytest.raises(KeyboardInterrupt):
        runner.tell(fail)
    assert runner.log == [(error, (fail,))]


def test_error_of_the_thread_replaces_that_of_the_signal_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Recorded()

    def fail() -> None:
        runner.tell(runner.note)
        raise KeyboardInterrupt

    def later() -> None:
        raise SystemExit

    monkeypatch.setattr(runner, "_drive_later", later)
    with pytest.raises(SystemExit):
        runner.tell(fail)


def test_ctrl_c_waits_for_the_end_of_the_drive() -> None:
    runner = Recorded()
    with pytest.raises(KeyboardInterrupt):
        runner.tell(signal.raise_signal, signal.SIGINT)
    assert runner.log == ["decide"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_runner_with_news_can_be_collected() -> None:
    runner = Recorded()

    def fail(runner: Recorded) -> None:
        runner.tell(runner.note, runner)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.tell(fail, runner)
    runner.log.clear()
    left = weakref.ref(runner)
    del runner
    gc.collect()
    assert left() is None
