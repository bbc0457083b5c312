"""The slots of a loaded model: the memory and the stream of one call each, and the queue for a free slot."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aioacl._base import sync
from aioacl._base.errors import DeviceTimeout, QueueFull
from aioacl._base.ffi import Dataset
from aioacl._base.states import State
from aioacl._wait.current import current_port
from aioacl._wait.port import TIMED_OUT

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable, Sequence

    from aioacl._base.ffi import CData
    from aioacl._handles.memory import DeviceBuffer
    from aioacl._handles.pinned import PinnedBuffer
    from aioacl._handles.stream import Stream
    from aioacl._lifecycle.manager import Manager
    from aioacl._models.description import TensorInfo
    from aioacl._models.instance import Instance
    from aioacl._models.lent import Lent
    from aioacl._wait.port import Port

ALIGNMENT = 64


def room_for(tensors: Sequence[TensorInfo], selector_bytes: int = 0) -> tuple[list[int], int]:
    """Returns the offset of each tensor in the memory of a slot, and the size of that memory."""
    offsets, end = list[int](), 0
    for nbytes in (*(info.nbytes for info in tensors), selector_bytes):
        offsets.append(end)
        end += -(-nbytes // ALIGNMENT) * ALIGNMENT
    return offsets, max(end, ALIGNMENT)


class Slot:
    """The memory and the stream of one call.

    Attributes:
        instance: the instance of the model that runs the call.
        stream: the stream of the call: upload, execution, download.
        device: the device memory of the inputs and outputs.
        pinned: the pinned memory of the inputs and outputs, which copies use.
        inputs, outputs: for each tensor, its device memory and its pinned memory.
        input_data, output_data: the datasets of the execution.
    """

    def __init__(
        self,
        instance: Instance,
        stream: Stream,
        device: DeviceBuffer,
        pinned: PinnedBuffer,
        tensors: tuple[Sequence[TensorInfo], Sequence[TensorInfo]],
        selector_bytes: int,
    ) -> None:
        inputs, outputs = tensors
        offsets, _ = room_for((*inputs, *outputs), selector_bytes)
        parts = [
            (device[at : at + info.nbytes], pinned[at : at + info.nbytes])
            for at, info in zip(offsets, (*inputs, *outputs), strict=False)
        ]
        self.instance = instance
        self.stream = stream
        self.device = device
        self.pinned = pinned
        self.inputs, self.outputs = parts[: len(inputs)], parts[len(inputs) :]
        taken = [(memory.address, memory.size) for memory, _ in self.inputs]
        if selector_bytes:
            taken.append((device.address + offsets[-1], selector_bytes))
        self.input_data: Any = Dataset(tuple(taken))
        self.output_data: Any = Dataset(tuple((memory.address, memory.size) for memory, _ in self.outputs))

    def drop_data(self) -> None:
        """Destroys the datasets, because a program may keep a closed model for long."""
        self.input_data = self.output_data = None


def _move(take: Callable[[Any], Slot], source: object, target: list[Slot] | deque[Slot]) -> None:
    """Moves a slot in one call of C: no exception of a signal handler can come when the slot is in neither place."""
    target.extend(map(take, (source,)))


class Slots:
    """The slots of one load of a model. Callers get free slots in the order in which they asked.

    Tasks of any loop and threads wait here together. `end` ends all waits, when the model was closed or a reset has
    ended this load. `wake` also ends them, when the device is quarantined: until a reset succeeds, a slot whose work
    may still run is not given back.

    A slot is either free or in the list of the Lent that takes it. An exception of a signal handler may end any method
    early, so each step can be repeated; `give` completes the steps that were left out.
    """

    def __init__(self, slots: Sequence[Slot], manager: Manager) -> None:
        self._manager = manager
        self._changed = sync.condition()
        self._free = deque(slots)
        # Weak references, because a call that was ended may be dropped before it leaves the queue.
        self._waiters: deque[weakref.ref[Lent]] = deque()
        self._ended = False
        self._all = len(slots)
        self._then: Callable[[], object] | None = None

    async def take(self, lent: Lent, *, wait: bool, deadline: float | None) -> None:
        """Moves a free slot to `lent.taken`, unless `end` or `wake` ends the wait.

        If it raises, `give` has to be called, as for a slot.

        Raises:
            QueueFull: no slot is free, and `wait` is False.
            DeviceTimeout: no slot was free before the deadline.
        """
        with self._changed:
            if self._ended:
                return
            if self._free and not self._waiters:
                _move(deque[Slot].popleft, self._free, lent.taken)
                return
        if not wait:
            raise QueueFull(
                f"all {self._all} slots of the model are in use",
                device=self._manager.index,
                hint="Call the model again later, pass wait=True, or load it with more slots.",
            )
        await self._wait(lent, current_port(), deadline)

    async def _wait(self, lent: Lent, port: Port, deadline: float | None) -> None:
        def start(_: CData, key: int) -> int:
            port.take_token(key)
            with self._changed:
                lent.key = key
                self._waiters.append(lent.reference)
                self._serve()
            if self._manager.admission.state is State.QUARANTINED:  # perhaps `wake` was called before
                self.wake()
            return 0

        if await port.wait(start, deadline=deadline) == TIMED_OUT:
            raise DeviceTimeout(
                "no slot of the model was free in time",
                device=self._manager.index,
                hint="The call was not begun: try again, pass a longer timeout, or load the model with more slots.",
                started=False,
            )

    def _serve(self) -> None:
        """Gives free slots to waiters. Call it with the lock held."""
        while self._waiters and (self._free or self._ended):
            self._end_first(with_slot=not self._ended)

    def _end_first(self, *, with_slot: bool) -> None:
        """Ends the first wait. Call it with the lock held."""
        lent = self._waiters[0]()
        port = None if lent is None else lent.port()
        if lent is None or port is None:  # the call was dropped, or its event loop was closed
            self._waiters.popleft()
            return
        if with_slot and not lent.taken:
            _move(deque[Slot].popleft, self._free, lent.taken)
        port.post(lent.key)
        self._waiters.popleft()
        lent.key = 0

    def wake(self) -> None:
        """Ends all waits, so that the callers look at the state of the device again."""
        with self._changed:
            while self._waiters:
                self._end_first(with_slot=False)

    def give(self, lent: Lent) -> None:
        """Ends the wait of a call, and takes back its slot, whose work on the device is done. May be repeated."""
        with self._changed:
            self._withdraw(lent)
            if lent.taken:
                _move(list[Slot].pop, lent.taken, self._free)
            self._serve()
            then = self._take_then()
        if then is not None:
            then()

    def _withdraw(self, lent: Lent) -> None:
        """Ends the wait of a call, if it still waits. Call it with the lock held."""
        if not lent.key:
            return
        port = lent.port()
        if port is not None:
            port.refuse(lent.key)
        with suppress(ValueError):  # an exception came before the key was reset
            self._waiters.remove(lent.reference)
        lent.key = 0

    def _take_then(self) -> Callable[[], object] | None:
        if not self._ended or len(self._free) < self._all:
            return None
        then, self._then = self._then, None
        return then

    def end(self, then: Callable[[], object]) -> None:
        """Ends all waits, and calls `then` once all slots are back. A second call only ends waits."""
        with self._changed:
            if not self._ended:
                self._ended, self._then = True, then
            self._serve()
            ready = self._take_then()
        if ready is not None:
            ready()

    @property
    def free(self) -> int:
        """The number of free slots."""
        return len(self._free)

    @property
    def busy(self) -> int:
        """The number of slots that calls use."""
        return self._all - self.free

    @property
    def waiting(self) -> int:
        """The number of calls that wait for a slot. A call that was dropped does not wait, but may be in the queue."""
        with self._changed:
            return sum(reference() is not None for reference in self._waiters)
