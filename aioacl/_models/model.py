"""Model: an offline model that a device executes, made by `device.load_model()`."""

from __future__ import annotations

import copy
import warnings
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aioacl._base import origin, sync
from aioacl._base.errors import (
    AclError,
    AclWarning,
    DeviceQuarantined,
    DeviceTimeout,
    ParameterError,
    StaleHandleError,
)
from aioacl._base.ffi import lib
from aioacl._base.options import deadline_of, repr_of, whole_of
from aioacl._base.states import State
from aioacl._handles.handle import Made
from aioacl._handles.memory import DeviceBuffer
from aioacl._handles.operation import Operation
from aioacl._library.runtime import must_not_be_forked, of_parent
from aioacl._lifecycle.health import health_of
from aioacl._models.arguments import (
    CHUNK_BYTES,
    Argument,
    as_result,
    check_call,
    check_out,
    copy_memory,
    in_order,
    new_arrays,
)
from aioacl._models.executing import enqueue
from aioacl._models.instance import is_closed
from aioacl._models.lent import Lent
from aioacl._models.loading import Load
from aioacl._models.results import ModelResults
from aioacl._models.slots import new_dataset
from aioacl._models.source import Source
from aioacl._wait.current import current_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Iterable, Sequence

    from aioacl._base.options import Seconds
    from aioacl._base.origin import Origin, Site
    from aioacl._base.records import EventKind
    from aioacl._handles.event import Ticket
    from aioacl._handles.stream import Stream
    from aioacl._lifecycle.executor import DeviceExecutor
    from aioacl._lifecycle.manager import Manager
    from aioacl._models.arguments import Call
    from aioacl._models.description import Description, ModelMemory, TensorInfo
    from aioacl._models.loading import Resources
    from aioacl._models.results import OnError
    from aioacl._models.slots import Slot
    from aioacl._wait.job_future import JobFuture

SLOTS_AT_MOST: Final = 64
LOOK_SECONDS: Final = 1.0  # how often a close looks for calls that are stuck
STUCK_SECONDS: Final = 10.0


