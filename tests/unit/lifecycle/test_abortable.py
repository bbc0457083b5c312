"""A job may wait for native streams of other libraries. A reset may abort the streams that the job has named."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import ffi, lib, pointer
from aioacl._lifecycle.procedures import limits
from tests.kit import Stop, hung_in, in_thread, raises, runs_out_of_time, until, works

if TYPE_CHECKING:
    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio


class Foreign:
    """A stream that another library has made on the device. Its work is held, and `wait` blocks until it is done."""

    def __init__(self, device: aioacl.Device, named: bool = True) -> None:
        self._device, self._named = device, named
        self.code: int | None = None
        self.handle: Any = ffi.NULL

    def make(self) -> None:
        made, memory = ffi.new("aclrtStream *"), ffi.new("void **")
        assert lib.aio_u_aclrtCreateStream(made) == 0
        assert lib.aio_u_aclrtMalloc(memory, 64, 0) == 0
        self.handle = made[0]
        simulator.hold(self.handle)
        assert lib.aio_u_aclrtMemsetAsync(memory[0], 64, 1, 64, self.handle) == 0

    def wait(self) -> None:
        if not self._named:
            self._sync()
            return
        with self._device.abortable(pointer(self.handle)):
            self._sync()

    def _sync(self) -> None:
        self.code = lib.aio_u_aclrtSynchronizeStream(self.handle)


@pytest.mark.parametrize("named", [True, False])
async def test_reset_during_a_timed_out_wait_for_a_foreign_stream_works_if_the_stream_is_named(
    open_device: OpenDevice, named: bool
) -> None:
    async with open_device() as device:
        foreign = Foreign(device, named)
        await device.run(foreign.make)
        waiting = device.executor.submit(foreign.wait)
        await until(lambda: simulator.calls("aclrtSynchronizeStream"))
        await raises(TimeoutError, anyio.to_thread.run_sync(lambda: waiting.result(timeout=0.01)))
        if not named:
            report = await runs_out_of_time(device)
            assert [stuck.function for stuck in report.stuck] == ["a job on device.executor"]
            simulator.release_all()
            await until(lambda: foreign.code is not None)
            assert (await device.force_reset()).ok
            return
        report = await device.force_reset(grace=0)
        assert (report.ok, report.aborted, report.stuck) == (True, 1, ())
        await until(lambda: foreign.code == 107023)
        assert not device._manager.jobs.named._all
        assert await works(device)


async def test_named_stream_without_work_is_not_aborted(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream:
        blocker = Stop()
        address = pointer(stream._core.native)

        def job() -> None:
            with device.abortable(address, address):
                blocker()

        running = device.executor.submit(job)
        await until(blocker.begun.is_set)
        before = simulator.calls("aclrtStreamAbort")
        await runs_out_of_time(device)
        assert simulator.calls("aclrtStreamAbort") == before
        blocker.go_on.set()
        await until(running.done)
        assert (await device.force_reset()).ok


async def test_stream_named_before_a_reset_is_not_aborted_by_a_later_one(open_device: OpenDevice) -> None:
    async with open_device() as device:
        foreign, go_on, begun = Foreign(device), threading.Event(), threading.Event()

        def block() -> None:  # runs on a plain thread, for which no reset waits
            with device.abortable(pointer(foreign.handle)):
                begun.set()
                assert go_on.wait(20)

        await device.run(foreign.make)
        thread = threading.Thread(target=block)
        thread.start()
        await until(begun.is_set)
        report = await device.force_reset(grace=0)
        assert (report.ok, report.aborted) == (True, 1)
        report = await device.force_reset(grace=0)
        assert (report.ok, report.aborted, report.not_aborted) == (True, 0, 0)
        go_on.set()
        await until(lambda: not thread.is_alive())


async def test_block_that_is_left_during_an_abort_waits_for_the_end_of_the_abort(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        foreign, leave, begun = Foreign(device), threading.Event(), threading.Event()

        def job() -> None:
            with device.abortable(foreign.handle):
                begun.set()
                assert leave.wait(20)

        await device.run(foreign.make)
        thread = threading.Thread(target=job)
        thread.start()
        await until(begun.is_set)
        monkeypatch.setattr(limits, "ABORT_SECONDS", 20.0)
        resetting = await hung_in("aclrtStreamAbort", group, lambda: device.force_reset(grace=0))
        leave.set()
        await until(lambda: not device._manager.jobs.named._all)
        assert thread.is_alive()
        simulator.release_all()
        assert (await resetting.outcome()).ok
        await until(lambda: not thread.is_alive())


@pytest.mark.parametrize("wrong", [0, -1, 1 << 64, None, "7", 1.5, True, object(), ffi.NULL])
async def test_abortable_of_a_value_that_is_not_a_handle_raises_parameter_error(
    open_device: OpenDevice, wrong: object
) -> None:
    async with open_device() as device, device.create_stream() as stream:
        for value in (wrong, stream):
            with pytest.raises(aioacl.ParameterError, match="expected the address of an aclrtStream, got"):
                device.abortable(1, value)


async def test_abortable_on_an_event_loops_thread_is_refused(open_device: OpenDevice) -> None:
    async with open_device() as device:
        with pytest.raises(RuntimeError, match="inside the job"), device.abortable(1):
            raise AssertionError
    with pytest.raises(aioacl.ParameterError, match="closed"):
        device.abortable(1)


async def test_abortable_during_a_reset_is_refused(open_device: OpenDevice) -> None:
    def enter() -> None:
        with device.abortable(1):
            raise AssertionError

    async with open_device() as device, anyio.create_task_group() as group:
        resetting = await hung_in("aclrtResetDeviceForce", group, device.force_reset)
        await raises(aioacl.DeviceResetting, anyio.to_thread.run_sync(enter))
        simulator.release_all()
        assert (await resetting.outcome()).ok
        assert not device._manager.jobs.named._all


def test_abortable_without_the_runtimes_abort_is_not_supported(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def enter() -> None:
        with opened.abortable(1):
            raise AssertionError

    opened = in_thread(lambda: open_device().result())
    monkeypatch.setattr("aioacl._lifecycle.abortable._can_abort", lambda: False)
    with pytest.raises(aioacl.NotSupported, match="aclrtStreamAbort"):
        in_thread(enter)
    monkeypatch.undo()
    in_thread(lambda: opened.close().result())
