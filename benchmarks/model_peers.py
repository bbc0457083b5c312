"""What the calls of a model are compared with: ACL calls by hand, and the wake-up of an asyncio task."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import aioacl
from aioacl import _digits
from aioacl.lowlevel import ffi, functions
from benchmarks import raw

if TYPE_CHECKING:
    from numpy.typing import NDArray

TO_DEVICE, TO_HOST = 1, 2
THREADS: Final = Path("/proc/self/task")
LIBRARY_THREAD: Final = "aclsim-"  # how the names of the simulator's threads begin


def library_cpu() -> float:
    """Returns the processor time of the simulator's threads until now, in seconds."""
    return sum(
        int((thread / "schedstat").read_text().split()[0]) / 1e9
        for thread in THREADS.iterdir()
        if (thread / "comm").read_text().startswith(LIBRARY_THREAD)
    )


async def wake_ups(count: int) -> None:
    """Suspends a task `count` times. A descriptor, which is readable at once, wakes it."""
    loop, fd = asyncio.get_running_loop(), os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    future = loop.create_future()

    def wake() -> None:
        os.eventfd_read(fd)
        future.set_result(None)

    loop.add_reader(fd, wake)
    try:
        for _ in range(count):
            future = loop.create_future()
            os.eventfd_write(fd, 1)
            await future
    finally:
        loop.remove_reader(fd)
        os.close(fd)


class ByHand:
    """The model, loaded by ACL's functions. Its memory, datasets and stream are kept."""

    def __init__(self, device: aioacl.Device, example: NDArray[np.float32]) -> None:
        self._raw, self._lib = raw.load(aioacl.library_info().path)
        self._nbytes = example.nbytes
        self._answer = _digits.CLASSES * example.itemsize
        self._source = ffi.new("char[]", self._nbytes)
        self._pinned = device.pinned(self._nbytes + self._answer).result()
        self._memory = device.allocate(self._nbytes + self._answer).result()
        self._stream: Any = ffi.new("aclrtStream *")
        self._model: Any = ffi.new("uint32_t *")
        at, host = self._memory.address, self._pinned.address
        self._addresses = [
            ffi.cast("void *", place) for place in (at, at + self._nbytes, host, host + self._nbytes)
        ]
        device.run(self._load).result()

    def _load(self) -> None:
        functions.aclrtCreateStream(self._stream)
        functions.aclmdlLoadFromFile(os.fsencode(_digits.MODEL), self._model)
        self._input = self._dataset(self._addresses[0], self._nbytes)
        self._output = self._dataset(self._addresses[1], self._answer)

    @staticmethod
    def _dataset(address: Any, size: int) -> Any:
        made = functions.aclmdlCreateDataset()
        functions.aclmdlAddDatasetBuffer(made, functions.aclCreateDataBuffer(address, size))
        return made

    def job(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Uploads, executes, downloads and waits. Runs on a thread of the device's executor."""
        here, there, up, down = self._addresses
        stream = self._stream[0]
        self._pinned.view[: self._nbytes] = x.data.cast("B")
        functions.aclrtMemcpyAsync(here, self._nbytes, up, self._nbytes, TO_DEVICE, stream)
        functions.aclmdlExecuteAsync(self._model[0], self._input, self._output, stream)
        functions.aclrtMemcpyAsync(down, self._answer, there, self._answer, TO_HOST, stream)
        functions.aclrtSynchronizeStream(stream)
        return np.frombuffer(bytes(self._pinned.view[self._nbytes :]), np.float32).reshape(1, -1)

    def _fields(self) -> Any:
        """Returns the model, its stream and its memory, for C."""
        cast, (here, there, up, down) = self._raw.cast, map(self._address, self._addresses)
        fields = {
            "model": self._model[0],
            "stream": cast("aclrtStream", self._address(self._stream[0])),
            "input": cast("aclmdlDataset *", self._address(self._input)),
            "output": cast("aclmdlDataset *", self._address(self._output)),
            "device_in": cast("void *", here),
            "device_out": cast("void *", there),
            "pinned_in": cast("void *", up),
            "pinned_out": cast("void *", down),
            "bytes_in": self._nbytes,
            "bytes_out": self._answer,
        }
        return self._raw.new("raw_model_t *", fields)

    def calls_in_c(self, x: NDArray[np.float32], count: int) -> NDArray[np.float32]:
        """Runs `count` calls in one function of C, on the calling thread. Returns the last result."""
        y = np.empty((1, _digits.CLASSES), np.float32)
        buffers = self._raw.from_buffer(x), self._raw.from_buffer(y)
        raw.check(self._lib.raw_model(self._fields(), *buffers, count), "a call of the model")
        return y

    async def handed(self, device: aioacl.Device, x: NDArray[np.float32], count: int) -> NDArray[np.float32]:
        """Awaits `count` calls, one after another, that a thread of C makes. It is the least that asyncio needs.

        No call is checked, none has a time limit, and all write to the same array.
        """
        y = np.empty((1, _digits.CLASSES), np.float32)
        fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        source, target = self._raw.from_buffer(x), self._raw.from_buffer(y)
        begin = self._lib.raw_thread_begin
        raw.check(await device.run(begin, self._fields(), source, target, fd), "the peer's thread")
        call = self._lib.raw_thread_call
        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def wake() -> None:
            os.eventfd_read(fd)
            future.set_result(None)

        loop.add_reader(fd, wake)
        try:
            for _ in range(count):
                future = loop.create_future()
                call()
                await future
        finally:
            loop.remove_reader(fd)
            raw.check(await device.run(self._lib.raw_thread_end), "a call of the peer's thread")
            os.close(fd)
        return y

    @staticmethod
    def _address(pointer: Any) -> int:
        return int(ffi.cast("uintptr_t", pointer))

    def close(self, device: aioacl.Device) -> None:
        """Unloads the model and frees its memory."""

        def unload() -> None:
            functions.aclmdlUnload(self._model[0])
            functions.aclrtDestroyStream(self._stream[0])

        device.run(unload).result()
        self._memory.close().result()
        self._pinned.close().result()
