"""The decisions of a batcher: which items run together, when, where, and how often.

Pure: no await, no clock, no thread, no device. The runner calls `arrive`, `cancel`, `ended` and `tell` when something
has happened, and then `next` until it returns None. It executes what `next` returns. All calls are made under the
runner's lock.

The rules, by the numbers that comments and tests use:

1. Rows count. An execution has at most `max_rows` rows, and the smallest gear that holds them.
2. A batch leaves if its model is idle, or if it is full and fewer than `in_flight` executions run.
3. Keys take turns, one item each. Inside a key nothing overtakes: an item that does not fit ends the batch.
4. An item that is cancelled while it waits never runs. Later, its result is dropped.
5. `limit` counts the rows that wait. Room goes to the keys that wait for it in turn.
6. Only items of the same shape join. The shape with the oldest item comes first.
7. An item has one outcome.
8. After a failed task, the halves of the batch run again, within a budget.
9. After a failure of the device, each item runs alone, after an execution with zeros.
10. After a reset for another reason, the batch runs again.
11. If no device is open or will come back, waiting items fail.
12. Of several models, the one with the fewest rows in flight for its rate is next.
13. After `close`, what waits leaves at once.

The runner implements rule 14: any loop, any thread.
"""

from __future__ import annotations

from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Generic

from aioacl._base.ffi import move_items
from aioacl._batches.repeats import REPEATS, Again, Group, Tries, divide
from aioacl._batches.state import Counts, DeviceState, Ending, Execution, ModelState, Rules
from aioacl._batches.waiting import AGAIN, OUTSIDE, OVER, RUNNING, WAITING, I, Waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioacl._batches.waiting import Turn

_load: Final = attrgetter("load")


