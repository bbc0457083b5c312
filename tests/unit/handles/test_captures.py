"""Work of aioacl while another thread captures a stream of its own in the primary context."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from aioacl import simulator
from aioacl._base.ffi import ffi, lib
from aioacl._base.paths import DATA
from aioacl._lifecycle.probe import probe
from tests import kit
from tests.kit import Raised, equipped, until_now
from tests.support.other_code import must

if TYPE_CHECKING:
    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio
RELAXES = "aclmdlRICaptureThreadExchangeMode"


class Captures:
    """A thread of other code that captures its stream again and again, in the strictest mode."""

    def __init__(self, most: int) -> None:
        self.done = 0
        self.open = threading.Event()  # a capture is open, which `go_on` ends
        self.go_on = threading.Event()
        self._most = most
        self._raised = Raised(self._run)

    def _run(self) -> None:
        must("aclrtSetDevice", 0)
        made, memory, graph = ffi.new("aclrtStream *"), ffi.new("void **"), ffi.new("aclmdlRI *")
        must("aclrtCreateStream", made)
        must("aclrtMalloc", memory, 64, lib.ACL_MEM_MALLOC_HUGE_FIRST)
        while self.done < self._most:
            must("aclmdlRICaptureBegin", made[0], lib.ACL_MODEL_RI_CAPTURE_MODE_GLOBAL)
            must("aclrtMemsetAsync", memory[0], 64, 1, 64, made[0])
            if self.done == 0:
                self.open.set()
                assert self.go_on.wait(30)
            must("aclmdlRICaptureEnd", made[0], graph)
            must("aclmdlRIDestroy", graph[0])
            self.done += 1
        must("aclrtFree", memory[0])
        must("aclrtDestroyStream", made[0])
        must("aclrtResetDevice", 0)

    @property
    def running(self) -> bool:
        return self._raised.running

    def join(self) -> None:
        self._raised.join()


@pytest.mark.parametrize("count", [50, pytest.param(1000, marks=pytest.mark.slow)])
async def test_captures_of_another_thread_and_awaits_of_ours_all_succeed(
    open_device: OpenDevice, count: int
) -> None:
    async with equipped(open_device, 4096) as (device, stream, memory), device.create_stream() as other:
        captures = Captures(count)
        captures.go_on.set()
        rounds = 0
        while captures.running or rounds == 0:
            value, back = bytes([rounds % 256]) * 4096, bytearray(4096)
            stream.copy(memory, value)
            other.wait_event(stream.record())
            await other.copy(back, memory)
            assert back == value
            async with device.allocate(64) as small:
                await stream.fill(small, 1)
            rounds += 1
        captures.join()
        assert captures.done == count
        await device.synchronize()


async def test_wait_for_the_device_lasts_until_the_capture_has_ended(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (device, stream, memory):
        captures = Captures(1)
        assert captures.open.wait(30)
        calls = Raised(lambda: device.synchronize().result(timeout=30))
        stream.fill(memory, 1)
        await stream
        if kit.context == "own":  # the capture is in another context
            assert until_now(lambda: not calls.running)
        else:
            assert calls.running
        captures.go_on.set()
        captures.join()
        assert until_now(lambda: not calls.running)
        calls.join()


async def test_probe_of_the_device_succeeds_during_a_capture(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (device, _, _):
        captures = Captures(1)
        assert captures.open.wait(30)
        failure = device._manager.control.call(lambda: probe(0, lib.aio_device_foreign(0)), 30)
        captures.go_on.set()
        captures.join()
        assert failure is None


async def test_thread_of_each_instance_of_a_model_is_relaxed_in_its_first_call(
    open_device: OpenDevice,
) -> None:
    """The first call on each thread comes during the capture, which succeeds."""
    x = np.zeros((1, 64), np.float32)
    with simulator.register_model("digits", lambda _: None):
        async with (
            open_device() as device,
            device.load_model(DATA / "digits_batches.om", slots=1, instances=2) as model,
        ):
            captures = Captures(1)
            assert captures.open.wait(30)
            relaxed = simulator.calls(RELAXES)
            for number in (1, 2):  # each takes the slot that has been free for the longest time
                assert (await model(x)).shape == (1, 10)
                assert simulator.calls(RELAXES) == relaxed + number
            assert [each.executions for each in simulator.models()] == [1, 1]
            captures.go_on.set()
            captures.join()
            assert captures.done == 1
