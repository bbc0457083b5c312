"""Ctrl-C and other signals on the main thread: a batcher works afterwards, and no other caller is concerned."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aioacl import open_batcher, open_device, simulator
from aioacl._base.ffi import Baton
from aioacl._batches.thread import BatchThread
from aioacl._models.calls import ModelRun
from tests.kit import PATIENCE_SECONDS, in_thread, until_now
from tests.support.batching import ByHand, OnThread, batching
from tests.support.interrupts import PLACE, walk
from tests.unit.batches.test_models import BATCHES, first_ten, item

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

# Without the driver, which puts the signal off. A walk raises the exception anyway.
OUTSIDE = tuple(f"{PLACE[0]}/{path}" for path in ("_batches/items.py", "_batches/batcher.py", "_wait/"))


def test_baton_belongs_to_one_block_at_a_time() -> None:
    baton, found = Baton(), list[bool]()
    with baton as outer:
        with baton as inner:
            found += [outer, inner]
        with baton as inner:
            found.append(inner)

        def other() -> None:
            with baton as elsewhere:
                found.append(elsewhere)

        in_thread(other)
    with baton as later:
        found.append(later)
    assert found == [True, False, False, False, True]


def test_baton_is_free_after_an_exception() -> None:
    baton = Baton()
    with pytest.raises(KeyError), baton:
        raise KeyError
    with baton as mine:
        assert mine


@pytest.mark.thorough
def test_batcher_works_after_an_interrupt_at_any_step_outside_the_driver() -> None:
    with batching(OnThread()) as infer:

        def check() -> None:
            assert in_thread(lambda: infer(2).result(PATIENCE_SECONDS)) == 2
            assert until_now(lambda: infer._runner.core.empty)

        assert walk(lambda: infer(1).result(PATIENCE_SECONDS), check, OUTSIDE) > 50


@contextmanager
def ctrl_c_in(core: Any, step: str, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """The signal arrives on the main thread inside a step of the core."""
    original = getattr(core, step)

    def interrupted(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return original(*arguments)

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with monkeypatch.context() as patch:
        patch.setattr(core, step, interrupted)
        yield


def other_caller(infer: Any) -> tuple[Callable[[], Any], threading.Thread]:
    """Waits for an item on another thread. Returns a function that returns its outcome."""
    outcomes = list[Any]()

    def wait() -> None:
        try:
            outcomes.append(infer("other").result(PATIENCE_SECONDS))
        except BaseException as error:
            outcomes.append(error)

    thread = threading.Thread(target=wait)
    thread.start()

    def outcome() -> Any:
        thread.join(PATIENCE_SECONDS)
        return outcomes[0]

    return outcome, thread


def test_ctrl_c_while_an_item_arrives_fails_no_other_item(monkeypatch: pytest.MonkeyPatch) -> None:
    hand = ByHand()
    with batching(hand, in_flight=1) as infer:
        outcome, _ = other_caller(infer)
        assert until_now(lambda: bool(hand.begun))
        with ctrl_c_in(infer._runner.core, "arrive", monkeypatch), pytest.raises(KeyboardInterrupt):
            infer("mine").result()
        hand.end()
        assert outcome() == "other"
        assert until_now(lambda: infer._runner.core.empty)
    assert hand.log == [["other"]]


def test_ctrl_c_while_an_execution_ends_fails_no_item(monkeypatch: pytest.MonkeyPatch) -> None:
    hand = ByHand()
    with batching(hand) as infer:
        outcome, _ = other_caller(infer)
        assert until_now(lambda: bool(hand.begun))
        with ctrl_c_in(infer._runner.core, "ended", monkeypatch), pytest.raises(KeyboardInterrupt):
            hand.end()
        assert outcome() == "other"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@contextmanager
def exit_by_signal() -> Generator[Callable[..., None]]:
    """A service ends by sys.exit() in its handler of a signal. Yields a function that sends the signal."""

    def leave(*_: object) -> None:
        sys.exit(7)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield lambda *_: signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_exit_of_a_signal_handler_while_an_execution_begins_ends_the_program() -> None:
    class Signalled(ByHand):
        def execute(self, calls: list[Any], ended: Callable[[Any], object]) -> None:
            if not self.log:
                self.log.append(calls)
                send()
            super().execute(calls, ended)
            self.end()

    with exit_by_signal() as send, batching(Signalled()) as infer:
        with pytest.raises(SystemExit, match="7"):
            infer("mine").result(PATIENCE_SECONDS)
        assert in_thread(lambda: infer(2).result(PATIENCE_SECONDS)) == 2


def test_exit_of_a_signal_handler_while_results_are_made_ends_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BatchThread, "_serve", lambda *_: None)  # the loop handles the ends

    end = ModelRun._end

    def end_and_send(run: ModelRun) -> Any:
        results = end(run)
        send()
        return results

    async def use(infer: Any) -> None:
        await infer(item(0))

    with (
        simulator.register_model("digits_batches", first_ten),
        open_device() as device,
        device.load_model(BATCHES) as model,
        open_batcher(model) as infer,
        exit_by_signal() as send,
    ):
        monkeypatch.setattr(ModelRun, "_end", end_and_send)
        with pytest.raises(SystemExit, match="7"):
            asyncio.run(use(infer))
        monkeypatch.undo()


def test_result_in_a_handler_that_interrupts_the_driver_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with batching(OnThread()) as infer:
        core = infer._runner.core
        arrive, raised = core.arrive_alone, list[str]()

        def interrupted(*arguments: Any) -> Any:
            try:
                infer("inner").result(PATIENCE_SECONDS)
            except RuntimeError as error:
                raised.append(str(error))
            return arrive(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(core, "arrive_alone", interrupted)
            assert infer(1).result(PATIENCE_SECONDS) == 1
        assert "a signal handler that interrupted the owner of a lock" in raised[0]
        assert infer(2).result(PATIENCE_SECONDS) == 2


def test_result_in_a_finalizer_on_the_thread_of_the_batcher_is_refused() -> None:
    with batching(OnThread()) as infer:
        raised = list[Any]()

        def finalize() -> None:
            try:
                raised.append(infer("inner").result(PATIENCE_SECONDS))
            except RuntimeError as error:
                raised.append(str(error))

        infer._runner.thread.soon(finalize)
        assert until_now(lambda: bool(raised))
        assert "a signal handler that interrupted the owner of a lock" in raised[0]
        assert infer(2).result(PATIENCE_SECONDS) == 2
