"""What the ways of waiting share: one device, aioacl's streams, the peers' streams, and two buffers."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Self

import aioacl
from aioacl import simulator
from benchmarks import raw

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager

BYTES: Final = 64
NO_CONTEXT: Final = 107002


class Bench:
    """A device of the simulator, opened once by aioacl, with as many streams for aioacl as for the peers."""

    def __init__(self, streams: int, nbytes: int = BYTES) -> None:
        aioacl.use_library("simulator")
        self.device = aioacl.open_device(0).result()
        self.streams = [self.device.create_stream().result() for _ in range(streams)]
        self.target, self.source = (self.device.allocate(nbytes).result() for _ in range(2))
        self.nbytes = nbytes
        self.ffi, self.lib = raw.load(aioacl.library_info().path)
        raw.check(self.lib.aclrtSetDevice(0), "aclrtSetDevice")
        self.context = self._made("aclrtContext *", self.lib.aclrtGetCurrentContext)
        self.raw_streams = [self._made("aclrtStream *", self.lib.aclrtCreateStream) for _ in range(streams)]
        self.to, self.of = (self.pointer(buffer.address) for buffer in (self.target, self.source))
        self.kind: int = self.lib.ACL_MEMCPY_DEVICE_TO_DEVICE

    def _made(self, c_type: str, function: Any, *arguments: Any) -> Any:
        made = self.ffi.new(c_type)
        raw.check(function(made, *arguments), c_type)
        return made[0]

    def pointer(self, address: int) -> Any:
        """Returns an address as the peers pass it."""
        return self.ffi.cast("void *", address)

    def event(self) -> Any:
        """Returns a new event of the peers."""
        return self._made("aclrtEvent *", self.lib.aclrtCreateEventExWithFlag, self.lib.ACL_EVENT_SYNC)

    def enqueue(self, stream: Any) -> None:
        """Enqueues a copy, as a peer."""
        code = self.lib.aclrtMemcpyAsync(self.to, self.nbytes, self.of, self.nbytes, self.kind, stream)
        if code:
            raw.check(code, "aclrtMemcpyAsync")

    def synchronize(self, stream: Any) -> None:
        """Blocks until the stream's work is done, as a peer. Sets the context on a thread that has none."""
        code = self.lib.aclrtSynchronizeStream(stream)
        if code == NO_CONTEXT:
            raw.check(self.lib.aclrtSetCurrentContext(self.context), "aclrtSetCurrentContext")
            code = self.lib.aclrtSynchronizeStream(stream)
        if code:
            raw.check(code, "aclrtSynchronizeStream")

    def drain(self) -> None:
        """Blocks until all work of all streams is done."""
        for stream in self.raw_streams:
            self.synchronize(stream)
        for stream in self.streams:
            stream.result()

    def close(self) -> None:
        """Closes the streams and the device."""
        for stream in self.raw_streams:
            raw.check(self.lib.aclrtDestroyStream(stream), "aclrtDestroyStream")
        for stream in self.streams:
            stream.close().result()
        for buffer in (self.target, self.source):
            buffer.close().result()
        self.device.close().result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def tasks_of(microseconds: float) -> AbstractContextManager[object]:
    """Inside the block, each copy of any caller takes that long on the device. 0: as long as the simulator needs."""
    if not microseconds:
        return nullcontext()
    return simulator.fault("aclrtMemcpyAsync", late_complete=microseconds / 1e6)


@contextmanager
def held(streams: list[Any]) -> Generator[None]:
    """Inside the block, none of the streams starts a task."""
    for stream in streams:
        simulator.hold(stream)
    try:
        yield
    finally:
        for stream in streams:
            simulator.release(stream)
