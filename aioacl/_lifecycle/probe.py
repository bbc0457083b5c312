"""Does the device work? A code 0 from a reset does not prove it; a stream, memory and a verified copy do.

The probe passes no gate, for it is shut; it counts as inside, so that a reset by somebody else waits for it. Where that
has not waited long enough, what the probe has made is gone with the device, and must not go back to C.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from aioacl._base.ffi import ffi, lib, make_pass

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import CData

PROBE_BYTES: Final = 4096

Failure = tuple[str, int]


class _Refused(Exception):
    def __init__(self, call: str, code: int) -> None:
        super().__init__(call, code)
        self.failure: Failure = (call, code)


def _check(call: str, code: int) -> None:
    if code:
        raise _Refused(call, code)


class _Ground:
    """The device, for as long as nobody else resets it."""

    def __init__(self, index: int, told: int) -> None:
        self._index = index
        self._told = told

    def check(self) -> None:
        """Refuses once a foreign reset has been told of that the newest set did not make up for."""
        if lib.aio_device_foreign(self._index) != self._told:
            raise _Refused("somebody else has reset the device", 0)

    def give_back(self, call: str, give: Callable[[CData], int], thing: CData) -> None:
        """Frees or destroys what was made."""
        self.check()
        _check(call, give(thing))


def _memory(ground: _Ground, cleanup: ExitStack) -> CData:
    target = ffi.new("void **")
    _check("aclrtMalloc", lib.aio_u_aclrtMalloc(target, PROBE_BYTES, lib.ACL_MEM_MALLOC_HUGE_FIRST))
    cleanup.callback(ground.give_back, "aclrtFree", lib.aio_u_aclrtFree, target[0])
    address: CData = target[0]
    return address


def _stream(ground: _Ground, cleanup: ExitStack) -> None:
    stream = ffi.new("aclrtStream *")
    _check("aclrtCreateStream", lib.aio_u_aclrtCreateStream(stream))
    cleanup.callback(ground.give_back, "aclrtDestroyStream", lib.aio_u_aclrtDestroyStream, stream[0])


def _copy_there_and_back(ground: _Ground) -> None:
    pattern = bytes(i * 7 + 3 & 0xFF for i in range(PROBE_BYTES))
    there, back = ffi.new("char[]", pattern), ffi.new("char[]", PROBE_BYTES)
    with ExitStack() as cleanup:
        _stream(ground, cleanup)
        target = _memory(ground, cleanup)
        up, down = lib.ACL_MEMCPY_HOST_TO_DEVICE, lib.ACL_MEMCPY_DEVICE_TO_HOST
        _check("aclrtMemcpy", lib.aio_u_aclrtMemcpy(target, PROBE_BYTES, there, PROBE_BYTES, up))
        _check("aclrtMemcpy", lib.aio_u_aclrtMemcpy(back, PROBE_BYTES, target, PROBE_BYTES, down))
        if bytes(ffi.buffer(back, PROBE_BYTES)) != pattern:
            raise _Refused("the copied bytes differ", 0)


def probe(index: int, told: int) -> Failure | None:
    """Tries the device that is set on this thread; the call that failed and its code, or None.

    `told`: how many foreign resets had been told of when it was set.
    """
    crowded = lib.aio_helper_count(index)
    if crowded:
        return "aclrtCreateStream", crowded
    ground = _Ground(index, told)
    try:
        ground.check()  # counted first: he tells first, and waits for us then
        _copy_there_and_back(ground)
    except _Refused as refused:
        return refused.failure
    finally:
        lib.aio_leave(make_pass(index, 0), lib.AIO_LIFETIME)
    return None
