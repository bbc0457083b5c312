"""Controls of the simulator that this process has loaded; see csrc/aclsim.h, which they map one to one.

None of them waits, blocks, or counts as an ACL call.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, SupportsIndex

from aioacl._base.errors import ParameterError
from aioacl._base.ffi import ffi, lib, pointer
from aioacl._base.options import whole_of
from aioacl._base.unique import record
from aioacl._handles.stream import Stream
from aioacl._library.load import library_info
from aioacl.simulator._names import c_text, functions, suggestion

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import TypeAlias, TypeGuard

    from aioacl._base.ffi import CData

    StreamLike: TypeAlias = Stream | CData | SupportsIndex

TEXT_BYTES = 1 << 16
VIOLATIONS_KEPT: Final = 256


@record
@dataclass(frozen=True, slots=True)
class Stats:
    """What lives in the simulator now, and what it has counted since the start or `forget()`."""

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


def control_function(name: str, signature: str) -> CData:
    if library_info().backend != "simulator":
        raise ParameterError(
            "the process has loaded a real ACL library, not the simulator",
            hint='Call use_library("simulator") before anything else.',
        )
    return ffi.cast(signature, lib.aio_library_symbol(name.encode()))


def of_device(name: str, device: SupportsIndex, signature: str = "int (*)(int32_t)") -> int:
    """The answer of a control that takes a device. ParameterError for an index without a device."""
    index = word("device", device)
    answer: int = control_function(name, signature)(index)
    if answer < 0:
        raise ParameterError(
            f"expected the index of a simulated device, got {index}",
            hint="list_devices() names them; AIOACL_SIM_DEVICES sets how many there are.",
        )
    return answer


def of_function(name: str, function: str, *values: int, signature: str = "int (*)(const char *)") -> int:
    """The answer of a control that takes a function. ParameterError for a name that ACL does not have."""
    text = c_text("the name of an ACL function", function)
    if control_function("aclsim_hung", "int (*)(const char *)")(text) < 0:
        raise ParameterError(
            f"expected the name of an ACL function, got {function!r}",
            hint=suggestion(function, functions(), "Pass a name of acl_rt.h, aclrtMalloc for instance."),
        )
    answer: int = control_function(name, signature)(text, *values)
    return answer


def word(name: str, value: SupportsIndex) -> int:
    """A value for an int32_t."""
    number = whole_of(value)
    if number is None:
        raise ParameterError(f"{name} must be an int, got {value!r}")
    if not -(1 << 31) <= number < 1 << 31:
        raise ParameterError(f"{name}={number} has more than 32 bits")
    return number


def failure_code(code: SupportsIndex) -> int:
    """The code of a task that is to fail."""
    number = word("code", code)
    if number <= 0:
        raise ParameterError(
            f"code={number} is no failure", hint="Pass an error code of ACL, 507015 for instance."
        )
    return number


_C_VALUE: Final = type(ffi.NULL)
_STREAMS: Final = "Pass a live stream: an aioacl.Stream, or the handle (a pointer or an int, not 0) of one."


def _is_pointer(value: object) -> TypeGuard[CData]:
    """Whether it is an aclrtStream as C hands it out: not the place of one, which is a pointer too."""
    kind = ffi.typeof(value) if isinstance(value, _C_VALUE) else None
    return kind is not None and kind.kind == "pointer" and kind.item.kind == "void"


def stream_handle(stream: StreamLike) -> CData:
    """The native stream of a Stream, or the raw handle that was given. ParameterError for everything else."""
    if isinstance(stream, Stream):
        return stream._core.native
    address = pointer(stream) if _is_pointer(stream) else whole_of(stream)
    if address is not None and 0 < address < 1 << 64:
        return ffi.cast("void *", address)
    raise ParameterError(f"expected a stream, got {stream!r}", hint=_STREAMS)


def of_stream(name: str, stream: StreamLike, *values: int, signature: str = "int (*)(void *)") -> int:
    """The answer of a control that takes a stream. ParameterError if the stream lives no longer."""
    answer: int = control_function(name, signature)(stream_handle(stream), *values)
    if answer < 0:
        raise ParameterError(f"expected a live stream, got {stream!r}", hint=_STREAMS)
    return answer


def hold(stream: StreamLike) -> None:
    """From now on the stream, or that of the raw handle, starts no further task."""
    of_stream("aclsim_hold", stream)


def release(stream: StreamLike) -> None:
    """The stream goes on."""
    of_stream("aclsim_release", stream)


@contextmanager
def held(stream: StreamLike) -> Generator[None]:
    """Holds the stream for the block; a stream that has died in it needs no release."""
    hold(stream)
    try:
        yield
    finally:
        control_function("aclsim_release", "int (*)(void *)")(stream_handle(stream))


def release_all() -> None:
    """Releases every held stream and every hung call."""
    control_function("aclsim_release_all", "void (*)(void)")()


def pending(stream: StreamLike) -> int:
    """Tasks that are enqueued on the stream and not done."""
    return of_stream("aclsim_pending", stream, signature="int64_t (*)(void *)")


def fail_next(stream: StreamLike, code: SupportsIndex) -> None:
    """The next task enqueued on the stream (a copy or fill) fails with that code."""
    of_stream("aclsim_fail_next", stream, failure_code(code), signature="int (*)(void *, int32_t)")


def trap_next(stream: StreamLike, code: SupportsIndex) -> None:
    """The next task that computes or moves data, queued already or not, traps with that code."""
    of_stream("aclsim_trap_next", stream, failure_code(code), signature="int (*)(void *, int32_t)")


def fail_call(function: str, code: SupportsIndex, times: SupportsIndex = 1) -> None:
    """The next calls of the ACL function do nothing and answer the code; -1 times: all of them."""
    number = word("times", times)
    if number < -1:
        raise ParameterError(f"times must be an int from -1, got {number}", hint="-1 stands for all calls.")
    signature = "int (*)(const char *, int32_t, int32_t)"
    of_function("aclsim_fail_call", function, word("code", code), number, signature=signature)


def hang_call(function: str) -> None:
    """The next call of the ACL function stays inside until `unhang`."""
    of_function("aclsim_hang_call", function)


def unhang(function: str) -> None:
    """Calls that hang in the function go on."""
    of_function("aclsim_unhang", function)


def hung(function: str) -> int:
    """How many calls hang in the function now."""
    return of_function("aclsim_hung", function)


def calls(function: str) -> int:
    """Calls of the ACL function since the start or `forget()`."""
    return of_function("aclsim_calls", function, signature="uint64_t (*)(const char *)")


def clear() -> None:
    """Forgets failures and hangs of calls that have not fired. What `fail_next` and `trap_next` have set stays."""
    control_function("aclsim_clear", "void (*)(void)")()


def set_abort_supported(supported: bool) -> None:
    """With False, aclrtStreamAbort answers 207000, as old firmware does."""
    control_function("aclsim_set_abort_supported", "void (*)(int)")(int(supported))


def set_count_notify_supported(supported: bool) -> None:
    """With True there are count notifies, as newer chips have them; without, they answer 207000."""
    control_function("aclsim_set_count_notify_supported", "void (*)(int)")(int(supported))


def set_ipc_event_supported(supported: bool) -> None:
    """With True events can be shared by handle, within the process, as newer drivers have it; without, 207000."""
    control_function("aclsim_set_ipc_event_supported", "void (*)(int)")(int(supported))


def check_memory() -> int:
    """How many live blocks have been written outside their bounds; each becomes a violation once.

    Seen is what lies up to 64 bytes before a block, and from its last byte on up to 64 bytes behind it at least.
    """
    return int(control_function("aclsim_check_memory", "int64_t (*)(void)")())


def watch_uninitialised(on: bool = True) -> None:
    """From now on, reading bytes of new device memory that nothing has written is a violation."""
    control_function("aclsim_watch_uninitialised", "void (*)(int)")(int(on))


def stats() -> Stats:
    """What lives, and what was counted."""
    names = [field.name for field in fields(Stats)]
    found = ffi.new("uint64_t[]", len(names))
    control_function("aclsim_stats", "void (*)(uint64_t *)")(found)
    return Stats(**dict(zip(names, ffi.unpack(found, len(names)), strict=True)))


def retain_count(device: SupportsIndex = 0) -> int:
    """How often the device is set."""
    return of_device("aclsim_retain_count", device)


def resets(device: SupportsIndex = 0) -> int:
    """Releasing resets of the device since the start."""
    of_device("aclsim_retain_count", device)  # refuses what is no device: there, aclsim_resets answers 0
    return of_device("aclsim_resets", device, "uint64_t (*)(int32_t)")


def violations() -> list[str]:
    """What the usage checker objected to, oldest first; the newest 256 are kept, `Stats.violations` counts all."""
    read = control_function("aclsim_violation", "int (*)(uint64_t, char *, size_t)")
    text = ffi.new("char[]", TEXT_BYTES)
    count = stats().violations
    return [
        ffi.string(text).decode()
        for index in range(max(0, count - VIOLATIONS_KEPT), count)
        if read(index, text, TEXT_BYTES) >= 0
    ]


def journal() -> list[dict[str, Any]]:
    """The newest finished ACL calls, oldest first, each with seq, tid, call, args, rc, us and dev."""
    read = control_function("aclsim_journal", "size_t (*)(uint64_t *, char *, size_t)")
    text, following = ffi.new("char[]", TEXT_BYTES), ffi.new("uint64_t *")
    lines: list[str] = []
    while (size := read(following, text, TEXT_BYTES)) > 0:
        lines += bytes(ffi.buffer(text, size)).decode().splitlines()
    return [json.loads(line) for line in lines]


_forgotten = 0


def forget() -> None:
    """Forgets counted calls, violations and the journal; touches nothing that lives."""
    global _forgotten  # noqa: PLW0603 - the count belongs to the one simulator of the process
    control_function("aclsim_forget", "void (*)(void)")()
    _forgotten += 1


def times_forgotten() -> int:
    """How often `forget()` was called: counts of before and after another call of it cannot be compared."""
    return _forgotten
