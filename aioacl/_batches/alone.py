"""Whether an item runs alone: whether it is known that nothing else of the process has run on its device.

Only then is the item charged with a failure of the device, also if it may be tried again. The answer compares how far
the streams of the device are, before and after the execution. It is no if in doubt: if other code has perhaps set the
device, if the program uses the executor of the device, or if a stream was made, renewed or closed meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioacl._base.ffi import lib

if TYPE_CHECKING:
    from aioacl._handles.stream_core import StreamCore
    from aioacl._lifecycle.manager import Manager
    from aioacl._models.lifetime import Lifetime


class Alone:
    """The work of a device from now on: make it before the execution of one item."""

    def __init__(self, life: Lifetime) -> None:
        manager, load = life.manager, life.load
        self._manager = manager
        self._made = manager.streams.added
        self._ours = () if load is None else load.slots.cores
        # Also after a reset, these objects have the positions that their streams had.
        self._before = _positions(manager) if _is_idle(manager) else {}

    def is_known(self) -> bool:
        """Whether nothing has run but one call of the model."""
        if not _may_be_alone(self._manager) or self._manager.streams.added != self._made:
            return False
        changed = [core for core, before in self._before.items() if _position(core) != before]
        return len(changed) == 1 and changed[0] in self._ours


def _may_be_alone(manager: Manager) -> bool:
    return manager.counts.are_alone and not manager.jobs.used


def _is_idle(manager: Manager) -> bool:
    return _may_be_alone(manager) and not lib.aio_device_unfinished(manager.index)


def _positions(manager: Manager) -> dict[StreamCore, int]:
    return {core: _position(core) for core in manager.streams.members() if not core.stale}


def _position(core: StreamCore) -> int:
    """Returns the position of the newest entry of a stream."""
    return int(lib.aio_stream_tail(core.handle))
