"""Model: an offline model that a device executes, made by `device.load_model()`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioacl._base import logs, origin
from aioacl._base.errors import AclWarning, ParameterError
from aioacl._base.ffi import Dataset, check_arguments, lib
from aioacl._base.options import deadline_of, repr_of, whole_of
from aioacl._base.public import publish
from aioacl._handles.handle import Made
from aioacl._handles.memory import DeviceBuffer
from aioacl._handles.operation import Operation
from aioacl._library.runtime import of_parent
from aioacl._models.arguments import check_call, check_out, in_order
from aioacl._models.calls import Call, ModelRun, enqueue
from aioacl._models.lifetime import Lifetime, LoadOptions
from aioacl._models.results import ModelResults, must_be_mappable
from aioacl._models.source import Source
from aioacl._wait.current import current_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterable, Sequence

    from aioacl._base.ffi import Arguments
    from aioacl._base.options import Seconds
    from aioacl._base.origin import Origin, Site
    from aioacl._device import Device
    from aioacl._handles.event import Ticket
    from aioacl._handles.stream import Stream
    from aioacl._lifecycle.manager import Manager
    from aioacl._models.description import Description, ModelMemory, TensorInfo
    from aioacl._models.loading import Load
    from aioacl._models.results import OnError

SLOTS_AT_MOST: Final = 64
BUFFERS_HINT: Final = (
    "Allocate them with device.allocate(), and upload to them; or call the model with arrays."
)


class Model(Made):
    """An offline model on a device, made by `device.load_model(path)`.

    `await model(x)` runs it. Any number of tasks and threads may call one model: each call takes a free slot, and waits
    for one if there is none. After a reset, the next call loads the model again.
    """

    __slots__ = ("_born", "_handed_out", "_life", "_site")
    _factory = "device.load_model(path)"
    _noun = "model"

    def __init__(self, life: Lifetime) -> None:
        self._born: Origin | None = None
        self._site: Site | None = None
        self._handed_out = False
        self._life = life

    # --- properties -------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The path of the model, or "a model of N bytes"."""
        return self._life.source.name

    @property
    def label(self) -> str:
        """The label that `load_model` was given; else the file's name without its folder, or "a model of N bytes"."""
        given = self._life.options.label
        return self._life.source.label if given is None else given

    @property
    def busy(self) -> int:
        """The number of slots in use. A call that was cancelled uses its slot until the device is done with its work.

        At most the number of slots of all instances. Calls no ACL function.
        """
        load = self._life.load
        return 0 if load is None else load.slots.busy

    @property
    def waiting(self) -> int:
        """The number of calls that wait for a slot. Calls that wait for a load or a reset do not count.

        Calls no ACL function.
        """
        load = self._life.load
        return 0 if load is None else load.slots.waiting

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The inputs that a call passes, a tuple of TensorInfo."""
        return self._described.inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The outputs that a call returns, a tuple of TensorInfo."""
        return self._described.outputs

    @property
    def gears(self) -> tuple[int | tuple[int, ...], ...]:
        """The batch sizes, the (height, width) pairs, or all dimensions of all inputs; empty for fixed shapes."""
        return tuple(gear.value for gear in self._described.gears if gear.value is not None)

    @property
    def memory(self) -> ModelMemory:
        """The device memory that the model needs, a ModelMemory (aclmdlQuerySize)."""
        return self._loaded().memory

    @property
    def stream(self) -> Stream:
        """The Stream on which `enqueue` runs the model. After a reset, the model has a new one.

        Raises:
            StaleHandleError: the device was reset, and no call has loaded the model again.
            ParameterError: the model is closed.
        """
        load = self._loaded()
        if load.stale:
            raise self._life.was_reset()
        return load.stream

    @property
    def _described(self) -> Description:
        description = self._life.description
        assert description is not None, "a model is described when it is loaded"
        return description

    def _loaded(self) -> Load:
        load = self._life.load  # before the check, because a close drops it
        self._life.check()
        assert load is not None, "the model was loaded"
        return load

    # --- calls ------------------------------------------------------------------------------------------------------

    def __call__(
        self, x: Any, /, *, out: Any = None, wait: bool = True, timeout: Seconds | None = None
    ) -> Operation[Any]:
        """Runs the model: uploads the arguments, executes (aclmdlExecuteAsync) and downloads the results.

        The arguments are read on another thread. Do not change them until the call has returned or raised; after a
        cancellation or a timeout, the call may still read them, so give them up then.

        Args:
            x: an array; for a model with several inputs, a list or tuple of arrays in the order of `inputs`, or a dict
                of arrays by name. An array is any object with a C-contiguous buffer of the type and shape of the input,
                or such a tensor in host memory, which is taken through DLPack without a copy. In a buffer, bfloat16 is
                passed as uint16. A batch smaller than a gear is padded with zeros.
            out: where to write the results, in the same forms as `x`; None makes new arrays of NumPy. The results are
                written only if the call returns.
            wait: if False, raises QueueFull instead of waiting for a slot, and DeviceResetting instead of waiting for a
                reset to end.
            timeout: the longest wait in seconds; None waits without a limit.

        Returns:
            An Operation. Its result is an array of NumPy, or `out`; for a model with several outputs, a dict of arrays
            by name. The rows of padding are left out.

        Raises:
            ParameterError: an argument has a wrong type, shape or number, or the model is closed. Raised by the call
                itself, before it is awaited.
            DeviceFault: the execution failed. Other calls are not concerned. The code may select another subclass.
            DeviceReset: a reset or the close of the device ended the work of the call. aioacl does not repeat it.
            QueueFull: all slots are in use, and `wait` is False.
            StaleHandleError: the device was reset, and the model was loaded with reload=False; or the device was closed
                and opened again.
            DeviceResetting: the device is draining or being reset, and `wait` is False.
            DeviceTimeout: the call did not return within `timeout` seconds.
        """
        arguments = self._checked(x)
        targets = None if out is None else check_out(self._described, arguments, out)
        return Call(self, arguments, targets, out, wait=wait, timeout=timeout)

    def _checked(self, x: Any) -> Arguments:
        life = self._life
        arguments = None if life.closed else check_arguments(life.spec, x)
        if arguments is None:
            life.check()
            arguments = check_call(self._described, life.spec, x)
        return arguments

    def _new_run(self, x: Any) -> tuple[Load, ModelRun] | None:
        """Returns the load and a new run of a call; None if the call must first wait for the device or for a load."""
        arguments = self._checked(x)
        load, admission = self._life.load, self._life.manager.admission
        if load is None or not load.slots.open or admission.leases.some_lost:
            return None
        return load, ModelRun(load.slots, arguments, None, None, True, admission.holds_now())

    def map(
        self,
        xs: Iterable[Any] | AsyncIterable[Any],
        *,
        limit: int | None = None,
        ordered: bool = True,
        errors: OnError = "raise",
    ) -> ModelResults:
        """Runs the model for each item, with uploads, executions and downloads of different items at the same time.

        Use it as `async with model.map(xs) as results:`, and iterate with `async for y in results:`. Leaving the block
        cancels the items that are not done, and waits for them.

        Args:
            xs: the arguments of the calls, an iterable or an async iterable. It is read only as fast as results are
                taken.
            limit: the most items that were read from `xs` and whose results were not taken; None is twice the number of
                slots.
            ordered: whether the results come in the order of `xs`, or as they are ready.
            errors: "raise" raises the error of an item in its place, and ends the iteration. "return" yields the
                exception in place of the result; its attribute `item` is the item of `xs`.

        Returns:
            A ModelResults.

        Raises:
            ParameterError: `xs` cannot be iterated over, `limit` is not an int of at least 1, or another argument has a
                wrong value.
        """
        self._life.check()
        most = 2 * self._life.slots if limit is None else whole_of(limit)
        if most is None or most < 1:
            raise ParameterError(
                f"limit must be an int, at least 1, or None, got {repr_of(limit)}", hint="Omit limit."
            )
        must_be_mappable(xs, errors)
        return ModelResults(self, xs, most, ordered=bool(ordered), errors=errors)

    def enqueue(self, inputs: Any, outputs: Any) -> Ticket:
        """Enqueues one execution on `stream`, with memory of the caller (aclmdlExecuteAsync).

        The call does not wait for the execution. But the runtime may block in it, for example while its queue is full.
        Join the work of other streams with `model.stream.wait_event(event)`. While a call of the model runs on the same
        instance, `enqueue` is refused: load the model with instances=2 to use both. The memory is kept until the
        execution is done.

        Args:
            inputs: a DeviceBuffer; for several inputs, a list or tuple in the order of `inputs`, or a dict by name.
                Each has at least the size of its input.
            outputs: likewise, for the outputs.

        Returns:
            A Ticket.

        Raises:
            ParameterError: the model has gears; a buffer is too small, of another device or closed; or the number of
                buffers is wrong.
            QueueFull: a call of the model is running, or the queue of the stream is full.
            StaleHandleError: the device was reset after the load, or a buffer is from before the reset.
            DeviceResetting: the device is draining or being reset.
            DeviceFault: the stream has failed: `await model.stream.renew()`.
        """
        load = self._loaded()
        if load.stale:
            raise self._life.was_reset()
        if self._described.kind is not None:
            raise ParameterError(
                "expected a model with fixed shapes, got one with gears",
                device=self._life.manager.index,
                hint="Call the model instead: `await model(x)` selects the gear.",
            )
        taken = self._buffers(self._described.inputs, inputs, "input")
        given = self._buffers(self._described.outputs, outputs, "output")
        into, of = (Dataset(tuple((each.address, each.size) for each in side)) for side in (given, taken))
        return enqueue(load, (*taken, *given), of, into)

    def _buffers(self, tensors: Sequence[TensorInfo], given: Any, noun: str) -> Sequence[DeviceBuffer]:
        buffers, manager = in_order(tensors, given, noun, BUFFERS_HINT), self._life.manager
        shown = ", ".join(f"{info.name!r} of {info.nbytes} bytes" for info in tensors)
        if not all(isinstance(each, DeviceBuffer) for each in buffers):
            raise ParameterError(
                f"expected a DeviceBuffer for each {noun} ({shown}), got {_kinds(buffers)}",
                device=manager.index,
                hint=BUFFERS_HINT,
            )
        for info, buffer in zip(tensors, buffers, strict=True):
            buffer._check()
            if buffer._manager is not manager or buffer.size < info.nbytes:
                raise ParameterError(
                    f"{noun} {info.name!r}: expected at least {info.nbytes} bytes on device {manager.index}, "
                    f"got {buffer.size} bytes on device {buffer._manager.index}",
                    hint="Allocate the buffer on the device of the model, with the size in `model.inputs`.",
                )
        return buffers

    # --- loading and closing ----------------------------------------------------------------------------------------

    def reload(self, *, wait: bool = True, timeout: Seconds | None = None) -> Operation[None]:
        """Loads the model again after a reset, before a call needs it (aclmdlLoadFromFileWithMem).

        Call it for example when the event "reopened" comes from `device.events()`. It waits until the device is open.
        If the model is loaded already, it returns at once. A load that is running, for example for a call, is shared.
        It also loads a model that was loaded with reload=False.

        Args:
            wait: if False, raises DeviceResetting instead of waiting for a reset to end.
            timeout: the longest wait in seconds; None waits without a limit. A load that has begun continues.

        Returns:
            An Operation; await it, or call its `result()`.

        Raises:
            ParameterError: the model is closed, or its file has changed.
            OutOfMemoryError: the device does not have enough free memory.
            DeviceFault: a call of warm_up=True failed. The code may select another subclass.
            DeviceReset: the device was reset during the load.
            StaleHandleError: the device was closed and opened again.
            DeviceResetting: the device is draining or being reset, and `wait` is False.
            DeviceQuarantined: the device is quarantined.
            DeviceTimeout: the model was not loaded within `timeout` seconds.
        """
        self._life.check()
        return Operation("model.reload()", lambda: self._load_again(wait, deadline_of(timeout)), self)

    async def _load_again(self, wait: bool, deadline: float | None) -> None:
        await self._life.ready(wait, deadline, again=True)

    def close(self) -> Operation[None]:
        """Closes the model: waits for the calls that run, then unloads it (aclmdlUnload) and frees its memory.

        New calls raise ParameterError. If a call of the device has been inside C for more than 10 seconds, the close
        emits an AclWarning and returns; the model is unloaded when the call has returned. After a fault of the device,
        the close waits for the calls at most 1 second, unless a reset runs or a supervisor will begin one, and the
        model is not unloaded: see `health.abandoned_models`. A second close is not an error.

        Returns:
            An Operation; await it, or call its `result()`.
        """
        return Operation("model.close()", self._life.close, self)

    def _close_now(self) -> bool:
        return False

    def _close_later(self) -> bool:
        self._life.begin_close()
        return True

    async def _close_at_end(self) -> None:
        with current_port().shield():
            await self._life.close()

    def _leave_open(self) -> None:
        self._life.manager.deferred.leave_note(self._life.begin_close)

    def __del__(self) -> None:
        if not hasattr(self, "_life") or self._life.closed or lib.aio_forked():
            return
        self._leave_open()
        if self._handed_out:
            origin.warn_of_drop(self, "a model was not closed: close it, or load it with `async with`")

    def __repr__(self) -> str:
        load = self._life.load
        state = "not loaded" if load is None else "stale" if load.stale else "loaded"
        state = "closed" if self._life.closed else state
        return f"<Model {self._life.name!r}, device {self._life.manager.index}, {state}{of_parent()}>"