class Core(Generic[I]):
    """The state of a batcher.

    Attributes:
        waiting: the items before their first execution.
        healthy: whether all devices are usable, and no item was put back. Then `next` finds nothing without queues.
        models: the models.
        closing: whether what waits leaves at once.
        wake: when `next` must be called again because of `hold`; None if it need not be.
        counts: what has happened.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._max_rows = rules.max_rows
        self._again = Again[I]()
        self._most_alone = 0  # the most rows that `arrive_alone` takes
        self.healthy = True
        self.waiting: Waiting[I] = Waiting(rules.max_rows, rules.limit, rules.limit_per_key)
        self.models: list[ModelState[I]] = []
        self.closing = False
        self.wake: float | None = None
        self.counts = Counts(rules.gears)
        self._tries: dict[I, Tries] = {}  # of the items that were put back

    # --- what has happened ------------------------------------------------------------------------------------------

    def add_model(self, model: ModelState[I]) -> None:
        """Adds a model, which gets batches from now on."""
        self.models.append(model)
        model.device.models.append(model)
        self._look()

    def drain_model(self, model: ModelState[I]) -> None:
        """Gives no more batches to a model. It is dropped when its executions have ended."""
        model.leaving = True
        self._look()
        self._drop_if_drained(model)

    def _drop_if_drained(self, model: ModelState[I]) -> None:
        if model.leaving and not model.running and model in self.models:
            self.models.remove(model)
            model.device.models.remove(model)
            if not model.device.models and self.models:  # its suspects run on another device
                self.models[-1].device.suspects.extend(model.device.suspects)
                model.device.suspects.clear()
            self._look()

    def arrive(self, turn: Turn[I], now: float) -> list[I]:
        """Adds items. Returns those that are refused, because there is no room and they do not wait for it."""
        refused = self.waiting.add(turn, now)
        self.counts.refused += len(refused)
        return refused

    def refuse(self, turn: Turn[I], now: float) -> list[I]:
        """Ends the items of a turn, which gets no execution. Returns those whose callers have not gone."""
        return self._settle(turn.end(now), done=False)

    def arrive_alone(self, turn: Turn[I], now: float) -> Execution[I] | None:
        """Returns the execution of a turn that is the next batch: nothing waits, the model is idle or the turn full.

        Returns None otherwise: then call `arrive` and `next`, which would find the same batch, but take longer.
        """
        rows = turn.rows
        if turn.apart or rows > self._most_alone or self.waiting.queues or self.waiting.outside:
            return None
        model = self.models[0]
        running = len(model.running)
        if running and (rows < self._max_rows or running >= self._rules.in_flight):
            return None
        items = turn.end(now)
        move_items(items, WAITING, RUNNING)
        counts = self.counts  # as `add_wait(0.0, len(items))`, without a call
        counts.waits.append((0.0, len(items)))
        counts.waited[0] += len(items)
        return self._begin(model, items, rows, now)

    def cancel(self, item: I, *, expired: bool = False) -> bool:
        """Ends an item whose caller has gone, or whose time is over. Returns False if it had its outcome before."""
        if item._state == OVER:
            return False
        if item._state in (WAITING, OUTSIDE):
            self.waiting.remove(item)
        elif item._state == AGAIN:
            self.waiting.give_room(item)
        self._tries.pop(item, None)
        item._state = OVER
        if expired:
            self.counts.expired += 1
        else:
            self.counts.cancelled += 1
        self.waiting.admit()
        return True

    def tell(
        self, device: DeviceState[I], *, is_open: bool, coming: bool, generation: int, failed: bool = False
    ) -> None:
        """A device says what it can do now. `failed`: whether it has failed in this generation."""
        device.open, device.coming, device.generation = is_open, coming, generation
        if failed and device.faulty < generation:
            device.faulty = generation
            device.check = True
        self._look()

    def ended(self, execution: Execution[I], ending: Ending, now: float) -> list[I]:
        """An execution has ended. Returns the items whose outcome this is; the others run again."""
        model = execution.model
        model.running.discard(execution)
        model.rows -= execution.rows
        special = execution.division is not None or self._tries or not self.healthy
        if special or ending is not Ending.DONE:
            return self._after(execution, ending, now)
        model.measure(execution, now)
        if model.streak.spent:
            model.streak.end()
        items = execution.items
        done = move_items(items, RUNNING, OVER)
        self.counts.done += done
        # If the caller of an item has gone, the others are looked at one by one.
        return items if done == len(items) else items[:done] + self._settle(items[done:], done=True)

    def forget(self, execution: Execution[I]) -> None:
        """Drops an execution whose end could not be handled, perhaps only in part. Its items count as failed."""
        model, device = execution.model, execution.model.device
        model.running.discard(execution)
        model.rows = sum(each.rows for each in model.running)
        device.taken = any(each.alone for other in device.models for each in other.running)
        self._settle([item for item in execution.items if item._state == RUNNING], done=False)
        self._drop_if_drained(model)
        self._look()

    def _settle(self, items: Sequence[I], *, done: bool) -> list[I]:
        """Ends items. Returns those whose callers have not gone."""
        left = [item for item in items if item._state != OVER]
        for item in left:
            if item._state == AGAIN:
                self.waiting.give_room(item)
            item._state = OVER
            self._tries.pop(item, None)
        if done:
            self.counts.done += len(left)
        else:
            self.counts.failed += len(left)
        return left

    # --- failures ---------------------------------------------------------------------------------------------------

    def _after(self, execution: Execution[I], ending: Ending, now: float) -> list[I]:
        model, ending = execution.model, self._as_fault(execution, ending)
        if ending in (Ending.DEVICE, Ending.DEVICE_ALONE):
            model.device.faulty = max(model.device.faulty, execution.generation)
        if execution.alone:
            model.device.taken = False
        live = [item for item in execution.items if item._state == RUNNING]
        if not execution.items:
            model.device.check = ending in (Ending.DEVICE, Ending.DEVICE_ALONE, Ending.RESET)
            failed = live
        elif ending is Ending.DONE:
            model.measure(execution, now)
            if execution.division is None and not execution.alone:
                model.streak.end()
            failed = live
        elif ending is Ending.FAILED or self._rules.attempts == 1:
            failed = live
        elif ending in (Ending.TASK, Ending.TASK_TIMEOUT):
            failed = self._divide(execution, live, ending, now)
        elif ending is Ending.RESET:
            failed = self._put_back(execution, live)
        else:
            failed = self._suspect(execution, live, ending)
        if execution.division is not None:
            execution.division.end_one()
        self._drop_if_drained(model)
        self._look()
        over = self._settle(failed, done=ending is Ending.DONE)
        self.waiting.admit()
        return over

    @staticmethod
    def _as_fault(execution: Execution[I], ending: Ending) -> Ending:
        """A reset that follows a failure of the device counts as that failure. Rule 10."""
        after_fault = execution.model.device.faulty >= execution.generation
        return Ending.DEVICE if ending is Ending.RESET and after_fault else ending

    def _divide(self, execution: Execution[I], live: list[I], ending: Ending, now: float) -> list[I]:
        """Rule 8."""
        if execution.alone or not live:
            return live
        group = Group(live, execution.division)
        # Only a timeout takes so long that it is not repeated for items that would be late.
        until = 2 * now - execution.began if ending is Ending.TASK_TIMEOUT else -inf
        failed, halves = divide(group, len(execution.items), execution.model.streak, until)
        execution.division = group.division
        for half in halves:
            self._wait_again(half.items)
        self._again.last(halves)
        return failed

    def _put_back(self, execution: Execution[I], live: list[I]) -> list[I]:
        """Rule 10: a reset that is no item's fault."""
        failed, rest = self._repeatable(live)
        if execution.alone:
            execution.model.device.suspects.extendleft(rest)
        elif rest:
            self._again.first(rest, execution.division)
            if execution.division is not None:
                execution.division.stay()
        self._wait_again(rest)
        return failed

    def _suspect(self, execution: Execution[I], live: list[I], ending: Ending) -> list[I]:
        """Rule 9."""
        device = execution.model.device
        charged = execution.alone and ending is Ending.DEVICE_ALONE
        device.check = not execution.alone
        if charged:
            return live
        tired = [item for item in live if self._tries_of(item).after_fault() >= self._rules.attempts]
        failed, rest = self._repeatable([item for item in live if item not in tired] if tired else live)
        device.suspects.extendleft(reversed(rest))
        self._wait_again(rest)
        return tired + failed

    def _tries_of(self, item: I) -> Tries:
        return self._tries.setdefault(item, Tries())

    def _repeatable(self, items: list[I]) -> tuple[list[I], list[I]]:
        """Returns the items that were put back too often, and the others."""
        failed, rest = list[I](), list[I]()
        for item in items:
            (rest if self._tries_of(item).again() <= REPEATS else failed).append(item)
        return failed, rest

    def _wait_again(self, items: list[I]) -> None:
        for item in items:
            item._state = AGAIN
            self.waiting.take_room(item)

    def _look(self) -> None:
        """Finds whether the quick ways of `next` and `ended` may be used."""
        self.healthy = not self._again and all(
            model.device.free and not (model.device.suspects or model.leaving) for model in self.models
        )
        alone = self.healthy and len(self.models) == 1 and not self._rules.hold
        self._most_alone = min(self._max_rows, self._rules.limit_per_key or self._max_rows) if alone else 0

    def hopeless(self) -> list[I]:
        """Ends and returns all items that wait, if no device is usable or will come back. Rule 11."""
        return [] if self.may_run else self._end_all(self.left())

    @property
    def may_run(self) -> bool:
        """Whether a device is usable or will come back."""
        return self.healthy or any(model.device.usable or model.device.coming for model in self.models)

    @property
    def empty(self) -> bool:
        """Whether no item waits or runs."""
        return not (self.waiting.rows or self.waiting.outside or any(model.running for model in self.models))

    def left(self) -> list[I]:
        """Returns all items that wait to run, for the first time or again."""
        suspects = [item for model in self.models for item in model.device.suspects]
        items = dict.fromkeys([*self._again.items(), *suspects, *self.waiting.items()])
        return [item for item in items if item._state in (OUTSIDE, WAITING, AGAIN)]

    def abort(self) -> list[I]:
        """Ends and returns all items, also those that run. Rule 13."""
        running = [item for model in self.models for execution in model.running for item in execution.items]
        return self._end_all(self.left()) + self._settle(running, done=False)

    def _end_all(self, items: list[I]) -> list[I]:
        for item in items:
            if item._state != AGAIN:
                self.waiting.remove(item)
                item._state = RUNNING  # no longer counted as waiting
        over = self._settle(items, done=False)
        self._look()
        return over

    # --- what is next -----------------------------------------------------------------------------------------------

    def next(self, now: float) -> Execution[I] | None:
        """Returns the next execution to begin, or None."""
        self.wake = None
        if not self.healthy:
            execution = self._next_after_failures(now)
            if execution is not None:
                return execution
        if not self.waiting.queues:
            return None
        if self.healthy and len(self.models) == 1:
            model = self.models[0]
            return self._batch_for(model, now) if len(model.running) < self._rules.in_flight else None
        ready = [model for model in self.models if self._takes_batches(model)]
        return self._batch_for(min(ready, key=_load), now) if ready else None

    def _takes_batches(self, model: ModelState[I]) -> bool:
        device = model.device
        return (
            device.free
            and not model.leaving
            and len(model.running) < self._rules.in_flight
            and not device.has_suspects()
        )

    def _batch_for(self, model: ModelState[I], now: float) -> Execution[I] | None:
        """Rules 2 and 13."""
        waiting = self.waiting
        queue = waiting.next_queue(full=bool(model.running) and not self.closing)
        if queue is None:
            return None
        if self._rules.hold and not self.closing and queue.rows < self._max_rows:
            leaves = queue.oldest() + self._rules.hold
            if now < leaves:
                queue = waiting.next_queue(full=True)
                if queue is None:
                    self.wake = leaves
                    return None
        before = waiting.rows
        items = waiting.take(queue)
        self.counts.wait(items, now)
        execution = self._begin(model, items, before - waiting.rows, now)
        if waiting.outside:
            waiting.admit()
        return execution

    def _begin(self, model: ModelState[I], items: list[I], rows: int, now: float) -> Execution[I]:
        execution = Execution(model, items, rows, now)
        model.running.add(execution)
        model.rows += rows
        by_rows = self.counts.by_rows
        by_rows[rows] = by_rows.get(rows, 0) + 1
        return execution

    def _next_after_failures(self, now: float) -> Execution[I] | None:
        """Executions with zeros, of suspects, and of items that were put back."""
        for device in dict.fromkeys(model.device for model in self.models):
            if device.usable and device.idle:
                model = self._on(device)
                if device.check and model is not None:
                    return self._begin(model, [], 1, now)
                item = self._suspect_for(device) if model is not None else None
                if item is not None and model is not None:
                    return self._again_for(model, [item], now, alone=True)
        ready = [model for model in self.models if self._takes_batches(model)]
        while self._again and ready:
            group = self._again.take()
            self._look()
            model = min(ready, key=_load)
            if group.items:
                execution = self._again_for(model, group.items, now, alone=False)
                execution.division = group.division
                self.counts.divided += len(group.items) if group.division is not None else 0
                return execution
            if group.division is not None:
                group.division.end_one()
        self._look()
        return None

    @staticmethod
    def _on(device: DeviceState[I]) -> ModelState[I] | None:
        """A model of the device that executes; also one that is being replaced, if there is no other."""
        return min(device.models, key=lambda model: model.leaving, default=None)

    def _suspect_for(self, device: DeviceState[I]) -> I | None:
        """A suspect of this idle device, or else one of a device that cannot execute."""
        item = device.next_suspect()
        for model in self.models:
            if item is None and not model.device.usable:
                item = model.device.next_suspect()
        return item

    def _again_for(self, model: ModelState[I], items: list[I], now: float, *, alone: bool) -> Execution[I]:
        for item in items:
            item._state = RUNNING
            self.waiting.give_room(item)
        self.counts.repeats += len(items)
        self.counts.suspects += len(items) if alone else 0
        execution = self._begin(model, items, sum(item._rows for item in items), now)
        execution.alone = model.device.taken = alone
        return execution
