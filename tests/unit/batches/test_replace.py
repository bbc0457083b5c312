"""`infer.replace()`: which models get batches, and which are given up, also if it is cancelled or races."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from aioacl import AclError, DeviceTimeout, ParameterError
from aioacl._wait.current import run_blocking
from tests.kit import PATIENCE_SECONDS, Waiting, raises, until, until_now
from tests.support.batching import ZEROS, ByHand, OnThread, View, batching, replace_by, tasks

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop_in_ci]


class Warmed(ByHand):
    """Executes its first call, of zeros, at once."""

    def execute(self, calls: list[Any], ended: Any) -> None:
        super().execute(calls, ended)
        if calls == [ZEROS]:
            self.end()


def served(infer: Any) -> list[Any]:
    """The executors that the runner keeps."""
    return [each.executor for each in infer._runner._served.values()]


async def test_new_model_gets_all_new_batches_and_the_old_one_is_given_up() -> None:
    old, new, view = ByHand(), Warmed(), View()
    with batching((old, view)) as infer:
        async with tasks() as group:
            calls = [Waiting(group, lambda: infer(1))]
            await until(lambda: old.begun)
            replacing = Waiting(group, lambda: replace_by(infer, new))
            await until(lambda: new in served(infer))
            calls.append(Waiting(group, lambda: infer(2)))
            await until(lambda: new.begun)
            assert not replacing.ended
            assert not old.closed
            old.end()
            await replacing.outcome()
            assert (old.closed, served(infer), view._listeners) == (True, [new], [])
            new.end()
        assert [call.value for call in calls] == [1, 2]


async def test_idle_model_is_given_up_at_once() -> None:
    old, new = ByHand(), Warmed()
    with batching(old) as infer:
        await replace_by(infer, new)
        assert (old.closed, served(infer)) == (True, [new])


async def test_cancelled_replace_gives_the_old_model_up_when_its_executions_have_ended() -> None:
    old, new, view = ByHand(), Warmed(), View()
    with batching((old, view)) as infer:
        async with tasks() as group:
            call = Waiting(group, lambda: infer(1))
            await until(lambda: old.begun)
            replacing = Waiting(group, lambda: replace_by(infer, new))
            await until(lambda: new in served(infer))
            await replacing.cancel_and_wait()
            assert not old.closed
            old.end()
        assert call.value == 1
        assert (old.closed, served(infer), view._listeners) == (True, [new], [])


async def test_replace_ends_if_the_batcher_fails_at_the_end_of_the_last_execution_of_the_old_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("sys.unraisablehook", lambda _: None)
    old, new = ByHand(), Warmed()
    with batching(old) as infer:
        async with tasks() as group:
            call = Waiting(group, lambda: infer(1))
            await until(lambda: old.begun)
            replacing = Waiting(group, lambda: replace_by(infer, new))
            await until(lambda: new in served(infer))
            with monkeypatch.context() as patch:
                patch.setattr(infer._runner.core, "ended", broken)
                old.end()
            await replacing.outcome()
            await raises(AclError, call.outcome())
        assert (old.closed, served(infer)) == (True, [new])
        assert infer.stats().running == 0


async def test_replace_that_fails_inside_the_batcher_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("sys.unraisablehook", lambda _: None)
    old, new, view = ByHand(), Warmed(), View()
    monkeypatch.setattr(view, "listen", broken)
    with batching(old) as infer:
        async with tasks() as group:
            replacing = Waiting(group, lambda: replace_by(infer, (new, view)))
            await raises(AclError, replacing.outcome())


async def test_replace_that_is_cancelled_in_its_first_execution_replaces_nothing() -> None:
    old, new = ByHand(), ByHand()
    with batching(old) as infer:
        async with tasks() as group:
            replacing = Waiting(group, lambda: replace_by(infer, new))
            await until(lambda: new.begun == [[ZEROS]])
            await replacing.cancel_and_wait()
            assert (new.closed, old.closed, served(infer)) == (True, False, [old])
            new.end()  # its end is ignored
            call = Waiting(group, lambda: infer(1))
            await until(lambda: old.begun)
            old.end()
        assert call.value == 1


async def test_model_that_is_replaced_before_the_old_one_has_ended_is_given_up_too() -> None:
    old, first, second = ByHand(), Warmed(), Warmed()
    with batching(old) as infer:
        async with tasks() as group:
            call = Waiting(group, lambda: infer(1))
            await until(lambda: old.begun)
            replacing = [Waiting(group, lambda: replace_by(infer, first))]
            await until(lambda: first in served(infer))
            replacing.append(Waiting(group, lambda: replace_by(infer, second)))
            await until(lambda: first.closed)
            assert not any(each.ended for each in replacing)
            old.end()
            for each in replacing:
                await each.outcome()
        assert call.value == 1
        assert served(infer) == [second]


async def test_replace_during_a_close_raises_and_gives_the_new_model_up() -> None:
    old, new = ByHand(), ByHand()
    with batching(old) as infer:
        async with tasks() as group:
            replacing = Waiting(group, lambda: replace_by(infer, new))
            await until(lambda: new.begun)
            await infer.close()
            new.end()
            await raises(ParameterError, replacing.outcome())
        assert (old.closed, new.closed, served(infer)) == (True, True, [])


async def test_close_ends_a_replace_that_waits_for_the_old_model() -> None:
    old, new = ByHand(), Warmed()
    with batching(old) as infer:
        async with tasks() as group:
            call = Waiting(group, lambda: infer(1))
            await until(lambda: old.begun)
            replacing = Waiting(group, lambda: replace_by(infer, new))
            await until(lambda: new in served(infer))
            await infer.close(grace=0)
            await replacing.outcome()
            await raises(ParameterError, call.outcome())
        assert (old.closed, new.closed, served(infer)) == (True, True, [])


def test_replace_whose_caller_waits_no_longer_for_the_first_execution_replaces_nothing() -> None:
    old, new = ByHand(), ByHand()
    with batching(old) as infer:
        with pytest.raises(DeviceTimeout, match="first execution"):
            run_blocking(lambda: replace_by(infer, new), 0.01)
        assert (new.closed, served(infer)) == (True, [old])


def test_replace_whose_caller_waits_no_longer_for_the_old_model_raises_and_goes_on() -> None:
    old, new = ByHand(), Warmed()
    with batching(old) as infer:
        found = list[int]()
        caller = threading.Thread(target=lambda: found.append(infer(1).result()))
        caller.start()
        assert until_now(lambda: bool(old.begun))
        with pytest.raises(DeviceTimeout, match="The models are replaced"):
            run_blocking(lambda: replace_by(infer, new), 0.01)
        old.end()
        caller.join(PATIENCE_SECONDS)
        assert (found, old.closed, served(infer)) == ([1], True, [new])


class Recorded(OnThread):
    """Records whether it was closed."""

    closed = False

    def close(self) -> None:
        self.closed = True
        super().close()


def test_replaces_by_several_threads_leave_the_models_of_one() -> None:
    made = [[Recorded() for _ in range(25)] for _ in range(4)]
    with batching(Recorded()) as infer:

        def work(mine: list[Recorded]) -> None:
            for each in mine:
                run_blocking(lambda each=each: replace_by(infer, each), None)  # type: ignore[misc]
                assert infer(1).result(PATIENCE_SECONDS) == 1

        threads = [threading.Thread(target=work, args=(mine,)) for mine in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        left = served(infer)
        assert left == [each.executor for each in infer._served]
        assert len(left) == 1
        assert [each for mine in made for each in mine if not each.closed] == left
