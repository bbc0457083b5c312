"""Executes batches with `model(x)`, on threads of the batcher.

A thread joins the arguments, calls the model, and splits the results. So the joining runs on no event loop.
"""

from __future__ import annotations

import queue
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aioacl._base import sync
from aioacl._base.codes import DEVICE_ACTIONS
from aioacl._base.dtypes import array_dtype
from aioacl._base.errors import NotSupported
from aioacl._base.states import State
from aioacl._batches.rows import Rows
from aioacl._lifecycle.health import health_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._batches.executor import Outcomes
    from aioacl._batches.rows import RowsOfModel
    from aioacl._lifecycle.manager import Manager
    from aioacl._models.model import Model

THREAD: Final = "aioacl-batch"


class ModelExecutor:
    """Executes the batches of one model."""

    def __init__(self, model: Model, rows: RowsOfModel, threads: int) -> None:
        try:
            import numpy  # noqa: ICN001, PLC0415 - NumPy is optional
        except ImportError as error:
            raise NotSupported(
                "expected NumPy for the batches of a model, but it cannot be imported", hint="Install NumPy."
            ) from error
        self._numpy = numpy
        self._model = model
        self._rows = rows
        self._threads = threads
        self._work: queue.SimpleQueue[tuple[list[Rows], Callable[[Outcomes], object]] | None] = (
            queue.SimpleQueue()
        )
        self._started = 0

    @property
    def zeros(self) -> Rows:
        """A call of one row, whose numbers are zero."""
        shape = self._rows.any_shape()
        inputs = self._rows.description.inputs
        arrays: list[Any] = [
            self._numpy.zeros((1, *dims), array_dtype(info.dtype))
            for dims, info in zip(shape, inputs, strict=True)
        ]
        return Rows(tuple(memoryview(array) for array in arrays), 1, shape)

    def execute(self, calls: list[Rows], ended: Callable[[Outcomes], object]) -> None:
        """Begins an execution on a thread. `executor.Executor` describes it."""
        if self._started < self._threads:
            self._started += 1
            sync.spawn(THREAD, self._serve)
        self._work.put((calls, ended))

    def close(self) -> None:
        """Ends the threads when the executions have ended that have begun."""
        for _ in range(self._started):
            self._work.put(None)

    def _serve(self) -> None:
        """Runs on each thread."""
        while True:
            work = self._work.get()
            if work is None:
                return
            calls, ended = work
            try:
                outcomes: Outcomes = self._execute(calls)
            except BaseException as error:  # noqa: BLE001 - the items get it
                outcomes = error
            del calls, work  # the arrays of callers
            ended(outcomes)
            del outcomes, ended

    def _execute(self, calls: list[Rows]) -> list[Any]:
        result: Any = self._model(self._join(calls)).result()
        several = len(self._rows.description.outputs) > 1
        found, begin = list[Any](), 0
        for call in calls:
            end = begin + call.rows
            if several:
                found.append({name: array[begin:end].copy() for name, array in result.items()})
            else:
                found.append(result[begin:end].copy())
            begin = end
        return found

    def _join(self, calls: list[Rows]) -> list[Any]:
        """Returns the arrays of a gear, which begin with the rows of the calls."""
        gear = self._rows.gear_for(calls[0].shape, sum(call.rows for call in calls))
        arrays = list[Any]()
        for number, (shape, info) in enumerate(zip(gear.inputs, self._rows.description.inputs, strict=True)):
            array = self._numpy.zeros(shape, array_dtype(info.dtype))
            memory, begin = array.reshape(-1).view(self._numpy.uint8), 0
            for argument in (call.arguments[number] for call in calls if call.arguments[number].nbytes):
                end = begin + argument.nbytes
                memory[begin:end] = self._numpy.frombuffer(argument, self._numpy.uint8)
                begin = end
            arrays.append(array)
        return arrays


class ModelDevice:
    """The device of a model, as the batcher sees it."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    @property
    def generation(self) -> int:
        """The number of the generation."""
        return self._manager.generation

    @property
    def is_open(self) -> bool:
        """Whether it admits work."""
        return self._manager.admission.shown is State.OPEN

    @property
    def failed(self) -> bool:
        """Whether it has a failure that only a reset ends."""
        fault = self._manager.failures.last_fault
        of_now = fault is not None and fault.generation == self._manager.generation
        return of_now and fault is not None and fault.action in DEVICE_ACTIONS

    @property
    def returns(self) -> bool:
        """Whether it drains, is being reset, or has a supervisor that will reset it."""
        return (
            self._manager.admission.shown in (State.DRAINING, State.RESETTING)
            or health_of(self._manager).recovering
        )

    @property
    def is_alone(self) -> bool:
        """Other work of the process is not counted, so this is not known."""
        return False

    def listen(self, changed: Callable[[], object]) -> Callable[[], object]:
        """Calls `changed` after each change of the device, with the device's lock held."""
        observers, key = self._manager.admission.observers, object()
        observers[key] = changed
        return partial(observers.pop, key, None)
