"""The simulator: a C library with the ABI of libascendcl.so, and its controls.

`use_library("simulator")` chooses it; it is never chosen silently. The controls work once it is loaded.
"""

from __future__ import annotations

from aioacl.simulator._control import (
    Stats,
    calls,
    check_memory,
    clear,
    fail_call,
    fail_next,
    forget,
    hang_call,
    held,
    hold,
    hung,
    journal,
    pending,
    release,
    release_all,
    resets,
    retain_count,
    set_abort_supported,
    set_count_notify_supported,
    stats,
    trap_next,
    unhang,
    violations,
    watch_uninitialised,
)
from aioacl.simulator._faults import (
    Fault,
    advance_clock,
    clock,
    fault,
    release_key,
    set_limits,
    set_seed,
    set_virtual_clock,
)
from aioacl.simulator._kernels import Kernel, Launch, register_kernel
from aioacl.simulator._releases import library_path

__all__ = [
    "Fault",
    "Kernel",
    "Launch",
    "Stats",
    "advance_clock",
    "calls",
    "check_memory",
    "clear",
    "clock",
    "fail_call",
    "fail_next",
    "fault",
    "forget",
    "hang_call",
    "held",
    "hold",
    "hung",
    "journal",
    "library_path",
    "pending",
    "register_kernel",
    "release",
    "release_all",
    "release_key",
    "resets",
    "retain_count",
    "set_abort_supported",
    "set_count_notify_supported",
    "set_limits",
    "set_seed",
    "set_virtual_clock",
    "stats",
    "trap_next",
    "unhang",
    "violations",
    "watch_uninitialised",
]
