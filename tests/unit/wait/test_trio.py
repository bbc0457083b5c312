"""With trio, Ctrl-C is raised at the next checkpoint while a function of aioacl is on the stack."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

import aioacl
from aioacl._wait import trio as trio_port

if TYPE_CHECKING:
    from types import FrameType

    from tests.kit import OpenDevice

PLACE = str(Path(aioacl.__file__).parent)
OF_WEAK_REFERENCES = {"gone"}  # a nested function that the garbage collector calls


async def use(device: aioacl.Device) -> None:
    async with device.create_stream() as stream, device.allocate(64) as memory:
        await stream.fill(memory, 1)
        async with device.lease():
            await stream.upload(memory, bytes(64))
        event = stream.record()
        await event
        await stream.synchronize()
        await device.run(int)


async def work(open_device: OpenDevice) -> None:
    async with open_device() as device:
        await use(device)
        assert (await device.force_reset(grace=0)).ok


@pytest.mark.thorough
def test_functions_that_a_trio_run_calls_are_protected_from_ctrl_c(open_device: OpenDevice) -> None:
    seen: set[str] = set()
    unprotected: set[str] = set()

    def trace(frame: FrameType, _event: str, _argument: Any) -> None:
        if frame.f_code.co_filename.startswith(PLACE):
            seen.add(frame.f_code.co_qualname)
            if not trio.lowlevel.currently_ki_protected():
                unprotected.add(f"{frame.f_code.co_filename}: {frame.f_code.co_name}")

    async def main() -> None:
        await work(open_device)  # the first wait of a process protects the functions
        sys.settrace(trace)
        try:
            await work(open_device)
        finally:
            sys.settrace(None)

    trio.run(main)
    assert {name for name in unprotected if name.rpartition(": ")[2] not in OF_WEAK_REFERENCES} == set()
    assert len(seen) > 50


def test_search_for_functions_of_a_module_while_a_global_is_bound_finds_them() -> None:
    namespace = dict(vars(trio_port))
    found = trio_port._functions(namespace, trio_port.__name__)
    first = next(found)
    namespace["bound_meanwhile"] = None
    assert {first, *found} >= {trio_port.port_of_run, trio_port.TrioPort.wait}


def test_host_and_guest_of_a_guest_run_await_on_their_own_loops(open_device: OpenDevice) -> None:
    done: list[str] = []

    async def main(device: aioacl.Device) -> None:
        loop, began = asyncio.get_running_loop(), asyncio.Event()
        ended: asyncio.Future[Any] = loop.create_future()
        may_end = trio.Event()

        async def guest() -> None:
            token.append(trio.lowlevel.current_trio_token())
            began.set()
            await use(device)
            done.append("guest")
            await may_end.wait()

        token: list[trio.lowlevel.TrioToken] = []
        trio.lowlevel.start_guest_run(
            guest,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=ended.set_result,
            host_uses_signal_set_wakeup_fd=True,
        )
        await began.wait()
        await use(device)
        done.append("host")
        token[0].run_sync_soon(may_end.set)
        (await ended).unwrap()

    async def opened() -> None:
        async with open_device() as device:
            await main(device)

    asyncio.run(opened())
    assert sorted(done) == ["guest", "host"]
