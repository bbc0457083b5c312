"""Controls for failing tasks: their ids, what wakes the thread that handles them, and what the runtime does wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, SupportsIndex

from aioacl._base.errors import ParameterError
from aioacl._base.options import whole_of
from aioacl.simulator._control import control_function, of_device, of_stream

if TYPE_CHECKING:
    from aioacl.simulator._control import StreamLike

MAX_TASK_ID: Final = 0xFFFFFFFF


def set_next_task(stream: StreamLike, task_id: SupportsIndex) -> None:
    """The next task enqueued on the stream gets that id, and later ones the ids behind it, modulo 2^32."""
    number = whole_of(task_id)
    if number is None or not 0 <= number <= MAX_TASK_ID:
        raise ParameterError(f"task_id must be an int from 0 to {MAX_TASK_ID}, got {task_id!r}")
    of_stream("aclsim_set_next_task", stream, number, signature="int (*)(void *, uint32_t)")


def faulted(stream: StreamLike) -> bool:
    """Whether the stream stands still at a failed task, until the recycle thread is woken."""
    return of_stream("aclsim_faulted", stream) == 1


def wakes(device: SupportsIndex = 0) -> int:
    """How often the thread that handles failed tasks has been woken since the start."""
    return of_device("aclsim_wakes", device, "int64_t (*)(int32_t)")


def wake(device: SupportsIndex = 0) -> None:
    """Wakes the thread that handles failed tasks, as another library of the process may at any time."""
    of_device("aclsim_wake", device)


def set_query_lag(on: bool = True) -> None:
    """With True, the first aclrtQueryEvent that finds a record complete still answers that it is not."""
    control_function("aclsim_set_query_lag", "void (*)(int)")(int(on))


def set_sync_livelock(on: bool = True) -> None:
    """With True, aclrtSynchronizeStream does not return if tasks were enqueued on the stream after it was called.

    An abort or the end of the stream ends the call, and so does `set_sync_livelock(False)`.
    """
    control_function("aclsim_set_sync_livelock", "void (*)(int)")(int(on))


def set_reset_crash(on: bool = True) -> None:
    """With True, a force reset ends the process with SIGSEGV if another thread synchronizes a stream of the device."""
    control_function("aclsim_set_reset_crash", "void (*)(int)")(int(on))
