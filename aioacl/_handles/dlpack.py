"""DLPack exports: a buffer as a tensor of bytes that another library can use.

A tensor refers to an object that keeps the memory: its *keeper*. If the buffer is closed, the memory is freed when the
tensors are gone too. The keeper of wrapped memory is its owner. The keeper of other memory is a Keeper, which a
DeviceBuffer makes for its first export; see aioacl/_binding/keeper.c. aioacl/_binding/dlpack.c makes the capsules.

An export does not wait. With `stream=None`, the caller has waited for the work that uses the buffer. If the caller
passes a stream, that stream waits on the device for an event on each stream whose work uses the buffer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioacl._base.errors import ParameterError
from aioacl._base.ffi import code_of, dlpack_export, ffi, lib, make_pass, pointer
from aioacl._base.options import repr_of, whole_of
from aioacl._handles.borrowing import context_of_others
from aioacl._handles.handle import Handle, error_on
from aioacl._handles.in_flight import UNKNOWN

if TYPE_CHECKING:
    from typing_extensions import CapsuleType  # for type checkers; in types since Python 3.13

    from aioacl._base.ffi import CData, InFlight, Uses
    from aioacl._handles.stream_core import StreamCore
    from aioacl._lifecycle.manager import Manager

CPU: Final = 1
EXTENSION: Final = 12  # kDLExtDev, the type that torch_npu uses for its device
ASCEND: Final = 21  # kDLAscend
VERSION: Final = (1, 0)  # the newest version of DLPack that is used here


# --- exporting -----------------------------------------------------------------------------------------------------


class Exportable(Handle):
    """The base of Buffer: the methods with which another library takes the buffer as a tensor."""

    __slots__ = ()
    _readonly = False

    if TYPE_CHECKING:
        _uses: Uses
        _address: int
        _size: int

    def _keeper(self) -> object:
        """Returns the object that keeps the memory. Raises an error if the buffer is closed or stale."""
        raise NotImplementedError

    def _tensor_devices(self) -> tuple[tuple[int, int], ...]:
        """The DLPack devices that name the buffer's device, the usual one first."""
        raise NotImplementedError

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns the DLPack device type and the index: (12, index) for device memory, (1, 0) for pinned memory.

        Libraries call it before `__dlpack__`. Calls no ACL function.

        Returns:
            A tuple of two ints. Type 12 is kDLExtDev, the type that torch_npu uses. Type 1 is kDLCPU.
        """
        return self._tensor_devices()[0]

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        """Returns a DLPack capsule: the buffer as a tensor of bytes, in one dimension. Libraries call it.

        The tensor refers to the memory, and the memory is not copied. If the buffer is closed, the memory is freed when
        the consumer has dropped its tensor. After a reset, a tensor of device memory refers to memory that no longer
        exists. aioacl does not order its later work with the work of the consumer.

        Args:
            stream: for device memory, the address of an aclrtStream of the same device, as an int: that stream waits on
                the device for the unfinished work that uses the buffer (aclrtRecordEvent, aclrtStreamWaitEvent). -1:
                nothing waits, and the caller orders the work. None: no unfinished work may use the buffer.
            max_version: the newest DLPack version that the caller can read, a tuple of two ints. From (1, 0) on, the
                capsule has the name "dltensor_versioned", otherwise "dltensor".
            dl_device: for device memory (12, index), or (21, index) for the type kDLAscend; for pinned memory (1, 0).
                None means the device that `__dlpack_device__` returns.
            copy: None or False; an export never copies.

        Returns:
            A capsule. It can be taken once.

        Raises:
            BufferError: unfinished work uses the buffer; `copy` is True; `dl_device` is another device; or the buffer
                is read-only and `max_version` is older than (1, 0).
            ParameterError: `stream` or `max_version` has a wrong type or value, or the buffer is closed.
            StaleHandleError: the device memory is from an older generation.
            DeviceResetting: `stream` is an address, and the device is draining or being reset.
            DeviceFault: `stream` is an address, and a stream whose work uses the buffer has failed. The code of the
                failure may select another subclass of AclError.
        """
        return _export(self, stream, max_version, dl_device, copy)


def _export(
    buffer: Exportable, stream: object, max_version: object, dl_device: object, copy: object
) -> CapsuleType:
    buffer._check()
    kind, index = _device(buffer, dl_device)
    is_versioned = _is_versioned(max_version)
    if copy is not None and copy is not False:
        raise BufferError(
            f"expected copy=None or copy=False, got {repr_of(copy)}; an export of a {buffer._noun} never copies: copy "
            "it to another buffer with `await stream.copy(other, buffer)`, and export that buffer"
        )
    if buffer._readonly and not is_versioned:
        raise BufferError(
            f"expected max_version=(1, 0) or later for a read-only {buffer._noun}, got {repr_of(max_version)}; a "
            "tensor of an older version cannot be marked as read-only: copy the buffer, and export the copy"
        )
    whole: Exportable = buffer._base or buffer
    keeper = whole._keeper()  # first, so that no other thread can free the memory during the export
    _order(buffer, stream, on_device=kind != CPU)
    return dlpack_export(keeper, buffer._address, buffer._size, kind, index, is_versioned, buffer._readonly)


def _device(buffer: Exportable, asked: object) -> tuple[int, int]:
    devices = buffer._tensor_devices()
    if asked is None:
        return devices[0]
    device = pair_of(asked)
    if device in devices:
        return device
    names = " or ".join(str(device) for device in devices)
    raise BufferError(
        f"expected dl_device to be {names} for this {buffer._noun}, got {repr_of(asked)}; an export never copies: copy "
        "the buffer to memory of the other device first"
    )


def pair_of(value: Any) -> tuple[int, int] | None:
    """Returns a pair of ints, or None for any other value."""
    try:
        first, second = value
    except (TypeError, ValueError):
        return None
    pair = whole_of(first), whole_of(second)
    return None if pair[0] is None or pair[1] is None else (pair[0], pair[1])


def _is_versioned(asked: object) -> bool:
    if asked is None:
        return False
    version = pair_of(asked)
    if version is None:
        raise ParameterError(
            f"max_version must be a tuple of two ints or None, got {repr_of(asked)}",
            hint="Pass max_version=(1, 0), or omit it for a tensor without a version.",
        )
    return version >= VERSION


# --- the order of the work ------------------------------------------------------------------------------------------


def _order(buffer: Exportable, stream: object, *, on_device: bool) -> None:
    """Makes sure that the consumer uses the memory only after the work that uses it now."""
    number = None if stream is None else whole_of(stream)
    if number == -1:
        return
    if stream is not None and (number is None or not on_device or not 0 < number < 1 << 64):
        expected = "None, -1 or the address of an aclrtStream" if on_device else "None or -1"
        raise ParameterError(
            f"stream must be {expected}, got {repr_of(stream)}",
            hint="Omit stream after you have awaited the work, or pass -1 if you order the work yourself.",
        )
    pending = [use for use in tuple(buffer._uses) if not _is_done(use)]
    if pending and (number is None or any(use.position == UNKNOWN for use in pending)):
        remedy = "await it" if number is None else "await the upload or download"
        raise BufferError(
            f"expected a {buffer._noun} without unfinished work, got one that {len(pending)} unfinished "
            f"{'operations use' if len(pending) > 1 else 'operation uses'}; {remedy} before you export the buffer"
        )
    if number is not None:
        for core in dict.fromkeys(use.core for use in pending):
            _make_wait(buffer, core, number)


def _is_done(use: InFlight) -> bool:
    core, position = use.core, use.position
    if position == UNKNOWN:
        return False
    return core.passed(position) or lib.aio_stream_query(core.handle, position) == 1


def _make_wait(buffer: Exportable, core: StreamCore, stream: int) -> None:
    """Makes a native stream wait on the device for the present end of another stream's queue."""
    manager = buffer._manager
    # The runtime may have used the address of a destroyed or stale stream again.
    live = (each for each in manager.streams.members() if not (each.gone or each.stale))
    ours = next((each for each in live if pointer(each.native) == stream), None)
    if ours is core:  # the order of the queue is enough
        return
    held = manager.admission.may_enqueue_while_draining()
    event = ffi.new("aio_event **")
    position = lib.aio_record(core.handle, held, 0, event)
    if position < 0:
        raise core.refused(code_of(position), "aclrtRecordEvent", buffer)
    try:
        if ours is None:
            native = lib.aio_event_handle(event[0])
            wait_outside(manager, buffer._generation, stream, native, held=held)
        else:
            _wait_inside(buffer, ours, core, event[0], position, held=held)
    finally:
        lib.aio_event_drop(event[0])  # a wait that is queued keeps waiting for this record


