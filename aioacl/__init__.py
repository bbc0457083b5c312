"""Await an Ascend NPU from Python.

Enqueueing is a plain call that never waits; waiting is an await. Importing `aioacl` loads no ACL library and starts
no thread. The library is loaded and threads are started when the first `open_device()` is awaited or entered.
`list_devices()`, `library_info()` and `use_library()` load the library too.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

from aioacl._base import command as _command  # noqa: F401  # pyright: ignore[reportUnusedImport]  # its import matters
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
    ResourceExhausted,
    StaleHandleError,
    StreamAborted,
    TaskTimeout,
)
from aioacl._base.public import publish as _publish
from aioacl._base.records import DeviceEvent, DeviceInfo, Health, MemoryInfo, ResetReport, Stuck
from aioacl._base.states import State
from aioacl._device import Device, list_devices, open_device
from aioacl._handles.event import Event, Ticket
from aioacl._handles.memory import DeviceBuffer
from aioacl._handles.operation import Opening, Operation
from aioacl._handles.pinned import PinnedBuffer
from aioacl._handles.stream import Stream
from aioacl._lifecycle.executor import DeviceExecutor
from aioacl._lifecycle.lease import Lease, SharedLease
from aioacl._lifecycle.notifications import DeviceEvents

if TYPE_CHECKING:
    from aioacl._library.load import LibraryInfo, MissingSymbol, library_info, use_library
    from aioacl._models.description import ModelMemory, TensorInfo
    from aioacl._models.model import Model
    from aioacl._models.results import ModelResults

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
    "TensorInfo",
    "Ticket",
    "library_info",
    "list_devices",
    "open_device",
    "use_library",
]

_LATE = {  # the module of each name that is imported when it is first used
    "LibraryInfo": "aioacl._library.load",
    "MissingSymbol": "aioacl._library.load",
    "Model": "aioacl._models.model",
    "ModelMemory": "aioacl._models.description",
    "ModelResults": "aioacl._models.results",
    "TensorInfo": "aioacl._models.description",
    "library_info": "aioacl._library.load",
    "use_library": "aioacl._library.load",
}

_publish(__name__, [name for name in __all__ if name not in _LATE])


def __getattr__(name: str) -> object:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    value = globals()[name] = getattr(_import_module(_LATE[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
