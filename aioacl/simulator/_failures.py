"""Controls for failed tasks: their ids, the recycle thread that handles them, and known faults of the runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, SupportsIndex

from aioacl._base.errors import ParameterError
from aioacl._base.options import repr_of, whole_of
from aioacl.simulator._control import control_function, of_device, of_stream

if TYPE_CHECKING:
    from aioacl.simulator._control import StreamLike

MAX_TASK_ID: Final = 0xFFFFFFFF


def set_next_task(stream: StreamLike, task_id: SupportsIndex) -> None:
    """Sets the id of the next task that is enqueued on the stream. Later tasks get the following ids, modulo 2^32.

    Args:
        stream: an aioacl.Stream, or the raw handle of a live stream as a pointer or an int.
        task_id: an int from 0 to 4294967295.

    Raises:
        ParameterError: `stream` is not a live stream, or `task_id` is not an int in that range.
    """
    number = whole_of(task_id)
    if number is None or not 0 <= number <= MAX_TASK_ID:
        raise ParameterError(
            f"task_id must be an int from 0 to {MAX_TASK_ID}, got {repr_of(task_id)}",
            hint="Pass an int of 32 bits.",
        )
    of_stream("aclsim_set_next_task", stream, number, signature="int (*)(void *, uint32_t)")


def faulted(stream: StreamLike) -> bool:
    """Returns whether the stream is stopped at a failed task. A call that wakes the recycle thread ends the stop.

    Args:
        stream: an aioacl.Stream, or the raw handle of a live stream as a pointer or an int.

    Raises:
        ParameterError: `stream` is not a live stream.
    """
    return of_stream("aclsim_faulted", stream, changes=False) == 1


def wakes(device: SupportsIndex = 0) -> int:
    """Returns how often the recycle thread of the device, which handles failed tasks, was woken since the start.

    Args:
        device: the index of the device.

    Raises:
        ParameterError: there is no device of that index.
    """
    return of_device("aclsim_wakes", device, "int64_t (*)(int32_t)")


def wake(device: SupportsIndex = 0) -> None:
    """Wakes the recycle thread of the device. Another library of the process may also do this at any time.

    Args:
        device: the index of the device.

    Raises:
        ParameterError: there is no device of that index.
    """
    of_device("aclsim_wake", device)


def set_query_lag(on: bool = True) -> None:
    """Sets whether the first query of a completed event reports it as not complete.

    Args:
        on: with True, the first aclrtQueryEvent that finds a record complete still reports it as not complete.
    """
    control_function("aclsim_set_query_lag", "void (*)(int)")(int(on))


def set_sync_livelock(on: bool = True) -> None:
    """Sets whether aclrtSynchronizeStream without a time-out waits for work that is enqueued after the call began.

    Args:
        on: with True, the call does not return if tasks are enqueued on the stream while it waits. An abort, the end of
            the stream, or `set_sync_livelock(False)` ends the call.
    """
    control_function("aclsim_set_sync_livelock", "void (*)(int)")(int(on))


def set_device_livelock(on: bool = True) -> None:
    """Sets whether aclrtSynchronizeDevice without a time-out waits for work that is enqueued after the call began.

    While the call waits, calls that create, destroy or abort streams of its context wait for it, and so do resets.

    Args:
        on: with True, the call does not return if tasks are enqueued on a stream while the call waits for this stream.
            When all tasks of the stream are done, the next task that is enqueued on the stream ends the call, for
            example the record of an event. An abort of the stream or `set_device_livelock(False)` ends the call too.
    """
    control_function("aclsim_set_device_livelock", "void (*)(int)")(int(on))


def set_lost_wait(on: bool = True) -> None:
    """Sets whether aclrtDestroyStream makes waits for events of the stream last until their time-out.

    Args:
        on: with True, aclrtSynchronizeEventWithTimeout loses the end of a record if aclrtDestroyStream waits for the
            stream of the record at that time. The call then returns at its time-out, with 507047, although the event is
            complete.
    """
    control_function("aclsim_set_lost_wait", "void (*)(int)")(int(on))


def set_reset_crash(on: bool = True) -> None:
    """Sets whether the end of a context crashes threads that use its streams or events.

    A reset that releases the device ends its primary context. aclrtDestroyContext ends another context.

    Args:
        on: with True, the end of a context ends the process with SIGSEGV if another thread is inside
            aclrtSynchronizeStream or aclrtSynchronizeStreamWithTimeout for a stream of the context, or waits for room
            in the queue of such a stream. The device-state callback before a reset may end such a call, for example by
            an abort. After the end of a context, the process also ends with SIGSEGV when an event of the context is
            queried, waited for or destroyed. The next aclrtSetDevice makes the events of the primary context usable
            again, but the destruction of an event that was never recorded still ends the process.
    """
    control_function("aclsim_set_reset_crash", "void (*)(int)")(int(on))
