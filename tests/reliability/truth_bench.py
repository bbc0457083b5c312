"""Objects for the scenarios of the truth part: two devices, their buffers, a kernel; and a way to make tasks fail."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import aioacl
from aioacl import simulator
from aioacl._base.paths import DATA
from aioacl.lowlevel import ffi, on
from tests.reliability import setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.options import Strategy
    from tests.reliability.truth_oracle import Failure

CELLS: Final = 96
CELL_BYTES: Final = 64
SLOTS: Final = 192  # the pinned cells for the copies of launch blocks
NOTIFIES: Final = 12
# Sizes in bytes that the streams of a scenario upload and download.
BLOBS: Final = (512, 512, 4096, (2 << 20) + 512)
PIECE_BYTES: Final = 1 << 20  # upload() and download() make one copy for each piece of this size
KERNEL: Final = "nothing"
MODEL: Final = DATA / "digits.om"
MODEL_NAME: Final = "digits"  # a function stands for it
MODEL_NUMBERS: Final = 64
EVENT_TIMEOUT: Final = 507001  # only a wait for an event that times out has this code
# Codes of failed tasks after which a new stream is enough.
CODES: Final = (
    507011,
    507014,
    507015,
    507016,
    507017,
    507018,
    507034,
    507035,
    507036,
    507048,
    507049,
    507050,
)
PATIENCE_SECONDS: Final = 60.0


@dataclass
class Board:
    """One device, and the objects that are created once and used by all scenarios."""

    device: aioacl.Device
    acl: Any
    cells: list[aioacl.DeviceBuffer] = field(default_factory=list[aioacl.DeviceBuffer])
    blobs: list[aioacl.DeviceBuffer] = field(default_factory=list[aioacl.DeviceBuffer])
    own: list[aioacl.Event] = field(default_factory=list[aioacl.Event])
    pinned: list[aioacl.PinnedBuffer] = field(default_factory=list[aioacl.PinnedBuffer])  # one for each slot
    function: Any = None
    other_stream: Any = None  # a stream that is created by hand, so the engine has no record of it
    notifies: list[Any] = field(default_factory=list[Any])
    model: Any = None

    async def create_objects(self, stack: AsyncExitStack) -> None:
        """Creates all objects; the stack destroys them."""
        device = self.device
        self.cells = [await stack.enter_async_context(device.allocate(CELL_BYTES)) for _ in range(CELLS)]
        self.blobs = [await stack.enter_async_context(device.allocate(size)) for size in BLOBS]
        self.own = [await stack.enter_async_context(device.create_event()) for _ in range(4)]
        self.pinned = [await stack.enter_async_context(device.pinned(CELL_BYTES)) for _ in range(SLOTS)]
        self.model = await stack.enter_async_context(device.load_model(MODEL, slots=2))
        binary, function = ffi.new("aclrtBinHandle *"), ffi.new("aclrtFuncHandle *")
        self.acl.aclrtBinaryLoadFromData(b"code", 4, ffi.NULL, binary)
        self.acl.aclrtBinaryGetFunction(binary[0], KERNEL.encode(), function)
        stack.callback(self.acl.aclrtBinaryUnLoad, binary[0])
        self.function = function[0]
        other_stream = ffi.new("aclrtStream *")
        self.acl.aclrtCreateStream(other_stream)
        stack.callback(self.acl.aclrtDestroyStream, other_stream[0])
        self.other_stream = other_stream[0]
        for _ in range(NOTIFIES):
            notify = ffi.new("aclrtNotify *")
            self.acl.aclrtCreateNotify(notify, 0)
            stack.callback(self.acl.aclrtDestroyNotify, notify[0])
            self.notifies.append(notify[0])

    def launch(self, stream: Any) -> None:
        """Enqueues a kernel by hand, on a Stream or on a native stream."""
        args = ffi.new("char[8]")
        self.acl.aclrtLaunchKernelWithHostArgs(self.function, 1, stream, ffi.NULL, args, 8, ffi.NULL, 0)

    def await_notify(self, stream: Any, number: int) -> None:
        """Enqueues a wait for a notify by hand, and on another stream the record that ends the wait."""
        self.acl.aclrtRecordNotify(self.notifies[number], self.other_stream)
        self.acl.aclrtWaitAndResetNotify(self.notifies[number], stream, 0)


class Bench:
    """Two devices with one strategy of waiting. One scenario at a time uses them."""

    def __init__(self, number: int, strategy: Strategy) -> None:
        self.number = number
        self.strategy: Strategy = strategy
        self.boards: list[Board] = []
        self._stack = AsyncExitStack()

    async def open(self) -> None:
        """Opens both devices."""
        for index in (2 * self.number, 2 * self.number + 1):
            device = await self._stack.enter_async_context(setting.open_device(index, self.strategy))
            self.boards.append(Board(device, on(device)))
            await self.boards[-1].create_objects(self._stack)

    async def close(self) -> None:
        """Closes both devices."""
        await self._stack.aclose()


def first_numbers(execution: simulator.Execution) -> None:
    """Stands for the model: copies the first numbers of the input to the output."""
    output = execution.outputs[0].memory
    output[:] = execution.inputs[0].memory[: len(output)]


class FailureListener:
    """Listens to the failures that a device reports."""

    def __init__(self, device: aioacl.Device) -> None:
        self._events = device.events()
        self.received: dict[int, list[tuple[int, int]]] = {}  # the positions and codes of failures, by stream
        self.missed = 0

    def was_reported(self, failure: Failure, *, exactly: bool) -> bool:
        """Whether the failure was reported; if not `exactly`, any failure of its stream is enough."""
        reported = self.received.get(failure.queue.id, [])
        if not exactly:
            return bool(reported)
        return any(code == failure.code and failure.is_at(position) for position, code in reported)

    async def wait(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Listens until the condition holds. Returns False if the condition does not hold in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not holds():
                    event = await anext(self._events)
                    self.missed += event.missed
                    if event.kind == "fault":
                        self.received.setdefault(event.stream, []).append((event.position, event.code))
        return holds()


def fail_next_task(stream: aioacl.Stream, code: int) -> None:
    """Makes the next task of the stream fail with the code; with code 0, the task does not fail."""
    simulator.fail_next(stream, code)
