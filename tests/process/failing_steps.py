"""The program that test_memory.py runs: repeats each step, and lets one allocation of it fail after the other.

    python failing_steps.py LIBRARY WAITS MODEL

LIBRARY is the compiled failing_memory.c, which the process has preloaded. With the MODEL "model", the steps of models
run too. A step must succeed, or raise MemoryError or
ResourceExhausted. Afterwards, the same step succeeds.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal

import numpy as np

import aioacl
from aioacl import simulator

Waits = Literal["watch", "thread"]
Step = Callable[["Scene"], Awaitable[object]]

SECONDS = 60
DIGITS = Path(aioacl.__file__).parent / "data" / "digits.om"
SHORTAGE = (MemoryError, aioacl.ResourceExhausted)


def code_of_extension() -> tuple[int, int]:
    """The addresses of the extension's code."""
    path = str(Path(str(sys.modules["aioacl._acl"].__file__)).resolve())
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(path) and "x" in line.split()[1]:
            start, _, end = line.split()[0].partition("-")
            return int(start, 16), int(end, 16)
    raise AssertionError("expected the extension in the maps of this process")


class Failing:
    """Lets allocations fail."""

    def __init__(self, library: str) -> None:
        self._arm = ctypes.CDLL(library).failing_arm
        self._arm.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
        self._code = code_of_extension()

    def arm(self, nth: int) -> bool:
        """Lets the allocation with this number fail; 0: none. Returns whether the previous one has failed."""
        return bool(self._arm(*self._code, nth))


class Scene:
    """An open device with the objects that the steps use."""

    def __init__(
        self,
        device: aioacl.Device,
        stream: aioacl.Stream,
        memory: aioacl.DeviceBuffer,
        pinned: aioacl.PinnedBuffer,
        model: aioacl.Model | None,
    ) -> None:
        self.device = device
        self.stream = stream
        self.memory = memory
        self.model = model
        self.pinned = pinned


@asynccontextmanager
async def scene(waits: Waits, with_model: bool) -> AsyncGenerator[Scene]:
    """Opens the device."""
    async with (
        aioacl.open_device(0, waits=waits) as device,
        device.create_stream() as stream,
        device.allocate(64) as memory,
        device.pinned(64) as pinned,
    ):
        if not with_model:
            yield Scene(device, stream, memory, pinned, None)
            return
        async with device.load_model(DIGITS) as model:
            yield Scene(device, stream, memory, pinned, model)


def hold_for_a_turn(stream: aioacl.Stream) -> None:
    """Holds the stream until the next turn of the loop, so that the next await has to wait."""
    simulator.hold(stream)
    asyncio.get_running_loop().call_soon(simulator.release, stream)


async def opens_and_closes(_: Scene) -> None:
    async with aioacl.open_device(1):
        pass


async def makes_and_closes(scene: Scene) -> None:
    stream = await scene.device.create_stream()
    await stream.close()
    buffer = await scene.device.allocate(4096)
    await buffer.close()
    pinned = await scene.device.pinned(4096)
    await pinned.close()
    event = await scene.device.create_event()
    await event.close()


async def copies_pinned_memory(scene: Scene) -> None:
    hold_for_a_turn(scene.stream)
    first = scene.stream.copy(scene.memory, scene.pinned)
    last = scene.stream.copy(scene.pinned, scene.memory)
    await first
    await last
    await scene.stream


async def copies_pageable_memory(scene: Scene) -> None:
    target = bytearray(64)
    hold_for_a_turn(scene.stream)
    await scene.stream.copy(scene.memory, bytes(range(64)))
    await scene.stream.copy(target, scene.memory)
    assert target == bytes(range(64))


async def uploads_and_downloads(scene: Scene) -> None:
    target = bytearray(64)
    hold_for_a_turn(scene.stream)
    await scene.stream.upload(scene.memory, b"7" * 64)
    await scene.stream.download(target, scene.memory)
    assert target == b"7" * 64


async def waits_for_an_event(scene: Scene) -> None:
    async with scene.device.create_stream() as other:
        hold_for_a_turn(scene.stream)
        scene.stream.fill(scene.memory, 1)
        event = scene.stream.record()
        await other.wait_event(event)
        await event


async def waits_with_a_limit(scene: Scene) -> None:
    hold_for_a_turn(scene.stream)
    scene.stream.fill(scene.memory, 2)
    await scene.stream.synchronize(timeout=60)
    await scene.device.synchronize()


async def waits_on_a_thread(scene: Scene) -> None:
    def wait() -> None:
        scene.stream.fill(scene.memory, 3).result()

    await asyncio.to_thread(wait)


async def runs_a_job(scene: Scene) -> None:
    assert await scene.device.run(lambda: 5) == 5


async def holds_a_lease(scene: Scene) -> None:
    async with scene.device.lease():
        await scene.stream.fill(scene.memory, 4)


async def fails_a_task(scene: Scene) -> None:
    stream = await scene.device.create_stream()
    try:
        simulator.fail_next(stream, 507015)
        ticket = stream.fill(scene.memory, 5)
        for _ in range(2):
            try:
                await ticket
            except aioacl.AclError:
                continue
            raise AssertionError("the await of a failed task succeeded")
        await stream.renew()
        await stream.fill(scene.memory, 6)
    finally:
        simulator.clear()
        await stream.close()


async def calls_a_model(scene: Scene) -> None:
    assert scene.model is not None
    images = scene.model.inputs[0]
    await scene.model(np.zeros([size or 1 for size in images.shape], images.dtype))


async def loads_a_model(scene: Scene) -> None:
    async with scene.device.load_model(DIGITS):
        pass


async def resets(_: Scene) -> None:
    async with (
        aioacl.open_device(1) as device,
        device.create_stream() as stream,
        device.allocate(64) as memory,
    ):
        with suppress(aioacl.DeviceReset):
            simulator.hold(stream)
            ticket = stream.fill(memory, 1)
            await device.force_reset(grace=0)
            await ticket


STEPS: tuple[Step, ...] = (
    opens_and_closes,
    makes_and_closes,
    copies_pinned_memory,
    copies_pageable_memory,
    uploads_and_downloads,
    waits_for_an_event,
    waits_with_a_limit,
    waits_on_a_thread,
    runs_a_job,
    holds_a_lease,
    fails_a_task,
    resets,
)
STEPS_WITH_A_MODEL: tuple[Step, ...] = (calls_a_model, loads_a_model)


async def sweep(step: Step, scene: Scene, failing: Failing) -> tuple[int, int]:
    """Repeats the step until no allocation fails. Returns how many allocations and steps have failed."""
    nth = raised = 0
    failed = True
    while failed:
        nth += 1
        failing.arm(nth)
        try:
            async with asyncio.timeout(SECONDS):
                await step(scene)
        except SHORTAGE:
            raised += 1
        failed = failing.arm(0)
        async with asyncio.timeout(SECONDS):
            await step(scene)
    return nth - 1, raised


async def main(library: str, waits: Waits, with_model: bool) -> None:
    failing = Failing(library)
    aioacl.use_library("simulator")
    async with scene(waits, with_model) as here:
        for step in (*STEPS, *(STEPS_WITH_A_MODEL if with_model else ())):
            allocations, raised = await sweep(step, here, failing)
            print(step.__name__, allocations, raised, flush=True)
    violations, left = simulator.violations(), simulator.stats()
    assert not violations, violations
    assert (left.streams, left.events, left.device_blocks, left.host_blocks) == (0, 0, 0, 0), left


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], "thread" if sys.argv[2] == "thread" else "watch", sys.argv[3] == "model"))
