"""`open_batcher()`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aioacl._base.errors import ParameterError
from aioacl._base.options import bound_of
from aioacl._base.public import publish
from aioacl._batches.batcher import Batcher
from aioacl._batches.models import count_of, must_fit, must_have_slots, served_by
from aioacl._batches.rows import RowsOfModel
from aioacl._batches.state import Rules
from aioacl._handles.operation import Opening
from aioacl._models.arguments import numpy_or_error

if TYPE_CHECKING:
    from aioacl._base.options import Seconds
    from aioacl._models.model import Model


class Options:
    """The options of a batcher. The constructor checks what does not depend on a model."""

    def __init__(
        self,
        slots: int,
        max_rows: int | None,
        limit: int,
        limit_per_key: int | None,
        in_flight: int,
        hold: Seconds,
        attempts: int,
    ) -> None:
        self._max_rows = None if max_rows is None else count_of("max_rows", max_rows, 1)
        self._limit = count_of("limit", limit, 1)
        self._limit_per_key = None if limit_per_key is None else count_of("limit_per_key", limit_per_key, 1)
        self._in_flight = count_of("in_flight", in_flight, 1)
        self._hold = bound_of("hold", hold)
        self._attempts = count_of("attempts", attempts, 1)
        must_have_slots(slots, self._in_flight)

    def rules_for(self, model: Model) -> tuple[RowsOfModel, Rules]:
        """Returns the rows of a model, and the rules of a batcher for such models. Raises ParameterError."""
        numpy_or_error()  # the results are arrays
        rows = RowsOfModel(model._described, model._life.spec)
        most = self._max_rows or rows.max_rows
        if most > rows.max_rows:
            raise ParameterError(
                f"max_rows must be at most {rows.max_rows}, the largest batch of the model, got {most}",
                hint="Omit max_rows, or convert the model with a larger --dynamic_batch_size.",
            )
        rows.max_rows = most  # an item with more rows would fit no batch
        room = "A full batch must have room: pass a larger limit, or a smaller max_rows."
        per_key = self._limit_per_key
        gears = (
            *(gear for gear in rows.gears if gear < most),
            min(gear for gear in rows.gears if gear >= most),
        )
        return rows, Rules(
            gears=gears,
            most=most,
            limit=count_of("limit", self._limit, most, room),
            limit_per_key=None if per_key is None else count_of("limit_per_key", per_key, most, room),
            in_flight=self._in_flight,
            hold=self._hold,
            attempts=self._attempts,
        )


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
    must_fit(models)
    slots = min(model._life.slots for model in models)
    options = Options(slots, max_rows, limit, limit_per_key, in_flight, hold, attempts)
    rows, rules = options.rules_for(models[0])

    async def make() -> Batcher:
        batcher = Batcher._make(rules, rows.check, partial(served_by, rows), models, rows.usual)
        batcher._handed_out = True
        return batcher

    return Opening("open_batcher()", make)


publish("aioacl", ["open_batcher"], of=__name__)