class Model(Made):
    """An offline model on a device, made by `device.load_model(path)`.

    `await model(x)` runs it. Any number of tasks and threads may call one model: each call takes a free slot, and waits
    for one if there is none. After a reset, the next call loads the model again.
    """

    __slots__ = (
        "_born",
        "_closed",
        "_description",
        "_executors",
        "_handed_out",
        "_load",
        "_loading",
        "_lock",
        "_manager",
        "_over",
        "_reload",
        "_resources",
        "_site",
        "_slots",
        "_source",
        "_unloading",
    )
    factory = "device.load_model(path)"
    noun = "model"

    def __init__(
        self,
        manager: Manager,
        resources: Resources,
        source: Source,
        *,
        slots: int,
        instances: int,
        reload: bool,
    ) -> None:
        self._born: Origin | None = None
        self._site: Site | None = None
        self._manager = manager
        self._resources = resources
        self._source = source
        self._slots = slots
        self._reload = reload
        self._executors: list[DeviceExecutor] = []
        self._lock = sync.lock()
        self._load: Load | None = None
        self._loading: JobFuture[None] | None = None
        self._unloading: JobFuture[None] | None = None
        self._over = False  # whether the close has ended
        self._closed = self._handed_out = False
        self._description: Description | None = None
        self._executors += [manager.jobs.model_executor() for _ in range(instances)]

    # --- properties -------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The path of the model, or "a model of N bytes"."""
        return self._source.name

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
            raise self._was_reset()
        return load.stream

    @property
    def _described(self) -> Description:
        assert self._description is not None, "a model is described when it is loaded"
        return self._description

    def _loaded(self) -> Load:
        load = self._load  # before the check, because a close drops it
        self._check()
        assert load is not None, "the model was loaded"
        return load

    def _check(self) -> None:
        must_not_be_forked()
        if self._closed:
            raise is_closed(self._manager.index)

    def _was_reset(self) -> StaleHandleError:
        if self._executors[0].ended:
            return StaleHandleError(
                "the device was closed after the model was loaded",
                device=self._manager.index,
                hint="Load it again with load_model().",
            )
        return StaleHandleError(
            "the device was reset after the model was loaded",
            device=self._manager.index,
            hint="Call the model, which loads it again, unless it was loaded with reload=False; then load a new one.",
        )

    # --- calls ------------------------------------------------------------------------------------------------------

    def __call__(
        self, x: Any, /, *, out: Any = None, wait: bool = True, timeout: Seconds | None = None
    ) -> Operation[Any]:
        """Runs the model: uploads the arguments, executes (aclmdlExecuteAsync) and downloads the results.

        The arguments are read on another thread. Do not change them until the call has returned or raised; after a
        cancellation or a timeout, the call may still read them, so give them up then.

        Args:
            x: an array; for a model with several inputs, a list or tuple of arrays in the order of `inputs`, or a dict
                of arrays by name. An array is any object with a C-contiguous buffer of the type and shape of the input.
                bfloat16 is passed as uint16. A batch smaller than a gear is padded with zeros.
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
        self._check()
        call = check_call(self._described, x)
        targets = None if out is None else check_out(self._described, call, out)
        return Operation("model()", lambda: self._call(call, out, targets, wait, deadline_of(timeout)), self)

    async def _call(
        self, call: Call, out: Any, targets: list[Argument] | None, wait: bool, deadline: float | None
    ) -> Any:
        while True:
            load = await self._ready(wait, deadline)
            slot = await load.slots.take(wait=wait, deadline=deadline)
            if slot is None:  # the model was closed, or a reset has ended this load
                continue
            lent = Lent(load, slot, call)
            try:
                done = await lent.run(deadline)
                result = await self._fetch(slot, call, targets) if done else None
            except GeneratorExit:  # a finalizer may run on a thread that holds the locks
                self._manager.deferred.leave_note(lent.give)
                raise
            except BaseException:
                lent.give()
                raise
            lent.give()
            if result is not None:  # else a reset came before the call began
                return out if out is not None else as_result(self._described, result)

    async def _fetch(self, slot: Slot, call: Call, targets: list[Argument] | None) -> list[Any]:
        """Copies the results to the targets of the caller, or to new arrays, which it returns."""
        if targets is not None:
            for part in _parts(slot, targets):
                copy_memory(*part)
            return []
        arrays = new_arrays(self._described, call)
        made = [Argument(array, array.shape, array.nbytes, writable=True) for array in arrays]
        for number, part in enumerate(_parts(slot, made)):
            if number:  # after each MiB, other tasks of the loop run
                await current_port().next_turn()
            copy_memory(*part)
        return arrays

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
                exception in place of the result.

        Returns:
            A ModelResults.

        Raises:
            ParameterError: `limit` is not an int of at least 1, or another argument has a wrong value.
        """
        self._check()
        most = 2 * self._slots * len(self._executors) if limit is None else whole_of(limit)
        if most is None or most < 1:
            raise ParameterError(
                f"limit must be an int, at least 1, or None, got {repr_of(limit)}", hint="Omit limit."
            )
        if errors not in ("raise", "return"):
            raise ParameterError(
                f'errors must be "raise" or "return", got {repr_of(errors)}', hint='Omit errors for "raise".'
            )
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
            raise self._was_reset()
        if self._described.kind is not None:
            raise ParameterError(
                "expected a model with fixed shapes, got one with gears",
                device=self._manager.index,
                hint="Call the model instead: `await model(x)` selects the gear.",
            )
        taken = self._buffers(self._described.inputs, inputs, "input")
        given = self._buffers(self._described.outputs, outputs, "output")
        into, of = (new_dataset([(each.address, each.size) for each in side]) for side in (given, taken))
        return enqueue(load, (*taken, *given), of, into)

    def _buffers(self, tensors: Sequence[TensorInfo], given: Any, noun: str) -> Sequence[DeviceBuffer]:
        buffers = in_order(tensors, given, noun)
        shown = ", ".join(f"{info.name!r} of {info.nbytes} bytes" for info in tensors)
        if not all(isinstance(each, DeviceBuffer) for each in buffers):
            raise ParameterError(
                f"expected a DeviceBuffer for each {noun} ({shown}), got {_kinds(buffers)}",
                device=self._manager.index,
                hint="Allocate them with device.allocate(), and upload to them; or call the model with arrays.",
            )
        for info, buffer in zip(tensors, buffers, strict=True):
            buffer._check()
            if buffer._manager is not self._manager or buffer.size < info.nbytes:
                raise ParameterError(
                    f"{noun} {info.name!r}: expected at least {info.nbytes} bytes on device {self._manager.index}, "
                    f"got {buffer.size} bytes on device {buffer._manager.index}",
                    hint="Allocate the buffer on the device of the model, with the size in `model.inputs`.",
                )
        return buffers

    # --- loading ----------------------------------------------------------------------------------------------------

    async def _ready(self, wait: bool, deadline: float | None) -> Load:
        """Returns the load of the present generation, once the device is open. Loads the model if there is none."""
        while True:
            self._check()
            await self._manager.admission.until_open(wait=wait, deadline=deadline)
            load = self._load  # before the check, because a close drops it
            self._check()
            if load is not None and not load.stale:
                return load
            if load is not None and not self._reload:
                raise self._was_reset()
            future = self._load_once()
            if future is None:
                continue
            if not await future.ended(deadline):
                raise DeviceTimeout(
                    "the model was not loaded in time",
                    device=self._manager.index,
                    hint="The load continues, and a later call uses it: try again, or pass a longer timeout.",
                )
            try:
                self._manager.jobs.outcome(future)
            except AclError as error:
                raise copy.copy(error) from error  # all callers of one load get an object of their own

    def _load_once(self) -> JobFuture[None] | None:
        """Begins a load, or returns the one that runs, which all callers share. Returns None if none is needed."""
        with self._lock:
            self._check()  # a load that begins after the close would never be unloaded
            if self._load is not None and not self._load.stale:  # another caller was faster
                return None
            if self._loading is None or self._loading.done():
                self._loading = self._begin_load()
            return self._loading

    def _begin_load(self) -> JobFuture[None]:
        executor = self._executors[0]
        try:
            return executor.submit(self._load_now)
        except RuntimeError:
            if executor.ended:  # by the last close; the device may be open again
                raise self._was_reset() from None
            raise

    def _load_now(self) -> None:
        """Loads the model. A job of the first instance."""
        load, began = Load(self._manager, self._resources), sync.monotonic()
        self._tell("model_loading")
        load.make(self._source, self._executors, self._slots)
        with self._lock:
            old, self._load, self._description = self._load, load, load.description
        self._tell("model_loaded", seconds=sync.monotonic() - began, nbytes=load.nbytes)
        if old is not None:
            old.slots.end(old.free)

    def _tell(self, kind: EventKind, **details: Any) -> None:
        admission = self._manager.admission
        with admission.changed:
            admission.listeners.tell(kind, admission.shown, admission.generation, text=self.name, **details)
            admission.announce()

    # --- closing ----------------------------------------------------------------------------------------------------

    def close(self) -> Operation[None]:
        """Closes the model: waits for the calls that run, then unloads it (aclmdlUnload) and frees its memory.

        New calls raise ParameterError. If a call of the device has been inside C for more than 10 seconds, the close
        emits an AclWarning and returns; the model is unloaded when the call has returned. After a fault of the device
        the model is not unloaded: see `health.abandoned_models`. A second close is not an error.

        Returns:
            An Operation; await it, or call its `result()`.
        """
        return Operation("model.close()", self._close, self)

    async def _close(self) -> None:
        if lib.aio_forked():
            return
        self._begin_close()
        if self._manager.admission.state is State.CLOSED:  # no thread does the notes of finalizers
            self._manager.deferred.do_notes()
        await self._until_over()
        with self._lock:
            unloading, self._unloading = self._unloading, None
        if unloading is not None and self._manager.admission.opens:
            with suppress(DeviceQuarantined):  # a reset frees the memory
                self._manager.jobs.outcome(unloading)

    async def _until_over(self) -> None:
        """Waits for the end of the close. Returns earlier if the device is quarantined, or if a call is stuck in C."""
        admission = self._manager.admission
        while True:
            with admission.changed:
                seen, quarantined = admission.version, admission.state is State.QUARANTINED
            if quarantined or self._over:
                return
            look = sync.monotonic() + LOOK_SECONDS
            try:
                await admission.change(seen, look)
            except DeviceTimeout:
                if sync.monotonic() < look:  # the deadline of the caller
                    raise DeviceTimeout(
                        "the model was not closed in time, because its calls have not ended",
                        device=self._manager.index,
                        hint="The close continues. A second close waits for it.",
                    ) from None
            stuck = health_of(self._manager).stuck_for
            if stuck > STUCK_SECONDS:
                sentence = f"the close of a model waits for a call that has been inside C for {stuck:.0f} s"
                warnings.warn(f"{sentence}; it continues", AclWarning, stacklevel=2)
                return

    def _begin_close(self) -> None:
        """Refuses new calls, and unloads the model when no call and no load runs any more. Does not wait."""
        with self._lock:
            self._closed = True
            loading = self._loading
        if loading is None:
            self._end_load()
        else:
            loading.add_done_callback(lambda _: self._end_load())

    def _end_load(self) -> None:
        """Ends the load of a closed model. May be called several times."""
        load = self._load
        if load is None:
            self._finish()
        else:
            load.slots.end(lambda: self._unload(load))

    def _unload(self, load: Load) -> None:
        """Called when all slots are back."""
        try:
            self._unloading = future = self._executors[0].submit(load.unload)
        except (RuntimeError, AclError):  # the device was closed, which has unloaded the model
            self._finish()
            return
        future.add_done_callback(lambda _: self._finish())

    def _finish(self) -> None:
        """Ends the close. May be called twice. The load is dropped, because its slots have memory of the runtime."""
        with self._lock:
            load, self._load = self._load, None
            self._loading = None  # its callback refers to this object
            first, self._over = not self._over, True
        if load is not None:
            load.free()
        for executor in self._executors:
            self._manager.jobs.let_go(executor)
        if first:
            with self._manager.admission.changed:
                self._manager.admission.announce()

    def _close_now(self) -> bool:
        return False

    def _close_later(self) -> bool:
        self._begin_close()
        return True

    async def _close_at_end(self) -> None:
        with current_port().shield():
            await self._close()

    def _leave_open(self) -> None:
        self._manager.deferred.leave_note(self._begin_close)

    def __del__(self) -> None:
        if not hasattr(self, "_over") or self._closed or lib.aio_forked():
            return
        self._manager.deferred.leave_note(_closer(self._load, self._executors, self._manager))
        if self._handed_out:
            origin.warn_of_drop(self, "a model was not closed: close it, or load it with `async with`")

    def __repr__(self) -> str:
        load = self._load
        state = "not loaded" if load is None else "stale" if load.stale else "loaded"
        state = "closed" if self._closed else state
        return f"<Model {self.name!r}, device {self._manager.index}, {state}{of_parent()}>"


