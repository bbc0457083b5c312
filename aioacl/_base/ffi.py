"""The only module that imports the compiled modules, and the functions that decode their results.

`_acl` is made by cffi. `_await` has the Python types and functions of `aioacl/_binding`. Both are in one shared object,
because both use one engine. `_interpreter`, in the same file, refuses the import in a sub-interpreter.

A result of the engine is a position in a stream (positive), or a failure: `FAILED` plus the code as an unsigned
number. Codes at or below `lib.AIO_LIMIT` are aioacl's own refusals, all others are ACL's.
"""

from __future__ import annotations

import os
import sys
import weakref
from typing import TYPE_CHECKING, Final

from aioacl._base.extension import load_part

# A free-threaded Python cannot load modules of the stable ABI, and the C of `_await` relies on the GIL.
if "t" in sys.abiflags:
    raise ImportError(
        f"aioacl needs a Python with the GIL, got the free-threaded build {sys.executable}; without the GIL, threads "
        "could change the lists of aioacl's C code at the same time, so use the usual build of that Python"
    )

if not TYPE_CHECKING:  # before the other imports, because it raises ImportError in a sub-interpreter
    load_part("aioacl._interpreter")

from aioacl._acl import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._acl import CData
else:
    CData = ffi.CData
    load_part("aioacl._await")

from aioacl._await import (  # after the module is loaded
    DONE,
    NOT_STARTED,
    Arguments,
    Await,
    Awaitable,
    Awaits,
    Baton,
    Block,
    Cache,
    Core,
    Dataset,
    DlpackTensor,
    Exporter,
    HandleBase,
    InFlight,
    ItemBase,
    Keeper,
    LoopBase,
    OperationBase,
    Position,
    Recorded,
    Run,
    RunnerBase,
    SlotsBase,
    Spec,
    TurnBase,
    Uses,
    bind_driver,
    bind_enqueue,
    bind_items,
    bind_launch,
    bind_maker,
    bind_trio,
    borrow_event,
    check_arguments,
    dlpack_export,
    dlpack_fields,
    dlpack_take,
    enqueue_copy,
    enqueue_fill,
    enqueue_record,
    enqueue_wait_event,
    flight_batch,
    flight_items,
    flight_note,
    in_trio,
    interruptible,
    move_items,
    new_item,
    new_launch,
    open_cached,
    pinned_in_use,
    plain_awaits,
    site,
)
from aioacl._await import bind as bind_awaits

__all__ = [
    "DONE",
    "FAILED",
    "NOT_STARTED",
    "PENDING",
    "WAS_RESET",
    "Arguments",
    "Await",
    "Awaitable",
    "Awaits",
    "Baton",
    "Block",
    "CData",
    "Cache",
    "Core",
    "Dataset",
    "DlpackTensor",
    "Exporter",
    "HandleBase",
    "InFlight",
    "ItemBase",
    "Keeper",
    "LoopBase",
    "OperationBase",
    "Position",
    "Recorded",
    "Run",
    "RunnerBase",
    "SlotsBase",
    "Spec",
    "TurnBase",
    "Uses",
    "bind_awaits",
    "bind_driver",
    "bind_enqueue",
    "bind_items",
    "bind_launch",
    "bind_maker",
    "bind_trio",
    "borrow_event",
    "check_arguments",
    "code_of",
    "dlpack_export",
    "dlpack_fields",
    "dlpack_take",
    "enqueue_copy",
    "enqueue_fill",
    "enqueue_record",
    "enqueue_wait_event",
    "failure",
    "ffi",
    "flight_batch",
    "flight_items",
    "flight_note",
    "generation_of",
    "in_trio",
    "interruptible",
    "lib",
    "make_pass",
    "move_items",
    "name_of_function",
    "new_item",
    "new_launch",
    "next_generation",
    "open_cached",
    "owner",
    "pinned_in_use",
    "plain_awaits",
    "pointer",
    "refused",
    "site",
    "state_of",
    "text_of",
]

FAILED: Final = -(1 << 63)

# If a process forked while another thread opened the library, the child would hang in the dynamic linker. So a fork
# waits for this lock. The lock is recursive because a signal handler that runs during the fork may load the library.
os.register_at_fork(
    before=lib.aio_library_lock,
    after_in_parent=lib.aio_library_unlock,
    after_in_child=lib.aio_library_renew_lock,
)


def failure(code: int) -> int:
    """Returns the result that encodes this code."""
    return FAILED + (code & 0xFFFFFFFF)


def code_of(result: int) -> int:
    """Returns the code that a negative result encodes."""
    bits = result - FAILED
    return bits - (1 << 32) if bits >> 31 else bits


def refused(result: int, *codes: int) -> bool:
    """Returns whether a result is a failure with one of these codes."""
    return result < 0 and code_of(result) in codes


PENDING: Final = failure(lib.AIO_PENDING)
WAS_RESET: Final = failure(lib.AIO_WAS_RESET)


def make_pass(device: int, generation: int, *, held: bool = False) -> int:
    """Returns the pass with which a guarded call enters the gate. `held` is True if the caller has a lease."""
    return held << 28 | device << 20 | generation & 0xFFFFF


def generation_of(device: int) -> int:
    """Returns the generation in the gate's word."""
    return lib.aio_gate_word(device) >> 36 & 0xFFFFF


def next_generation(generation: int) -> int:
    """Returns the generation after this one, in the gate's 20 bits. It is never 0: 0 means "was never open"."""
    return (generation + 1) & 0xFFFFF or 1


def state_of(device: int) -> int:
    """Returns the state in the gate's word."""
    return lib.aio_gate_word(device) >> 56 & 7


def text_of(value: CData) -> str:
    """Returns a C string as text; bytes that are not UTF-8 are replaced. A null pointer gives ""."""
    return ffi.string(value).decode("utf-8", "replace") if value else ""


def pointer(value: CData) -> int:
    """Returns the address that a pointer holds."""
    return int(ffi.cast("uintptr_t", value))


def name_of_function(index: int) -> str:
    """Returns the name of the ACL function with this index in the table; a negative index means a user's job.

    The index may come from a damaged file.
    """
    if index >= lib.aio_table_size():
        return f"function {index}"
    return text_of(lib.aio_table_name(index)) if index >= 0 else "a job on device.executor"


class _Last(weakref.ref["CData"]):
    """A weak reference to the Python object of a pointer. It stores the address, which `free` needs afterwards."""

    __slots__ = ("address",)
    address: CData


def owner(free: Callable[[CData], object]) -> Callable[[CData], CData]:
    """Returns a function that makes a pointer own its target: `free` runs when the Python object is gone.

    `ffi.gc` would call `free` too early. The garbage collector finalizes all objects of a cycle, in no fixed order,
    before it checks whether a finalizer has made one of them reachable again. An object that is reachable again could
    then use a target that was already freed. The collector does not track a plain pointer, so a plain pointer lives
    until the last reference to it is gone.
    """
    alive: dict[int, _Last] = {}

    def gone(last: weakref.ref[CData]) -> None:
        found = alive.pop(id(last), None)
        if found is not None:  # otherwise Ctrl-C has interrupted `own`
            free(found.address)

    def own(pointer: CData) -> CData:
        last = _Last(pointer, gone)
        last.address = ffi.cast(ffi.typeof(pointer), pointer)
        alive[id(last)] = last
        return pointer

    return own
