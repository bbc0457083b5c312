"""The ways to take memory, streams and slots of models from the cache of a device, and to give them back."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import threading
import warnings
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib, pointer
from aioacl._base.paths import DATA
from aioacl._lifecycle.manager import manager_of
from tests.kit import live_streams, settle_maintenance, until_now

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.signals import RaisingHandler

    Way = Callable[["Bench"], object]

SIZES: Final = (512, 1024, 4096)
KINDS: Final = ("streams", "device blocks", "pinned blocks", "slots")
SLOTS: Final = 2
CACHED: Final = 0  # the devices
UNCACHED: Final = 1
MODEL: Final = DATA / "digits.om"
X: Final = np.zeros((1, 64), np.float32)
FAILED: Final = 507011  # of the stream only
BAD: Final = np.ones((1, 64), np.float32)  # its call fails


class Bench:
    """A device with a cache, a device without, and a stream, memory and a model that no way closes."""

    def __init__(self) -> None:
        self.device = aioacl.open_device(CACHED).result()
        self.uncached = aioacl.open_device(UNCACHED, cache=False).result()
        self.stream = self.device.create_stream().result()
        self.memory = self.device.allocate(SIZES[0]).result()
        self.model = self.device.load_model(MODEL, slots=SLOTS).result()
        for _ in range(2):
            for way in WAYS.values():  # so that the caches are full
                with suppress(aioacl.AclError):
                    way(self)
        assert until_now(self.settled), "expected that the device settles"
        self.before = self.in_use()

    def settled(self) -> bool:
        """Whether all work is done, the maintenance threads have nothing to do, and no call has a slot."""
        if any(lib.aio_device_busy(index) for index in (CACHED, UNCACHED)):
            return False  # what the work uses is given back later
        gc.collect()
        settle_maintenance()
        notes = any(manager_of(index).deferred.notes for index in (CACHED, UNCACHED))
        return not notes and self.in_use()[-1] == 0

    def in_use(self) -> tuple[int, int, int, int]:
        """The numbers of streams, device blocks and pinned blocks that are in no cache, and of slots in use."""
        stats, kept = simulator.stats(), manager_of(CACHED).cache.counts
        slots = SLOTS - self.model._loaded().slots.free
        return live_streams() - kept[0], stats.device_blocks - kept[1], stats.host_blocks - kept[2], slots

    def lost(self) -> str:
        """Returns "" once as much is in use as at the beginning, or else a text that names what is lost."""

        def as_before() -> bool:
            gc.collect()
            for index in (CACHED, UNCACHED):
                manager_of(index).maintenance.kick()
            return self.in_use() == self.before

        if until_now(as_before, 5):
            return ""
        more = zip(KINDS, self.in_use(), self.before, strict=True)
        return ", ".join(f"{now - then} {kind} lost" for kind, now, then in more if now != then)

    def doubled(self) -> str:
        """Takes all that is cached, and returns a text if two handles have the same block, or two slots are one."""
        streams = self._taken(0, self.device.create_stream)
        made = [
            each
            for size in SIZES
            for kind, make in ((1, self.device.allocate), (2, self.device.pinned))
            for each in self._taken(kind, partial(make, size))
        ]
        addresses = [buffer.address for buffer in made]
        natives = [pointer(stream._core.native) for stream in streams]
        twice = sum(len(each) - len(set(each)) for each in (addresses, natives))
        for thing in (*made, *streams):
            thing.close().result()
        return f"{twice} blocks or streams twice" if twice else ""

    def wrong(self) -> str:
        """Returns "", or a text that names what is lost or twice."""
        return self.lost() or self.doubled()

    def _taken(self, kind: int, make: Callable[[], Any]) -> list[Any]:
        """Takes the objects of that kind and size that the cache has, and makes one more."""
        made, cache = list[Any](), manager_of(CACHED).cache
        while True:
            before = cache.counts[kind]
            made.append(make().result())
            if cache.counts[kind] >= before:
                return made

    def close(self) -> None:
        """Closes everything."""
        for thing in (self.model, self.memory, self.stream, self.uncached, self.device):
            thing.close().result()


# --- streams ---------------------------------------------------------------------------------------------------------


def _with_work(bench: Bench) -> None:
    stream = bench.device.create_stream().result()
    ticket = stream.fill(bench.memory, 1)
    ticket.result()
    stream.close().result()  # the ticket still refers to the record of the stream
    assert ticket.done


def _busy(bench: Bench) -> None:
    stream = bench.device.create_stream().result()
    stream.fill(bench.memory, 1)
    stream.close().result()


# --- memory ----------------------------------------------------------------------------------------------------------


def _closed(bench: Bench, make: str, size: int) -> None:
    getattr(bench.device, make)(size).result().close().result()


def _dropped(bench: Bench, make: str, *size: int) -> None:
    getattr(bench.device, make)(*size).result()


def _view(bench: Bench, make: str) -> None:
    view = getattr(bench.device, make)(SIZES[1]).result()[8:16]
    bench.stream.fill(view, 1).result() if make == "allocate" else view.view.release()


def _outlived(bench: Bench) -> None:
    pinned = bench.device.pinned(SIZES[0]).result()
    view, part = pinned.view, memoryview(pinned[8:16])
    pinned.close().result()
    view[0] = part[0]


def _exported(bench: Bench, make: str) -> None:
    buffer = getattr(bench.device, make)(SIZES[2]).result()
    capsules = [buffer.__dlpack__(), buffer[8:].__dlpack__()]
    buffer.close().result()
    capsules.clear()


def _exported_and_dropped(bench: Bench, make: str) -> None:
    getattr(bench.device, make)(SIZES[2]).result().__dlpack__()


def _used(bench: Bench, make: str) -> None:
    buffer = getattr(bench.device, make)(SIZES[0]).result()
    bench.stream.copy(bench.memory, buffer)
    buffer.close().result()


def _block(bench: Bench) -> None:
    device = bench.device
    with device.create_stream(), device.allocate(SIZES[0]), device.pinned(SIZES[0]):
        pass


def _uncached(bench: Bench) -> None:
    device = bench.uncached
    with device.create_stream(), device.allocate(SIZES[0]), device.pinned(SIZES[0]) as pinned:
        view = pinned.view
    del pinned
    view.release()


# --- models ----------------------------------------------------------------------------------------------------------


def _beside_a_thread(bench: Bench) -> None:
    def call() -> None:
        for _ in range(SLOTS):
            bench.model(X).result()

    threads = [threading.Thread(target=call) for _ in range(SLOTS)]
    for thread in threads:
        thread.start()
    try:
        call()
    finally:
        for thread in threads:
            thread.join()


# --- on an event loop ------------------------------------------------------------------------------------------------


async def _all_kinds(bench: Bench) -> None:
    device = bench.device
    async with device.create_stream() as stream, device.allocate(SIZES[1]) as memory:
        pinned = await device.pinned(SIZES[1])
        await stream.copy(memory, pinned)
        await pinned.close()
    await device.pinned(SIZES[2])
    await device.allocate(SIZES[2])
    await device.create_stream()


async def _called(bench: Bench) -> None:
    await bench.model(X)
    await asyncio.gather(*(bench.model(x) for x in (X, BAD, X, X)), return_exceptions=True)


async def _calls_cancelled(bench: Bench, turns: int) -> None:
    """Cancels calls that execute, and calls that wait for a slot."""
    tasks = [asyncio.ensure_future(_called(bench)) for _ in range(2)]
    for _ in range(turns):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def _mapped(bench: Bench) -> None:
    async with bench.model.map([X, BAD, X, X, X], errors="return") as results:
        await anext(results)
        await anext(results)


async def _left_on_loop(bench: Bench) -> None:
    """Leaves calls on a loop that is closed."""
    left = list[object]()
    for _ in range(3):
        left.append(asyncio.ensure_future(_called(bench)))
        await asyncio.sleep(0)


async def _cancelled(bench: Bench) -> None:
    async def body() -> None:
        async with bench.device.pinned(SIZES[1]) as pinned, bench.device.create_stream() as stream:
            await stream.copy(bench.memory, pinned[:512])
            await asyncio.Event().wait()

    task = asyncio.ensure_future(body())
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


def _on_loop(body: Callable[[Bench], Any]) -> Way:
    def run(bench: Bench) -> None:
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(body(bench))
        finally:  # asyncio itself may lose the wake-up of a task at an interrupt, so nothing waits for the tasks
            loop.close()

    return run


WAYS: Final[dict[str, Way]] = {
    "stream, closed": lambda bench: bench.device.create_stream().result().close().result(),
    "stream, dropped": lambda bench: _dropped(bench, "create_stream"),
    "stream with a ticket": _with_work,
    "stream with running work": _busy,
    "device memory, closed": partial(_closed, make="allocate", size=SIZES[0]),
    "device memory, dropped": lambda bench: _dropped(bench, "allocate", SIZES[1]),
    "device memory, view": partial(_view, make="allocate"),
    "device memory, exported": partial(_exported, make="allocate"),
    "device memory, exported and dropped": partial(_exported_and_dropped, make="allocate"),
    "pinned memory, closed": partial(_closed, make="pinned", size=SIZES[0]),
    "pinned memory, dropped": lambda bench: _dropped(bench, "pinned", SIZES[1]),
    "pinned memory, view": partial(_view, make="pinned"),
    "pinned memory, view that outlives it": _outlived,
    "pinned memory, exported": partial(_exported, make="pinned"),
    "pinned memory, exported and dropped": partial(_exported_and_dropped, make="pinned"),
    "pinned memory, used": partial(_used, make="pinned"),
    "blocks": _block,
    "without a cache": _uncached,
    "model": lambda bench: bench.model(X).result(),
    "model, into": lambda bench: bench.model(X, out=np.empty((1, 10), np.float32)).result(),
    "model, fails": lambda bench: bench.model(BAD).result(),
    "model, timed out": lambda bench: bench.model(X, timeout=0).result(),
    "model, beside a thread": _beside_a_thread,
    "model, on a loop": _on_loop(_called),
    "model, cancelled on a loop": _on_loop(partial(_calls_cancelled, turns=2)),
    "model, cancelled later on a loop": _on_loop(partial(_calls_cancelled, turns=20)),
    "model, mapped on a loop": _on_loop(_mapped),
    "model, on a loop that is closed": _on_loop(_left_on_loop),
    "on a loop": _on_loop(_all_kinds),
    "cancelled on a loop": _on_loop(_cancelled),
}


def _compute(execution: simulator.Execution) -> int:
    """What the simulator runs in place of the model. The execution of BAD fails."""
    return FAILED if any(execution.inputs[0].memory) else 0


def run(handler: RaisingHandler, total: int, every: int, seed: int = 1) -> str:
    """Interrupts the ways at that many steps. Returns "", or a text that names what is lost or twice."""
    logging.getLogger("asyncio").disabled = True  # it reports each task that an interrupt has ended
    try:
        with warnings.catch_warnings(), simulator.register_model("digits", _compute):
            warnings.simplefilter("ignore")  # an object that is dropped correctly emits a warning
            return _run(handler, total, every, random.Random(seed))
    finally:
        logging.getLogger("asyncio").disabled = False


def _run(handler: RaisingHandler, total: int, every: int, rng: random.Random) -> str:
    bench = Bench()
    reached, last = dict.fromkeys(WAYS, 0), list[str]()
    while handler.raised < total:
        name = rng.choice(list(WAYS))
        reached[name] += 1 + rng.randrange(40)
        last.append(f"{name} at step {reached[name]}")
        # A loop catches an Exception of a handler, and asyncio may then have lost the wake-up of a task for ever.
        ctrl_c = "loop" in name or reached[name] % 2 == 0
        if not handler.interrupt(partial(WAYS[name], bench), reached[name], ctrl_c=ctrl_c):
            reached[name] = 0
        if len(last) == every:
            wrong = bench.wrong()
            if wrong:
                return f"{wrong} after {handler.raised} interrupts; the last: {'; '.join(last)}"
            last.clear()
    wrong = bench.wrong()
    bench.close()
    return wrong
