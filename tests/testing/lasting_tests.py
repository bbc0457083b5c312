"""Tests that leave no leak. Some objects stay after a test, for example the loop and the device of the session.

This file is not collected here: test_plugin.py copies it into the example project and runs it there. The plugin must
report no leak in this file.
"""

from __future__ import annotations

import asyncio
import threading
import unittest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
import uvloop

import aioacl
from aioacl.testing import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

# --- a loop, a device and a stream of the session -------------------------------------------------------------------


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def npu() -> AsyncIterator[aioacl.Device]:
    async with aioacl.open_device() as device:
        yield device


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stream(npu: aioacl.Device) -> AsyncIterator[aioacl.Stream]:
    async with npu.create_stream() as stream:
        yield stream


@pytest.mark.asyncio(loop_scope="session")
class TestSession:
    async def test_pools_may_grow(self, npu: aioacl.Device, stream: aioacl.Stream) -> None:
        async with npu.allocate(64) as memory:
            events = [stream.record() for _ in range(100)]
            await stream.fill(memory, 1)
            await events[-1]

    async def test_default_executor_may_stay(self, stream: aioacl.Stream) -> None:
        await asyncio.to_thread(stream.result)

    async def test_executor_of_the_device_may_stay(self, npu: aioacl.Device) -> None:
        assert await npu.run(threading.get_ident) != threading.get_ident()

    async def test_cancelled_wait_may_stay_pending(
        self, npu: aioacl.Device, stream: aioacl.Stream, aioacl_simulator: Any
    ) -> None:
        async with npu.allocate(64) as memory:
            aioacl_simulator.hold(stream)  # the stream is not released
            waiting = asyncio.ensure_future(self._fill(stream, memory))
            # The pending entries may include a mark.
            await wait_until(lambda: aioacl_simulator.pending(stream))
            waiting.cancel()

    async def _fill(self, stream: aioacl.Stream, memory: aioacl.DeviceBuffer) -> None:
        await stream.fill(memory, 1)

    async def test_stream_works_after_a_cancelled_wait(
        self, npu: aioacl.Device, stream: aioacl.Stream
    ) -> None:
        async with npu.allocate(64) as memory:
            await stream.fill(memory, 1)

    async def test_reset_of_the_device_of_the_session(self, npu: aioacl.Device) -> None:
        assert (await npu.force_reset(grace=0)).ok


# --- closed loops, and loops other than asyncio's --------------------------------------------------------------------


@pytest.fixture
def made_on_a_closed_loop() -> Iterator[aioacl.Stream]:
    async def make() -> tuple[aioacl.Device, aioacl.Stream]:
        device = await aioacl.open_device(1)
        return device, await device.create_stream()

    device, stream = asyncio.run(make())
    yield stream
    stream.close().result()
    device.close().result()


def test_stream_works_after_its_loop_is_closed(made_on_a_closed_loop: aioacl.Stream) -> None:
    assert made_on_a_closed_loop.query()


@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
def test_loop_of_a_backend_may_open_and_close(backend: str) -> None:
    async def main() -> None:
        async with aioacl.open_device() as device, device.create_stream() as stream:
            await stream

    if backend == "trio":
        pytest.importorskip("trio").run(main)
    else:
        (uvloop.run if backend == "uvloop" else asyncio.run)(main())


@pytest.mark.asyncio
async def test_fixture_may_be_requested_in_a_running_loop(request: pytest.FixtureRequest) -> None:
    device = request.getfixturevalue("aioacl_device")
    async with device.create_stream() as stream:
        await stream


# --- other tests that pytest collects -------------------------------------------------------------------------------


class TestIsolated(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.device = await aioacl.open_device()

    async def asyncTearDown(self) -> None:
        await self.device.close()

    async def test_it(self) -> None:
        async with self.device.create_stream() as stream:
            await stream


class TestStrategies:
    @pytest.fixture(params=["watch", "thread"])
    def aioacl_waits(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    def test_two_opens_work_with_each_strategy(self, aioacl_open: Any) -> None:
        first, again = aioacl_open(1), aioacl_open(1)
        for device in (first, again):
            stream = device.create_stream().result()
            stream.result()
            stream.close().result()


@pytest.mark.asyncio
async def test_pool_serves_a_model_on_all_devices(aioacl_open_pool: Any, aioacl_simulator: Any) -> None:
    with aioacl_simulator.register_model("digits_batches", lambda _: None):
        infer = aioacl_open_pool(Path(aioacl.__file__).parent / "data" / "digits_batches.om", max_rows=8)
        assert (len(infer.devices), infer.max_rows) == (len(aioacl.list_devices()), 8)
        assert (await infer(memoryview(bytes(256)).cast("f", (1, 64)))).shape == (1, 10)


@pytest.mark.aioacl_simulator
def test_library_is_the_simulator() -> None:
    assert aioacl.library_info().backend == "simulator"


@pytest.mark.xfail(raises=ZeroDivisionError, strict=True)
def test_expected_failure_that_leaves_nothing(aioacl_device: aioacl.Device) -> None:
    stream = aioacl_device.create_stream().result()
    stream.close().result()
    raise ZeroDivisionError(stream)
