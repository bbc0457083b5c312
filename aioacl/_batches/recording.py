"""What the flight recorder gets of batches: when they leave, and when their items have their outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioacl._base import ranges
from aioacl._base.errors import AclError
from aioacl._base.ffi import lib
from aioacl._base.flight import FAILED, flight_items, flight_note

if TYPE_CHECKING:
    from aioacl._batches.items import BatchItem
    from aioacl._batches.state import Execution

BATCH_LEAVES: Final[int] = lib.AIO_FLIGHT_BATCH_LEAVES


def leaves(execution: Execution[BatchItem], device: int) -> None:
    """Records a batch that begins, and how long its first item has waited."""
    items = execution.items
    waited = execution.began - items[0]._turn.born if items else 0.0
    waited_us = int(waited * 1e6) if waited > 0 else 0
    flight_note(BATCH_LEAVES, device, execution.number, execution.rows, waited_us)
    execution.range = ranges.begin(f"aioacl batch: {execution.rows} rows")


def done(
    execution: Execution[BatchItem], device: int, items: list[BatchItem], error: BaseException | None = None
) -> None:
    """Records the items of a batch that have their outcome."""
    code = (error.code if isinstance(error, AclError) else None) or FAILED
    flight_items(device, execution.number, items, 0 if error is None else code)
    ranges.end(execution.range)
