"""Event loops that are closed while an await of each kind is pending."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import warnings
from typing import TYPE_CHECKING, Any, Final

from aioacl import simulator
from tests.kit import PATIENCE_SECONDS, hanging, until
from tests.reliability import setting
from tests.reliability.interrupts_calls import BYTES, MODEL, call_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.reliability.interrupts_calls import Bench

    Begin = Callable[["Bench", threading.Event], Awaitable[Any]]


def _work(bench: Bench) -> Any:
    simulator.hold(bench.stream)
    return bench.stream.fill(bench.memory, 1)


async def _lease(bench: Bench) -> None:
    async with bench.device.lease():
        await _work(bench)


async def _block(bench: Bench) -> None:
    async with bench.device.create_stream() as stream, bench.device.allocate(64) as memory:
        simulator.hold(stream)
        await stream.fill(memory, 1)


async def _close(bench: Bench) -> None:
    memory = await bench.device.allocate(64)
    await memory.close()


# For each kind of await: the ACL function that hangs, or None, and a function that begins the await.
KINDS: Final[dict[str, tuple[str | None, Begin]]] = {
    "ticket": (None, lambda bench, _: _work(bench)),
    "event": (None, lambda bench, _: (_work(bench), bench.stream.record())[1]),
    "stream": (None, lambda bench, _: (_work(bench), bench.stream.synchronize())[1]),
    "device.synchronize": (None, lambda bench, _: (_work(bench), bench.device.synchronize())[1]),
    "download": (
        None,
        lambda bench, _: (_work(bench), bench.stream.download(bytearray(BYTES), bench.memory))[1],
    ),
    "a lease": (None, lambda bench, _: _lease(bench)),
    "a block": (None, lambda bench, _: _block(bench)),
    "run": (None, lambda bench, go_on: bench.device.run(go_on.wait)),
    "events": (None, lambda bench, _: anext(bench.device.events())),
    "allocate": ("aclrtMalloc", lambda bench, _: bench.device.allocate(64)),
    "pinned": ("aclrtMallocHost", lambda bench, _: bench.device.pinned(64)),
    "create_stream": ("aclrtCreateStream", lambda bench, _: bench.device.create_stream()),
    "memory_info": ("aclrtGetMemInfo", lambda bench, _: bench.device.memory_info()),
    "force_reset": (setting.RESETS, lambda bench, _: bench.device.force_reset(grace=0)),
    "model call": ("aclmdlExecuteAsync", lambda bench, _: call_of(bench)),
    "load_model": ("aclmdlLoadFromFileWithMem", lambda bench, _: bench.device.load_model(MODEL)),
    "open_device": (setting.OPENS, lambda _, __: setting.open_device(1)),
    "close of memory": ("aclrtFree", lambda bench, _: _close(bench)),
}


def abandon(bench: Bench, kind: str) -> str:
    """Closes a loop during an await of that kind. Returns "", or a text if the await was not pending."""
    hangs, begin = KINDS[kind]
    go_on, loop = threading.Event(), asyncio.new_event_loop()

    async def main() -> asyncio.Task[Any]:
        task = asyncio.ensure_future(_awaiting(begin, bench, go_on))
        for _ in range(20):
            await asyncio.sleep(0)
        if hangs is not None:
            await until(hanging(hangs))
        return task

    if hangs is not None:
        simulator.hang_call(hangs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an unfinished task correctly emits a warning
        logging.getLogger("asyncio").disabled = True
        task = loop.run_until_complete(asyncio.wait_for(main(), PATIENCE_SECONDS))
        done = task.done()
        loop.close()
        del task
        gc.collect()
    go_on.set()
    simulator.release_all()
    return f"{kind}: expected a pending await, but it has ended" if done else ""


async def _awaiting(begin: Begin, bench: Bench, go_on: threading.Event) -> None:
    await begin(bench, go_on)
