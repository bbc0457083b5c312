"""The errors of items: what a failure means for the batch, and an exception object for each caller."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from aioacl._base.codes import DEVICE_ACTIONS
from aioacl._base.errors import (
    AclError,
    DeviceFault,
    DeviceQuarantined,
    DeviceReset,
    DeviceResetting,
    ParameterError,
    QueueFull,
    StaleHandleError,
    StreamAborted,
    TaskTimeout,
)
from aioacl._batches.state import Ending

if TYPE_CHECKING:
    from aioacl._batches.core import Core
    from aioacl._batches.items import BatchItem


def ending_of(error: BaseException) -> Ending:
    """Returns what an error of an execution means."""
    if isinstance(error, DeviceFault):
        if error.action in DEVICE_ACTIONS:
            return Ending.DEVICE
        return Ending.TASK_TIMEOUT if isinstance(error, TaskTimeout) else Ending.TASK
    if isinstance(
        error, DeviceReset | DeviceResetting | DeviceQuarantined | StaleHandleError | StreamAborted
    ):
        return Ending.RESET
    return Ending.FAILED


def error_for_each(error: BaseException, count: int) -> list[Exception]:
    """Returns an exception for each caller: a traceback that grows in one task must not grow in the others."""
    if count == 1 and isinstance(error, Exception) and not isinstance(error, StopIteration):
        return [error]
    return [_own(error) for _ in range(count)]


def without_frames(error: BaseException) -> BaseException:
    """Returns a copy to keep. The traceback of the error would refer to the frames of its caller, and so to garbage."""
    try:
        made = copy.copy(error)
    except Exception:  # noqa: BLE001 - a subclass of the program need not have a copy
        return error
    made.__traceback__ = made.__cause__ = made.__context__ = None
    return made


def _own(error: BaseException) -> Exception:
    if isinstance(error, Exception) and not isinstance(
        error, StopIteration
    ):  # no future takes a StopIteration
        try:
            made = copy.copy(error)
        except Exception:  # noqa: BLE001 - an exception of the user need not have a copy
            made = error
        if made is not error and type(made) is type(error):
            made.__cause__, made.__traceback__ = error, None
            return made
    wrapped = AclError(
        f"the execution of the batch raised {type(error).__name__}",
        hint="Its traceback is that of the cause of this error.",
    )
    wrapped.__cause__ = error
    return wrapped


def wrong_count(got: int, expected: int) -> AclError:
    """Returns the error of an execution that has not returned one result for each item."""
    return AclError(
        f"expected one result for each of the {expected} items, got {got}",
        hint="Return the result of each row in the function that executes batches.",
    )


def closed_error() -> ParameterError:
    """Returns the error of an item that a closed batcher does not execute."""
    return ParameterError("the batcher is closed", hint="Close it after its callers have ended.")


def refuse() -> None:
    """Refuses a new item of a closed batcher."""
    raise closed_error()


def queue_full(core: Core[Any], item: BatchItem) -> QueueFull:
    """Returns the error of an item for which there is no room."""
    rate = sum(model.rate for model in core.models)
    later = "after `error.retry_after` seconds" if rate else "later"
    of_key = core.waiting.key_is_full(item)
    return QueueFull(
        "so many rows of the key wait that limit_per_key has no room for the item"
        if of_key
        else f"{core.waiting.rows} rows wait, and limit has no room for the item",
        retry_after=core.waiting.rows / rate if rate else None,
        hint=f"Pass wait=True to wait for room, or try again {later}.",
    )