def _kinds(values: Sequence[Any]) -> str:
    return ", ".join(f"a {type(value).__name__}" for value in values) or "nothing"


def new_model(
    manager: Manager,
    device: Device,
    model: Any,
    counts: tuple[Any, Any],
    *,
    reload: bool,
    label: str | None,
    warm_up: bool,
) -> Model:
    """Checks the arguments of `load_model`, and makes a Model that is not loaded yet.

    `model` may be a Source, which several models share. `counts` are the numbers of slots and of instances.
    """
    slots, instances = map(number_of, ("slots", "instances"), counts)
    for name, value in (("reload", reload), ("warm_up", warm_up)):
        if not isinstance(value, bool):
            raise ParameterError(f"{name} must be a bool, got {repr_of(value)}", hint="Pass True or False.")
    if label is not None and not _is_label(label):
        raise ParameterError(
            f"label must be a str of printable characters, or None, got {repr_of(label)}",
            hint="Pass a short name, or omit label for the name of the file.",
        )
    source = model if isinstance(model, Source) else Source(model)
    life = Lifetime(manager, device, source, LoadOptions(slots, instances, reload, label, warm_up))
    made = Model._make(life)
    made._site = origin.site()
    return made


def _is_label(value: object) -> bool:
    return isinstance(value, str) and bool(value) and value.isprintable()


