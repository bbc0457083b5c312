"""Controls of the simulator that this process has loaded. Each control calls one function of aclsim.h.

A control does not wait, does not block, and does not count as an ACL call.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, SupportsIndex

from aioacl._base.errors import ParameterError
from aioacl._base.ffi import ffi, lib, pointer
from aioacl._base.options import repr_of, whole_of
from aioacl._base.unique import record
from aioacl._handles.stream import Stream
from aioacl._library.load import library_info
from aioacl.simulator._names import c_text, functions, suggestion

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import TypeAlias, TypeGuard

    from aioacl._base.ffi import CData

    StreamLike: TypeAlias = Stream | CData | SupportsIndex

RECORD_BYTES = 1 << 16
VIOLATIONS_KEPT: Final = 256


@record
class Stats:
    """The numbers of live objects in the simulator, and its counters.

    The numbers of objects and bytes are current values. `calls` and `tasks` are counted since the start. `violations`
    are counted since the start or the last `forget()`.

    Attributes:
        contexts: explicit contexts.
        streams: streams made by a create call; default streams are not counted.
        events: events.
        notifies: notifies.
        device_blocks: blocks of aclrtMalloc.
        device_bytes: bytes in these blocks.
        host_blocks: blocks of aclrtMallocHost.
        host_bytes: bytes in these blocks.
        calls: ACL calls.
        tasks: device tasks that have run.
        violations: misuse that the usage checker has reported.
        inside: ACL calls of all threads that are inside the simulator now.
        pools: memory pools.
        pool_blocks: blocks of memory pools.
        managed_blocks: blocks of managed memory.
        physical: handles of physical memory, and physical memory that is mapped without a handle.
        mappings: mappings of physical memory.
        registrations: registrations of the client's memory.
        reservations: reserved ranges of addresses.
        exports: keys of shared device memory.
        descriptions: data buffers, tensor descriptions and other objects that exist only on the host.
        count_notifies: count notifies.
        binaries: loaded binaries.
        models: models, captured and built.
        labels: labels.
        offline_models: loaded offline models, including those whose context has ended.
    """

    contexts: int
    streams: int
    events: int
    notifies: int
    device_blocks: int
    device_bytes: int
    host_blocks: int
    host_bytes: int
    calls: int
    tasks: int
    violations: int
    inside: int
    pools: int
    pool_blocks: int
    managed_blocks: int
    physical: int
    mappings: int
    registrations: int
    reservations: int
    exports: int
    descriptions: int
    count_notifies: int
    binaries: int
    models: int
    labels: int
    offline_models: int


def control_function(name: str, signature: str) -> CData:
    if library_info().backend != "simulator":
        raise ParameterError(
            "expected the simulator, but this process has loaded a real ACL library",
            hint='Call use_library("simulator") before any other call of aioacl.',
        )
    return ffi.cast(signature, lib.aio_library_symbol(name.encode()))


def of_device(name: str, device: SupportsIndex, signature: str = "int (*)(int32_t)") -> int:
    """Calls a control that takes a device, and returns its result. Raises ParameterError if there is no such device."""
    index = word("device", device)
    answer: int = control_function(name, signature)(index)
    if answer < 0:
        raise ParameterError(
            f"expected the index of a simulated device, got {index}",
            hint="list_devices() returns the devices; AIOACL_SIM_DEVICES sets their number.",
        )
    return answer


def of_function(name: str, function: str, *values: int, signature: str = "int (*)(const char *)") -> int:
    """Calls a control that takes a function, and returns its result. Raises ParameterError for an unknown function."""
    text = c_text("the name of an ACL function", function)
    if control_function("aclsim_hung", "int (*)(const char *)")(text) < 0:
        raise _unknown_function(function)
    answer: int = control_function(name, signature)(text, *values)
    return answer


def _unknown_function(name: str) -> ParameterError:
    return ParameterError(
        f"expected the name of an ACL function, got {repr_of(name)}",
        hint=suggestion(name, functions(), "Pass a name of acl_rt.h, aclrtMalloc for instance."),
    )


def word(name: str, value: SupportsIndex) -> int:
    """Returns the value as an int that fits an int32_t. Raises ParameterError for every other value."""
    number = whole_of(value)
    if number is None:
        raise ParameterError(f"{name} must be an int, got {repr_of(value)}", hint="Pass an int of 32 bits.")
    if not -(1 << 31) <= number < 1 << 31:
        raise ParameterError(
            f"{name} must fit 32 bits, got {number}", hint="Pass an int from -2147483648 to 2147483647."
        )
    return number


def failure_code(code: SupportsIndex) -> int:
    """Returns the error code of a task, an int above 0. Raises ParameterError for every other value."""
    number = word("code", code)
    if number <= 0:
        raise ParameterError(
            f"code must be an int above 0, got {number}",
            hint="Pass an error code of ACL, 507015 for instance.",
        )
    return number


_C_VALUE: Final = type(ffi.NULL)
_STREAMS: Final = (
    "Pass a live stream: an aioacl.Stream, or its raw handle (a pointer or an int other than 0)."
)


def _is_pointer(value: object) -> TypeGuard[CData]:
    """Whether the value is an aclrtStream; False for a pointer to an aclrtStream."""
    kind = ffi.typeof(value) if isinstance(value, _C_VALUE) else None
    return kind is not None and kind.kind == "pointer" and kind.item.kind == "void"


def _is_gone(stream: Stream) -> bool:
    """Whether the native stream was destroyed, or the cache has kept it. Its address may be that of a new stream."""
    return stream.stale or stream._core.gone


def stream_handle(stream: StreamLike, *, changes: bool = True) -> CData:
    """Returns the native stream of a Stream, or the given raw handle. Raises ParameterError for every other value.

    If the control changes the native stream, the device's cache does not keep it: the hold, fault or rule would apply
    to the next Stream too.
    """
    if isinstance(stream, Stream):
        core = stream._core
        if _is_gone(stream):
            raise ParameterError(f"expected a live stream, got {repr_of(stream)}", hint=_STREAMS)
        core.reusable = core.reusable and not changes
        native: CData = core.native
        return native
    address = pointer(stream) if _is_pointer(stream) else whole_of(stream)
    if address is not None and 0 < address < 1 << 64:
        return ffi.cast("void *", address)
    raise ParameterError(f"expected a stream, got {repr_of(stream)}", hint=_STREAMS)


def of_stream(
    name: str,
    stream: StreamLike,
    *values: int,
    signature: str = "int (*)(void *)",
    changes: bool = True,
) -> int:
    """Calls a control that takes a stream, and returns its result. Raises ParameterError if the stream is not alive."""
    answer: int = control_function(name, signature)(stream_handle(stream, changes=changes), *values)
    if answer < 0:
        raise ParameterError(f"expected a live stream, got {repr_of(stream)}", hint=_STREAMS)
    return answer


def hold(stream: StreamLike) -> None:
    """Keeps the stream from starting further tasks until it is released. The running task continues.

    Args:
        stream: an aioacl.Stream, or the raw handle of a live stream as a pointer or an int.

    Raises:
        ParameterError: `stream` is not a live stream.
    """
    of_stream("aclsim_hold", stream)


def release(stream: StreamLike) -> None:
    """Lets a held stream start tasks again.

    Args:
        stream: an aioacl.Stream, or the raw handle of a live stream as a pointer or an int.

    Raises:
        ParameterError: `stream` is not a live stream.
    """
    of_stream("aclsim_release", stream)


@contextmanager
def held(stream: StreamLike) -> Generator[None]:
    """Holds the stream for a `with` block, and releases it at the end. The stream may be destroyed inside the block.

    Args:
        stream: an aioacl.Stream, or the raw handle of a live stream as a pointer or an int.

    Raises:
        ParameterError: `stream` is not a live stream.
    """
    native = stream_handle(stream)
    hold(stream)
    try:
        yield
    finally:
        if not (isinstance(stream, Stream) and _is_gone(stream)):
            control_function("aclsim_release", "int (*)(void *)")(native)


def release_all() -> None:
    """Releases all held streams and all calls that a rule hangs or delays. Unlocks a process locked for a snapshot."""
    control_function("aclsim_release_all", "void (*)(void)")()


def pending(stream: StreamLike) -> int:
    """Returns the number of tasks that are enqueued on the stream and not done.

    A failed task counts until the recycle thread has handled it.

    Args:
        stream: an aioacl.Stream, or the raw handle of a live stream as a pointer or an int.

    Raises:
        ParameterError: `stream` is not a live stream.
    """
    return of_stream("aclsim_pending", stream, signature="int64_t (*)(void *)", changes=False)


def fail_next(stream: StreamLike, code: SupportsIndex) -> None:
    """Makes the next task that is enqueued on the stream fail.

    Event records, waits and host functions do not count as the next task.

    Args:
        stream: an aioacl.Stream, or the raw handle of a live stream as a pointer or an int.
        code: the error code of the task, an int above 0.

    Raises:
        ParameterError: `stream` is not a live stream, or `code` is not an int above 0.
    """
    of_stream("aclsim_fail_next", stream, failure_code(code), signature="int (*)(void *, int32_t)")


def trap_next(stream: StreamLike, code: SupportsIndex) -> None:
    """Makes the next task that computes or moves data fail when the stream reaches it.

    The task may be in the queue already.

    Args:
        stream: an aioacl.Stream, or the raw handle of a live stream as a pointer or an int.
        code: the error code of the task, an int above 0; 507015 is an exception of an AI core.

    Raises:
        ParameterError: `stream` is not a live stream, or `code` is not an int above 0.
    """
    of_stream("aclsim_trap_next", stream, failure_code(code), signature="int (*)(void *, int32_t)")


def fail_call(function: str, code: SupportsIndex, times: SupportsIndex = 1) -> None:
    """Makes the next calls of an ACL function do nothing and return a code.

    A new `fail_call` replaces an earlier one of the same function.

    Args:
        function: the name of an ACL function, `"aclrtMalloc"` for instance.
        code: the code that the calls return, an int of 32 bits.
        times: how many calls; -1 for all further calls, 0 for none.

    Raises:
        ParameterError: ACL has no function of that name, or `code` or `times` is not an int in its range.
    """
    number = word("times", times)
    if number < -1:
        raise ParameterError(
            f"times must be an int from -1, got {number}", hint="Pass a number of calls, or -1 for all calls."
        )
    signature = "int (*)(const char *, int32_t, int32_t)"
    of_function("aclsim_fail_call", function, word("code", code), number, signature=signature)


def hang_call(function: str) -> None:
    """Makes the next call of an ACL function hang until `release_call` or `release_all` is called.

    Args:
        function: the name of an ACL function, `"aclrtMalloc"` for instance.

    Raises:
        ParameterError: ACL has no function of that name.
    """
    of_function("aclsim_hang_call", function)


def release_call(name: str) -> None:
    """Releases the calls that hang because of `hang_call` or of the option `hang` of `fault`. These calls continue.

    Args:
        name: the name of the ACL function in which the calls hang, `"aclrtMalloc"` for instance, or the key that was
            given to `hang`.

    Raises:
        ParameterError: `name` is not a str, contains a null character, or begins with "acl" but is not the name of an
            ACL function.
    """
    text = c_text("the name of an ACL function, or a key", name)
    if control_function("aclsim_release_call", "int (*)(const char *)")(text) < 0:
        raise _unknown_function(name)


def hung(function: str) -> int:
    """Returns the number of calls that hang in the ACL function now.

    Args:
        function: the name of an ACL function, `"aclrtMalloc"` for instance.

    Raises:
        ParameterError: ACL has no function of that name.
    """
    return of_function("aclsim_hung", function)


def calls(function: str) -> int:
    """Returns the number of calls of the ACL function since the start or the last `forget()`.

    Args:
        function: the name of an ACL function, `"aclrtMalloc"` for instance.

    Raises:
        ParameterError: ACL has no function of that name.
    """
    return of_function("aclsim_calls", function, signature="uint64_t (*)(const char *)")


def clear() -> None:
    """Drops all rules of `fault`, `fail_call` and `hang_call`, and ends the fault state of every device.

    Calls that already hang are not released. The effects of `fail_next` and `trap_next` stay.
    """
    control_function("aclsim_clear", "void (*)(void)")()


def set_abort_supported(supported: bool) -> None:
    """Sets whether aclrtStreamAbort is supported.

    Args:
        supported: with False, aclrtStreamAbort returns 207000, as with old firmware.
    """
    control_function("aclsim_set_abort_supported", "void (*)(int)")(int(supported))


def set_count_notify_supported(supported: bool) -> None:
    """Sets whether count notifies are supported.

    Args:
        supported: with True, count notifies work, as on newer chips; with False, their functions return 207000.
    """
    control_function("aclsim_set_count_notify_supported", "void (*)(int)")(int(supported))


def set_ipc_event_supported(supported: bool) -> None:
    """Sets whether events can be shared by handle.

    Args:
        supported: with True, handles of events work within this process, as with newer drivers; with False, the
            functions that share events return 207000.
    """
    control_function("aclsim_set_ipc_event_supported", "void (*)(int)")(int(supported))


def check_memory() -> int:
    """Checks all live blocks for writes outside their bounds. Each damaged block is reported as a violation once.

    Frees and resets make the same check. The check covers 64 bytes before a block and at least 64 bytes after the
    requested size.

    Returns:
        The number of live blocks that have been written outside their bounds.
    """
    return int(control_function("aclsim_check_memory", "int64_t (*)(void)")())


def watch_uninitialised(on: bool = True) -> None:
    """Sets whether it is a violation to read bytes of device memory that were never written.

    Memory that was allocated before this call counts as written.

    Args:
        on: with False, memory that is allocated after this call is not checked.
    """
    control_function("aclsim_watch_uninitialised", "void (*)(int)")(int(on))


def stats() -> Stats:
    """Returns the numbers of live objects in the simulator, and its counters."""
    names = [field.name for field in fields(Stats)]
    found = ffi.new("uint64_t[]", len(names))
    control_function("aclsim_stats", "void (*)(uint64_t *)")(found)
    return Stats(**dict(zip(names, ffi.unpack(found, len(names)), strict=True)))


def retain_count(device: SupportsIndex = 0) -> int:
    """Returns the retain count of the device: the number of its sets that no reset has undone. 0 if it is not set.

    Args:
        device: the index of the device.

    Raises:
        ParameterError: there is no device of that index.
    """
    return of_device("aclsim_retain_count", device)


def resets(device: SupportsIndex = 0) -> int:
    """Returns the number of resets since the start that released the device.

    Args:
        device: the index of the device.

    Raises:
        ParameterError: there is no device of that index.
    """
    of_device("aclsim_retain_count", device)  # for an unknown device, aclsim_resets returns 0 and no error
    return of_device("aclsim_resets", device, "uint64_t (*)(int32_t)")


def violations() -> list[str]:
    """Returns the misuse of ACL that the usage checker has reported, oldest first.

    The newest 256 texts are kept; `Stats.violations` counts all violations. `forget()` drops the texts and the count.
    """
    read = control_function("aclsim_violation", "int (*)(uint64_t, char *, size_t)")
    text = ffi.new("char[]", RECORD_BYTES)
    count = stats().violations
    return [
        ffi.string(text).decode()
        for index in range(max(0, count - VIOLATIONS_KEPT), count)
        if read(index, text, RECORD_BYTES) >= 0
    ]


def journal() -> list[dict[str, Any]]:
    """Returns the newest ACL calls that have returned, oldest first; at most 65536 are kept.

    Returns:
        A dict for each call: `seq`, its number; `tid`, the thread; `call`, the name of the function; `args`, a list;
        `rc`, what it returned; `us`, how long it took in microseconds; `dev`, the device of the thread, or -1.
    """
    read = control_function("aclsim_journal", "size_t (*)(uint64_t *, char *, size_t)")
    text, following = ffi.new("char[]", RECORD_BYTES), ffi.new("uint64_t *")
    lines: list[str] = []
    while (size := read(following, text, RECORD_BYTES)) > 0:
        lines += bytes(ffi.buffer(text, size)).decode().splitlines()
    return [json.loads(line) for line in lines]


_forgotten = 0


def forget() -> None:
    """Sets the counts of calls to 0, and drops the violations and the journal. Live objects are not affected."""
    global _forgotten  # noqa: PLW0603 - the process has one simulator, and so one count
    control_function("aclsim_forget", "void (*)(void)")()
    _forgotten += 1


def times_forgotten() -> int:
    """The number of calls of `forget()`. Counts from before and after a `forget()` cannot be compared."""
    return _forgotten
