"""With trio, Ctrl-C is raised at the next checkpoint while a function of aioacl is on the stack."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib
from aioacl._wait import trio as trio_port
from aioacl._wait.current import current_port
from tests.kit import equipped, until, wait_for
from tests.support.command import finished

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from types import FrameType

    from tests.kit import OpenDevice

    Held = Callable[[Callable[[aioacl.Ticket], Awaitable[None]]], None]

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


LATE = """
import os, sys, trio
import aioacl

names = set()

def trace(frame, event, argument):
    if frame.f_code.co_filename.endswith(os.sep + "wrapped.py"):
        names.add((frame.f_code.co_name, trio.lowlevel.currently_ki_protected()))

async def main():
    async with aioacl.open_device() as device:
        print("aioacl._handles.wrapped" in sys.modules)
        try:
            device.wrap_memory("address", 8)
        except aioacl.ParameterError:
            wrap = sys.modules["aioacl._handles.wrapped"].wrap
        sys.settrace(trace)
        try:
            wrap(device._manager, "address", 8, None)
        except aioacl.ParameterError:
            sys.settrace(None)
        print(names)

trio.run(main)
"""


@pytest.mark.process
def test_functions_of_modules_that_are_imported_late_are_protected_from_ctrl_c() -> None:
    ran = finished([sys.executable, "-c", LATE], env=os.environ | {"AIOACL_LIBRARY": "simulator"}, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "False\n{('wrap', True)}\n", "")


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


@pytest.fixture
def held(open_device: OpenDevice) -> Held:
    """Runs a function on trio with a ticket whose work is held, and checks that no wait is left afterwards."""

    def run(body: Callable[[aioacl.Ticket], Awaitable[None]]) -> None:
        async def main() -> None:
            async with equipped(open_device) as (_, stream, memory):
                simulator.hold(stream)
                await body(stream.fill(memory, 1))
                simulator.release(stream)
                await stream
                await until(lambda: current_port().outstanding == 0)
                assert stream._core.awaits == 0

        trio.run(main)

    return run


def test_task_that_is_cancelled_as_its_completion_comes_raises_only_the_cancellation(held: Held) -> None:
    async def body(ticket: aioacl.Ticket) -> None:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait_for, ticket)
                await until(lambda: lib.aio_device_waits(0) == 1)
                simulator.release_all()
                while lib.aio_device_waits(
                    0
                ):  # blocks the run until the watcher has published the completion
                    pass
                scope.cancel()
        assert scope.cancelled_caught

    held(body)


def test_task_that_is_cancelled_before_its_completion_is_not_woken_by_it(held: Held) -> None:
    async def body(ticket: aioacl.Ticket) -> None:
        with trio.move_on_after(0) as scope:
            await ticket
        assert scope.cancelled_caught
        simulator.release_all()
        await until(lambda: current_port().outstanding == 0)  # the completion has come, and its task runs on

    held(body)


def test_await_of_finished_work_is_a_checkpoint(held: Held) -> None:
    async def body(ticket: aioacl.Ticket) -> None:
        simulator.release_all()
        await ticket
        with trio.CancelScope() as scope:
            scope.cancel()
            await ticket
        assert scope.cancelled_caught

    held(body)


def test_await_that_is_closed_before_its_completion_leaves_its_stream_usable(held: Held) -> None:
    async def body(ticket: aioacl.Ticket) -> None:
        steps = ticket.__await__()
        steps.send(None)
        steps.close()
        with pytest.raises(RuntimeError, match="the await has ended"):
            steps.send(None)

    held(body)


def test_exception_thrown_into_an_await_of_trio_is_raised_and_ends_it(held: Held) -> None:
    async def body(ticket: aioacl.Ticket) -> None:
        steps = ticket.__await__()
        steps.send(None)
        with pytest.raises(KeyError, match="it"):
            steps.throw(KeyError("it"))

    held(body)


def test_await_of_a_trio_run_that_asyncio_drives_is_refused(open_device: OpenDevice) -> None:
    async def made(ticket: aioacl.Ticket) -> Generator[Any, Any, None]:
        return ticket.__await__()

    async def drive(steps: Generator[Any, Any, None]) -> None:
        with pytest.raises(RuntimeError, match="expected a step on the event loop that made the await"):
            steps.send(None)

    with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        simulator.hold(stream)
        asyncio.run(drive(trio.run(made, stream.fill(memory, 1))))
        simulator.release_all()
