"""The models of a batcher: their checks, their executors and devices, and their first execution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioacl._base.errors import DeviceTimeout, ParameterError
from aioacl._base.options import repr_of, whole_of
from aioacl._batches.execution import ModelDevice, ModelExecutor
from aioacl._batches.executor import Watched
from aioacl._models.model import Model

if TYPE_CHECKING:
    from aioacl._batches.executor import DeviceView, Executor, Outcomes
    from aioacl._batches.rows import RowsOfModel
    from aioacl._batches.runner import Runner
    from aioacl._batches.thread import BatchThread


async def warm(executor: Executor, runner: Runner) -> None:
    """Executes one row of zeros. Returns early if the batcher is closed meanwhile."""
    ended: list[Outcomes] = []

    def end(outcomes: Outcomes) -> None:
        ended.append(outcomes)
        runner.look()

    executor.execute([executor.zeros], end)
    if not await runner.when(lambda: bool(ended)).ended():
        raise DeviceTimeout(
            "the first execution of the new model has not ended in time", hint="Pass a longer timeout."
        )
    try:
        if ended and isinstance(ended[0], BaseException):
            raise ended[0]
    finally:
        ended.clear()  # the traceback of the exception refers to this frame


def count_of(name: str, value: Any, least: int, hint: str = "") -> int:
    """Returns a count, or raises ParameterError."""
    count = whole_of(value)
    if count is None or count < least:
        raise ParameterError(
            f"{name} must be an int, at least {least}, got {repr_of(value)}",
            hint=hint or f"Omit {name} for the default.",
        )
    return count


def must_have_slots(slots: int, in_flight: int) -> None:
    """Raises ParameterError unless each execution in flight has a slot."""
    if in_flight > slots:
        raise ParameterError(
            f"in_flight must be at most {slots}, the slots of the model, got {in_flight}",
            hint="Load the model with more slots, or pass a smaller in_flight.",
        )


def must_fit(models: tuple[Any, ...], beside: tuple[Model, ...] = ()) -> None:
    """Raises ParameterError unless the arguments are open models of the same inputs, outputs and gears."""
    if not models:
        raise ParameterError(
            "expected at least one model, got none", hint="Pass `await device.load_model(path)`."
        )
    for model in models:
        if not isinstance(model, Model):
            raise ParameterError(
                f"expected a Model, got {repr_of(model)}", hint="Pass `await device.load_model(path)`."
            )
        model._life.check()
    if len({id(model) for model in models}) < len(models):
        raise ParameterError(
            "expected different models, got the same one twice",
            hint="Pass each model once; in_flight is the number of its executions.",
        )
    described = [model._described for model in (*models, *beside)]
    for what in ("inputs", "outputs", "gears"):
        first = getattr(described[0], what)
        if any(getattr(each, what) != first for each in described):
            raise ParameterError(
                f"expected models with the same {what}, got different ones",
                hint="Load the same model on each device, or open a batcher for each model.",
            )


def served_by(
    rows: RowsOfModel, models: tuple[Model, ...], thread: BatchThread
) -> list[tuple[Executor, Watched]]:
    """Returns an executor for each model, and its device; models on one device share one."""
    devices: dict[int, Watched] = {}
    found = list[tuple[Any, Watched]]()
    for model in models:
        manager = model._life.manager
        view: DeviceView = ModelDevice(manager, thread)
        watched = devices.setdefault(manager.index, Watched(view, manager.index))
        found.append((ModelExecutor(model, rows, thread), watched))
    return found
