"""Phases in which an await waits for the maintenance thread, a stream, an event or a ticket, or has a deadline."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING, Any, Final

from aioacl import DeviceTimeout, simulator
from aioacl._lifecycle.gate import counts
from aioacl._wait.current import current_port
from tests.kit import fill_queue, until_now
from tests.reliability.cancel_bench import WATCHED
from tests.reliability.cancel_phases import (
    Setup,
    busy_maintenance,
    held,
    idle,
    make,
    phase,
    queued,
    release,
    release_call,
    waits,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from aioacl import Device, Stream
    from aioacl.simulator._faults import FaultOptions
    from tests.reliability.cancel_bench import Bench

MIB: Final = 1 << 20
MARGIN_SECONDS: Final = 0.005


# --- the maintenance thread -----------------------------------------------------------------------------------------


@phase("queued on the maintenance thread")
async def _queued(bench: Bench, _: int) -> AsyncGenerator[Setup]:
    device, manager = bench.device, bench.device._manager
    begun: list[int] = []

    async def begin(number: int) -> object:
        begun.append(number)
        return await (device.allocate(64) if number % 2 else device.create_stream())

    def made() -> int:
        return simulator.calls("aclrtMalloc") + simulator.calls("aclrtCreateStream")

    async with busy_maintenance(device):
        before = made()

        def one_call_for_each_uncancelled_await(_: int, left: int) -> str:
            calls = made() - before
            return (
                ""
                if calls == left
                else f"expected {left} calls, one for each await that was not cancelled, got {calls}"
            )

        yield Setup(
            begin,
            lambda count: queued(manager) == count,
            finish=lambda: release_call("aclrtMalloc"),
            done=one_call_for_each_uncancelled_await,
        )


def _hung_in(
    function: str, call: Callable[[Device], Awaitable[Any]], *, begins_again: bool = False
) -> Callable[..., Any]:
    async def enter(bench: Bench, count: int) -> AsyncGenerator[Setup]:
        devices = bench.devices[:count]
        bench.touched = list(range(count))

        def admitted(all_: int, _: int) -> str:
            inside = sum(counts(device.index)[2] for device in devices)
            return (
                ""
                if inside == all_
                else f"expected the gate to count {all_} calls that are in C, got {inside}"
            )

        options: FaultOptions = {"hang": "cancel"} if begins_again else {"hang": "cancel", "times": count}
        with ExitStack() as rule:
            rule.enter_context(simulator.fault(function, **options))

            async def finish() -> None:
                rule.close()  # so that a repeated wait does not hang again
                simulator.release_call("cancel")

            yield Setup(
                lambda number: call(devices[number]),
                lambda count: simulator.hung(function) == count,
                finish=finish,
                check=admitted,
            )
            await finish()

    return enter


phase("in C: aclrtMalloc", most=WATCHED)(_hung_in("aclrtMalloc", lambda device: device.allocate(64)))
phase("in C: aclrtMallocHost", most=WATCHED)(_hung_in("aclrtMallocHost", lambda device: device.pinned(64)))
phase("in C: aclrtCreateStream", most=WATCHED)(
    _hung_in("aclrtCreateStream", lambda device: device.create_stream())
)
# A wait for the device consists of many short calls, so its await does not stay blocked. The fault makes every call
# hang. Thus the calls for the first devices are still in C when the call for the last device enters C.
phase("in C: aclrtSynchronizeDevice", most=WATCHED, at_once=True)(
    _hung_in("aclrtSynchronizeDeviceWithTimeout", lambda device: device.synchronize(), begins_again=True)
)


def _made(*, drained: bool) -> Callable[..., Any]:
    async def enter(bench: Bench, count: int) -> AsyncGenerator[Setup]:
        device, manager = bench.device, bench.device._manager
        port = current_port()

        def arrive() -> None:
            simulator.release_call("aclrtMalloc")
            until_now(lambda: idle(manager))
            if drained:
                port.drain()

        before = simulator.stats()
        async with busy_maintenance(device):

            def made(_: int) -> bool:
                now = simulator.stats()
                new = now.device_blocks - before.device_blocks - 1 + now.streams - before.streams
                return idle(manager) and new == count

            yield Setup(
                lambda number: device.allocate(64) if number % 2 else device.create_stream(),
                made,
                gathered=lambda count: queued(manager) == count,
                arrive=arrive,
            )

    return enter


phase("object created, completion not processed by the loop", at_once=True)(_made(drained=False))
phase("completion processed by the loop, task not resumed", at_once=True, has_result=True)(
    _made(drained=True)
)


@phase("closing, on the maintenance thread")
async def _closing(bench: Bench, count: int) -> AsyncGenerator[Setup]:
    device, manager = bench.device, bench.device._manager
    things = [await make(device, number % 3) for number in range(count)]
    functions = ("aclrtDestroyStream", "aclrtFree", "aclrtFreeHost")

    def released() -> int:
        return sum(map(simulator.calls, functions))

    async with busy_maintenance(device):
        before = released()

        def each_once(all_: int, _: int) -> str:
            until_now(lambda: idle(manager))
            calls = released() - before
            return (
                "" if calls == all_ else f"expected {all_} calls, one for each released object, got {calls}"
            )

        yield Setup(
            lambda number: things[number].close(),
            lambda count: queued(manager) == count,
            finish=lambda: release_call("aclrtMalloc"),
            done=each_once,
        )


# --- streams ------------------------------------------------------------------------------------------------------


def _point_of_a_stream(point: Callable[[Device, Stream, Any], Any]) -> Callable[..., Any]:
    """A wait for a position of a held stream. The device has a watcher or a thread for each wait, by chance."""

    async def enter(bench: Bench, count: int) -> AsyncGenerator[Setup]:
        device = bench.rng.choice((bench.device, bench.threaded))
        bench.touched = [device.index]
        async with device.allocate(64) as memory, held(device) as stream:
            stream.fill(memory, 1)
            points = [point(device, stream, memory) for _ in range(count)]

            async def begin(number: int) -> None:
                await points[number]

            yield Setup(begin, lambda count: waits(device) == count, finish=lambda: release(stream))
            points.clear()

    return enter


def _full(_: Device, stream: Stream, memory: Any) -> Any:
    fill_queue(stream, memory)
    return stream.ready()


phase("waiting for a ticket")(_point_of_a_stream(lambda _, stream, memory: stream.fill(memory, 1)))
phase("waiting for an event")(_point_of_a_stream(lambda _, stream, __: stream.record()))
phase("waiting for a stream")(_point_of_a_stream(lambda _, stream, __: stream))
phase("device.synchronize: its streams")(_point_of_a_stream(lambda device, _, __: device.synchronize()))
phase("ready() of a full queue")(_point_of_a_stream(_full))


@phase("a ticket that is done, completion not processed by the loop", at_once=True)
async def _ticket_done(bench: Bench, count: int) -> AsyncGenerator[Setup]:
    device = bench.device
    async with device.allocate(64) as memory, held(device) as stream:
        tickets = [stream.fill(memory, 1) for _ in range(count)]

        async def begin(number: int) -> None:
            await tickets[number]

        def arrive() -> None:
            simulator.release(stream)
            until_now(lambda: waits(device) == 0)

        yield Setup(
            begin, lambda _: waits(device) == 0, gathered=lambda count: waits(device) == count, arrive=arrive
        )
        tickets.clear()


@phase("device.synchronize: queued on the maintenance thread")
async def _synchronize_queued(bench: Bench, _: int) -> AsyncGenerator[Setup]:
    device = bench.device
    async with busy_maintenance(device):
        yield Setup(
            lambda _: device.synchronize(),
            lambda count: queued(device._manager) == count,
            finish=lambda: release_call("aclrtMalloc"),
        )


@phase("in the middle of an upload or download", most=4)
async def _pump(bench: Bench, count: int) -> AsyncGenerator[Setup]:
    device = bench.device
    source = bytes(3 * MIB)
    async with AsyncExitStack() as stack:
        memory = [await stack.enter_async_context(device.allocate(len(source))) for _ in range(count)]
        stream = await stack.enter_async_context(held(device))

        async def begin(number: int) -> None:
            if number % 2:
                await stream.upload(memory[number], source)
            else:
                await stream.download(bytearray(len(source)), memory[number])

        yield Setup(begin, lambda count: waits(device) == count, finish=lambda: release(stream))


# --- deadlines ----------------------------------------------------------------------------------------------------


def _deadline(*, fired: bool) -> Callable[..., Any]:
    """A wait that is cancelled in the turn in which its deadline passes: before or after its timer fires."""

    async def enter(bench: Bench, _: int) -> AsyncGenerator[Setup]:
        device, seconds = bench.device, bench.soon_seconds
        begun: list[float] = []

        async def begin(_: int) -> None:
            begun.append(time.monotonic())
            await stream.synchronize(timeout=seconds)

        def end() -> float:
            return max(begun) + seconds + MARGIN_SECONDS

        def over() -> bool:
            return time.monotonic() > end()

        async def after_the_timers(cancel: Callable[[], None]) -> None:
            done = asyncio.Event()

            def cancel_and_continue() -> None:
                cancel()
                done.set()

            asyncio.get_running_loop().call_at(end(), cancel_and_continue)
            await done.wait()

        def waiting(count: int) -> bool:
            return waits(device) == count == len(begun)

        async with device.allocate(64) as memory, held(device) as stream:
            stream.fill(memory, 1)
            yield Setup(
                begin,
                lambda count: waiting(count) and over(),
                finish=lambda: release(stream),
                gathered=lambda count: waiting(count) or (begun and over()),
                arrive=lambda: until_now(over),
                request=after_the_timers if fired else None,
                allowed=(DeviceTimeout,),
            )
        # On a busy machine the deadline can pass before all awaits have begun.
        bench.soon_seconds = seconds * 2 if bench.void else seconds

    return enter


phase("deadline passes in the turn of the cancellation", at_once=True)(_deadline(fired=False))
phase("deadline has passed, task not resumed", at_once=True, has_result=True)(_deadline(fired=True))
