"""Does the device work? A code 0 from a reset does not prove it; a stream, memory and a verified copy do."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from aioacl._ffi import ffi, lib

if TYPE_CHECKING:
    from aioacl._acl import CData

PROBE_BYTES: Final = 4096

Failure = tuple[str, int]


class _Refused(Exception):
    def __init__(self, call: str, code: int) -> None:
        super().__init__(call, code)
        self.failure: Failure = (call, code)


def _check(call: str, code: int) -> None:
    if code:
        raise _Refused(call, code)


def _memory(cleanup: ExitStack) -> CData:
    target = ffi.new("void **")
    _check("aclrtMalloc", lib.aio_u_aclrtMalloc(target, PROBE_BYTES, lib.ACL_MEM_MALLOC_HUGE_FIRST))
    cleanup.callback(lambda: _check("aclrtFree", lib.aio_u_aclrtFree(target[0])))
    address: CData = target[0]
    return address


def _stream(cleanup: ExitStack) -> None:
    stream = ffi.new("aclrtStream *")
    _check("aclrtCreateStream", lib.aio_u_aclrtCreateStream(stream))
    cleanup.callback(lambda: _check("aclrtDestroyStream", lib.aio_u_aclrtDestroyStream(stream[0])))


def _copy_there_and_back() -> None:
    pattern = bytes(i * 7 + 3 & 0xFF for i in range(PROBE_BYTES))
    there, back = ffi.new("char[]", pattern), ffi.new("char[]", PROBE_BYTES)
    with ExitStack() as cleanup:
        _stream(cleanup)
        target = _memory(cleanup)
        up, down = lib.ACL_MEMCPY_HOST_TO_DEVICE, lib.ACL_MEMCPY_DEVICE_TO_HOST
        _check("aclrtMemcpy", lib.aio_u_aclrtMemcpy(target, PROBE_BYTES, there, PROBE_BYTES, up))
        _check("aclrtMemcpy", lib.aio_u_aclrtMemcpy(back, PROBE_BYTES, target, PROBE_BYTES, down))
        if bytes(ffi.buffer(back, PROBE_BYTES)) != pattern:
            raise _Refused("the copied bytes differ", 0)


def probe() -> Failure | None:
    """Tries the device that is set on this thread; the call that failed and its code, or None."""
    try:
        _copy_there_and_back()
    except _Refused as refused:
        return refused.failure
    return None
