"""Crowds of tasks and threads: runs several loops at once. Collects errors outside of tasks, and finds leftovers."""

from __future__ import annotations

import gc
import re
import sys
import threading
import time
import traceback
import warnings
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio

import aioacl
from aioacl import simulator
from aioacl.testing import Snapshot, snapshot
from tests.kit import until_now
from tests.reliability import setting

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Sequence

    from aioacl._base.options import Strategy

BACKENDS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "asyncio": ("asyncio", {}),
    "uvloop": ("asyncio", {"use_uvloop": True}),
    "trio": ("trio", {}),
}
SETTLES_SECONDS: Final = 15.0


# --- running -------------------------------------------------------------------------------------------------------


def loop(backend: str, *bodies: Callable[[], Coroutine[Any, Any, object]]) -> Callable[[], None]:
    """Returns a function that runs the bodies concurrently, on a loop of that kind."""
    kind, options = BACKENDS[backend]

    async def side_by_side() -> None:
        async with anyio.create_task_group() as group:
            for body in bodies:
                group.start_soon(body)

    return lambda: anyio.run(side_by_side, backend=kind, backend_options=options)


def at_once(bodies: Sequence[Callable[[], object]], seconds: float) -> list[str]:
    """Runs each body on a thread of its own. Returns tracebacks of failed bodies and stacks of stuck threads."""
    found: list[str] = []

    def guarded(body: Callable[[], object]) -> None:
        try:
            body()
        except BaseException:
            found.append(traceback.format_exc())

    threads = [threading.Thread(target=guarded, args=(body,), daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    frames = sys._current_frames()
    stacks = [
        traceback.format_stack(frames.get(thread.ident or 0)) for thread in threads if thread.is_alive()
    ]
    return found + [
        f"expected each loop and thread to end within {seconds:g} s, got one at:\n{''.join(stack)}"
        for stack in stacks
    ]


async def listen(index: int, waits: Strategy, over: anyio.Event, found: list[str]) -> None:
    """Checks a device's events until the crowd has ended: generations only rise, and no quarantine is reported.

    The event of a failed task is not checked. It has the generation of its stream, which may be older than the
    generation of the event before it.
    """
    async with AsyncExitStack() as stack:
        device = await stack.enter_async_context(setting.open_device(index, waits))

        async def follow() -> None:
            generation = device.generation
            async for event in device.events():
                if event.kind == "fault":
                    continue
                if event.generation < generation:
                    found.append(
                        f"device {index}: expected generation {generation} or a later one, got {event.generation}"
                    )
                if event.kind == "quarantined":
                    found.append(f"expected no quarantine of device {index}, got {event.report}")
                generation = event.generation

        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            await over.wait()
            await stack.aclose()  # when the device closes, its events end


# --- errors and warnings outside of tasks ----------------------------------------------------------------------------


# This warning is not a finding. It is correct if a task was made to fail, and each of its awaits was cancelled or
# raised an earlier failure.
UNCOLLECTED: Final = re.compile("a task failed, no await raised the error")


@contextmanager
def collecting_errors(found: list[str], *, expected: tuple[type[Warning], ...] = ()) -> Generator[None]:
    """Adds warnings, uncaught errors of threads and errors of finalizers to the findings."""
    hooks = (sys.unraisablehook, threading.excepthook)
    sys.unraisablehook = lambda args: found.append(f"unraisable: {args.exc_value!r} in {args.object!r}")
    threading.excepthook = lambda args: found.append(f"in a thread: {args.exc_value!r}")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        sys.unraisablehook, threading.excepthook = hooks
    texts = {
        f"warning: {one.category.__name__}: {one.message}"
        for one in caught
        if one.category not in expected and not UNCOLLECTED.match(str(one.message))
    }
    found += sorted(texts)


# --- leftovers ----------------------------------------------------------------------------------------------------


def left_since(before: Snapshot, *allowed: str) -> list[str]:
    """Waits until nothing exists that did not exist before; after a time limit, returns what is left."""
    if not until_now(lambda: not snapshot().more_than(before, *allowed), 0.5):
        gc.collect()
        until_now(lambda: not snapshot().more_than(before, *allowed), SETTLES_SECONDS)
    now = snapshot()
    grown = {name: f"{then} -> {count}" for name, (then, count) in now.more_than(before, *allowed).items()}
    still = [
        f"expected device {index} to be closed, but it is open"
        for index in sorted(now.devices - before.devices)
    ]
    return still + [
        f"expected nothing to be left behind, got {name} {numbers}" for name, numbers in grown.items()
    ]


def violations() -> list[str]:
    """Returns what the usage checker has reported since the last call."""
    simulator.check_memory()
    found = [f"the usage checker: {text}" for text in simulator.violations()]
    simulator.forget()
    return found


def warmed_up(indices: Sequence[int]) -> None:
    """Creates the objects that exist once per process: loops' pipes, ports of worker threads."""
    aioacl.use_library("simulator")

    async def once() -> None:
        for index in indices:
            async with setting.open_device(index) as device, device.create_stream() as stream:
                await stream

    at_once([loop(backend, once) for backend in BACKENDS], SETTLES_SECONDS)
    until_now(lambda: not snapshot().devices, SETTLES_SECONDS)


def idle(devices: Sequence[aioacl.Device]) -> list[str]:
    """Returns the health of devices that still have leases or work in flight although the crowd has ended."""

    def is_idle(device: aioacl.Device) -> bool:
        return until_now(lambda: device.health.leases == device.health.in_flight == 0, SETTLES_SECONDS)

    return [f"device {device.index}: {device.health}" for device in devices if not is_idle(device)]
