"""What the maintenance thread does with native streams: it makes and destroys them, and synchronizes a whole device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioacl._base.ffi import ffi, lib, make_pass, text_of
from aioacl._handles.handle import error_on, warn_of_failure
from aioacl._handles.stream_core import STREAM_ABORTED, StreamCore
from aioacl._lifecycle.gate import error_of, failed_call

if TYPE_CHECKING:
    from aioacl._base.errors import AclError
    from aioacl._base.options import OnFailure
    from aioacl._base.origin import Site
    from aioacl._lifecycle.manager import Manager

SYNC_TIMEOUT: Final = 507046
BLAMES_NOBODY: Final = (SYNC_TIMEOUT, STREAM_ABORTED)  # an abort says itself whose work it was


def destroy(core: StreamCore) -> None:
    """On the maintenance thread: destroys the native stream now, or when its work is done."""
    manager = core.manager
    left = manager.failures.last_fault is not None  # after a fault, handles are left to the reset
    if core.stranded and not left:  # it is never idle, unless it is aborted
        left = lib.aio_stream_abort(core.handle) != 0
    code = 0 if left else lib.aio_stream_destroy(core.handle)
    core.release_done()
    if code == lib.AIO_PENDING:
        # Anew, for weak references end when something becomes garbage, if for a moment.
        manager.streams.add(core)
        tail = lib.aio_stream_tail(core.handle)
        manager.maintenance.watch(core.handle, tail, lambda _: destroy(core))
        return
    core.gone = True
    if code == 0 and (not left or core.passed(lib.aio_stream_tail(core.handle))):
        manager.streams.discard(core)
    try:
        core.warn_of_uncollected("its stream was closed")
    finally:  # a warning may be an error
        if code > 0 and not manager.admission.found_reset(core.generation, code):
            warn_of_failure(manager, "aclrtDestroyStream", code, "it")


def make_core(
    manager: Manager, generation: int, priority: int, on_failure: OnFailure, made_at: Site | None
) -> StreamCore:
    """On the maintenance thread: makes a native stream, and its record."""
    shown = make_pass(manager.index, generation)
    made = ffi.new("aclrtStream *")
    if priority:
        call, code = (
            "aclrtCreateStreamWithConfig",
            lib.aio_g_aclrtCreateStreamWithConfig(shown, made, priority, 0),
        )
    else:
        call, code = "aclrtCreateStream", lib.aio_g_aclrtCreateStream(shown, made)
    if code:
        raise error_of(code, call, manager.index, generation)
    if on_failure == "stop":
        manager.admission.stop_generation = generation
        lib.aio_device_stops(manager.index, generation)
        code = lib.aio_g_aclrtSetStreamFailureMode(shown, made[0], 1)
        if code:
            error = error_of(code, "aclrtSetStreamFailureMode", manager.index, generation)
            lib.aio_g_aclrtDestroyStream(shown, made[0])
            raise error
    return StreamCore(manager, generation, made[0], made_at)


def synchronize_device(manager: Manager, generation: int, slice_ms: int) -> AclError | None:
    """On the maintenance thread: one wait for the device. A code that it takes may be of a stream of ours."""
    call, shown = "aclrtSynchronizeDeviceWithTimeout", make_pass(manager.index, generation)
    lib.aio_device_sync_begin(manager.index)
    try:
        code = lib.aio_g_aclrtSynchronizeDeviceWithTimeout(shown, slice_ms)
        if code == 0:
            return None
        text = text_of(lib.aio_error_text())
        if code > 0 and code not in BLAMES_NOBODY:
            lib.aio_device_fail(manager.index, code, ffi.new("char[]", text.encode()))
    finally:
        lib.aio_device_sync_end(manager.index)
    return error_on(manager, generation, code, failed_call(call, code), text)
