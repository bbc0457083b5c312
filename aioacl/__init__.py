"""Await an Ascend NPU from Python.

Enqueueing is a plain call that never waits; waiting is an await. Importing this loads no ACL library and starts no
thread: that happens at the first `open_device`.
"""

from aioacl import _trio as _trio  # now, for `_port` must import nothing on an event loop's thread
from aioacl._device import Device
from aioacl._errors import (
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
    ResourceExhausted,
    StaleHandleError,
    StreamAborted,
    TaskTimeout,
)
from aioacl._event import Event, Ticket
from aioacl._events import DeviceEvents
from aioacl._executor import DeviceExecutor
from aioacl._law import State
from aioacl._lease import Lease, SharedLease
from aioacl._library import LibraryInfo, library_info, use_library
from aioacl._memory import DeviceBuffer, PinnedBuffer
from aioacl._open import list_devices, open_device
from aioacl._operation import Opening, Operation
from aioacl._options import DeviceEvent, DeviceInfo, Health, MemoryInfo, ResetReport, Stuck
from aioacl._stream import Stream

__version__ = "0.1.0"

__all__ = [
    "AclError",
    "AclWarning",
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
    "ForkedProcessError",
    "Health",
    "Lease",
    "LeaseHeldError",
    "LibraryConflict",
    "LibraryInfo",
    "LibraryNotFound",
    "MemoryInfo",
    "NotSupported",
    "Opening",
    "Operation",
    "OutOfMemoryError",
    "ParameterError",
    "PinnedBuffer",
    "QueueFull",
    "ResetReport",
    "ResourceExhausted",
    "SharedLease",
    "StaleHandleError",
    "State",
    "Stream",
    "StreamAborted",
    "Stuck",
    "TaskTimeout",
    "Ticket",
    "library_info",
    "list_devices",
    "open_device",
    "use_library",
]
