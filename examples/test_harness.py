"""Tests of asynchronous code without a card: they hold a stream of the simulator, release it, and make a copy fail.

Run this file with pytest and pytest-asyncio, with `asyncio_mode = "auto"` in the settings. No test sleeps: a held
stream starts no task until it is released.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

import aioacl
from aioacl import simulator


class Mailbox:
    """The code under test: `take` returns the newest message that was put."""

    def __init__(self, stream: aioacl.Stream, memory: aioacl.DeviceBuffer) -> None:
        self.stream, self.memory = stream, memory

    def put(self, message: bytes) -> aioacl.Ticket:
        """Enqueues the message."""
        return self.stream.copy(self.memory, message.ljust(self.memory.size, b"\0"))

    async def take(self) -> bytes:
        """Waits for all messages that were put before, and returns the newest one."""
        found = bytearray(self.memory.size)
        await self.stream.copy(found, self.memory)
        return bytes(found).rstrip(b"\0")


@pytest.fixture
async def mailbox() -> AsyncIterator[Mailbox]:
    aioacl.use_library("simulator")
    async with (
        aioacl.open_device(0) as device,
        device.create_stream() as stream,
        device.allocate(64) as memory,
    ):
        yield Mailbox(stream, memory)


async def test_take_returns_the_newest_message(mailbox: Mailbox) -> None:
    mailbox.put(b"first")
    mailbox.put(b"second")
    assert await mailbox.take() == b"second"


async def test_take_waits_for_a_slow_device(mailbox: Mailbox) -> None:
    with simulator.held(mailbox.stream):
        sent = mailbox.put(b"slow")
        taking = asyncio.create_task(mailbox.take())
        await asyncio.sleep(0)
        assert not sent.done
        assert not taking.done()
    assert await taking == b"slow"


async def test_failed_copy_raises_device_fault(mailbox: Mailbox) -> None:
    simulator.fail_next(mailbox.stream, 507015)
    with pytest.raises(aioacl.DeviceFault):
        await mailbox.put(b"lost")


if __name__ == "__main__":
    command = [sys.executable, "-m", "pytest", "-o", "asyncio_mode=auto", __file__]
    sys.exit(subprocess.call(command))
