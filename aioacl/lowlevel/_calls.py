"""The path of a call from Python to ACL.

An unguarded call goes through the table's trampoline `aio_u_NAME`. A call on a device goes through `aio_g_NAME`, which
enters the gate with a pass. While the call runs, the gate counts it as inside, and the device's context is current. The
gate refuses a pass of an older generation. So `on(device)` stores the generation in which it was called. The functions
that it returns, and their raw pointers, are valid in that generation only.

A handle of aioacl may be an argument in place of its raw pointer. The handle is checked before the call. If a reset
happens between the check and the call, the gate refuses the call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from aioacl._base.errors import AclError, NotSupported, ParameterError, error_for
from aioacl._base.ffi import ffi, lib, make_pass, text_of
from aioacl._handles.event import Event, native_event
from aioacl._handles.handle import Handle, error_on
from aioacl._handles.memory import Buffer
from aioacl._handles.pinned import PinnedBuffer
from aioacl._handles.stream import Stream
from aioacl._library import runtime
from aioacl._lifecycle.gate import RESET_BY_HAND, absent, advise_without_device
from aioacl.lowlevel._table import Parameter, Row, like, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioacl._base.ffi import CData
    from aioacl._lifecycle.manager import Manager

# These return the thread's last error, not an error of their own.
_ANSWERS: Final = frozenset({"aclrtPeekAtLastError", "aclrtGetLastError"})

# Functions whose tasks cannot fail, or whose failed tasks the runtime reports. It does not report failed tasks of other
# functions.
_REPORTED: Final = re.compile(
    r"acl(mdl|rt(Memcpy|Memset|LaunchKernel|Reduce|RandomNum|WaitAndResetNotify|CntNotifyWait))"
    r"|aclrt(RecordEvent|ResetEvent|LaunchCallback|LaunchHostFunc)"
)

# These free what their pointer names. aioacl frees and destroys what it made, so a handle must not be passed.
_FREES: Final = re.compile(r"aclrt(Free(Host)?(WithDevSync)?|Destroy(Stream(Force)?|Event))")

_C_VALUE: Final = type(ffi.NULL)

_INSTEAD: Final = {
    "aclrtSetDevice": "Use lowlevel.set_device(index), or open_device(index).",
    "aclrtResetDevice": "Use lowlevel.reset_device(index), or close the device.",
    "aclrtResetDeviceForce": "Use lowlevel.reset_device_force(index), or device.force_reset().",
    "aclrtDeviceTaskAbort": "Use stream.abort(), or device.force_reset().",
}


@dataclass(frozen=True, slots=True)
class Place:
    """The device of the calls, and its generation when `on(device)` was called."""

    manager: Manager
    generation: int


def handle(thing: Stream | Event | Buffer) -> CData:
    """Returns the raw pointer of a stream, of an event's newest record, or of a buffer.

    Nothing keeps the pointer valid: pass it to one call, and do not store it. The functions of `on(device)` accept the
    handle itself as an argument, and check it when they are called. A stream does not count work that is enqueued on
    its raw pointer: `await stream.record()` waits for that work.

    Args:
        thing: a Stream, an Event, a DeviceBuffer or a PinnedBuffer.

    Returns:
        An aclrtStream, an aclrtEvent or a `void *`.

    Raises:
        StaleHandleError: the device was reset or closed after the handle was made.
        ParameterError: `thing` is closed, has no raw pointer, or is an event that was never recorded.
    """
    if isinstance(thing, Event):
        return native_event(thing._recorded_version())
    if isinstance(thing, Stream | Buffer):
        thing._check()
        if isinstance(thing, Buffer):
            return thing._pointer
        # Other code may keep the pointer, so the cache must not keep the native stream.
        thing._core.reusable = False
        native: CData = thing._core.native
        return native
    raise ParameterError(
        f"expected a handle with a raw pointer, got a {type(thing).__name__}",
        hint="Pass a Stream, an Event or a buffer.",
    )


def _stands_for(thing: Handle, parameter: Parameter) -> bool:
    """Returns whether a handle of aioacl may be the argument for this parameter."""
    if isinstance(thing, Buffer):
        return parameter.bare == "void *"
    return parameter.bare == ("aclrtStream" if isinstance(thing, Stream) else "aclrtEvent")


def _described(value: object, why: Exception) -> str:
    if isinstance(value, _C_VALUE):
        return str(ffi.typeof(value).cname)
    return "None" if value is None else f"{type(value).__name__}: {why}"


def _cure(parameter: Parameter, value: object) -> str:
    """Returns a hint on what to pass instead of a Python object that cannot become a pointer."""
    if value is None:
        return "For the null pointer, pass lowlevel.ffi.NULL."
    if "*" not in parameter.c_type or isinstance(value, _C_VALUE):
        return ""
    try:
        memoryview(cast("bytes", value))
    except TypeError:
        return ""
    return f"Pass lowlevel.ffi.from_buffer(...) of the {type(value).__name__}."


class Function:
    """One ACL function, unguarded or on a device."""

    def __init__(self, row: Row, place: Place | None) -> None:
        guarded = place is not None and row.kind not in (lib.AIO_FREE, lib.AIO_CONTROL)
        self.__name__ = row.name
        self.__doc__ = f"{row.prototype}, since CANN {row.since}."
        self.__signature__ = row.signature
        self._row = row
        self._place = place
        self._native: Callable[..., Any] = getattr(lib, f"aio_{'g' if guarded else 'u'}_{row.name}")
        self._call = self._pass_gate if guarded else self._native
        self._enqueues = row.kind == lib.AIO_ENQUEUE
        self._is_reported = _REPORTED.match(row.name) is not None
        self._frees = _FREES.fullmatch(row.name) is not None

    def __call__(self, *arguments: object, **named: object) -> object:
        row = self._row
        if row.kind == lib.AIO_CONTROL:
            raise self._refusal()
        if named or len(arguments) != len(row.parameters):
            arguments = self._bound(arguments, named)
        runtime.load()
        if not lib.aio_table_present(row.index):
            raise self._absent()
        raw = [self._raw(*each) for each in zip(row.parameters, arguments, strict=True)]
        streams = (
            [each._core.handle for each in arguments if isinstance(each, Stream)] if self._enqueues else []
        )
        if streams and (not self._is_reported or lib.aio_failure_detection() == lib.AIO_CONFIRMED):
            self._doubt(streams)
        before = lib.aio_last_task() if streams else 0
        try:
            answer = self._call(*raw)
        except (TypeError, OverflowError) as error:
            raise self._misfit(raw, error) from error
        for stream in streams:
            lib.aio_stream_manual(stream, before)
        if row.returns != "aclError" or row.name in _ANSWERS:
            return answer
        if answer:
            raise self._failure(cast("int", answer))
        return None

    def _pass_gate(self, *raw: object) -> int:
        manager, generation = cast("Place", self._place).manager, cast("Place", self._place).generation
        code: int = self._native(make_pass(manager.index, generation), *raw)
        if code == lib.AIO_DRAINING_NOW and manager.admission.may_enqueue_while_draining():
            code = self._native(make_pass(manager.index, generation, held=True), *raw)
        return code

    @staticmethod
    def _doubt(streams: list[CData]) -> None:
        """Marks the streams, so that their next positions are confirmed by synchronizing and not by reports."""
        for stream in streams:
            lib.aio_stream_doubt(stream)

    # --- arguments -------------------------------------------------------------------------------------------

    def _bound(self, arguments: tuple[object, ...], named: dict[str, object]) -> tuple[object, ...]:
        try:
            return self.__signature__.bind(*arguments, **named).args
        except TypeError:
            raise ParameterError(
                self._mismatch(len(arguments), named), call=self._row.name, hint=self._usage
            ) from None

    def _mismatch(self, count: int, named: Iterable[str]) -> str:
        """Describes how the arguments differ from the parameters; the first `count` arguments are positional."""
        names = [parameter.name for parameter in self._row.parameters]
        wrong = {
            "missing": [name for name in names[count:] if name not in named],
            "unknown": [name + like(name, names) for name in named if name not in names],
            "given twice": [name for name in names[:count] if name in named],
        }
        parts = [f"{what}: {', '.join(these)}" for what, these in wrong.items() if these]
        if count > len(names):
            parts.insert(0, f"expected {len(names)} arguments, got {count}")
        return "; ".join(parts)

    @property
    def _usage(self) -> str:
        return f"The function is {self._row.prototype}."

    def _raw(self, parameter: Parameter, value: object) -> object:
        if isinstance(value, bytes) and parameter.writable:
            raise self._wrong(
                parameter, "bytes, which are read-only", "Make the value with lowlevel.ffi.new()."
            )
        if not isinstance(value, Handle):
            return value
        if not _stands_for(value, parameter):
            raise self._wrong(parameter, f"a {value._noun}")
        if self._frees:
            cure = "aioacl frees and destroys what it made: call its close()."
            raise self._wrong(parameter, f"an aioacl {value._noun}", cure)
        if parameter.writable and isinstance(value, Buffer) and value._readonly:
            raise self._wrong(
                parameter, "a buffer of a read-only DLPack tensor", "Copy it, and pass the copy."
            )
        if self._is_foreign(value):
            raise self._wrong(parameter, f"a {value._noun} of another device")
        return handle(cast("Stream | Event | Buffer", value))

    def _is_foreign(self, thing: Handle) -> bool:
        """Returns whether a handle belongs to another device; pinned memory belongs to the host."""
        return (
            self._place is not None
            and thing._manager is not self._place.manager
            and not isinstance(thing, PinnedBuffer)
        )

    def _wrong(self, parameter: Parameter, what: object, cure: str = "") -> ParameterError:
        return ParameterError(
            f"expected {parameter.name} to be {parameter.c_type}, got {what}",
            call=self._row.name,
            hint=f"{cure} {self._usage}".strip(),
        )

    def _misfit(self, raw: list[object], error: Exception) -> ParameterError:
        """Returns the error for the first argument that cannot be converted to its C type."""
        types = ffi.typeof(self._native).args[-len(raw) :]  # all parameters except the pass
        for parameter, c_type, value in zip(self._row.parameters, types, raw, strict=True):
            try:
                ffi.new(ffi.getctype(c_type, "[1]"), [value])
            except (TypeError, OverflowError) as why:
                if not isinstance(value, bytes):  # a call accepts bytes as a C string, an array does not
                    return self._wrong(parameter, _described(value, why), _cure(parameter, value))
        return ParameterError(str(error), call=self._row.name, hint=self._usage)

    # --- results ---------------------------------------------------------------------------------------------

    def _absent(self) -> NotSupported:
        if self._place is None:
            return absent(self._row.name)
        return absent(self._row.name, self._place.manager.index, self._place.generation)

    def _refusal(self) -> ParameterError:
        return ParameterError(
            "it sets, resets or stops a device for the whole process, so it cannot be called from here",
            call=self._row.name,
            hint=_INSTEAD[self._row.name],
        )

    def _failure(self, code: int) -> AclError:
        if self._place is None:
            error = error_for(code, self._row.name, message=text_of(lib.aio_error_text()))
            advise_without_device(error, RESET_BY_HAND)
            return error
        return error_on(self._place.manager, self._place.generation, code, self._row.name)

    def __repr__(self) -> str:
        where = f"on device {self._place.manager.index}" if self._place else "unguarded"
        return f"<{self._row.prototype}, {where}>"


class Namespace:
    """ACL's functions by name, made at their first use."""

    def __init__(self, place: Place | None = None) -> None:
        self._place = place

    def __getattr__(self, name: str) -> Function:
        row = rows().get(name)
        if row is None:
            question = "" if name.startswith("_") else like(name, rows())
            raise AttributeError(
                f"ACL's headers have no function {name} that can be called from here{question}",
                name=name,
            )
        function = Function(row, self._place)
        setattr(self, name, function)
        return function

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *rows()]

    def __repr__(self) -> str:
        place = self._place
        where = f"device {place.manager.index}, generation {place.generation}" if place else "no device"
        return f"<ACL's functions on {where}>"
