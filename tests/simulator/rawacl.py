"""Helpers for direct ACL calls that return codes, on a device that is set on the calling thread."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aioacl._base.ffi import ffi, lib
from aioacl._library import runtime
from aioacl.simulator._control import control_function

if TYPE_CHECKING:
    from collections.abc import Generator

    from aioacl import Opening
    from aioacl._handles.operation import C

DEVICE = 1
EVENT_SYNC = 1
TO_DEVICE = 1


def rc(function: str, *arguments: Any) -> int:
    """Calls the function, and returns its code."""
    code: int = getattr(lib, f"aio_u_{function}")(*arguments)
    return code


def good(function: str, *arguments: Any) -> None:
    """Makes a call that must return 0."""
    assert rc(function, *arguments) == 0, function


def made(function: str, kind: str, *arguments: Any) -> Any:
    """Creates an object, and returns the handle or pointer that the function stores through its first argument."""
    place = ffi.new(f"{kind} *")
    good(function, place, *arguments)
    return place[0]


def new_stream() -> Any:
    return made("aclrtCreateStream", "aclrtStream")


def new_event() -> Any:
    return made("aclrtCreateEventWithFlag", "aclrtEvent", EVENT_SYNC)


def new_memory(size: int = 64) -> Any:
    return made("aclrtMalloc", "void *", size, 0)


def new_pinned(size: int = 64) -> Any:
    return made("aclrtMallocHost", "void *", size)


def malloc(size: int = 64) -> int:
    """Allocates memory and frees it at once. Returns the code of the allocation."""
    place = ffi.new("void **")
    code = rc("aclrtMalloc", place, size, 0)
    if place[0] != ffi.NULL:
        assert rc("aclrtFree", place[0]) in (0, 507899)
    return code


def fill(memory: Any, stream: Any, value: int = 1) -> int:
    return rc("aclrtMemsetAsync", memory, 64, value, 64, stream)


def query() -> int:
    """Makes a call that needs no device and changes nothing. Returns its code."""
    return rc("aclrtGetDeviceCount", ffi.new("uint32_t *"))


def is_waiting(function: str) -> bool:
    """Whether a call of the function is blocked."""
    call = control_function("aclsim_waiting", "int (*)(const char *)")
    return bool(call(ffi.new("char[]", function.encode())) > 0)


@contextmanager
def opened(opening: Opening[C]) -> Generator[C]:
    """Opens the object without an event loop, and closes it at the end of the block."""
    made = opening.result()
    try:
        yield made
    finally:
        made.close().result()


@contextmanager
def device(index: int = DEVICE) -> Generator[None]:
    """Sets the device on this thread for the block, by direct calls, which `aioacl.lowlevel` does not count."""
    runtime.load()
    good("aclrtSetDevice", index)
    try:
        yield
    finally:
        good("aclrtResetDeviceForce", index)
