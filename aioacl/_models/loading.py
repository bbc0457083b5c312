"""One load of a model: its ids, its memory and its slots. A load lasts until a reset, or until the model is closed.

A model has one or more instances. Each instance has an id of the runtime and a native thread, which enqueues the calls
(`aioacl/_native/calls.c`). A job of the model's executor makes a load, and another one unloads it.

A call that comes to its thread in a later generation than its load enqueues nothing, and is repeated with the next
load. A call that has begun is never repeated.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from aioacl._base.codes import Family, is_of
from aioacl._base.errors import (
    AclError,
    OutOfMemoryError,
    ParameterError,
)
from aioacl._base.ffi import ffi, lib, make_pass
from aioacl._base.options import SHOWN_ITEMS
from aioacl._handles.handle import error_on
from aioacl._handles.stream_core import StreamCore
from aioacl._lifecycle.cache import DEVICE_MEMORY
from aioacl._models.arguments import KINDS, spec_of
from aioacl._models.counting import count_calls
from aioacl._models.description import (
    Desc,
    Description,
    Gear,
    ModelMemory,
    must_be_runnable,
    read_gears,
    read_tensors,
    shapes_of,
    split_inputs,
    with_batch,
    with_open_dimensions,
)
from aioacl._models.slots import Slot, Slots, native_dataset, room_for
from aioacl._models.warming import warm_up
from aioacl._wait.current import run_blocking
from aioacl._wait.job_scope import current_job_scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioacl._base.ffi import CData, Spec
    from aioacl._device import Device
    from aioacl._handles.memory import DeviceBuffer
    from aioacl._handles.pinned import PinnedBuffer
    from aioacl._handles.stream import Stream
    from aioacl._lifecycle.manager import Manager
    from aioacl._models.description import GearKind, TensorInfo
    from aioacl._models.lifetime import LoadOptions
    from aioacl._models.source import Source


class Load:
    """The result of one load.

    Attributes:
        name: the name of the model for messages.
        label: its name for metrics and logs.
        manager: the manager of the device.
        generation: the generation of the device.
        instances: the ids of the instances.
        description: the inputs, outputs and gears.
        spec: the same for C.
        memory: the device memory that the model needs.
        slots: the slots.
        stream: the stream of `model.enqueue`.
        nbytes: the bytes of device memory that the load uses.
        block_bytes: the bytes of the blocks from which this memory is.
    """

    description: Description
    spec: Spec
    slots: Slots
    stream: Stream

    def __init__(self, manager: Manager, device: Device, name: str, label: str) -> None:
        self.name = name
        self.label = label
        self.manager = manager
        self._device = device
        self.generation = manager.generation
        self.instances: list[int] = []
        self.memory = ModelMemory(0, 0)
        self.nbytes = self.block_bytes = 0
        self._held: list[DeviceBuffer | PinnedBuffer | Stream] = []
        self._streams: list[Stream] = []
        self._made: list[Slot] = []

    @property
    def stale(self) -> bool:
        """Whether the device was reset or closed after the load."""
        return self.generation != self.manager.generation

    # --- loading ----------------------------------------------------------------------------------------------------

    def make(self, source: Source, options: LoadOptions) -> None:
        """Loads the model. A job. If it fails, it takes back what it has made."""
        instances = options.instances
        try:
            with _outside():
                source.must_be_unchanged()
            self._measure(source)
            self._look(instances)
            try:
                self._load(source, instances)
                self._describe(options.slots)
            except OutOfMemoryError as error:
                if error.call == "aclrtMallocHost":  # memory of the host, which the sizes do not explain
                    raise
                raise self._too_little(instances, error) from error
            if options.warm_up:
                warm_up(self)
            count_calls(self.slots, self.manager.index, self.label)
        except BaseException:
            with suppress(AclError):
                self.end()
            raise

    def _measure(self, source: Source) -> None:
        code, work, weights = source.sizes()
        if code:
            raise self._refused(code, source.size_call, source)
        self.memory = ModelMemory(work, weights)

    def _look(self, instances: int) -> None:
        """Raises OutOfMemoryError before the load if the device has too little free memory.

        The load itself would fail later, and on a card perhaps after minutes. Cached memory counts as free.
        """
        if self._lacks(instances):
            manager = self.manager
            run_blocking(lambda: manager.make(lambda _: manager.cache.empty(DEVICE_MEMORY)), None)
            if self._lacks(instances):
                raise self._too_little(instances, None)

    def _lacks(self, instances: int) -> bool:
        free, total = self._free_memory()
        return total > 0 and free < self._needed(instances)

    def _needed(self, instances: int) -> int:
        return self.memory.weights + self.memory.workspace * instances

    def _free_memory(self) -> tuple[int, int]:
        """Returns the free and the total bytes (aclrtGetMemInfo). The total is 0 if they are not known."""
        free: Any = ffi.new("size_t *")
        total: Any = ffi.new("size_t *")
        code = lib.aio_g_aclrtGetMemInfo(self.shown, lib.ACL_HBM_MEM, free, total)
        return (0, 0) if code else (free[0], total[0])

    def _load(self, source: Source, instances: int) -> None:
        work, weights = self.memory.workspace, self.memory.weights
        shared = self._allocate(weights)
        for _ in range(instances):
            own = self._allocate(work)
            self._load_one(source, (own, work, shared, weights))

    def _load_one(self, source: Source, memory: tuple[CData, int, CData, int]) -> None:
        place: Any = ffi.new("uint32_t *")
        code = source.load(self.shown, place, memory)
        if code:
            raise self._refused(code, source.call, source)
        self.instances.append(place[0])
        self.manager.models.add(place[0], self)

    @property
    def shown(self) -> int:
        """What a call of this load shows to the gate."""
        return make_pass(self.manager.index, self.generation)

    def _allocate(self, nbytes: int) -> CData:
        """Allocates device memory; a model without weights needs none, but ACL takes no null pointer."""
        buffer = self._take(max(nbytes, 1))
        return ffi.cast("void *", buffer.address)

    def _take(self, nbytes: int) -> DeviceBuffer:
        buffer = self._device.allocate(nbytes).result()
        self._held.append(buffer)
        self.nbytes += buffer.size
        self.block_bytes += buffer._block
        return buffer

    def _error(self, code: int, call: str) -> AclError:
        return error_on(self.manager, self.generation, code, call)

    def _refused(self, code: int, call: str, source: Source) -> AclError:
        if is_of(code, Family.OUT_OF_MEMORY):
            return OutOfMemoryError(code=code, call=call, device=self.manager.index)
        error = self._error(code, call)
        if isinstance(error, ParameterError):
            error.message = f"{source.name}: {error.message}" if error.message else source.name
        return error

    def _too_little(self, instances: int, error: AclError | None) -> OutOfMemoryError:
        free, total = self._free_memory()
        work, weights = self.memory.workspace, self.memory.weights
        return OutOfMemoryError(
            f"{self.name} needs {self._needed(instances)} bytes of device memory "
            f"({weights} of weights, {instances} x {work} of work memory), and memory for its slots; "
            + (f"{free} of {total} bytes are free" if total else "how much is free is not known")
            + f"; loaded on this device by this process: {self._others()}",
            code=None if error is None else error.code,
            call="" if error is None else error.call,
            device=self.manager.index,
            generation=self.generation,
            hint="Close other models and buffers, load fewer instances or slots, or convert a smaller model.",
        )

    def _others(self) -> str:
        """Names the other models that are loaded on the device, the largest first."""
        others = [each for each in self.manager.models.loads if each is not self]
        others.sort(key=lambda each: -each.nbytes)
        named = [f"{each.name} ({each.nbytes} bytes)" for each in others[:SHOWN_ITEMS]]
        more = len(others) - len(named)
        return ", ".join([*named, f"and {more} more"] if more else named) or "none"

    def _describe(self, slots: int) -> None:
        """Reads the description, and makes the slots. The shapes of outputs are known only after a gear was set."""
        with Desc(self.instances[0], self._error) as desc:
            inputs, selector_bytes = split_inputs(read_tensors(desc, "Input"))
            outputs = read_tensors(desc, "Output")
            kind, values = read_gears(desc, inputs)
            must_be_runnable(inputs, outputs, kind)
            made = self._make_slots(slots, inputs, outputs, selector_bytes)
            gears = self._gears(desc, made[0], kind, values or [None], inputs, len(outputs))
        outputs = with_open_dimensions(outputs, kind, gears)
        batched = tuple(info.batch_axis is not None for info in outputs)
        self.description = Description(with_batch(inputs, kind), outputs, kind, gears, batched)
        self.spec = spec_of(self.description)
        self._start(made, len(inputs), kind)

    def _start(self, made: Sequence[Slot], inputs: int, kind: GearKind | None) -> None:
        """Starts the threads of the instances."""
        ids = tuple(self.instances)
        slots = Slots.make(self.manager.index, self.generation, KINDS[kind], inputs, ids, made)
        code = slots._start()
        if code:
            raise self._error(code, "pthread_create")
        self.slots = slots
        self.manager.models.queues.add(slots)

    def _make_slots(
        self, count: int, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], selector_bytes: int
    ) -> list[Slot]:
        _, size = room_for((*inputs, *outputs), selector_bytes)
        made = self._made
        for _ in range(count):
            for instance in range(len(self.instances)):
                device = self._take(size)
                pinned = self._device.pinned(size).result()
                self._held.append(pinned)
                tensors = inputs, outputs
                made.append(Slot(instance, self._new_stream(), device, pinned, tensors, selector_bytes))
        self.stream = self._new_stream()
        return made

    def _new_stream(self) -> Stream:
        stream = self._device.create_stream().result()
        self._held.append(stream)
        self._streams.append(stream)
        return stream

    def _gears(
        self,
        desc: Desc,
        slot: Slot,
        kind: GearKind | None,
        values: Sequence[Any],
        inputs: Sequence[TensorInfo],
        outputs: int,
    ) -> tuple[Gear, ...]:
        """Returns the gears, with the shapes of the `outputs` outputs in each."""
        gears = list[Gear]()
        for value in values:
            gear = Gear(value, shapes_of(kind, value, inputs), ())
            call, code = self._set_gear(slot.input_data, kind, gear)
            if code:
                raise self._error(code, call)
            shapes = tuple(desc.dims("aclmdlGetCurOutputDims", at) for at in range(outputs))
            gears.append(Gear(value, gear.inputs, shapes))
        return tuple(gears)

    def _set_gear(self, data: Any, kind: GearKind | None, gear: Gear) -> tuple[str, int]:
        """Selects a gear of the first instance. Returns the ACL function that was called, and its code.

        Without gears, it calls nothing.
        """
        value: Any = gear.value
        selector = len(gear.inputs)  # the input that selects the gear comes after the others
        where = self.shown, self.instances[0], native_dataset(data), selector
        if kind is None:
            return "", 0
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

    # --- the end ----------------------------------------------------------------------------------------------------

    def is_idle(self) -> bool:
        """Whether all work of the model is known to be done. Calls no ACL function."""
        cores = [stream._core for stream in self._streams]
        return all(
            lib.aio_stream_completed(core.handle) >= lib.aio_stream_tail(core.handle)
            for core in cores
            if isinstance(core, StreamCore)
        )

    def unload(self) -> None:
        """Unloads the model and frees its memory. A job, after all slots are back."""
        self.slots._close()
        for stream in self._streams:
            if not self.stale:
                with suppress(AclError):
                    run_blocking(partial(_settle, stream), None)
        self.end()

    def end(self) -> None:
        """Unloads the instances, and frees the memory. After a fault of the device, a reset frees the memory."""
        instances, self.instances = self.instances, []  # their ids are used again
        errors = list(filter(None, map(self._end_one, instances)))
        self.free()
        if errors:
            try:
                raise errors[0]
            finally:
                errors.clear()  # the traceback refers to the frame, and the frame to the errors

    def _end_one(self, instance: int) -> AclError | None:
        """Unloads one instance. Returns the error, so that the others are unloaded, too."""
        try:
            if self.manager.failures.last_fault is not None:
                self.manager.models.abandon(instance)
            else:
                self.manager.models.unload(instance, self.generation)
        except AclError as error:
            return error
        return None

    def free(self) -> None:
        """Closes the buffers and streams, without waiting."""
        if hasattr(self, "slots"):
            self.slots.stop()
        held, self._held = self._held, []
        for each in reversed(held):
            each._close_later()  # not a note, which a closed device does not read
        for slot in self._made:
            slot.drop_data()


def _outside() -> Any:
    """The context for a wait that is not a wait of aioacl: inside it, no reset waits for the job."""
    scope = current_job_scope()
    assert scope is not None, "a load is a job"
    return scope.outside()


async def _settle(stream: Stream) -> None:
    core = stream._live()
    await core.wait(lib.aio_stream_tail(core.handle))
