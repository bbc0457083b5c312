"""What the gate of a device reports: the calls that are inside, and its refusals as errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioacl._base.errors import (
    AclError,
    DeviceFault,
    DeviceQuarantined,
    DeviceReset,
    DeviceResetting,
    ForkedProcessError,
    NotSupported,
    OutOfMemoryError,
    ParameterError,
    QueueFull,
    ResourceExhausted,
    StaleHandleError,
    error_for,
)
from aioacl._base.ffi import ffi, generation_of, lib, name_of_function, state_of, text_of
from aioacl._base.records import Stuck
from aioacl._base.states import State
from aioacl._library.visible import not_visible

if TYPE_CHECKING:
    from collections.abc import Callable

INSIDE_AT_MOST: Final = 256
LAUNCH_BLOCK: Final = "a launch block"
NO_DEVICE: Final = 107001
RESET_BY_HAND: Final = "Reset the device with `lowlevel.reset_device_force(index)`."
OPEN_FAILED: Final = (
    "Open the device again. If that does not help, end all processes that use the card, and reset the card with "
    "npu-smi."
)


def counts(index: int) -> list[int]:
    """The numbers of calls that are inside: enqueueing, waiting, and creating or destroying (lifetime)."""
    found = ffi.new("int32_t[3]")
    lib.aio_gate_counts(index, found)
    return ffi.unpack(found, 3)


def calls_inside(index: int) -> dict[tuple[int, int], Stuck]:
    """The calls that are inside, each under its thread and the time at which it entered the gate.

    Each has its thread, and the seconds since it entered.
    """
    calls: Any = ffi.new("aio_call[]", INSIDE_AT_MOST)
    found = lib.aio_gate_inside(index, calls, INSIDE_AT_MOST)
    return {
        (call.thread, call.since_us): Stuck(
            name_of_function(call.function), call.thread, call.inside_us / 1e6
        )
        for call in calls[0:found]
    }


def _launch_blocks(index: int) -> list[Stuck]:
    blocks: Any = ffi.new("aio_call[]", INSIDE_AT_MOST)
    found = lib.aio_launch_inside(index, blocks, INSIDE_AT_MOST)
    return [Stuck(LAUNCH_BLOCK, block.thread, block.inside_us / 1e6) for block in blocks[0:found]]


def inside(index: int) -> tuple[Stuck, ...]:
    """The calls and launch blocks that are inside. Each has its thread, and the seconds since it entered the gate."""
    return (*calls_inside(index).values(), *_launch_blocks(index))


def is_set(index: int) -> bool | None:
    """Whether the device is set in this process (aclrtGetPrimaryCtxState). None if the runtime does not report it.

    If the call fails, the device is perhaps set, so the result is True.
    """
    active = ffi.new("int32_t *")
    code = lib.aio_u_aclrtGetPrimaryCtxState(index, ffi.NULL, active)  # the flags must be NULL
    return None if code == lib.AIO_ABSENT else code != 0 or active[0] != 0


def context_lives(index: int) -> bool:
    """Whether the context that aioacl uses exists. Also True if the runtime does not report it."""
    if lib.aio_has_own_context(index):
        return bool(lib.aio_context_lives(index))
    return is_set(index) is not False


_REFUSALS: Final[dict[int, Callable[[str, int, int], AclError]]] = {}


def _refusal(
    code: int,
) -> Callable[[Callable[[str, int, int], AclError]], Callable[[str, int, int], AclError]]:
    def add(make: Callable[[str, int, int], AclError]) -> Callable[[str, int, int], AclError]:
        _REFUSALS[code] = make
        return make

    return add


@_refusal(lib.AIO_STALE)
def _stale(call: str, index: int, generation: int) -> AclError:
    now = generation_of(index)
    if state_of(index) == State.CLOSED:
        return _not_open(call, index, generation)
    return StaleHandleError(
        f"expected a handle of generation {now}, the current one, got one of generation {generation}",
        call=call,
        device=index,
        generation=generation,
    )


@_refusal(lib.AIO_NOT_OPEN)
def _not_open(call: str, index: int, generation: int) -> AclError:
    return StaleHandleError(
        "expected a handle of an open device, got one of a closed device",
        call=call,
        device=index,
        generation=generation,
        hint="Open the device again, and make new handles.",
    )


@_refusal(lib.AIO_RESETTING_NOW)
def _resetting(call: str, index: int, generation: int) -> AclError:
    return DeviceResetting("the device is being reset", call=call, device=index, generation=generation)


@_refusal(lib.AIO_MODEL_BUSY)
def _model_busy(call: str, index: int, _: int) -> AclError:
    return QueueFull(
        "a call of the model is running, and one instance runs on one stream at a time",
        call=call,
        device=index,
        hint="Await the calls first, or load the model with instances=2 for calls and enqueue together.",
    )


@_refusal(lib.AIO_MODEL_ENDED)
def model_closed(_: str, index: int, __: int) -> ParameterError:
    """The error of a call of a closed model."""
    return ParameterError("the model is closed", device=index, hint="Load it again with load_model().")


@_refusal(lib.AIO_DRAINING_NOW)
def _draining(call: str, index: int, generation: int) -> AclError:
    return DeviceResetting(
        "the device is draining before a reset",
        call=call,
        device=index,
        generation=generation,
    )


@_refusal(lib.AIO_QUARANTINE)
def _quarantine(call: str, index: int, generation: int) -> AclError:
    return DeviceQuarantined("the device is quarantined", call=call, device=index, generation=generation)


@_refusal(lib.AIO_WAS_RESET)
def _was_reset(call: str, index: int, generation: int) -> AclError:
    return DeviceReset(
        "the device was reset or closed during the wait",
        call=call,
        device=index,
        generation=generation,
    )


@_refusal(lib.AIO_CROWDED)
def _crowded(call: str, index: int, generation: int) -> AclError:
    return ResourceExhausted(
        f"expected fewer than 4095 calls of one kind inside device {index}, got 4095",
        call=call,
        device=index,
        generation=generation,
        hint="Use fewer threads at the same time.",
    )


@_refusal(lib.AIO_FORKED)
def _forked(call: str, index: int, generation: int) -> AclError:
    return ForkedProcessError(
        "expected a handle of this process, got a handle of the parent process, from before the fork",
        call=call,
        device=index,
        generation=generation,
    )


@_refusal(lib.AIO_EXITING)
def _exiting(call: str, index: int, generation: int) -> AclError:
    return DeviceReset("the process is ending", call=call, device=index, generation=generation)


@_refusal(lib.AIO_QUEUE_FULL)
def _queue_full(call: str, index: int, generation: int) -> AclError:
    return QueueFull(
        "the stream's queue is full",
        call=call,
        device=index,
        generation=generation,
        hint="`await stream.ready()` waits for room.",
    )


@_refusal(lib.AIO_LAUNCHING)
def _launching(call: str, index: int, generation: int) -> AclError:
    return QueueFull(
        "a launch block of the stream is open on another thread",
        call=call,
        device=index,
        generation=generation,
        hint="`await stream.ready()` waits for the end of the block.",
    )


@_refusal(lib.AIO_LAUNCHING_HERE)
def _launching_here(call: str, index: int, generation: int) -> AclError:
    return ParameterError(
        "expected a stream without a launch block of this thread, got one whose block is open",
        call=call,
        device=index,
        generation=generation,
        hint="Leave the block of stream.launch() first.",
    )


@_refusal(lib.AIO_STAGE_FULL)
def _stage_full(call: str, index: int, generation: int) -> AclError:
    return QueueFull(
        "expected free staging memory, got none: all is in flight, or none is allocated yet after an open or reset",
        call=call,
        device=index,
        generation=generation,
        hint="`await stream.ready()` waits for staging memory; copies of `device.pinned(n)` memory need none.",
    )


@_refusal(lib.AIO_REPORTS_LOST)
def _reports_lost(call: str, index: int, generation: int) -> AclError:
    return DeviceFault(
        "more tasks failed at once than aioacl can record, and this task may be one of them",
        call=call,
        device=index,
        generation=generation,
        hint="Repeat the work on a new stream, or reset the device with `force_reset()`.",
    )


@_refusal(lib.AIO_NO_MEMORY)
def _no_memory(call: str, index: int, generation: int) -> AclError:
    return OutOfMemoryError("the host is out of memory", call=call, device=index, generation=generation)


@_refusal(lib.AIO_NO_THREAD)
def _no_thread(call: str, index: int, generation: int) -> AclError:
    return ResourceExhausted(
        "no thread could be started",
        call=call,
        device=index,
        generation=generation,
        hint='Raise the limit of processes (ulimit -u), or open the device with waits="watch".',
    )


def absent(call: str, index: int | None = None, generation: int | None = None) -> NotSupported:
    """The error for a function that the library lacks."""
    since = next(
        (
            text_of(lib.aio_table_since(i))
            for i in range(lib.aio_table_size())
            if text_of(lib.aio_table_name(i)) == call
        ),
        None,
    )
    return NotSupported(
        f"the library has no {call}", call=call, device=index, generation=generation, since=since
    )


CONTEXT_CALLS: Final = ("aclrtGetCurrentContext", "aclrtSetCurrentContext")
QUERIES: Final = ("aclrtStreamQuery", "aclrtQueryEventStatus")


def failed_call(call: str, code: int) -> str:
    """The function that returned the code on this thread, for an error that names `call`.

    This may be another function: the gate makes a context current before the call, and a query may first query a mark.
    """
    function = lib.aio_failed_function(code)
    actual = name_of_function(function) if function >= 0 else call
    return actual if actual in CONTEXT_CALLS or call in QUERIES else call


def error_of(code: int, call: str, index: int, generation: int, text: str | None = None) -> AclError:
    """The error for a code of ACL or for a refusal by aioacl.

    `text` is the text of the runtime. Without it, the runtime's latest text on this thread is used.
    """
    if text is None:
        call = failed_call(call, code)
    if code == lib.AIO_ABSENT:
        return absent(call, index, generation)
    if code in _REFUSALS:
        return _REFUSALS[code](call, index, generation)
    message = text_of(lib.aio_error_text()) if text is None else text
    if code == NO_DEVICE and call == "aclrtSetDevice":
        message = f"{not_visible(index)}. The runtime reports: {message}"
    return error_for(code, call, device=index, generation=generation, message=message)


def advise_without_device(error: BaseException, hint: str = OPEN_FAILED) -> None:
    """Replaces a hint that names a method of a Device, for a caller that has none."""
    if isinstance(error, AclError) and error.hint in (
        DeviceFault.default_hint,
        DeviceQuarantined.default_hint,
    ):
        error.hint = hint
