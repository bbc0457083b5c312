"""The models that are loaded on a device, and what happens to them at a reset and at the last close.

After a reset, the runtime keeps the ids of the models that were loaded, with handles that no longer exist. So a model
whose work is done is unloaded before a reset (aclmdlUnload). A model whose work is not done, or any model after a fault
of the device, is *abandoned*: its id is never used again, and the runtime keeps a part of the host's memory until the
process ends. `device.health` counts these models.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

from aioacl._base import sync, totals
from aioacl._base.ffi import lib, make_pass
from aioacl._lifecycle.gate import error_of

if TYPE_CHECKING:
    from aioacl._models.description import ModelMemory
    from aioacl._models.slots import Slots


class Loaded(Protocol):
    """One load of a model, which has an id for each of its instances.

    Attributes:
        name: the name for messages.
        label: the name for metrics and logs.
        memory: the device memory that the model needs.
        instances: the ids of its instances.
        nbytes: the bytes of device memory that the load uses.
        block_bytes: the bytes of the blocks from which this memory is.
    """

    name: str
    label: str
    memory: ModelMemory
    instances: list[int]
    nbytes: int
    block_bytes: int

    def is_idle(self) -> bool:
        """Whether all work of the model is known to be done. Calls no ACL function."""
        ...


class LoadedModels:
    """The ids of the loaded models of one device.

    The code that takes an id out of `_loaded` unloads or abandons the model.

    Attributes:
        abandoned: how many models were abandoned since the first open.
        queues: the slots of each load.
    """

    def __init__(self, index: int) -> None:
        self._index = index
        self._loaded: dict[int, Loaded] = {}
        self._idle: list[int] = []
        self.abandoned = 0
        self.queues: sync.WeakSet[Slots] = sync.WeakSet()

    @property
    def ids(self) -> list[int]:
        """The ids of the models that are loaded now."""
        return [*self._loaded]

    @property
    def loads(self) -> list[Loaded]:
        """The loads to which these ids belong."""
        return [*dict.fromkeys([*self._loaded.values()])]

    @property
    def are_ending(self) -> bool:
        """Whether calls still use slots of a model that was closed."""
        return any(queue.ends and not queue.back for queue in self.queues.members())

    def add(self, model: int, load: Loaded) -> None:
        """Adds a loaded model."""
        self._loaded[model] = load

    def unload(self, model: int, generation: int) -> None:
        """Unloads a model of that generation, unless a reset has done so (aclmdlUnload). Its work must be done."""
        load = self._loaded.pop(model, None)
        if load is None:
            return
        code = lib.aio_g_aclmdlUnload(make_pass(self._index, generation), model)
        if code:
            self._count(load)
            raise error_of(code, "aclmdlUnload", self._index, generation)

    def abandon(self, model: int) -> None:
        """Gives up a model that cannot be unloaded."""
        load = self._loaded.pop(model, None)
        if load is not None:
            self._count(load)

    def _count(self, load: Loaded) -> None:
        """Counts a model that was abandoned."""
        self.abandoned += 1
        totals.count("model_abandoned_total", self._index, load.label)

    def tend(self) -> None:
        """Lets each load free what its calls have left, and renew failed streams. For the maintenance thread."""
        with ExitStack() as steps:  # each load is tended even if another one raises
            for queue in self.queues.members():
                steps.callback(queue.tend)

    def choose(self) -> None:
        """Notes which models are idle, before a procedure aborts the work that still runs."""
        self._idle = [model for model, load in tuple(self._loaded.items()) if load.is_idle()]

    def end_all(self, *, healthy: bool) -> int:
        """Unloads the models that `choose` has noted, if the device is healthy, and abandons the others.

        For a procedure, when no call is inside the gate. Returns the first code of a call that failed, or 0.
        """
        for queue in self.queues.members():
            queue.end()
        first = 0
        idle, self._idle = self._idle, []
        for model in idle if healthy else ():
            load = self._loaded.get(model)
            # A call that was in C at `choose` may have enqueued an execution after the abort.
            if load is not None and load.is_idle() and self._loaded.pop(model, None) is not None:
                code = lib.aio_u_aclmdlUnload(model)
                if code:
                    self._count(load)
                first = first or code
        for model in tuple(self._loaded):
            self.abandon(model)
        return first
