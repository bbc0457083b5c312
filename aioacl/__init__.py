"""Await an Ascend NPU from Python.

Enqueueing is a plain call that never waits; waiting is an await. Importing `aioacl` loads no ACL library and starts
no thread. The library is loaded and threads are started when the first `open_device()` is awaited or entered.
`list_devices()`, `library_info()` and `use_library()` load the library too.

Importing `aioacl` imports the exceptions and the records. The first use of another name, for instance of `open_device`,
imports the code for devices.
"""

from typing import TYPE_CHECKING

from aioacl._base import command as _command  # noqa: F401  # pyright: ignore[reportUnusedImport]  # its import matters
from aioacl._base import ffi as _ffi  # noqa: F401  # pyright: ignore[reportUnusedImport]  # raises if aioacl cannot work
from aioacl._base.errors import (
    AclError,
    AclWarning,
    ContextError,
    DeviceFault,
    DeviceQuarantined,
    DeviceReset,
    DeviceResetting,
    DeviceTimeout,
    ForkedProcessError,
    LeaseHeldError,
    LibraryConflict,
    LibraryNotFound,
    NotSupported,
    OutOfMemoryError,
    ParameterError,
    QueueFull,
    ResetError,
    ResourceExhausted,
    StaleHandleError,
    StreamAborted,
    TaskTimeout,
)
from aioacl._base.flight import FlightRecord
from aioacl._base.late import load as _load
from aioacl._base.public import publish as _publish
from aioacl._base.records import DeviceEvent, DeviceInfo, MemoryInfo, ResetReport, Stuck
from aioacl._base.states import State

if TYPE_CHECKING:
    from aioacl._base.health import Health
    from aioacl._batches.batcher import Batcher, BatcherStats
    from aioacl._batches.items import BatchItem
    from aioacl._batches.opening import open_batcher
    from aioacl._batches.results import BatchResults
    from aioacl._device import Device
    from aioacl._handles.event import Event, Ticket
    from aioacl._handles.launch import Launch
    from aioacl._handles.memory import DeviceBuffer
    from aioacl._handles.operation import Opening, Operation
    from aioacl._handles.pinned import PinnedBuffer
    from aioacl._handles.stream import Stream
    from aioacl._library.load import LibraryInfo, MissingSymbol, library_info, use_library
    from aioacl._lifecycle.executor import DeviceExecutor
    from aioacl._lifecycle.lease import Lease, SharedLease
    from aioacl._lifecycle.notifications import DeviceEvents
    from aioacl._lifecycle.supervisor import Supervisor
    from aioacl._metrics.read import metrics
    from aioacl._metrics.records import Metric, MetricSample
    from aioacl._metrics.text import prometheus_text
    from aioacl._models.description import ModelMemory, TensorInfo
    from aioacl._models.model import Model
    from aioacl._models.results import ModelResults
    from aioacl._opening import list_devices, open_device
    from aioacl._pool.opening import open_pool
    from aioacl._pool.pool import Pool
    from aioacl._trace.recording import Trace, trace

__version__ = "0.1.0"

__all__ = [
    "AclError",
    "AclWarning",
    "BatchItem",
    "BatchResults",
    "Batcher",
    "BatcherStats",
    "ContextError",
    "Device",
    "DeviceBuffer",
    "DeviceEvent",
    "DeviceEvents",
    "DeviceExecutor",
    "DeviceFault",
    "DeviceInfo",
    "DeviceQuarantined",
    "DeviceReset",
    "DeviceResetting",
    "DeviceTimeout",
    "Event",
    "FlightRecord",
    "ForkedProcessError",
    "Health",
    "Launch",
    "Lease",
    "LeaseHeldError",
    "LibraryConflict",
    "LibraryInfo",
    "LibraryNotFound",
    "MemoryInfo",
    "Metric",
    "MetricSample",
    "MissingSymbol",
    "Model",
    "ModelMemory",
    "ModelResults",
    "NotSupported",
    "Opening",
    "Operation",
    "OutOfMemoryError",
    "ParameterError",
    "PinnedBuffer",
    "Pool",
    "QueueFull",
    "ResetError",
    "ResetReport",
    "ResourceExhausted",
    "SharedLease",
    "StaleHandleError",
    "State",
    "Stream",
    "StreamAborted",
    "Stuck",
    "Supervisor",
    "TaskTimeout",
    "TensorInfo",
    "Ticket",
    "Trace",
    "library_info",
    "list_devices",
    "metrics",
    "open_batcher",
    "open_device",
    "open_pool",
    "prometheus_text",
    "trace",
    "use_library",
]

# The module of each name that is imported when the name is first used. The module publishes the name itself.
_LATE = {
    "BatchItem": "aioacl._batches.items",
    "BatchResults": "aioacl._batches.results",
    "Batcher": "aioacl._batches.batcher",
    "BatcherStats": "aioacl._batches.batcher",
    "Device": "aioacl._device",
    "DeviceBuffer": "aioacl._handles.memory",
    "DeviceEvents": "aioacl._lifecycle.notifications",
    "DeviceExecutor": "aioacl._lifecycle.executor",
    "Event": "aioacl._handles.event",
    "Health": "aioacl._base.health",
    "Launch": "aioacl._handles.launch",
    "Lease": "aioacl._lifecycle.lease",
    "LibraryInfo": "aioacl._library.load",
    "Metric": "aioacl._metrics.records",
    "MetricSample": "aioacl._metrics.records",
    "MissingSymbol": "aioacl._library.load",
    "Model": "aioacl._models.model",
    "ModelMemory": "aioacl._models.description",
    "ModelResults": "aioacl._models.results",
    "Opening": "aioacl._handles.operation",
    "Operation": "aioacl._handles.operation",
    "PinnedBuffer": "aioacl._handles.pinned",
    "Pool": "aioacl._pool.pool",
    "SharedLease": "aioacl._lifecycle.lease",
    "Stream": "aioacl._handles.stream",
    "Supervisor": "aioacl._lifecycle.supervisor",
    "TensorInfo": "aioacl._models.description",
    "Ticket": "aioacl._handles.event",
    "Trace": "aioacl._trace.recording",
    "library_info": "aioacl._library.load",
    "list_devices": "aioacl._opening",
    "metrics": "aioacl._metrics.read",
    "open_batcher": "aioacl._batches.opening",
    "open_device": "aioacl._opening",
    "open_pool": "aioacl._pool.opening",
    "prometheus_text": "aioacl._metrics.text",
    "trace": "aioacl._trace.recording",
    "use_library": "aioacl._library.load",
}

_publish(__name__, [name for name in __all__ if name not in _LATE])

if not TYPE_CHECKING:  # a type checker would accept every name

    def __getattr__(name: str) -> object:
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        value = globals()[name] = getattr(_load(_LATE[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
