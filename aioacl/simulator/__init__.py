"""The simulator: a C library with the ABI of libascendcl.so, and its controls.

Only `use_library("simulator")` or `AIOACL_LIBRARY=simulator` selects it. Controls act on the simulator that this
process has loaded. If no ACL library is loaded yet, a control loads one by the usual search.
A control raises ParameterError if the loaded library is not the simulator. `library_path` and `include_dir` work
without a loaded library.
"""

from __future__ import annotations

import aioacl as _aioacl  # noqa: F401  # pyright: ignore[reportUnusedImport] - waits for another thread's import
from aioacl._base.public import publish as _publish
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
    release_call,
    resets,
    retain_count,
    set_abort_supported,
    set_count_notify_supported,
    set_ipc_event_supported,
    stats,
    trap_next,
    violations,
    watch_uninitialised,
)
from aioacl.simulator._failures import (
    faulted,
    set_device_livelock,
    set_lost_wait,
    set_next_task,
    set_query_lag,
    set_reset_crash,
    set_sync_livelock,
    wake,
    wakes,
)
from aioacl.simulator._faults import (
    Fault,
    advance_clock,
    clock,
    fault,
    set_limits,
    set_seed,
    set_virtual_clock,
)
from aioacl.simulator._kernels import Kernel, Launch, register_kernel
from aioacl.simulator._model_functions import Execution, ModelFunction, ModelTensor, register_model
from aioacl.simulator._models import LoadedModel, LoadedTensor, models, set_model_cost, set_onnxruntime
from aioacl.simulator._releases import include_dir, library_path

__all__ = [
    "Execution",
    "Fault",
    "Kernel",
    "Launch",
    "LoadedModel",
    "LoadedTensor",
    "ModelFunction",
    "ModelTensor",
    "Stats",
    "advance_clock",
    "calls",
    "check_memory",
    "clear",
    "clock",
    "fail_call",
    "fail_next",
    "fault",
    "faulted",
    "forget",
    "hang_call",
    "held",
    "hold",
    "hung",
    "include_dir",
    "journal",
    "library_path",
    "models",
    "pending",
    "register_kernel",
    "register_model",
    "release",
    "release_all",
    "release_call",
    "resets",
    "retain_count",
    "set_abort_supported",
    "set_count_notify_supported",
    "set_device_livelock",
    "set_ipc_event_supported",
    "set_limits",
    "set_lost_wait",
    "set_model_cost",
    "set_next_task",
    "set_onnxruntime",
    "set_query_lag",
    "set_reset_crash",
    "set_seed",
    "set_sync_livelock",
    "set_virtual_clock",
    "stats",
    "trap_next",
    "violations",
    "wake",
    "wakes",
    "watch_uninitialised",
]

_publish(__name__, __all__)
