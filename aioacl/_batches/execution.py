"""Executes batches on a model; a device as the batcher sees it.

The rows of the items are copied on the native thread of the model, one after another into the memory of one slot. The
thread of the batcher sees the end of the execution, and makes a result for each item.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from aioacl._base import sync
from aioacl._base.codes import DEVICE_ACTIONS
from aioacl._base.ffi import failure
from aioacl._base.states import State
from aioacl._batches.alone import Alone
from aioacl._batches.executor import Look
from aioacl._batches.thread import THREAD
from aioacl._lifecycle.health import health_of
from aioacl._models.calls import ModelRun
from aioacl._wait.current import run_blocking

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import Arguments
    from aioacl._batches.executor import Outcomes
    from aioacl._batches.rows import RowsOfModel
    from aioacl._batches.thread import BatchThread
    from aioacl._lifecycle.manager import Manager
    from aioacl._models.lifetime import Lifetime
    from aioacl._models.loading import Load
    from aioacl._models.model import Model


class BatchRun(ModelRun):
    """The run of one batch.

    Attributes:
        executor: the executor of its model.
        load: the load whose slot it takes.
        arguments: the checked calls.
        gear: the number of the gear, or SMALLEST.
        ended: the function that gets the outcomes.
    """

    executor: ModelExecutor
    load: Load
    arguments: tuple[Arguments, ...]
    gear: int
    ended: Callable[[Outcomes], object]

    def over(self, result: int) -> None:
        """The run has ended. Called on the thread or the loop that handles ends."""
        outcomes: Outcomes | None
        ended = self.ended
        del self.ended  # the traceback of an error refers to this frame, and so to this run
        try:
            self._arrived(result)
            outcomes = self._end()
            if outcomes is None:  # a reset or a close came before the run began, or it has failed
                self.must_repeat(self.load)
        except BaseException as error:  # noqa: BLE001 - the items get it
            outcomes = error
        try:
            if outcomes is None:
                self.executor._execute_later(self.arguments, self.gear, ended)
            else:
                ended(outcomes)
                if isinstance(outcomes, KeyboardInterrupt | SystemExit):  # of a signal handler
                    raise outcomes
        finally:
            del outcomes, ended


class ModelExecutor:
    """Executes the batches of one model."""

    def __init__(self, model: Model, rows: RowsOfModel, thread: BatchThread) -> None:
        self._life = model._life
        self._rows = rows
        self._thread = thread

    @property
    def zeros(self) -> Arguments:
        """A call of one row, whose numbers are zero."""
        return self._rows.zeros

    def execute(self, calls: list[Arguments], ended: Callable[[Outcomes], object]) -> None:
        """Begins an execution. `executor.Executor` describes it."""
        load, arguments, gear = self._life.load, tuple(calls), self._rows.gear_for(calls)
        if load is None or self._life.closed or not load.slots.open:
            self._execute_later(arguments, gear, ended)
            return
        run = BatchRun(load.slots, arguments, None, None, True, False, gear)
        run.executor, run.load, run.arguments, run.gear, run.ended = self, load, arguments, gear, ended
        code = self._thread.begin(run)
        if code:
            run.over(failure(code))

    def _execute_later(
        self, arguments: tuple[Arguments, ...], gear: int, ended: Callable[[Outcomes], object]
    ) -> None:
        """Waits for the device, and loads the model again, on a thread of its own."""
        sync.spawn(THREAD, partial(self._execute_on_thread, arguments, gear, ended))

    def _execute_on_thread(
        self, arguments: tuple[Arguments, ...], gear: int, ended: Callable[[Outcomes], object]
    ) -> None:
        outcomes = self._when_ready(arguments, gear)
        ended(outcomes)
        del outcomes, ended  # as above

    def _when_ready(self, arguments: tuple[Arguments, ...], gear: int) -> Outcomes:
        try:
            results = run_blocking(lambda: results_of(self._life, arguments, gear, None), None)
        except BaseException as error:  # noqa: BLE001 - the items get it
            return error
        return results

    def alone(self) -> Callable[[], bool]:
        """Called before the execution of a suspect. `executor.Executor` describes it."""
        return Alone(self._life).is_known

    def close(self) -> None:
        """Gives up the executions that run."""
        self._thread.drop(self)


async def results_of(
    life: Lifetime, arguments: tuple[Arguments, ...], gear: int, deadline: float | None
) -> list[Any]:
    """Executes a batch as soon as the model is loaded. Returns the result of each call."""
    while True:
        load = await life.ready(wait=True, deadline=deadline)
        run = ModelRun(load.slots, arguments, None, None, True, False, gear)
        results: list[Any] | None = await run.within(deadline)
        if results is not None:
            return results
        run.must_repeat(load)


class ModelDevice:
    """The device of a model, as the batcher sees it."""

    def __init__(self, manager: Manager, thread: BatchThread) -> None:
        self._manager = manager
        self._thread = thread

    def look(self) -> Look:
        """Returns what it can do now, as of one moment: between two questions, a reset could end."""
        fault = self._manager.failures.last_fault  # read first, so that `health` includes it
        health = health_of(self._manager)
        of_now = fault is not None and fault.generation == health.generation
        return Look(
            generation=health.generation,
            is_open=health.state is State.OPEN,
            failed=of_now and fault is not None and fault.action in DEVICE_ACTIONS,
            returns=health.state in (State.DRAINING, State.RESETTING) or health.recovering,
        )

    def listen(self, changed: Callable[[], object]) -> Callable[[], object]:
        """Calls `changed` on the thread of the batcher after each change. Observers are called with a lock held."""
        observers, key = self._manager.admission.observers, object()
        observers[key] = partial(self._thread.soon, changed)
        return partial(observers.pop, key, None)
