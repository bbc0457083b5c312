"""The only module that imports the compiled one, and how its results read.

A result of the engine is a position in a stream (positive), or a failure: `FAILED` plus the code as an unsigned
number. Codes at or below `lib.AIO_LIMIT` are the library's own refusals, all others are ACL's.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Final

from aioacl._acl import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._acl import CData
else:
    CData = ffi.CData

__all__ = [
    "FAILED",
    "PENDING",
    "WAS_RESET",
    "CData",
    "code_of",
    "failure",
    "ffi",
    "generation_of",
    "lib",
    "make_pass",
    "name_of_function",
    "next_generation",
    "owner",
    "pointer",
    "refused",
    "state_of",
    "text_of",
]

FAILED: Final = -(1 << 63)

# A child that is forked while another thread opens the library would hang in the dynamic linker. The lock is recursive:
# a signal handler that runs during the fork may ask for the library.
os.register_at_fork(
    before=lib.aio_library_lock,
    after_in_parent=lib.aio_library_unlock,
    after_in_child=lib.aio_library_renew_lock,
)


def failure(code: int) -> int:
    """The result that carries this code."""
    return FAILED + (code & 0xFFFFFFFF)


def code_of(result: int) -> int:
    """The code that a negative result carries."""
    bits = result - FAILED
    return bits - (1 << 32) if bits >> 31 else bits


def refused(result: int, *codes: int) -> bool:
    """Whether a result is one of these refusals."""
    return result < 0 and code_of(result) in codes


PENDING: Final = failure(lib.AIO_PENDING)
WAS_RESET: Final = failure(lib.AIO_WAS_RESET)


def make_pass(device: int, generation: int, *, held: bool = False) -> int:
    """What a guarded call shows to the gate; `held`: the caller has a lease."""
    return held << 28 | device << 20 | generation & 0xFFFFF


def generation_of(device: int) -> int:
    """The generation in the gate's word."""
    return lib.aio_gate_word(device) >> 36 & 0xFFFFF


def next_generation(generation: int) -> int:
    """The one after it. The gate's word has 20 bits for them, and 0 is that of a device that was never open."""
    return (generation + 1) & 0xFFFFF or 1


def state_of(device: int) -> int:
    """The state in the gate's word."""
    return lib.aio_gate_word(device) >> 56 & 7


def text_of(value: CData) -> str:
    """A C string as text, whatever its bytes."""
    return ffi.string(value).decode("utf-8", "replace") if value else ""


def pointer(value: CData) -> int:
    """The address that a pointer holds."""
    return int(ffi.cast("uintptr_t", value))


def name_of_function(index: int) -> str:
    """The ACL function with that number in the table; a negative one is a job of the user's."""
    return text_of(lib.aio_table_name(index)) if index >= 0 else "a job on device.executor"


class _Last(weakref.ref["CData"]):
    """A weak reference to a pointer's object, and the address for when that is gone."""

    __slots__ = ("address",)
    address: CData


def owner(give_back: Callable[[CData], object]) -> Callable[[CData], CData]:
    """What makes a pointer the owner of what it points to: that is given back when its object is gone, not before.

    `ffi.gc` gives back sooner. The garbage collector finalizes all of a cycle, in no order, before it looks whether
    one of the finalizers has brought something back, which may still use what another has given back. A plain pointer
    the collector does not know: it goes when the last reference does.
    """
    alive: dict[int, _Last] = {}

    def gone(last: weakref.ref[CData]) -> None:
        give_back(alive.pop(id(last)).address)

    def own(pointer: CData) -> CData:
        last = _Last(pointer, gone)
        last.address = ffi.cast(ffi.typeof(pointer), pointer)
        alive[id(last)] = last
        return pointer

    return own