def number_of(name: str, value: Any) -> int:
    """Returns the number of slots or of instances."""
    count = whole_of(value)
    if count is None or not 1 <= count <= SLOTS_AT_MOST:
        raise ParameterError(
            f"{name} must be an int from 1 to {SLOTS_AT_MOST}, got {repr_of(value)}",
            hint="Two or three slots are enough to keep a device busy; omit instances for one.",
        )
    return count


async def load(model: Model, *, wait: bool, deadline: float | None) -> Model:
    """Loads a new model. If the load fails or is cancelled, closes the model."""
    try:
        await model._life.ready(wait, deadline)
        _warn_of_onnx(
            model
        )  # not before the load, because only the simulator knows whether it is an ONNX model
    except GeneratorExit:
        model._leave_open()
        raise
    except BaseException:
        model._life.begin_close()
        raise
    model._handed_out = True
    return model


def _warn_of_onnx(model: Model) -> None:
    """Emits an AclWarning if a card would not load the model: Python shows it once for a file and a line of code."""
    if model._life.source.for_simulator:
        sentence = (
            f"expected an .om file, got the ONNX model {model.name!r}, which the simulator executes, and a card "
            "refuses; convert it with CANN's atc, or with `python -m aioacl simulator atc` for the simulator"
        )
        logs.warning(sentence)
        origin.warn(sentence, model._site, 2, AclWarning)


publish("aioacl", ["Model"], of=__name__)
