"""Calls of a loaded model: what a job enqueues for a call, and `enqueue`. `loading` explains the order of the jobs."""

from __future__ import annotations

from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any, Final

from aioacl._base.dtypes import itemsize_of
from aioacl._base.errors import DeviceResetting, QueueFull, StaleHandleError, StreamAborted
from aioacl._base.ffi import ffi, lib
from aioacl._handles.handle import error_on
from aioacl._lifecycle.failures import LAST
from aioacl._models.arguments import clear_memory, copy_memory
from aioacl._models.instance import is_closed, native_dataset
from aioacl._wait.current import run_blocking

if TYPE_CHECKING:
    from aioacl._base.ffi import Dataset
    from aioacl._handles.event import Ticket
    from aioacl._handles.memory import DeviceBuffer
    from aioacl._handles.stream import Stream
    from aioacl._models.arguments import Call
    from aioacl._models.instance import Instance
    from aioacl._models.loading import Load
    from aioacl._models.slots import Slot

EXECUTE: Final = "aclmdlExecuteAsync"


def begin(load: Load, slot: Slot, call: Call) -> Ticket | None:
    """Enqueues a call. A job of the slot's instance.

    Returns:
        The ticket of the last download; None if the device was reset before the call began.

    Raises:
        DeviceReset: the device was reset after the call had begun.
    """
    with suppress(StaleHandleError, DeviceResetting):  # returns None
        if load.stale:
            return None
        if lib.aio_stream_error(slot.stream._live().handle, LAST, ffi.NULL):
            slot.stream.renew().result()
        return _begin(load, slot, call)
    return None


def _begin(load: Load, slot: Slot, call: Call) -> Ticket:
    try:
        _upload(slot, call)
        execution = _execute(load, slot, call)
        return _download(load, slot, call) or execution
    except (StaleHandleError, DeviceResetting, StreamAborted) as error:
        # Only a reset aborts the stream of a slot.
        raise load.manager.admission.was_ended(load.generation, EXECUTE) from error


def _upload(slot: Slot, call: Call) -> None:
    """Copies the arguments to pinned memory, pads them with zeros, and enqueues their upload."""
    for (device, pinned), argument, shape in zip(slot.inputs, call.arguments, call.gear.inputs, strict=True):
        nbytes = argument.nbytes * prod(shape) // max(1, prod(argument.shape))
        copy_memory(pinned.address, argument.address, argument.nbytes)
        clear_memory(pinned.address + argument.nbytes, nbytes - argument.nbytes)
        _ = slot.stream.copy(device, pinned, nbytes=nbytes)


def _execute(load: Load, slot: Slot, call: Call) -> Ticket:
    instance = slot.instance
    while True:
        _wait_for(instance.last)
        with instance.lock:
            if instance.last is not None and not instance.last.done:
                continue  # `enqueue` came first
            _select(load, slot, call)
            instance.last = _enqueue(
                slot.stream, instance, (slot.device,), slot.input_data, slot.output_data, None
            )
            return instance.last


def _select(load: Load, slot: Slot, call: Call) -> None:
    name, code = slot.instance.set_gear(load.shown, slot.input_data, load.description.kind, call.gear)
    if code:
        raise error_on(load.manager, load.generation, code, name)


def _enqueue(
    stream: Stream,
    instance: Instance,
    buffers: tuple[Any, ...],
    inputs: Dataset,
    outputs: Dataset,
    held: object,
) -> Ticket:
    data = native_dataset(inputs), native_dataset(outputs)
    return stream._ticket(stream._live(), buffers, held, EXECUTE, lib.aio_execute, instance.model, *data)


def _download(load: Load, slot: Slot, call: Call) -> Ticket | None:
    """Enqueues the downloads. Returns the ticket of the last one, or None if the model has no outputs."""
    ticket: Ticket | None = None
    for (device, pinned), shape, info in zip(
        slot.outputs, call.output_shapes(load.description), load.description.outputs, strict=True
    ):
        nbytes = min(prod(shape) * itemsize_of(info.dtype), info.nbytes)
        ticket = slot.stream.copy(pinned, device, nbytes=nbytes)
    return ticket


def enqueue(load: Load, buffers: tuple[DeviceBuffer, ...], inputs: Dataset, outputs: Dataset) -> Ticket:
    """Enqueues an execution on `stream`, with memory of the caller.

    Raises:
        QueueFull: a call of the model is running on the same instance.
        ParameterError: the model is being closed.
    """
    instance = load.instances[-1]
    with instance.lock:
        if instance.ended:
            raise is_closed(load.manager.index)
        last = instance.last
        if last is not None and not last.done and last._core is not load.stream._core:
            raise QueueFull(
                "a call of the model is running, and one instance runs on one stream at a time",
                call=EXECUTE,
                device=load.manager.index,
                hint="Await the calls first, or load the model with instances=2 for calls and enqueue together.",
            )
        ticket = _enqueue(load.stream, instance, buffers, inputs, outputs, (inputs, outputs))
        instance.last = ticket
    return ticket


def _wait_for(ticket: Ticket | None) -> None:
    """Waits for the end of an execution. If it has failed, that failure belongs to its own call.

    Raises:
        DeviceResetting, DeviceReset: a reset began, so the end of the execution is not known. A job that waited again
            would be refused again at once, and the reset would wait for the job.
    """
    if ticket is None or ticket.done:
        return
    core, position = ticket._core, ticket.position
    result = run_blocking(lambda: core.wait(position), None)
    if result < 0 and not ticket.done:
        raise core.failure(result, position, EXECUTE)