def _kinds(values: Sequence[Any]) -> str:
    return ", ".join(f"a {type(value).__name__}" for value in values) or "nothing"


def _parts(slot: Slot, targets: Sequence[Argument]) -> Iterable[tuple[int, int, int]]:
    """Yields the target, source and size of each copy that fetches the results."""
    for (_, pinned), target in zip(slot.outputs, targets, strict=True):
        for at in range(0, target.nbytes, CHUNK_BYTES):
            yield target.address + at, pinned.address + at, min(CHUNK_BYTES, target.nbytes - at)


def _closer(load: Load | None, executors: Sequence[DeviceExecutor], manager: Manager) -> Callable[[], object]:
    """Returns what unloads a model that was dropped. It does not refer to the model, whose finalizer runs."""

    def end() -> None:
        if load is None:
            let_go()
        else:
            load.slots.end(partial(unload, load))

    def unload(load: Load) -> None:
        with suppress(RuntimeError, AclError):
            executors[0].submit(load.unload)
        let_go()

    def let_go() -> None:
        for executor in executors:
            manager.jobs.let_go(executor)

    return end


def new_model(
    manager: Manager, resources: Resources, model: Any, slots: Any, instances: Any, *, reload: bool
) -> Model:
    """Checks the arguments of `load_model`, and makes a Model that is not loaded yet."""
    counts = list[int]()
    for name, value in (("slots", slots), ("instances", instances)):
        count = whole_of(value)
        if count is None or not 1 <= count <= SLOTS_AT_MOST:
            raise ParameterError(
                f"{name} must be an int from 1 to {SLOTS_AT_MOST}, got {repr_of(value)}",
                hint="Two or three slots are enough to keep a device busy; omit instances for one.",
            )
        counts.append(count)
    if not isinstance(reload, bool):
        raise ParameterError(f"reload must be a bool, got {repr_of(reload)}", hint="Pass True or False.")
    source = Source(model)
    return Model._make(manager, resources, source, slots=counts[0], instances=counts[1], reload=reload)


async def load(model: Model, *, wait: bool, deadline: float | None) -> Model:
    """Loads a new model. If the load fails or is cancelled, closes the model."""
    try:
        await model._ready(wait, deadline)
    except GeneratorExit:
        model._leave_open()
        raise
    except BaseException:
        model._begin_close()
        raise
    model._handed_out = True
    return model
