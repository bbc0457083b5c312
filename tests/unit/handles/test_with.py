"""`with` on a thread without an event loop does the same as `async with` on an event loop."""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from aioacl import simulator
from aioacl._lifecycle.manager import manager_of
from tests.kit import failing_fill, in_thread, live_streams, until, until_now

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tests.kit import OpenDevice

MAKERS: dict[str, Callable[[OpenDevice, aioacl.Device], aioacl.Opening[Any]]] = {
    "device": lambda open_device, _: open_device(1),
    "stream": lambda _, device: device.create_stream(),
    "device buffer": lambda _, device: device.allocate(64),
    "pinned buffer": lambda _, device: device.pinned(64),
    "event": lambda _, device: device.create_event(),
}
MADE = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)

pytestmark = pytest.mark.uncached


class Broken(Exception):
    """Raised to end a block."""


def alive() -> tuple[int, ...]:
    """The simulator's live objects: streams, device blocks, host blocks, and sets of device 1."""
    now = simulator.stats()
    return live_streams(), now.device_blocks, now.host_blocks, simulator.retain_count(1)


@pytest.fixture
def device(open_device: OpenDevice) -> Generator[aioacl.Device]:
    with open_device() as opened:
        yield opened
    assert opened.state is aioacl.State.CLOSED


@MADE
@pytest.mark.parametrize("error", [None, Broken, KeyboardInterrupt, GeneratorExit])
def test_with_on_a_thread_closes_however_the_block_ends(
    open_device: OpenDevice,
    device: aioacl.Device,
    make: Callable[..., aioacl.Opening[Any]],
    error: type[BaseException] | None,
) -> None:
    before = alive()
    raised = contextlib.nullcontext() if error is None else pytest.raises(error)
    with raised, make(open_device, device) as made:
        assert not made._closed
        if error is not None:
            raise error
    assert made._closed
    assert until_now(lambda: alive() == before)


def test_with_on_a_thread_copies_bytes_to_the_device_and_back(device: aioacl.Device) -> None:
    answer = bytearray(5)
    with device.lease(), device.create_stream() as stream, device.allocate(5) as memory:
        stream.copy(memory, b"hello")
        stream.copy(answer, memory).result()
    assert answer == b"hello"


def test_with_in_a_job_of_the_device_creates_and_closes(device: aioacl.Device) -> None:
    def job() -> bool:
        with device.create_stream() as stream, device.allocate(64) as memory:
            stream.fill(memory, 1).result()
            return stream.query()

    assert device.run(job).result()


@pytest.mark.parametrize("what", sorted(MAKERS.keys() - {"event"}))  # events come from a pool
def test_failed_creation_in_a_with_statement_raises_and_leaves_nothing(
    open_device: OpenDevice, device: aioacl.Device, what: str
) -> None:
    before = alive()
    makers = "aclrtSetDevice|aclrtCreateStream|aclrtMalloc|aclrtMallocHost"
    with (
        simulator.fault(makers, rc=207001),
        pytest.raises(aioacl.AclError),
        MAKERS[what](open_device, device),
    ):
        raise AssertionError("the block began")
    assert alive() == before


@pytest.mark.parametrize("error", [None, Broken])
def test_with_whose_close_fails_raises_with_the_error_of_the_block_as_context(
    device: aioacl.Device, error: type[Exception] | None
) -> None:
    stream: Any = None

    def fail() -> None:
        nonlocal stream
        with device.create_stream() as stream, device.allocate(64) as memory:
            failing_fill(stream, memory)
            assert until_now(lambda: device.health.failed_tasks > before)
            if error is not None:
                raise error

    before = device.health.failed_tasks
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(aioacl.AclWarning, match="its stream was closed") as caught:
            fail()
    assert isinstance(caught.value.__context__, error or type(None))
    assert stream._closed
    assert until_now(lambda: live_streams() == 0)


MAKES = {
    "device": "open_device(index)",
    "stream": "device.create_stream()",
    "device buffer": "device.allocate(nbytes)",
    "pinned buffer": "device.pinned(nbytes)",
    "event": "device.create_event()",
}


@pytest.mark.anyio
@pytest.mark.parametrize("what", MAKERS)
async def test_with_on_an_existing_handle_raises_and_names_the_call_to_enter(
    open_device: OpenDevice, what: str
) -> None:
    async with open_device() as device, MAKERS[what](open_device, device) as made:
        text = rf"got the .* itself; write `{{}} {re.escape(MAKES[what])} as \w+:`, or call its close\(\)"
        with pytest.raises(TypeError, match=text.format("with")), made:
            raise AssertionError("the block began")
        with pytest.raises(TypeError, match=text.format("async with")):
            async with made:
                raise AssertionError("the block began")
        assert not made._closed


@pytest.mark.anyio
async def test_async_with_of_abortable_raises_and_names_with_in_a_job(open_device: OpenDevice) -> None:
    async with open_device() as device:
        block: Any = device.abortable(4096)
        with pytest.raises(
            TypeError, match=r"`with device.abortable\(stream\):` in the function that device.run\("
        ):
            async with block:
                raise AssertionError("the block began")
        assert not device._manager.jobs.named._all


@pytest.mark.anyio
@MADE
async def test_with_on_a_thread_that_runs_a_loop_raises_and_names_async_with(
    open_device: OpenDevice, make: Callable[..., aioacl.Opening[Any]]
) -> None:
    async with open_device() as device:
        before, opening = alive(), make(open_device, device)
        where = "this thread runs an event loop: enter it with `async with`"
        with pytest.raises(RuntimeError, match=where), opening:
            raise AssertionError("the block began")
        assert alive() == before
        async with opening as made:  # the opening can still be used after the refusal
            assert not made._closed


@pytest.mark.anyio
@MADE
async def test_with_that_is_left_on_a_thread_that_runs_a_loop_raises_and_closes(
    open_device: OpenDevice, make: Callable[..., aioacl.Opening[Any]]
) -> None:
    async with open_device() as device:
        before, opening = alive(), make(open_device, device)
        made = in_thread(opening.__enter__)
        with pytest.raises(RuntimeError, match="enter it with `async with`"):
            opening.__exit__(*sys.exc_info()[:1])
        assert made._closed
        await until(lambda: alive() == before)
        await until(lambda: not manager_of(1).admission.opens)