def wait_outside(manager: Manager, generation: int, stream: int, event: CData, *, held: bool) -> None:
    """Makes a native stream wait on the device for a native event (aclrtStreamWaitEvent).

    The context of the stream must be current for the call. If aioacl uses a context of its own, and the stream is one
    of other code, that is the context which the caller's thread has, or else the primary one.
    """
    shown = make_pass(manager.index, generation, held=held)
    native = ffi.cast("aclrtStream", stream)
    if not manager.own_context.wanted or lib.aio_stream_is_ours(native):
        code = lib.aio_g_aclrtStreamWaitEvent(shown, native, event)
    else:
        code = lib.aio_wait_outside(shown, native, event, context_of_others(manager))
    if code:
        raise error_on(manager, generation, code, "aclrtStreamWaitEvent")


def _wait_inside(
    buffer: Exportable, ours: StreamCore, core: StreamCore, event: CData, position: int, *, held: bool
) -> None:
    """Enqueues the wait on a stream of aioacl, so that the stream's record contains the wait."""
    result = lib.aio_wait_event(ours.handle, held, event, core.handle, position)
    if result >= 0:
        return
    failed = core.error_at(position) if code_of(result) == lib.AIO_EVENT_FAILED else None
    if failed is not None:
        raise core.raised(failed, "aclrtStreamWaitEvent")
    raise ours.refused(code_of(result), "aclrtStreamWaitEvent", buffer)
