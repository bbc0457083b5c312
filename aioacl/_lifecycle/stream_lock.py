"""What Python does if a call waits too long for the runtime's lock on the streams of a device; see streamlock.c."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioacl._base.ffi import lib
from aioacl._wait.workers import STUCK_HINT

if TYPE_CHECKING:
    from aioacl._wait.workers import WorkerThread

HELD_UP_HINT: Final = (
    "Another thread of the process probably waits for the whole device without a time limit (aclrtSynchronizeDevice, "
    "which `torch.npu.synchronize()` calls). Meanwhile the runtime creates and destroys no stream of the device. Let "
    "the other library wait for its streams one by one instead. A reset would have to wait too."
)


def hint_of(index: int) -> str:
    """Returns what to do if a call on the device's maintenance thread is not done in time."""
    return HELD_UP_HINT if lib.aio_device_held_up(index) else STUCK_HINT


def relieve(index: int, maintenance: WorkerThread) -> None:
    """Relieves the maintenance thread if its call has waited too long for the lock.

    Runs on the control thread, which the watcher wakes in that case.
    """
    if lib.aio_device_held_up(index):
        maintenance.relieve()
