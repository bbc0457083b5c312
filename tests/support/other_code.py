"""Other code of the process, which owns streams and events and calls the runtime without aioacl."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aioacl import simulator
from aioacl._base.ffi import ffi, lib
from aioacl.lowlevel import handle
from tests.kit import in_thread

if TYPE_CHECKING:
    from collections.abc import Generator

    import aioacl
    from aioacl._base.ffi import CData


def must(call: str, *arguments: Any) -> None:
    """Calls an ACL function as other code does, on the thread of the caller."""
    code = getattr(lib, f"aio_u_{call}")(*arguments)
    assert code == 0, (call, code)


class Owner:
    """Other code that owns a stream and an event of a device, in its primary context."""

    def __init__(self, index: int = 0) -> None:
        self.index = index
        self.stream: CData = ffi.NULL
        self.event: CData = ffi.NULL
        in_thread(self._make)

    def call(self, function: str, *arguments: Any) -> None:
        """Calls a function on a thread whose context is the primary one."""

        def on_thread() -> None:
            must("aclrtSetDevice", self.index)
            try:
                must(function, *arguments)
            finally:
                must("aclrtResetDevice", self.index)

        in_thread(on_thread)

    def _make(self) -> None:
        must("aclrtSetDevice", self.index)
        made: Any = ffi.new("aclrtStream *")
        must("aclrtCreateStream", made)
        self.stream = made[0]
        event: Any = ffi.new("aclrtEvent *")
        must("aclrtCreateEventExWithFlag", event, 1)
        self.event = event[0]

    def record(self) -> CData:
        """Records the event on the stream, and returns it."""
        self.call("aclrtRecordEvent", self.event, self.stream)
        return self.event

    @property
    def is_there(self) -> bool:
        """Whether the stream exists, although a reset has perhaps destroyed it."""
        answers: list[int] = []
        in_thread(
            lambda: answers.append(lib.aio_u_aclrtStreamQuery(self.stream, ffi.new("aclrtStreamStatus *")))
        )
        simulator.forget()
        return answers == [0]

    @property
    def address(self) -> int:
        return int(ffi.cast("uintptr_t", self.stream))

    def fill(self, memory: aioacl.DeviceBuffer, value: int = 1) -> None:
        size = memory.nbytes
        self.call("aclrtMemsetAsync", handle(memory), size, value, size, self.stream)

    def finish(self) -> None:
        """Releases the stream, and returns when its work is done: until then the memory must stay."""
        simulator.release(self.address)
        self.call("aclrtSynchronizeStream", self.stream)

    @contextmanager
    def capturing(self) -> Generator[None]:
        """Captures the stream in the block. Each call of the capture must succeed."""
        graph = ffi.new("aclmdlRI *")
        self.call("aclmdlRICaptureBegin", self.stream, lib.ACL_MODEL_RI_CAPTURE_MODE_RELAXED)
        yield
        self.call("aclmdlRICaptureEnd", self.stream, graph)
        self.call("aclmdlRIDestroy", graph[0])

    def destroy(self, function: str = "aclrtDestroyStream") -> None:
        self.call(function, self.stream)
        self.stream = ffi.NULL

    def destroy_event(self) -> None:
        self.call("aclrtDestroyEvent", self.event)
        self.event = ffi.NULL

    def end(self) -> None:
        if self.stream != ffi.NULL and self.is_there:
            self.destroy()
        if self.event != ffi.NULL:
            self.destroy_event()
        in_thread(lambda: must("aclrtResetDevice", self.index))
