"""Work of the maintenance thread on native streams: make and destroy them, and synchronize a whole device."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from aioacl._base.codes import Family, is_of
from aioacl._base.ffi import ffi, lib, make_pass, text_of
from aioacl._handles.handle import error_on
from aioacl._handles.stream_core import CAPTURED, STREAM_ABORTED, StreamCore
from aioacl._lifecycle.cache import STREAMS
from aioacl._lifecycle.failures import warn_of_failure
from aioacl._lifecycle.gate import error_of, failed_call

if TYPE_CHECKING:
    from aioacl._base.errors import AclError
    from aioacl._base.ffi import CData
    from aioacl._base.options import OnFailure
    from aioacl._base.origin import Site
    from aioacl._lifecycle.cache import HandleCache
    from aioacl._lifecycle.manager import Manager

SYNC_TIMEOUT: Final = 507046
CAPTURE_PAUSE_MS: Final = 2
# The engine itself records which work an abort has dropped.
NOT_A_FAILURE: Final = (SYNC_TIMEOUT, STREAM_ABORTED, CAPTURED)


def keep_if_done(core: StreamCore) -> bool:
    """Ends the stream and gives the native stream to the device's cache, if all its work is known to have succeeded.

    Never waits. Returns False if the maintenance thread has to end the stream.
    """
    cache, handle = core.manager.cache, core.handle
    if not core.reusable or core.waiting or core.awaits or not cache.accepts:
        return False
    if not lib.aio_stream_is_spent(handle):  # the native stream would be destroyed, and that may take long
        return False
    code = _release(core, cache)
    if code >= 0:
        core.release_done()  # the maintenance thread no longer does so
    if code == 0:  # no task has failed, so there is nothing to warn of
        core.gone = True
        core.manager.streams.discard(core)
    elif code > 0:
        _ended(core, code, left=False)
    return code >= 0


def destroy(core: StreamCore) -> None:
    """Ends the stream now, or when its work is done: destroys or keeps the native stream.

    Runs on the maintenance thread.
    """
    manager = core.manager
    if core.puts_off(lambda: manager.maintenance.leave(lambda: destroy(core))):
        return
    left = manager.failures.last_fault is not None  # after a fault, the reset frees the handles
    if core.stranded and not left:  # only an abort makes the stream idle
        left = lib.aio_stream_abort(core.handle) != 0
    code = 0 if left else _release(core, manager.cache)
    core.release_done()
    if code == lib.AIO_PENDING:
        # If the core was garbage, `streams` has lost its weak reference to the core. The wait keeps the core alive, so
        # the core is added again.
        manager.streams.add(core)
        tail = lib.aio_stream_tail(core.handle)
        manager.maintenance.watch(
            core.handle, tail, lambda _: manager.maintenance.leave(lambda: destroy(core))
        )
        return
    _ended(core, code, left=left)


def _release(core: StreamCore, cache: HandleCache) -> int:
    """Ends the engine's record of the stream, if the stream is idle. Keeps or destroys the native stream."""
    if not core.reusable or not cache.accepts:
        return lib.aio_stream_destroy(core.handle)
    return cache.end_stream(core)


def _ended(core: StreamCore, code: int, *, left: bool) -> None:
    manager = core.manager
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
    call, code = _create(shown, made, priority)
    if is_of(code, Family.EXHAUSTED) and manager.cache.empty(STREAMS):
        call, code = _create(shown, made, priority)
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
    try:
        return StreamCore(manager, generation, made[0], made_at, priority, on_failure)
    except MemoryError:
        lib.aio_g_aclrtDestroyStream(shown, made[0])
        raise


def _create(shown: int, made: CData, priority: int) -> tuple[str, int]:
    if priority:
        return "aclrtCreateStreamWithConfig", lib.aio_g_aclrtCreateStreamWithConfig(shown, made, priority, 0)
    return "aclrtCreateStream", lib.aio_g_aclrtCreateStream(shown, made)


def synchronize_device(manager: Manager, generation: int, slice_ms: int) -> AclError | None:
    """Waits for the device once, for at most `slice_ms` milliseconds. Runs on the maintenance thread.

    Returns None when all work is done, else the error. The call may consume the error code of one of aioacl's streams,
    so the code is passed to the engine. While a stream of other code captures, the runtime refuses the call at once.
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
    if code == CAPTURED:
        time.sleep(min(slice_ms, CAPTURE_PAUSE_MS) / 1000)
    return error_on(manager, generation, code, failed_call(call, code), text)
