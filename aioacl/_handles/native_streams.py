"""Work of the maintenance thread on native streams: make and destroy them, and synchronize a whole device."""

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
# The engine itself records which work an abort has dropped.
NOT_A_FAILURE: Final = (SYNC_TIMEOUT, STREAM_ABORTED)


def destroy(core: StreamCore) -> None:
    """Destroys the native stream now, or when its work is done. Runs on the maintenance thread."""
    manager = core.manager
    left = manager.failures.last_fault is not None  # after a fault, the reset frees the handles
    if core.stranded and not left:  # only an abort makes the stream idle
        left = lib.aio_stream_abort(core.handle) != 0
    code = 0 if left else lib.aio_stream_destroy(core.handle)
    core.release_done()
    if code == lib.AIO_PENDING:
        # If the core was garbage, `streams` has lost its weak reference to the core. The wait keeps the core alive, so
        # the core is added again.
        manager.streams.add(core)
        tail = lib.aio_stream_tail(core.handle)
        manager.maintenance.watch(core.handle, tail, lambda _: destroy(core))
        return
    core.gone = True
    if code == 0 and (not left or core.passed(lib.aio_stream_tail(core.handle))):
        manager.streams.discard(core)
    try:
        core.warn_of_uncollected("its stream was closed")
    finally:  # the warning may be raised as an exception
        if code > 0 and not manager.admission.found_reset(core.generation, code):
            warn_of_failure(manager, "aclrtDestroyStream", code, "the stream")


def make_core(
    manager: Manager, generation: int, priority: int, on_failure: OnFailure, made_at: Site | None
) -> StreamCore:
    """Makes a native stream and its record. Runs on the maintenance thread."""
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
    """Waits for the device once, for at most `slice_ms` milliseconds. Runs on the maintenance thread.

    Returns None when all work is done, else the error. The call may consume the error code of one of aioacl's streams,
    so the code is passed to the engine.
    """
    call, shown = "aclrtSynchronizeDeviceWithTimeout", make_pass(manager.index, generation)
    lib.aio_device_sync_begin(manager.index)
    try:
        code = lib.aio_g_aclrtSynchronizeDeviceWithTimeout(shown, slice_ms)
        if code == 0:
            return None
        text = text_of(lib.aio_error_text())
        if code > 0 and code not in NOT_A_FAILURE:
            lib.aio_device_fail(manager.index, code, ffi.new("char[]", text.encode()))
    finally:
        lib.aio_device_sync_end(manager.index)
    return error_on(manager, generation, code, failed_call(call, code), text)
