"""Devices on which awaits are cancelled again and again, and the check that nothing is left behind."""

from __future__ import annotations

import gc
import threading
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, Self

import anyio

from aioacl import simulator
from aioacl._base.ffi import lib
from aioacl._lifecycle.gate import counts, inside
from aioacl._wait.current import current_port
from aioacl.testing import snapshot
from tests.kit import NAP_SECONDS
from tests.reliability import setting

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from aioacl import Device
    from aioacl._lifecycle.manager import Manager
    from tests.reliability.loops import Turns

WATCHED: Final = 8  # devices with a watcher; one more device has a thread for each wait
SPARE: Final = range(WATCHED + 1, WATCHED + 5)  # devices that phases open and close
DEVICES: Final = SPARE.stop
SETTLE_SECONDS: Final = 10.0
BEFORE_GC_SECONDS: Final = 0.005
JOBS_AT_ONCE: Final = 12
SOON_SECONDS: Final = 0.02
BYTES: Final = 256
PROCEDURES: Final = ("aioacl-open-", "aioacl-close-", "aioacl-reset-", "aioacl-foreign-")
POOLS: Final = ("events", "host_blocks", "native_threads", "threads")  # an open device refills these pools


class Bench:
    """The open devices, and the snapshot that was taken when all of them were idle."""

    def __init__(self, turns: Turns, rng: random.Random) -> None:
        self.turns = turns
        self.rng = rng
        self.findings: list[str] = []
        self.devices: list[Device] = []
        self.touched: list[int] = [0]  # the devices that the batch uses; they must work after the batch
        self.void = False  # True if the batch missed its phase and must be repeated
        self.soon_seconds = SOON_SECONDS
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        for index in range(WATCHED):
            self.devices.append(
                await self._stack.enter_async_context(setting.open_device(index, cache=False))
            )
        self.threaded = await self._stack.enter_async_context(
            setting.open_device(WATCHED, "thread", cache=False)
        )
        self.narrow, self.wide = self.devices[1], self.devices[2]
        self.narrow.executor._limit, self.wide.executor._limit = 1, JOBS_AT_ONCE
        for device in (*self.devices, self.threaded):
            await self.works(device)
        self._before = snapshot()
        gc.collect()
        gc.freeze()  # from now on the garbage collector examines only newer objects
        return self

    async def __aexit__(self, *exc: object) -> None:
        gc.unfreeze()
        simulator.clear()
        simulator.release_all()
        await self._stack.aclose()

    @property
    def device(self) -> Device:
        """The device that most phases use."""
        return self.devices[0]

    @property
    def managers(self) -> Iterable[Manager]:
        """The managers of the devices that stay open."""
        return (device._manager for device in (*self.devices, self.threaded))

    def expect(self, holds: object, finding: str) -> None:
        """Notes a finding unless the condition holds."""
        if not holds:
            self.findings.append(finding)

    async def works(self, device: Device) -> bool:
        """Whether a copy to the device and back returns the same bytes."""
        pattern, back = self.rng.randbytes(BYTES), bytearray(BYTES)
        async with device.create_stream() as stream, device.allocate(BYTES) as memory:
            stream.copy(memory, pattern)
            await stream.copy(back, memory)
        return bytes(back) == pattern

    # --- what a batch leaves behind ----------------------------------------------------------------------------------

    async def settle(self, where: str) -> None:
        """Waits until everything is released, and checks that the devices of the batch work."""
        begun = time.monotonic()
        while left := self._left():
            late = time.monotonic() - begun
            if late > SETTLE_SECONDS:
                self.findings.append(
                    f"{where}: expected nothing to be left after {SETTLE_SECONDS:.0f} s, got {left}"
                )
                return
            if late > BEFORE_GC_SECONDS:
                gc.collect()
            await anyio.sleep(NAP_SECONDS)
        for index in self.touched:
            await self._try(index, where)

    async def _try(self, index: int, where: str) -> None:
        if index in SPARE:
            async with setting.open_device(index, cache=False) as device:
                works = await self.works(device)
        else:
            works = await self.works([*self.devices, self.threaded][index])
        self.expect(
            works, f"{where}: expected a copy on device {index} to work after the batch, but it failed"
        )

    def state(self) -> dict[str, object]:
        """The current state, for a finding."""
        device = self.devices[self.touched[0]] if self.touched[0] < WATCHED else self.threaded
        left = {name.partition(" of ")[0]: it for name, it in self._left().items()}
        calls = [(entry["call"], entry["rc"]) for entry in simulator.journal()[-5:]]
        return {"device": repr(device), "inside": inside(device.index), **left, "newest calls": calls}

    def _left(self) -> dict[str, Any]:
        """Returns, by name, the counts that must be 0 but are not, and the counts that grew since `__aenter__`."""
        port = current_port()
        found: dict[str, Any] = {
            "waits in the port": len(port._waits),
            "tokens of the port": len(port._tokens),
            "procedures": sum(thread.name.startswith(PROCEDURES) for thread in threading.enumerate()),
            "calls inside": simulator.stats().inside,
            "violations": simulator.violations() if simulator.stats().violations else 0,
            "grown": snapshot().more_than(self._before, *POOLS),
        }
        for manager in self.managers:
            found |= {f"{name} of device {manager.index}": left for name, left in _left_on(manager)}
        return {name: left for name, left in found.items() if left}


def _left_on(manager: Manager) -> Iterable[tuple[str, object]]:
    """Counts of a device that must be 0 when it is idle."""
    enqueueing, _, lifetime = counts(manager.index)
    yield "leases", len(manager.admission.leases)
    yield "waiting turns", len(manager.admission.turns._waiting)
    yield "due turns", len(manager.admission.turns._due)
    yield "subscribers", len(manager.admission._subscribers)
    yield "listeners", len(manager.admission.listeners._all)
    yield "calls of both threads", len(manager.maintenance._calls) + len(manager.control._calls)
    yield "jobs of the executor", sum(len(executor._items) for executor in manager.jobs._executors)
    yield "calls counted by the gate", enqueueing + lifetime
    yield "waits of streams", lib.aio_device_waits(manager.index)
    yield "streams", len(manager.streams.members())
    yield "deferred clean-ups", len(manager.deferred.leftovers) + len(manager.deferred.notes)
    yield "opens", manager.admission.opens - 1
