"""How a call gets from Python to ACL.

Unguarded, a call goes through the table's trampoline `aio_u_NAME`. On a device it goes through `aio_g_NAME`, which
shows a pass to the gate: the call counts as inside while it is, with the device's context current, and the gate refuses
a pass of an older generation. That is why `on(device)` is stamped with the generation in which it was made: raw
pointers that a program got through it die with that generation, and so does it.

A handle of aioacl stands for its raw pointer as an argument. It is looked at first, and what a reset does between
that look and the call is the gate's to refuse.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from aioacl._base.errors import AclError, NotSupported, ParameterError, error_for
from aioacl._base.ffi import ffi, lib, make_pass, text_of
from aioacl._handles.event import Event
from aioacl._handles.handle import Handle, error_on
from aioacl._handles.memory import Buffer, PinnedBuffer
from aioacl._handles.stream import Stream
from aioacl._library import runtime
from aioacl._lifecycle.gate import absent
from aioacl.lowlevel._table import Parameter, Row, like, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioacl._base.ffi import CData
    from aioacl._lifecycle.manager import Manager

# They answer the thread's last error in the place of their own.
_ANSWERS: Final = frozenset({"aclrtPeekAtLastError", "aclrtGetLastError"})

# Enqueues whose tasks cannot fail, or are reported when they do. The runtime reports no other kind.
_REPORTED: Final = re.compile(
    r"acl(mdl|rt(Memcpy|Memset|LaunchKernel|Reduce|RandomNum|WaitAndResetNotify|CntNotifyWait))"
    r"|aclrt(RecordEvent|ResetEvent|LaunchCallback|LaunchHostFunc)"
)

_C_VALUE: Final = type(ffi.NULL)

_INSTEAD: Final = {
    "aclrtSetDevice": "Use lowlevel.set_device(index), or open_device(index).",
    "aclrtResetDevice": "Use lowlevel.reset_device(index), or close the device.",
    "aclrtResetDeviceForce": "Use lowlevel.reset_device_force(index), or device.force_reset().",
    "aclrtDeviceTaskAbort": "Use stream.abort(), or device.force_reset().",
}


@dataclass(frozen=True, slots=True)
class Place:
    """The device that calls are for, and its generation when they were asked for."""

    manager: Manager
    generation: int


def handle(thing: Stream | Event | Buffer) -> CData:
    """The raw pointer of a stream, an event's newest record, or a buffer.

    It is that of a live handle now, and nothing keeps it so: hand it to one call, do not store it. As an argument of
    `on(device)`'s functions the handle itself does, and is looked at where the call is made. Work that is enqueued by
    hand on a stream is not counted by it: `await stream.record()` waits for it.

    Raises:
        StaleHandleError: its device was reset since.
        ParameterError: it is closed, has no raw pointer, or is an event that was never recorded.
    """
    if isinstance(thing, Event):
        return lib.aio_event_handle(thing._recorded_version().native)
    if isinstance(thing, Stream | Buffer):
        thing._check()
        return thing._core.native if isinstance(thing, Stream) else thing._pointer
    raise ParameterError(
        f"a {type(thing).__name__} has no raw pointer", hint="Pass a Stream, an Event or a buffer."
    )


def _stands_for(thing: Handle, parameter: Parameter) -> bool:
    """Whether a handle of aioacl may be the argument."""
    if isinstance(thing, Buffer):
        return parameter.bare == "void *"
    return parameter.bare == ("aclrtStream" if isinstance(thing, Stream) else "aclrtEvent")


def _described(value: object, why: Exception) -> str:
    if isinstance(value, _C_VALUE):
        return str(ffi.typeof(value).cname)
    return "None" if value is None else f"{type(value).__name__}: {why}"


def _cure(parameter: Parameter, value: object) -> str:
    """What to pass in the place of an object of Python's that no pointer can be made of."""
    if value is None:
        return "The null pointer is lowlevel.ffi.NULL."
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
        """Has the streams' next positions confirmed by synchronizing, because a failure would not be reported."""
        for stream in streams:
            lib.aio_stream_doubt(stream)

    # --- arguments -------------------------------------------------------------------------------------------

    def _bound(self, arguments: tuple[object, ...], named: dict[str, object]) -> tuple[object, ...]:
        try:
            return self.__signature__.bind(*arguments, **named).args
        except TypeError:
            raise ParameterError(
                self._discord(len(arguments), named), call=self._row.name, hint=self._usage
            ) from None

    def _discord(self, count: int, named: Iterable[str]) -> str:
        """How the arguments differ from the parameters: the first `count` of these are given by their place."""
        names = [parameter.name for parameter in self._row.parameters]
        wrong = {
            "missing": [name for name in names[count:] if name not in named],
            "unknown": [name + like(name, names) for name in named if name not in names],
            "given twice": [name for name in names[:count] if name in named],
        }
        parts = [f"{what}: {', '.join(these)}" for what, these in wrong.items() if these]
        if count > len(names):
            parts.insert(0, f"it takes {len(names)} arguments, not {count}")
        return "; ".join(parts)

    @property
    def _usage(self) -> str:
        return f"The call is {self._row.prototype}."

    def _raw(self, parameter: Parameter, value: object) -> object:
        if isinstance(value, bytes) and parameter.writable:
            raise self._wrong(parameter, "bytes, which nobody may write to: make it with lowlevel.ffi.new")
        if not isinstance(value, Handle):
            return value
        if not _stands_for(value, parameter):
            raise self._wrong(parameter, f"a {value.noun}")
        if self._is_foreign(value):
            raise self._wrong(parameter, f"a {value.noun} of another device")
        return handle(cast("Stream | Event | Buffer", value))

    def _is_foreign(self, thing: Handle) -> bool:
        """Pinned memory is the host's; all else belongs to one device."""
        return (
            self._place is not None
            and thing._manager is not self._place.manager
            and not isinstance(thing, PinnedBuffer)
        )

    def _wrong(self, parameter: Parameter, what: object, cure: str = "") -> ParameterError:
        return ParameterError(
            f"{parameter.name} is to be {parameter.c_type}, not {what}",
            call=self._row.name,
            hint=f"{cure} {self._usage}".strip(),
        )

    def _misfit(self, raw: list[object], error: Exception) -> ParameterError:
        """The error for the first argument that has no place in its C type."""
        types = ffi.typeof(self._native).args[-len(raw) :]  # without the pass
        for parameter, c_type, value in zip(self._row.parameters, types, raw, strict=True):
            try:
                ffi.new(ffi.getctype(c_type, "[1]"), [value])
            except (TypeError, OverflowError) as why:
                if not isinstance(value, bytes):  # a call takes them for text, an array does not
                    return self._wrong(parameter, _described(value, why), _cure(parameter, value))
        return ParameterError(str(error), call=self._row.name, hint=self._usage)

    # --- answers ---------------------------------------------------------------------------------------------

    def _absent(self) -> NotSupported:
        if self._place is None:
            return absent(self._row.name)
        return absent(self._row.name, self._place.manager.index, self._place.generation)

    def _refusal(self) -> ParameterError:
        return ParameterError(
            "it sets, resets or stops a device for everybody, and those who keep the counts must know of it",
            call=self._row.name,
            hint=_INSTEAD[self._row.name],
        )

    def _failure(self, code: int) -> AclError:
        if self._place is None:
            return error_for(code, self._row.name, message=text_of(lib.aio_error_text()))
        return error_on(self._place.manager, self._place.generation, code, self._row.name)

    def __repr__(self) -> str:
        where = f"on device {self._place.manager.index}" if self._place else "unguarded"
        return f"<{self._row.prototype}, {where}>"


class Namespace:
    """ACL's functions by name, made when they are first asked for."""

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
