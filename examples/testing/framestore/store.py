"""The store: a stream, and one device buffer for each frame."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aioacl

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class FrameLost(Exception):
    """The device failed and was reset; the frames that were on it are lost."""


class FrameStore:
    """Frames on a device, by name."""

    def __init__(self, device: aioacl.Device, stream: aioacl.Stream) -> None:
        self.device = device
        self.stream = stream
        self._frames: dict[str, aioacl.DeviceBuffer] = {}

    @property
    def names(self) -> frozenset[str]:
        """The names of the frames in the store."""
        return frozenset(self._frames)

    async def put(self, name: str, frame: bytes) -> None:
        """Stores a frame, and replaces an older one with that name."""
        buffer = await self.device.allocate(len(frame))
        try:
            await self.stream.upload(buffer, frame)
        except BaseException as error:
            await buffer.close()
            await self._recover(error)
            raise
        await self.drop(name)
        self._frames[name] = buffer

    async def get(self, name: str) -> bytes:
        """Returns the bytes of a frame. Raises KeyError if there is no such frame."""
        buffer = self._frames[name]
        frame = bytearray(buffer.size)
        try:
            await self.stream.download(frame, buffer)
        except aioacl.AclError as error:
            await self._recover(error)
            raise
        return bytes(frame)

    async def drop(self, name: str) -> None:
        """Drops a frame, if there is one with that name."""
        buffer = self._frames.pop(name, None)
        if buffer is not None:
            await buffer.close()

    async def close(self) -> None:
        """Drops all frames, and closes the stream."""
        for name in list(self._frames):
            await self.drop(name)
        await self.stream.close()

    async def _recover(self, error: BaseException) -> None:
        """After a fault of the device, resets it and begins again with an empty store."""
        if not isinstance(error, aioacl.DeviceFault):
            return
        await self.close()
        await self.device.force_reset(grace=0, reason=str(error))
        self.stream = await self.device.create_stream()
        raise FrameLost(f"device {self.device.index} was reset") from error


@asynccontextmanager
async def open_store(index: int = 0) -> AsyncGenerator[FrameStore]:
    """Opens a device and a store on it."""
    async with aioacl.open_device(index) as device:
        store = FrameStore(device, await device.create_stream())
        try:
            yield store
        finally:
            await store.close()
