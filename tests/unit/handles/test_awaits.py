"""Every public await, each under success, device error, timeout and cancellation; and as `.result()`."""

from __future__ import annotations

import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib
from tests.kit import FAULT, TASK_FAULT, Raised, Waiting, fill_queue, in_thread, until, until_now

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from tests.kit import OpenDevice

pytestmark = pytest.mark.every_loop

MEGABYTE = 1 << 20


@dataclass
class Scene:
    """A device, and one of each thing on it."""

    open_device: OpenDevice
    device: aioacl.Device
    stream: aioacl.Stream
    memory: aioacl.DeviceBuffer
    large: aioacl.DeviceBuffer
    started: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Lets everything that stands still go on."""
        simulator.clear()  # a call may not have come yet to where it would have hung
        simulator.release_all()
        self.go_on.set()


@asynccontextmanager
async def scene_of(open_device: OpenDevice) -> AsyncGenerator[Scene]:
    async with (
        open_device() as device,
        device.create_stream() as stream,
        device.allocate(64) as memory,
        device.allocate(6 * MEGABYTE) as large,
    ):
        yield Scene(open_device, device, stream, memory, large)


def nothing(_: Scene) -> None:
    """The scene is as it should be."""


def hold(scene: Scene) -> None:
    simulator.hold(scene.stream)
    scene.stream.fill(scene.memory, 1)


def hold_a_full_queue(scene: Scene) -> None:
    simulator.hold(scene.stream)
    fill_queue(scene.stream, scene.memory)


def hang(function: str) -> Callable[[Scene], None]:
    return lambda _: simulator.hang_call(function)


def hangs(function: str) -> Callable[[Scene], bool]:
    return lambda _: simulator.hung(function) > 0


def waits(_: Scene) -> bool:
    return bool(lib.aio_device_waits(0))


def fail_task(scene: Scene) -> None:
    simulator.fail_next(scene.stream, TASK_FAULT)


def fail(function: str, code: int) -> Callable[[Scene], None]:
    return lambda _: simulator.fail_call(function, code)


def copied(scene: Scene) -> aioacl.Ticket:
    return scene.stream.copy(scene.memory, bytes(64))


def recorded(scene: Scene) -> aioacl.Event:
    copied(scene)
    return scene.stream.record()


class Streamed:
    """`await stream`, with a copy before it."""

    def __init__(self, scene: Scene) -> None:
        copied(scene)
        self.stream = scene.stream
        self.result = scene.stream.result

    def __await__(self) -> Any:
        return self.stream.__await__()


def device_synchronized(scene: Scene) -> Any:
    copied(scene)
    return scene.device.synchronize()


def stream_synchronized(scene: Scene) -> Any:
    copied(scene)
    return scene.stream.synchronize()


@dataclass(frozen=True)
class Await:
    """How it begins, what makes it stand still, how that is seen, what makes it fail, and with which code."""

    begin: Callable[[Scene], Any]
    stall: Callable[[Scene], None]
    stalled: Callable[[Scene], bool]
    fail: Callable[[Scene], None] = nothing
    code: int = 0


def calling(function: str, code: int, begin: Callable[[Scene], Any]) -> Await:
    """One that ends with that ACL function."""
    return Await(begin, hang(function), hangs(function), fail(function, code), code)


def watching(begin: Callable[[Scene], Any]) -> Await:
    """One that waits for the stream."""
    return Await(begin, hold, waits, fail_task, TASK_FAULT)


def synchronized_event(scene: Scene) -> Any:
    return recorded(scene).synchronize()


AWAITS = {
    "open_device": calling("aclrtSetDevice", 507033, lambda s: s.open_device(1)),
    "create_stream": calling("aclrtCreateStream", 207008, lambda s: s.device.create_stream()),
    "create_stream with a priority": calling(
        "aclrtCreateStreamWithConfig", 207008, lambda s: s.device.create_stream(priority=2)
    ),
    "create_event": calling(
        "aclrtCreateEventExWithFlag", 207007, lambda s: s.device.create_event(timing=True)
    ),
    "allocate": calling("aclrtMalloc", 207001, lambda s: s.device.allocate(64)),
    "pinned": calling("aclrtMallocHost", 207001, lambda s: s.device.pinned(64)),
    "memory_info": calling("aclrtGetMemInfo", FAULT, lambda s: s.device.memory_info()),
    "abort": calling("aclrtStreamAbort", FAULT, lambda s: s.stream.abort()),
    "await stream": watching(Streamed),
    "stream.synchronize": watching(stream_synchronized),
    "await ticket": watching(copied),
    "await event": watching(recorded),
    "event.synchronize": watching(synchronized_event),
    "upload": watching(lambda s: s.stream.upload(s.large, bytes(6 * MEGABYTE))),
    "download": watching(lambda s: s.stream.download(bytearray(6 * MEGABYTE), s.large)),
    "device.synchronize": watching(device_synchronized),
    "device.synchronize, others' work": calling(
        "aclrtSynchronizeDeviceWithTimeout", FAULT, lambda s: s.device.synchronize()
    ),
    "renew": Await(lambda s: s.stream.renew(), hold, waits, fail("aclrtCreateStream", 207008), 207008),
    "ready": Await(lambda s: s.stream.ready(), hold_a_full_queue, waits),
}
FAILING = {name: entry for name, entry in AWAITS.items() if entry.code}
every_await = pytest.mark.parametrize("entry", AWAITS.values(), ids=AWAITS)
every_failing = pytest.mark.parametrize("entry", FAILING.values(), ids=FAILING)


async def give_back(made: Any) -> None:
    if hasattr(made, "close"):
        await made.close()


class TestOnALoop:
    pytestmark = pytest.mark.anyio

    @every_await
    async def test_an_await_succeeds(self, open_device: OpenDevice, entry: Await) -> None:
        async with scene_of(open_device) as scene:
            await give_back(await entry.begin(scene))

    @every_failing
    async def test_an_await_raises_the_device_error(self, open_device: OpenDevice, entry: Await) -> None:
        async with scene_of(open_device) as scene:
            entry.fail(scene)
            with pytest.raises(aioacl.AclError) as caught:
                await entry.begin(scene)
            assert caught.value.code == entry.code
            assert caught.value.device in (0, 1)
            await scene.stream.renew()
            await give_back(await entry.begin(scene))

    @every_await
    async def test_an_await_that_stands_still_obeys_the_timeout_around_it(
        self, open_device: OpenDevice, entry: Await
    ) -> None:
        async with scene_of(open_device) as scene:
            entry.stall(scene)
            with pytest.raises(TimeoutError), anyio.fail_after(0.02):
                await entry.begin(scene)
            scene.release()
            await scene.stream
            await give_back(await entry.begin(scene))

    @every_await
    async def test_a_cancelled_await_returns_at_once_and_harms_nobody(
        self, open_device: OpenDevice, entry: Await
    ) -> None:
        async with scene_of(open_device) as scene:
            entry.stall(scene)
            async with anyio.create_task_group() as group:
                waiting = Waiting(group, lambda: entry.begin(scene))
                await until(lambda: entry.stalled(scene))
                waiting.cancel()
                await until(lambda: waiting.ended)
                assert waiting.cancelled
                assert entry.stalled(scene)
            scene.release()
            await scene.stream
            await give_back(await entry.begin(scene))

    @every_await
    async def test_an_await_ends_when_what_held_it_goes_on(
        self, open_device: OpenDevice, entry: Await
    ) -> None:
        async with scene_of(open_device) as scene:
            entry.stall(scene)
            async with anyio.create_task_group() as group:
                waiting = Waiting(group, lambda: entry.begin(scene))
                await until(lambda: entry.stalled(scene))
                assert not waiting.ended
                scene.release()
                await give_back(await waiting.outcome())

    @every_await
    async def test_result_is_refused_on_a_thread_whose_loop_runs(
        self, open_device: OpenDevice, entry: Await
    ) -> None:
        async with scene_of(open_device) as scene:
            begun = entry.begin(scene)
            with pytest.raises(RuntimeError, match="await it instead"):
                begun.result()
            await give_back(await begun)


@pytest.fixture
def scene(open_device: OpenDevice) -> Any:
    device = open_device().result()
    stream = device.create_stream().result()
    memory, large = device.allocate(64).result(), device.allocate(6 * MEGABYTE).result()
    yield Scene(open_device, device, stream, memory, large)
    simulator.release_all()
    for made in (large, memory, stream, device):
        made.close().result()


class TestOnAPlainThread:
    @every_await
    def test_result_returns_what_an_await_returns(self, scene: Scene, entry: Await) -> None:
        made = entry.begin(scene).result()
        if hasattr(made, "close"):
            made.close().result()

    @every_failing
    def test_result_raises_the_device_error(self, scene: Scene, entry: Await) -> None:
        entry.fail(scene)
        with pytest.raises(aioacl.AclError) as caught:
            entry.begin(scene).result()
        assert caught.value.code == entry.code

    @every_await
    def test_result_raises_device_timeout_and_what_it_waited_for_goes_on(
        self, scene: Scene, entry: Await
    ) -> None:
        entry.stall(scene)
        with pytest.raises(aioacl.DeviceTimeout):
            entry.begin(scene).result(timeout=0.02)
        scene.release()
        scene.stream.result()

    @every_await
    def test_result_blocks_until_what_held_it_goes_on(self, scene: Scene, entry: Await) -> None:
        entry.stall(scene)
        blocked = Raised(lambda: entry.begin(scene).result())
        assert until_now(lambda: entry.stalled(scene))
        assert blocked.running
        scene.release()
        made = blocked.join()
        if hasattr(made, "close"):
            in_thread(lambda: made.close().result())


OWN_TIMEOUTS = {
    "open_device": (hang("aclrtSetDevice"), lambda s, t: s.open_device(1, timeout=t)),
    "create_stream": (hang("aclrtCreateStream"), lambda s, t: s.device.create_stream(timeout=t)),
    "create_event": (
        hang("aclrtCreateEventExWithFlag"),
        lambda s, t: s.device.create_event(timing=True, timeout=t),
    ),
    "allocate": (hang("aclrtMalloc"), lambda s, t: s.device.allocate(64, timeout=t)),
    "pinned": (hang("aclrtMallocHost"), lambda s, t: s.device.pinned(64, timeout=t)),
    "stream": (hold, lambda s, t: s.stream.synchronize(timeout=t)),
    "renew": (hold, lambda s, t: s.stream.renew(timeout=t)),
    "event": (hold, lambda s, t: recorded(s).synchronize(timeout=t)),
    "device": (hold, lambda s, t: s.device.synchronize(timeout=t)),
    "device, others' work": (
        hang("aclrtSynchronizeDeviceWithTimeout"),
        lambda s, t: s.device.synchronize(timeout=t),
    ),
}
every_timeout = pytest.mark.parametrize(("stall", "begin"), OWN_TIMEOUTS.values(), ids=OWN_TIMEOUTS)


@pytest.mark.anyio
@every_timeout
async def test_a_timeout_of_its_own_raises_device_timeout(
    open_device: OpenDevice, stall: Callable[[Scene], None], begin: Callable[[Scene, float], Any]
) -> None:
    async with scene_of(open_device) as scene:
        stall(scene)
        with pytest.raises(aioacl.DeviceTimeout):
            await begin(scene, 0.02)
        scene.release()
        await scene.stream
        await give_back(await begin(scene, 20.0))


@pytest.mark.anyio
@pytest.mark.parametrize("begin", [begin for _, begin in OWN_TIMEOUTS.values()], ids=OWN_TIMEOUTS)
@pytest.mark.parametrize("timeout", [-1, -0.5, float("nan"), "1", True, b"1"])
async def test_a_timeout_that_is_no_time_is_refused_with_the_cure(
    open_device: OpenDevice, begin: Callable[[Scene, Any], Any], timeout: Any
) -> None:
    async with scene_of(open_device) as scene:
        with pytest.raises(aioacl.ParameterError, match="must be a number of seconds, at least 0, or None"):
            await begin(scene, timeout)
