"""What the flight recorder gets of batches: when they leave, and when their items have their outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioacl._base import ranges, sync
from aioacl._base.errors import AclError
from aioacl._base.ffi import lib
from aioacl._base.flight import FAILED, flight_batch, flight_items, flight_note

if TYPE_CHECKING:
    from aioacl._batches.items import BatchItem
    from aioacl._batches.state import Execution

BATCH_FAILS: Final[int] = lib.AIO_FLIGHT_BATCH_FAILS
ITEM_GONE: Final[int] = lib.AIO_FLIGHT_ITEM_GONE


def leaves(execution: Execution[BatchItem], device: int) -> None:
    """Records a batch that begins, and how long its first item has waited."""
    execution.number = flight_batch(device, execution.rows, execution.items, execution.began)
    if ranges.opened:
        execution.range = ranges.begin(f"aioacl batch: {execution.rows} rows")


def done(
    execution: Execution[BatchItem], device: int, items: list[BatchItem], error: BaseException | None = None
) -> None:
    """Records the items of a batch that have their outcome."""
    flight_items(device, execution.number, items, 0 if error is None else _code_of(error))
    if execution.range:
        ranges.end(execution.range)


def fails(execution: Execution[BatchItem], device: int, again: int, error: BaseException) -> None:
    """Records a batch that has failed, and how many of its items wait to run again."""
    flight_note(BATCH_FAILS, device, execution.number, _code_of(error), again)


def gone(item: BatchItem, device: int, *, began: bool, expired: bool) -> None:
    """Records an item whose time is over, or whose caller has gone."""
    waited = sync.monotonic() - item._turn.born
    flight_note(ITEM_GONE, device, began, expired, int(waited * 1e6) if waited > 0 else 0)


def _code_of(error: BaseException) -> int:
    return (error.code if isinstance(error, AclError) else None) or FAILED
