"""Tests that leave something behind, break a device or violate a rule. Later tests must not be affected.

This file is not collected here: test_plugin.py copies it into the example project and runs it there. `# here` marks
the lines that the plugin must name.
"""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import threading
from typing import TYPE_CHECKING, Any

import pytest
from framestore import open_store

import aioacl
from aioacl import lowlevel
from aioacl._base.ffi import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

kept: list[Any] = []
go_on = threading.Event()


@pytest.fixture(autouse=True)
def _works() -> None:
    """Checks that device 0 works, before each test."""

    async def main() -> bytes:
        async with open_store() as store:
            await store.put("it", b"works")
            return await store.get("it")

    assert asyncio.run(main()) == b"works"


# --- leaks -------------------------------------------------------------------------------------------------------


def test_leaves_a_stream(aioacl_device: aioacl.Device) -> None:
    kept.append(aioacl_device.create_stream().result())  # here


def test_leaves_a_stream_in_a_nested_task() -> None:
    async def helper(device: aioacl.Device) -> None:
        (stream,) = await asyncio.gather(device.create_stream())  # here
        kept.append(stream)

    async def main() -> None:
        async with aioacl.open_device() as device:
            await helper(device)

    asyncio.run(main())


def test_drops_memory(aioacl_device: aioacl.Device) -> None:
    aioacl_device.allocate(100).result()  # here


def test_keeps_pinned_memory(aioacl_device: aioacl.Device) -> None:
    kept.append(aioacl_device.pinned(100).result())  # here


def test_leaves_devices() -> None:
    async def main() -> None:
        kept.append(await aioacl.open_device(1))  # here

    asyncio.run(main())


def test_never_leaves_a_lease(aioacl_device: aioacl.Device) -> None:
    kept.append(aioacl_device.lease().__enter__())  # here


def test_leaves_a_thread() -> None:
    threading.Thread(target=go_on.wait, name="pump").start()  # here


def test_leaves_a_file(tmp_path: Path) -> None:
    go_on.set()
    kept.append((tmp_path / "open.log").open("w"))  # here


def test_leaves_a_socket() -> None:
    kept.append(socket.socket())  # here


def test_leaves_a_temporary_file() -> None:
    kept.append(tempfile.TemporaryFile())  # noqa: SIM115 - it is not closed  # here


def test_leaves_a_named_temporary_file() -> None:
    kept.append(tempfile.NamedTemporaryFile())  # noqa: SIM115 - it is not closed  # here


def test_leaves_a_file_of_mkstemp(tmp_path: Path) -> None:
    kept.append(tempfile.mkstemp(dir=tmp_path))  # here


def test_leaves_a_spooled_file() -> None:
    spooled = tempfile.SpooledTemporaryFile(max_size=1)  # noqa: SIM115 - it is not closed
    kept.append(spooled)
    spooled.write(b"more")  # here


def test_leaves_a_temporary_directory() -> None:
    kept.append(tempfile.TemporaryDirectory())  # here


@pytest.mark.xfail(strict=True)
def test_fails_as_expected_and_leaves_a_stream(aioacl_device: aioacl.Device) -> None:
    kept.append(aioacl_device.create_stream().result())  # here
    raise AssertionError("as expected")


@pytest.mark.xfail
def test_passes_unexpectedly_and_leaves_a_stream(aioacl_device: aioacl.Device) -> None:
    kept.append(aioacl_device.create_stream().result())  # here


def test_leaves_a_pipe() -> None:
    kept.append(os.pipe())  # Python does not report the line that made the pipe


def test_leaves_a_count_below_aioacl() -> None:
    lowlevel.set_device(1)


def test_after_a_left_count_passes() -> None:
    lowlevel.reset_device(1)


@pytest.fixture(scope="class")
def forgetful() -> Iterator[aioacl.Stream]:
    device = aioacl.open_device().result()
    stream = device.create_stream().result()  # here
    kept.append(stream)
    yield stream
    device.close().result()


class TestBroaderFixture:
    def test_first_with_the_fixture_passes(self, forgetful: aioacl.Stream) -> None:
        assert forgetful.query()

    def test_last_with_the_fixture_is_reported(self, forgetful: aioacl.Stream) -> None:
        assert forgetful.query()


@pytest.mark.aioacl_allow_leaks("streams", "threads")
def test_may_leave_a_stream(aioacl_device: aioacl.Device) -> None:
    kept.append(aioacl_device.create_stream().result())


# --- violations --------------------------------------------------------------------------------------------------


def test_violates_a_rule() -> None:
    lowlevel.set_device(0)
    stream = ffi.new("aclrtStream *")
    lib.aio_u_aclrtCreateStream(stream)
    lib.aio_u_aclrtDestroyStream(stream[0])
    lib.aio_u_aclrtDestroyStream(stream[0])
    lowlevel.reset_device(0)


# --- devices that are broken in a test ---------------------------------------------------------------------------


def test_fails_with_work_in_flight(aioacl_device: aioacl.Device, aioacl_simulator: Any) -> None:
    stream, memory = aioacl_device.create_stream().result(), aioacl_device.allocate(64).result()  # here
    aioacl_simulator.hold(stream)
    stream.fill(memory, 1)
    raise AssertionError("midway")


def test_fails_with_a_call_stuck_in_c(aioacl_simulator: Any) -> None:
    async def main() -> None:
        async with aioacl.open_device() as device:
            aioacl_simulator.hang_call("aclrtMalloc")
            async with asyncio.timeout(0.05), device.allocate(64):
                pass

    asyncio.run(main())


def test_fails_on_a_poisoned_device(aioacl_simulator: Any) -> None:
    async def main() -> None:
        device = await aioacl.open_device()
        kept.append(device)
        async with device.create_stream(on_failure="stop") as stream, device.allocate(64) as memory:
            aioacl_simulator.fail_next(stream, 507015)
            await stream.fill(memory, 1)

    asyncio.run(main())


def test_blocks_until_the_watchdog_acts(aioacl_device: aioacl.Device, aioacl_simulator: Any) -> None:
    stream, memory = aioacl_device.create_stream().result(), aioacl_device.allocate(64).result()
    aioacl_simulator.hang_call("aclrtMemsetAsync")
    stream.fill(memory, 1)
    stream.result()
    stream.close().result()
    memory.close().result()


def test_device_is_healthy_afterwards(aioacl_device: aioacl.Device) -> None:
    assert aioacl_device.health.status == "ok"
