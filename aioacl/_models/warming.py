"""The first calls of a new load, with zeros: `load_model(warm_up=True)`.

The runtime does work at a first execution that it does not repeat: for example, it allocates memory, or copies kernels
to the device. The load makes these executions before a call of the program can get a slot.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from aioacl._base.dtypes import itemsize_of
from aioacl._base.errors import DeviceFault
from aioacl._base.ffi import lib
from aioacl._handles.handle import error_on
from aioacl._models.arguments import clear_memory
from aioacl._models.executing import EXECUTE
from aioacl._models.instance import native_dataset

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioacl._handles.event import Ticket
    from aioacl._models.description import Gear, TensorInfo
    from aioacl._models.loading import Load
    from aioacl._models.slots import Slot


def warm_up(load: Load, slots: Iterable[Slot]) -> None:
    """Calls the model with zeros, once for each slot and gear, one call after another. A part of the job of the load.

    Raises:
        DeviceFault: a call failed. The code may select another subclass.
        DeviceReset: the device was reset.
    """
    try:
        for slot in slots:
            clear_memory(slot.pinned.address, slot.pinned.size)
            for gear in load.description.gears:
                _call(load, slot, gear).result()
    except DeviceFault as error:
        if error.action == "new_stream":
            error.hint = "The model was not loaded. Load it again, or with warm_up=False."
        raise


def _call(load: Load, slot: Slot, gear: Gear) -> Ticket:
    """Enqueues the uploads, the execution and the downloads. Returns the ticket of the last one."""
    description, stream, instance = load.description, slot.stream, slot.instance
    for (device, pinned), nbytes in zip(slot.inputs, _sizes(description.inputs, gear.inputs), strict=True):
        _ = stream.copy(device, pinned, nbytes=nbytes)
    call, code = instance.set_gear(load.shown, slot.input_data, description.kind, gear)
    if code:
        raise error_on(load.manager, load.generation, code, call)
    data = native_dataset(slot.input_data), native_dataset(slot.output_data)
    buffers = (slot.device,)
    ticket = stream._ticket(stream._live(), buffers, None, EXECUTE, lib.aio_execute, instance.model, *data)
    for (device, pinned), nbytes in zip(slot.outputs, _sizes(description.outputs, gear.outputs), strict=True):
        ticket = stream.copy(pinned, device, nbytes=nbytes)
    return ticket


def _sizes(tensors: Sequence[TensorInfo], shapes: Sequence[tuple[int, ...]]) -> list[int]:
    """Returns the bytes of each tensor in a gear."""
    return [
        min(prod(shape) * itemsize_of(info.dtype), info.nbytes)
        for info, shape in zip(tensors, shapes, strict=True)
    ]
