"""Batcher: items that arrive together share one execution of a model. Made by `open_batcher()`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aioacl._base import origin, sync
from aioacl._base.errors import ParameterError
from aioacl._base.ffi import lib
from aioacl._base.options import bound_of, deadline_of, is_one_of, must_be_bool, repr_of, whole_of
from aioacl._base.public import publish
from aioacl._base.unique import record
from aioacl._batches.execution import ModelDevice, ModelExecutor
from aioacl._batches.items import BatchItem, LimitedItem
from aioacl._batches.rows import RowsOfModel
from aioacl._batches.runner import Runner, Served, Watched
from aioacl._batches.state import Rules
from aioacl._batches.waiting import NEW
from aioacl._handles.handle import Made
from aioacl._handles.operation import Opening, Operation
from aioacl._models.model import Model
from aioacl._models.results import ModelResults
from aioacl._wait.job_future import JobFuture

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Hashable, Iterable

    from aioacl._base.options import Seconds
    from aioacl._base.origin import Origin, Site
    from aioacl._batches.runner import DeviceView, Executor, Outcomes
    from aioacl._models.results import OnError

GRACE_SECONDS: Final = 10.0
MAPPED_BATCHES: Final = 2  # for each execution in flight, how many batches of items `map` reads ahead


@record
class BatcherStats:
    """What a batcher has done, from `infer.stats()`.

    Attributes:
        waiting: the rows that wait.
        running: the executions that have begun and not ended.
        executions: the executions that have begun, also those that have ended.
        rows: the rows of these executions.
        padded_rows: their rows of padding.
        done: the items with a result.
        failed: the items that have failed.
        cancelled: the items that were cancelled before they had a result.
        expired: the items whose `timeout` was over first.
        refused: the items that got QueueFull.
        repeats: how often an item ran once more after a failure of its batch.
        wait_p50, wait_p99: percentiles of the seconds between the await of an item and its first execution, of the
            newest executions with 1,024 items or more; 0.0 without any.
    """

    waiting: int
    running: int
    executions: int
    rows: int
    padded_rows: int
    done: int
    failed: int
    cancelled: int
    expired: int
    refused: int
    repeats: int
    wait_p50: float
    wait_p99: float


class Batcher(Made):
    """Items that arrive together share one execution, made by `open_batcher(model)`.

    `await infer(x)` adds an item. Any number of tasks, threads and event loops may use one batcher.
    """

    __slots__ = ("_born", "_check", "_handed_out", "_models", "_rules", "_runner", "_served", "_site")
    _factory = "open_batcher(model)"
    _noun = "batcher"

    def __init__(
        self,
        rules: Rules,
        check: Callable[[Any], tuple[Any, int, Hashable]],
        served: Iterable[tuple[Executor, Watched]],
        models: tuple[Model, ...] = (),
    ) -> None:
        self._born: Origin | None = None
        self._site: Site | None = None
        self._handed_out = False
        self._rules = rules
        self._check = check
        self._models = models
        self._runner = Runner(rules)
        self._served = [Served(executor, device) for executor, device in served]
        for each in self._served:
            self._runner.serve(each)

    # --- properties -------------------------------------------------------------------------------------------------

    @property
    def models(self) -> tuple[Model, ...]:
        """The models that execute the batches, a tuple of Model."""
        return self._models

    @property
    def max_rows(self) -> int:
        """The most rows of a batch."""
        return self._rules.max_rows

    @property
    def waiting(self) -> int:
        """The rows that wait for an execution."""
        return self._runner.core.waiting.rows

    def stats(self) -> BatcherStats:
        """Returns what the batcher has done. The numbers may be from different moments if other threads use it.

        Returns:
            A BatcherStats.
        """
        core = self._runner.core
        counts = core.counts
        half, most = counts.percentiles(0.5, 0.99)
        return BatcherStats(
            waiting=core.waiting.rows,
            running=sum(len(model.running) for model in core.models),
            executions=counts.executions,
            rows=counts.rows,
            padded_rows=counts.padded,
            done=counts.done,
            failed=counts.failed,
            cancelled=counts.cancelled,
            expired=counts.expired,
            refused=counts.refused,
            repeats=counts.repeats,
            wait_p50=half,
            wait_p99=most,
        )

    # --- items ------------------------------------------------------------------------------------------------------

    def __call__(
        self, x: Any, /, *, key: Hashable = None, wait: bool = True, timeout: Seconds | None = None
    ) -> BatchItem:
        """Adds an item to the next batch with room, and returns its rows of the result.

        The arguments are read on another thread, and again if the item is repeated. Do not change them until the item
        has returned or raised. After a cancellation or a timeout, a running execution may still read them.

        Args:
            x: an item of 1 to `max_rows` rows, in the forms that the model takes.
            key: whose item it is, for example a tenant. Keys take turns, one item each; the items of one key run in the
                order of their awaits.
            wait: if False, raises QueueFull instead of waiting for room.
            timeout: the longest wait in seconds, from the await on; None waits without a limit.

        Returns:
            A BatchItem: await it, or call its `result()`. Its result has the form of the model's result.

        Raises:
            ParameterError: an argument has a wrong type, shape or number, or the batcher is closed. Raised by the call
                itself, before it is awaited.
            DeviceFault: the execution of this item has failed, also alone. The code may select another subclass.
            DeviceReset: resets ended 9 executions of the item.
            QueueFull: there is no room, and `wait` is False; `retry_after` has the seconds until there probably is.
            DeviceTimeout: the item was not done within `timeout` seconds. If it has not begun, it never runs.
            DeviceQuarantined: no device of the batcher is open, or will be.
        """
        runner = self._runner
        if runner.refusal is not None:
            runner.refusal()
        item: Any
        if timeout is None and wait is True:
            item = BatchItem()
        else:
            must_be_bool("wait", wait)
            deadline_of(timeout)  # raises now if it is wrong
            item = LimitedItem()
            item.timeout, item.patient, item.deadline = timeout, wait, None
        item.call, item.rows, item.shape = self._check(x)
        item.key = key
        item.state = NEW
        item.runner = runner
        return item  # type: ignore[no-any-return]  # typed as Any, because the assignments of its slots are quicker

    def map(
        self,
        xs: Iterable[Any] | AsyncIterable[Any],
        *,
        key: Hashable = None,
        timeout: Seconds | None = None,
        limit: int | None = None,
        ordered: bool = True,
        errors: OnError = "raise",
    ) -> ModelResults:
        """Adds an item for each element of `xs`, as `model.map` calls the model.

        Use it as `async with infer.map(xs) as results:`, and iterate with `async for y in results:`. Leaving the block
        cancels the items that are not done, and waits for them.

        Args:
            xs: the items, an iterable or an async iterable. It is read only as fast as results are taken.
            key: the key of all items.
            timeout: the longest wait of each item in seconds; None waits without a limit.
            limit: the most items that were read from `xs` and whose results were not taken; None is enough for two
                batches of one row an item for each execution in flight.
            ordered: whether the results come in the order of `xs`, or as they are ready.
            errors: "raise" raises the error of an item in its place, and ends the iteration. "return" yields the
                exception in place of the result.

        Returns:
            A ModelResults.

        Raises:
            ParameterError: `limit` is not an int of at least 1, or another argument has a wrong value.
        """
        deadline_of(timeout)
        ahead = MAPPED_BATCHES * self._rules.in_flight * max(1, len(self._served)) * self.max_rows
        most = ahead if limit is None else _count("limit", limit, 1)
        if not is_one_of(errors, "raise", "return"):
            raise ParameterError(
                f'errors must be "raise" or "return", got {repr_of(errors)}', hint='Omit errors for "raise".'
            )
        must_be_bool("ordered", ordered)
        call = partial(self, key=key, timeout=timeout)
        return ModelResults(call, xs, most, ordered=ordered, errors=errors)

    # --- models and the end -----------------------------------------------------------------------------------------

    def replace(self, *models: Model) -> Operation[None]:
        """Replaces the models: warms the new ones, gives them all new batches, and waits for the executions of the old.

        The old models are not closed. If a new model fails its first execution, nothing is replaced.

        Args:
            *models: the new models, with the inputs, outputs and gears of the old ones.

        Returns:
            An Operation; await it, or call its `result()`.

        Raises:
            ParameterError: a model does not fit the others, or the batcher is closed.
            DeviceFault: the first execution of a new model has failed. The code may select another subclass.
        """
        _must_fit(models, self._models[:1])
        return Operation("infer.replace()", lambda: self._replace(models), self)

    async def _replace(self, models: tuple[Model, ...]) -> None:
        runner, core = self._runner, self._runner.core
        rows = RowsOfModel(models[0]._described)
        new = [Served(executor, device) for executor, device in _served(models, rows, self._rules.in_flight)]
        try:
            for each in new:
                await _warm(each.executor)
        except BaseException:
            for each in new:
                each.executor.close()
            raise
        if runner.refusal is not None:
            for each in new:
                each.executor.close()
            runner.refusal()
        old, self._served = self._served, new
        self._models = models
        for each in new:
            runner.serve(each)
        for each in old:
            runner.drain(each)
        await runner.when(lambda: not any(each.state in core.models for each in old)).ended()
        for each in old:
            runner.forget(each)

    def close(self, grace: Seconds = GRACE_SECONDS) -> Operation[None]:
        """Closes the batcher: refuses new items, executes those that wait, and waits for them. The models stay open.

        A second close is not an error.

        Args:
            grace: the seconds after which the items that are left fail with ParameterError, finite. Their executions
                are not waited for.

        Returns:
            An Operation; await it, or call its `result()`.

        Raises:
            ParameterError: `grace` is not a number of at least 0.
        """
        seconds = bound_of("grace", grace)
        return Operation("infer.close()", lambda: self._close(seconds), self)

    async def _close(self, grace: float) -> None:
        if lib.aio_forked():
            return
        runner = self._runner
        runner.close()
        try:
            await runner.when(lambda: runner.core.empty).ended(sync.monotonic() + grace)
        finally:
            runner.abort()

    def _close_now(self) -> bool:
        return False

    def _close_later(self) -> bool:
        self._runner.close()
        self._runner.abort()
        return True

    async def _close_at_end(self) -> None:
        await self._close(GRACE_SECONDS)

    def _leave_open(self) -> None:
        self._close_later()

    def __del__(self) -> None:
        runner = getattr(self, "_runner", None)
        if runner is None or runner.refusal is not None or lib.aio_forked():
            return
        runner.close()
        runner.when(lambda: runner.core.empty).add_done_callback(partial(_abort, runner))
        if self._handed_out:
            origin.warn_of_drop(self, "a batcher was not closed: close it, or open it with `async with`")

    def __repr__(self) -> str:
        state = "closed" if self._runner.refusal is not None else f"{self.waiting} rows waiting"
        return f"<Batcher of {len(self._served)} models, at most {self.max_rows} rows, {state}>"


def _abort(runner: Runner, _: object) -> None:
    runner.abort()


async def _warm(executor: Executor) -> None:
    """Executes one row of zeros."""
    future = JobFuture[None]()

    def ended(outcomes: Outcomes) -> None:
        if not future.claim():
            return
        if isinstance(outcomes, BaseException):
            future.finish(partial(future.set_exception, outcomes))
        else:
            future.finish(partial(future.set_result, None))

    executor.execute([executor.zeros], ended)
    await future.ended()
    future.result(0)


def _count(name: str, value: Any, least: int) -> int:
    count = whole_of(value)
    if count is None or count < least:
        raise ParameterError(
            f"{name} must be an int, at least {least}, got {repr_of(value)}",
            hint=f"Omit {name} for the default.",
        )
    return count


def _must_fit(models: tuple[Any, ...], beside: tuple[Model, ...] = ()) -> None:
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
    described = [model._described for model in (*models, *beside)]
    for what in ("inputs", "outputs", "gears"):
        first = getattr(described[0], what)
        if any(getattr(each, what) != first for each in described):
            raise ParameterError(
                f"expected models with the same {what}, got different ones",
                hint="Load the same model on each device, or open a batcher for each model.",
            )


def _served(models: tuple[Model, ...], rows: RowsOfModel, in_flight: int) -> list[tuple[Executor, Watched]]:
    """Returns an executor for each model, and its device; models on one device share one."""
    devices: dict[int, Watched] = {}
    found = list[tuple[Any, Watched]]()
    for model in models:
        manager = model._life.manager
        view: DeviceView = ModelDevice(manager)
        found.append(
            (ModelExecutor(model, rows, in_flight), devices.setdefault(manager.index, Watched(view)))
        )
    return found


def open_batcher(
    *models: Model,
    max_rows: int | None = None,
    limit: int = 1024,
    limit_per_key: int | None = None,
    in_flight: int = 2,
    hold: Seconds = 0.0,
    attempts: int = 2,
) -> Opening[Batcher]:
    """Opens a batcher: items that arrive together share one execution of a model.

    A batch leaves as soon as a model is idle. While it is busy, items wait until the execution has ended, or until they
    fill a batch. So there is no delay to choose. After a failed task, the halves of a batch run again, so that only the
    item that fails alone gets the failure. After a failure of the device, the items run again when the device was
    reset.

    Args:
        *models: the models that execute the batches, with the same inputs, outputs and gears: for example one on each
            device. All inputs and outputs must have the rows first.
        max_rows: the most rows of a batch; None is the largest gear, or the fixed first dimension, to which batches
            are padded.
        limit: the most rows that wait, at least `max_rows`. Items without room wait for it.
        limit_per_key: likewise, for each key; None is no limit.
        in_flight: the most executions of each model that have begun and not ended, at most its number of slots.
        hold: the seconds that an idle model waits for more items, finite. It adds to the latency.
        attempts: how many executions of an item may end with a failure of the device, or with a reset after one. 1
            repeats nothing, for models with a state: then each failure is that of the whole batch.

    Returns:
        An Opening of a Batcher: await it, or enter it with `async with`. The end of the block closes the batcher, and
        not the models.

    Raises:
        ParameterError: the models differ, or an argument has a wrong value.
        NotSupported: an input or output of the model does not have the rows first, or NumPy is missing.
    """
    _must_fit(models)
    rows = RowsOfModel(models[0]._described)
    most = rows.max_rows if max_rows is None else _count("max_rows", max_rows, 1)
    if most > rows.max_rows:
        raise ParameterError(
            f"max_rows must be at most {rows.max_rows}, the largest batch of the model, got {most}",
            hint="Omit max_rows, or convert the model with a larger --dynamic_batch_size.",
        )
    slots = min(model._life.slots for model in models)
    if _count("in_flight", in_flight, 1) > slots:
        raise ParameterError(
            f"in_flight must be at most {slots}, the slots of the model, got {in_flight}",
            hint="Load the model with more slots, or pass a smaller in_flight.",
        )
    rules = Rules(
        gears=(
            *(gear for gear in rows.gears if gear < most),
            min(gear for gear in rows.gears if gear >= most),
        ),
        most=most,
        limit=_count("limit", limit, most),
        limit_per_key=None if limit_per_key is None else _count("limit_per_key", limit_per_key, most),
        in_flight=in_flight,
        hold=bound_of("hold", hold),
        attempts=_count("attempts", attempts, 1),
    )

    async def make() -> Batcher:
        batcher = Batcher._make(rules, rows.check, _served(models, rows, in_flight), models)
        batcher._handed_out = True
        return batcher

    return Opening("open_batcher()", make)


publish("aioacl", ["Batcher", "BatcherStats", "open_batcher"], of=__name__)
