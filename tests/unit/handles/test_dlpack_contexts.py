"""DLPack exports from a device with a context of its own, to streams of other contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import ffi, lib
from tests.kit import equipped, in_thread, until
from tests.support.dlpack import Consumer
from tests.support.other_code import Owner, must

if TYPE_CHECKING:
    from aioacl._base.ffi import CData

pytestmark = [pytest.mark.anyio, pytest.mark.uncached]
WRONG_CONTEXT = 107003


def own(index: int = 0, *, wait: bool = True, timeout: float | None = None) -> aioacl.Opening[aioacl.Device]:
    return aioacl.open_device(index, wait=wait, timeout=timeout, context="own")


def current() -> CData:
    """The context of this thread, or NULL."""
    made: Any = ffi.new("aclrtContext *")
    lib.aio_u_aclrtGetCurrentContext(made)
    found: CData = made[0]
    return found


def is_done(stream: CData) -> bool:
    status = ffi.new("aclrtStreamStatus *")
    must("aclrtStreamQuery", stream, status)
    return bool(status[0] == lib.ACL_STREAM_STATUS_COMPLETE)


def export(memory: aioacl.DeviceBuffer, address: int) -> None:
    """Exports to the stream, which may change neither the context of the thread nor the number of sets."""
    before, sets = current(), simulator.retain_count(0)
    Consumer(memory.__dlpack__(stream=address)).end()
    assert before == ffi.NULL or current() == before
    assert simulator.retain_count(0) == sets


def export_as_other_code(memory: aioacl.DeviceBuffer, address: int) -> None:
    must("aclrtSetDevice", 0)
    export(memory, address)
    must("aclrtResetDevice", 0)


@pytest.mark.parametrize(
    "thread", ["own context", "no context", "primary context", "own context of device 1"]
)
async def test_export_from_an_own_context_makes_a_stream_of_the_primary_context_wait(
    owner: Owner, thread: str
) -> None:
    async with equipped(own) as (_, stream, memory):
        simulator.hold(stream)
        stream.fill(memory, 1)
        if thread == "own context":
            export(memory, owner.address)
        elif thread == "own context of device 1":
            async with own(1) as other, other.allocate(8):
                export(memory, owner.address)
        else:
            run = export if thread == "no context" else export_as_other_code
            in_thread(lambda: run(memory, owner.address))
        owner.fill(memory, 2)
        assert not is_done(owner.stream)
        simulator.release(stream)
        await until(lambda: is_done(owner.stream))
        back = bytearray(64)
        await stream.copy(back, memory)
        assert back == bytes([2] * 64)


async def test_export_to_a_stream_of_an_explicit_context_needs_this_context(owner: Owner) -> None:
    del owner  # the device is set
    async with equipped(own) as (_, stream, memory):
        context, theirs = ffi.new("aclrtContext *"), ffi.new("aclrtStream *")

        def make() -> None:
            must("aclrtCreateContext", context, 0)
            must("aclrtCreateStream", theirs)

        in_thread(make)
        address = int(ffi.cast("uintptr_t", theirs[0]))
        with simulator.held(stream):
            stream.fill(memory, 1)
            with pytest.raises(aioacl.ContextError) as caught:
                export(memory, address)
            assert caught.value.code == WRONG_CONTEXT
            simulator.forget()

            def export_in_the_context() -> None:
                must("aclrtSetCurrentContext", context[0])
                export(memory, address)

            in_thread(export_in_the_context)
            assert not is_done(theirs[0])
        await until(lambda: is_done(theirs[0]))
        in_thread(lambda: must("aclrtDestroyContext", context[0]))
