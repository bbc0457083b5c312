"""One id of the runtime for a model, and the executions on it; `loading` explains instances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioacl._base import sync
from aioacl._base.errors import ParameterError
from aioacl._base.ffi import ffi, lib

if TYPE_CHECKING:
    from aioacl._base.ffi import CData, Dataset
    from aioacl._handles.event import Ticket
    from aioacl._lifecycle.executor import DeviceExecutor
    from aioacl._models.description import Gear, GearKind


def is_closed(device: int) -> ParameterError:
    """Returns the error of a call of a closed model."""
    return ParameterError("the model is closed", device=device, hint="Load it again with load_model().")


def native_dataset(data: Dataset) -> CData:
    """The aclmdlDataset of a Dataset, which the caller keeps."""
    return ffi.cast("aclmdlDataset *", data.address)


class Instance:
    """One id of the runtime, and the executions on it.

    Attributes:
        model: the id.
        executor: runs the jobs of the instance in order.
        last: the end of the newest execution.
        ended: whether the instance is being unloaded, so that nothing may be enqueued.
    """

    def __init__(self, model: int, executor: DeviceExecutor) -> None:
        self.model = model
        self.executor = executor
        self.last: Ticket | None = None
        self.lock = sync.lock()  # held while an execution is enqueued
        self.ended = False

    def end(self) -> None:
        """Refuses later calls of `enqueue`, and waits for those that are inside."""
        with self.lock:
            self.ended = True

    def set_gear(self, shown: int, slot_data: Dataset, kind: GearKind | None, gear: Gear) -> tuple[str, int]:
        """Selects the gear of the next execution. Returns the ACL function that was called, and its code.

        Without gears, it calls nothing.
        """
        if kind is None:
            return "", 0
        value: Any = gear.value
        selector = len(gear.inputs)  # the input that selects the gear comes after the others
        where = shown, self.model, native_dataset(slot_data), selector
        if kind == "batch":
            call = "aclmdlSetDynamicBatchSize"
            return call, lib.aio_g_aclmdlSetDynamicBatchSize(*where, value)
        if kind == "image":
            call = "aclmdlSetDynamicHWSize"
            return call, lib.aio_g_aclmdlSetDynamicHWSize(*where, *value)
        dims: Any = ffi.new("aclmdlIODims *")
        dims.dimCount = len(value)
        dims.dims[0 : len(value)] = list(value)
        return "aclmdlSetInputDynamicDims", lib.aio_g_aclmdlSetInputDynamicDims(*where, dims)
