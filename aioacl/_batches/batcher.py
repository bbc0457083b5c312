"""Batcher: items that arrive together share one execution of a model. Made by `open_batcher()`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aioacl._base import origin, sync
from aioacl._base.errors import DeviceTimeout
from aioacl._base.ffi import lib, new_item
from aioacl._base.options import bound_of, deadline_of, must_be_bool
from aioacl._base.public import publish
from aioacl._base.unique import record
from aioacl._batches import totals
from aioacl._batches.executor import Served
from aioacl._batches.keys import key_of
from aioacl._batches.models import count_of, must_fit, must_have_slots, warm
from aioacl._batches.results import BatchResults
from aioacl._batches.runner import Runner
from aioacl._handles.handle import Made
from aioacl._handles.operation import Operation
from aioacl._models.results import must_be_mappable

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Hashable, Iterable

    from aioacl._base.ffi import Spec
    from aioacl._base.options import Seconds
    from aioacl._base.origin import Origin, Site
    from aioacl._batches.executor import Executor, Watched
    from aioacl._batches.items import BatchItem
    from aioacl._batches.state import Rules
    from aioacl._batches.thread import BatchThread
    from aioacl._models.model import Model
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
        wait_p50: the median of the seconds between the arrival of an item and the begin of its first execution. It
            covers about the newest 1,024 items; 0.0 without any.
        wait_p99: likewise, the 99th percentile.
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

    __slots__ = (
        "_born",
        "_check",
        "_handed_out",
        "_models",
        "_replaced",
        "_replacing",
        "_rules",
        "_runner",
        "_serve",
        "_served",
        "_site",
    )
    _factory = "open_batcher(model)"
    _noun = "batcher"

    def __init__(
        self,
        rules: Rules,
        check: Callable[[Any], tuple[Any, int, Hashable]],
        serve: Callable[[tuple[Model, ...], BatchThread], Iterable[tuple[Executor, Watched]]],
        models: tuple[Model, ...] = (),
        usual: tuple[Spec, Hashable] | None = None,
    ) -> None:
        self._born: Origin | None = None
        self._site: Site | None = None
        self._handed_out = False
        self._rules = rules
        self._check = check
        self._models = models
        self._serve = serve
        self._replaced = 0  # how often the models were replaced
        self._replacing = sync.lock()  # for changes of the models
        self._runner = Runner(rules)
        if usual is not None:
            self._runner.spec, self._runner.shape = usual
        self._runner.thread.start()
        self._served = [Served(executor, device) for executor, device in serve(models, self._runner.thread)]
        if models:
            totals.begin(self._runner.core, models[0]._life.label)
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
            key: whose item it is, any hashable value, for example the name of a tenant. Keys take turns, one item each;
                the items of one key run in the order of their awaits. The comparison of two keys must not block.
            wait: if False, raises QueueFull instead of waiting for room.
            timeout: the longest wait in seconds, from the await on; None waits without a limit.

        Returns:
            A BatchItem: await it, or call its `result()`. Its result has the form of the model's result.

        Raises:
            ParameterError: an argument has a wrong type, shape or number, or the batcher is closed. Raised by the call
                itself, before it is awaited.
            DeviceFault: the execution of this item has failed, also alone. The code may select another subclass.
            DeviceReset: resets ended 9 executions of the item.
            QueueFull: there is no room, and `wait` is False; `retry_after` has the seconds until there probably is, or
                None before the first execution has ended.
            DeviceTimeout: the item was not done within `timeout` seconds. If it has not begun, it never runs.
            DeviceQuarantined: no device of the batcher is open, or will be.
        """
        item: BatchItem = new_item(self._runner, self._check, x)
        if key is not None or timeout is not None or wait is not True:
            must_be_bool("wait", wait)
            deadline_of(timeout)  # raises now if it is wrong
            item._key, item._timeout, item._patient = key_of(key), timeout, wait
        return item

    def map(
        self,
        xs: Iterable[Any] | AsyncIterable[Any],
        *,
        key: Hashable = None,
        timeout: Seconds | None = None,
        limit: int | None = None,
        ordered: bool = True,
        errors: OnError = "raise",
    ) -> BatchResults:
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
                exception in place of the result; its `item` is the item.

        Returns:
            A BatchResults.

        Raises:
            ParameterError: `xs` cannot be iterated over, `limit` is not an int of at least 1, or another argument has a
                wrong value.
        """
        deadline_of(timeout)
        ahead = MAPPED_BATCHES * self._rules.in_flight * max(1, len(self._served)) * self.max_rows
        most = ahead if limit is None else count_of("limit", limit, 1)
        must_be_mappable(xs, errors)
        must_be_bool("ordered", ordered)
        call = partial(self, key=key, timeout=timeout)
        return BatchResults(call, xs, most, ordered=ordered, errors=errors)

    # --- models and the end -----------------------------------------------------------------------------------------

    def replace(self, *models: Model) -> Operation[None]:
        """Replaces the models: warms the new ones, gives them all new batches, and waits for the executions of the old.

        The old models are not closed. If a new model fails its first execution, or the await is cancelled before that
        has ended, nothing is replaced. A later cancellation ends only the wait.

        Args:
            *models: the new models, with the inputs, outputs and gears of the old ones.

        Returns:
            An Operation; await it, or call its `result()`.

        Raises:
            ParameterError: a model does not fit the others, or has fewer slots than `in_flight`, or the batcher is
                closed.
            DeviceFault: the first execution of a new model has failed. The code may select another subclass.
            DeviceTimeout: `result(timeout)` has waited so long. The models are replaced if their first execution has
                ended.
        """
        must_fit(models, self._models[:1])
        must_have_slots(min(model._life.slots for model in models), self._rules.in_flight)
        return Operation("infer.replace()", lambda: self._replace(models), self)

    async def _replace(self, models: tuple[Model, ...]) -> None:
        runner = self._runner
        new = [Served(executor, device) for executor, device in self._serve(models, runner.thread)]
        try:
            for each in new:
                await warm(each.executor, runner)
            if runner.refusal is not None:
                runner.refusal()
        except BaseException:
            for each in new:
                each.executor.close()
            raise
        with self._replacing:
            over = runner.replace(new)
            self._models, self._served = models, new
            self._replaced += 1
        if not await over.ended():
            raise DeviceTimeout(
                "the executions of the old models have not ended in time",
                hint="The models are replaced. Pass a longer timeout to wait for the old ones.",
            )
        over.result(0)

    def _add(self, model: Model, replaced: int) -> bool:
        """Gives batches to one more model, which was warmed. Any thread may call it.

        Returns False if the models were replaced since `_replaced` was read: the model may be an old one then.
        """
        with self._replacing:
            if self._replaced != replaced:
                return False
            [(executor, device)] = self._serve((model,), self._runner.thread)
            served = Served(executor, device)
            self._runner.serve(served)
            self._models = (*self._models, model)
            self._served = [*self._served, served]
        return True

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
        try:
            runner.close()
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
        if runner is None or runner.aborted or lib.aio_forked():
            return
        closed = runner.refusal is not None  # then Ctrl-C has interrupted the close
        runner.close()
        runner.when(lambda: runner.core.empty).add_done_callback(partial(_abort, runner))
        if self._handed_out and not closed:
            origin.warn_of_drop(
                self, f"a {self._noun} was not closed: close it, or open it with `async with`"
            )

    def __repr__(self) -> str:
        state = "closed" if self._runner.refusal is not None else f"{self.waiting} rows waiting"
        return f"<Batcher of {len(self._served)} models, at most {self.max_rows} rows, {state}>"


def _abort(runner: Runner, _: object) -> None:
    runner.abort()


publish("aioacl", ["Batcher", "BatcherStats"], of=__name__)
