"""The probe of a device after a reset. A code 0 from the reset does not prove that the device works.

The probe creates a stream, allocates memory and verifies a copy. It does not pass the gate, which is closed. The probe
counts as a call inside, so a foreign reset waits for the probe. If a foreign reset does not wait long enough, the reset
destroys the objects of the probe. So does other code that destroys aioacl's own context. Then these objects must not be
passed to C.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from aioacl._base.ffi import ffi, lib, make_pass
from aioacl._lifecycle.gate import context_lives

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import CData

PROBE_BYTES: Final = 4096
PATTERN: Final = bytes(i * 7 + 3 & 0xFF for i in range(256)) * (PROBE_BYTES // 256)

Failure = tuple[str, int]


class _ProbeFailed(Exception):
    def __init__(self, call: str, code: int) -> None:
        super().__init__(call, code)
        self.failure: Failure = (call, code)


def _check(call: str, code: int) -> None:
    if code:
        raise _ProbeFailed(call, code)


class _Tested:
    """The device under test. A foreign reset may reset it during the probe."""

    def __init__(self, index: int, resets_seen: int) -> None:
        self._index = index
        self._resets_seen = resets_seen

    def check(self) -> None:
        """Fails the probe if other code has reset the device, or destroyed the context, after the newest set."""
        if lib.aio_device_foreign(self._index) != self._resets_seen:
            raise _ProbeFailed("foreign reset during the probe", 0)
        if not context_lives(self._index):
            raise _ProbeFailed("end of the context during the probe", 0)

    def give_back(self, call: str, give: Callable[[CData], int], thing: CData) -> None:
        """Frees or destroys an object of the probe."""
        self.check()
        _check(call, give(thing))


def _memory(tested: _Tested, cleanup: ExitStack) -> CData:
    target = ffi.new("void **")
    _check("aclrtMalloc", lib.aio_u_aclrtMalloc(target, PROBE_BYTES, lib.ACL_MEM_MALLOC_HUGE_FIRST))
    cleanup.callback(tested.give_back, "aclrtFree", lib.aio_u_aclrtFree, target[0])
    address: CData = target[0]
    return address


def _stream(tested: _Tested, cleanup: ExitStack) -> None:
    stream = ffi.new("aclrtStream *")
    _check("aclrtCreateStream", lib.aio_u_aclrtCreateStream(stream))
    cleanup.callback(tested.give_back, "aclrtDestroyStream", lib.aio_u_aclrtDestroyStream, stream[0])


def _copy_there_and_back(tested: _Tested) -> None:
    there, back = ffi.new("char[]", PATTERN), ffi.new("char[]", PROBE_BYTES)
    with ExitStack() as cleanup:
        _stream(tested, cleanup)
        target = _memory(tested, cleanup)
        up, down = lib.ACL_MEMCPY_HOST_TO_DEVICE, lib.ACL_MEMCPY_DEVICE_TO_HOST
        _check("aclrtMemcpy", lib.aio_u_aclrtMemcpy(target, PROBE_BYTES, there, PROBE_BYTES, up))
        _check("aclrtMemcpy", lib.aio_u_aclrtMemcpy(back, PROBE_BYTES, target, PROBE_BYTES, down))
        if bytes(ffi.buffer(back, PROBE_BYTES)) != PATTERN:
            raise _ProbeFailed("the copied bytes differ", 0)


def probe(index: int, resets_seen: int) -> Failure | None:
    """Tests the device that is set on this thread. Returns the call that failed and its code, or None.

    `resets_seen` is the number of foreign resets that were reported when the device was set.
    """
    crowded = lib.aio_helper_count(index)
    if crowded:
        return "aclrtCreateStream", crowded
    tested = _Tested(index, resets_seen)
    try:
        lib.aio_relax_captures()
        tested.check()  # after the probe is counted, because a foreign reset is reported before it waits for the count
        _copy_there_and_back(tested)
    except _ProbeFailed as failed:
        return failed.failure
    finally:
        lib.aio_leave(make_pass(index, 0), lib.AIO_LIFETIME)
    return None
