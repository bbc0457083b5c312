"""The simulator's controls in Python: hold streams, make calls fail or hang, count calls, read the journal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import aioacl
import build_ffi
from aioacl import simulator
from aioacl._base.ffi import ffi
from aioacl._library import runtime
from aioacl.simulator import _releases
from aioacl.simulator._releases import RELEASES
from tests.kit import FAULT, Raised, held_fill, raises, until
from tests.simulator.rawacl import device, fill, good, new_memory, new_stream, rc
from tests.support import forkserver

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl.simulator._releases import Release
    from tests.kit import OpenDevice


def test_library_path_without_a_release_is_the_loaded_library() -> None:
    path = simulator.library_path()
    assert path.is_file()
    assert path.name == "libascendcl.so"
    info = aioacl.library_info()
    assert info.backend == "simulator"
    assert Path(info.path).samefile(path)


OLDER = """
import sys
import warnings
import aioacl
from aioacl import lowlevel, simulator

cann = sys.argv[1]
info = aioacl.use_library(simulator.library_path(cann))
assert info.backend == "simulator"
assert all(symbol.since > cann for symbol in info.missing)
version = lowlevel.ffi.new("aclCANNPackageVersion *")
lowlevel.functions.aclsysGetCANNVersion(lowlevel.constants.ACL_PKG_NAME_RUNTIME, version)
assert lowlevel.ffi.string(version.version).startswith(cann.encode()), "the version is not that of the release"
with warnings.catch_warnings(record=True, action="always") as caught:
    device = aioacl.open_device(0).result(timeout=30)
is_silent = cann == "8.1"  # its runtime reports no failed task
assert info.failure_detection == ("confirmed" if is_silent else "exact")
assert ["found by synchronizing" in str(each.message) for each in caught] == [True] * is_silent
(newest,) = [symbol for symbol in info.missing if symbol.name == "aclrtExceptionInfoCallbackRegister"]
for call in (lowlevel.functions, lowlevel.on(device)):
    try:
        call.aclrtExceptionInfoCallbackRegister(lowlevel.ffi.NULL)
    except aioacl.NotSupported as error:
        assert error.since == newest.since == "master", error.since
        assert "aclrtExceptionInfoCallbackRegister" in str(error)
    else:
        raise AssertionError("a missing function was called")
device.close().result()
"""


@pytest.mark.process
@pytest.mark.parametrize("cann", RELEASES[:-1])
def test_library_of_an_older_release_opens_a_device_and_reports_missing_functions(cann: Release) -> None:
    ran = forkserver.run([sys.executable, "-W", "error", "-c", OLDER, cann])
    assert (ran.returncode, ran.stderr) == (0, "")


def test_library_path_of_an_unknown_release_raises_parameter_error() -> None:
    assert simulator.library_path("master") == simulator.library_path()
    with pytest.raises(aioacl.ParameterError, match="expected a release of CANN"):
        simulator.library_path("7.0")  # type: ignore[arg-type]  # the wrong type is tested


def test_functions_of_the_simulator_match_the_table() -> None:
    assert _releases.functions() == build_ffi.exports()
    assert build_ffi.RELEASES == RELEASES


@pytest.mark.anyio
async def test_held_stream_runs_no_task_until_released(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        tasks = simulator.stats().tasks
        with simulator.held(stream):
            stream.fill(memory, 1)
            stream.fill(memory, 2)
            assert simulator.pending(stream) == 2
            assert simulator.stats().tasks == tasks
        await stream
        assert simulator.pending(stream) == 0
        assert simulator.stats().tasks > tasks


@pytest.mark.anyio
async def test_held_stream_destroyed_in_the_block_needs_no_release(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        with simulator.held(stream):
            stream.fill(memory, 1)
            assert (await device.force_reset(grace=0)).ok
        for control in (simulator.hold, simulator.release, simulator.pending):
            with pytest.raises(aioacl.ParameterError, match="Pass a live stream"):
                control(stream)


@pytest.mark.anyio
async def test_control_of_a_destroyed_stream_does_not_affect_the_next_stream(open_device: OpenDevice) -> None:
    async with open_device() as device, device.allocate(64) as memory:
        async with device.create_stream() as stream:
            simulator.fail_next(stream, FAULT)
        await until(lambda: stream._core.gone)
        async with device.create_stream() as other:
            for control in (simulator.hold, simulator.release, simulator.pending, simulator.faulted):
                with pytest.raises(aioacl.ParameterError, match="expected a live stream, got"):
                    control(stream)
            await other.fill(memory, 1)


MANY = 16


@pytest.mark.anyio
async def test_stream_closed_while_held_needs_no_release(open_device: OpenDevice) -> None:
    async with open_device() as device, device.allocate(64) as memory, device.create_stream() as stream:
        with simulator.held(stream):
            await stream.close()
            await until(lambda: stream._core.gone)
            others = [
                await device.create_stream() for _ in range(MANY)
            ]  # one of them may have the same address
            for other in others:
                held_fill(other, memory)
        assert [simulator.pending(other) for other in others] == [1] * MANY
        simulator.release_all()
        for other in others:
            await other
            await other.close()


@pytest.mark.anyio
async def test_stream_that_was_only_looked_at_is_cached(open_device: OpenDevice) -> None:
    async with open_device() as device:
        async with device.create_stream() as stream:
            native = stream._core.native
            assert (simulator.pending(stream), simulator.faulted(stream)) == (0, False)
        async with device.create_stream() as again:
            assert again._core.native == native
        assert simulator.calls("aclrtDestroyStream") == 0


@pytest.mark.parametrize(
    "control",
    [
        simulator.hold,
        lambda stream: simulator.fail_next(stream, FAULT),
        lambda stream: simulator.trap_next(stream, FAULT),
    ],
)
@pytest.mark.anyio
async def test_next_stream_is_not_changed_by_the_control_of_a_closed_stream(
    open_device: OpenDevice, control: Callable[[Any], object]
) -> None:
    async with open_device() as device, device.allocate(64) as memory:
        async with device.create_stream() as stream:
            control(stream)
        async with device.create_stream() as stream:
            await stream.fill(memory, 1)


@pytest.mark.parametrize("as_given", [lambda raw: raw, lambda raw: int(ffi.cast("uintptr_t", raw))])
def test_stream_control_with_a_raw_handle_works(as_given: Callable[[Any], Any]) -> None:
    with device():
        raw, memory = new_stream(), new_memory()
        stream = as_given(raw)
        with simulator.held(stream):
            assert fill(memory, raw) == 0
            assert (simulator.pending(stream), simulator.faulted(stream)) == (1, False)
            simulator.trap_next(stream, FAULT)
        assert rc("aclrtSynchronizeStream", raw) == FAULT
        simulator.set_next_task(stream, 70001)
        simulator.fail_next(stream, FAULT)
        simulator.hold(stream)
        assert fill(memory, raw) == 0
        task = ffi.new("uint32_t *")
        good("aclrtGetThreadLastTaskId", task)
        assert task[0] == 70001
        simulator.release(stream)
        assert rc("aclrtSynchronizeStream", raw) == FAULT
        good("aclrtDestroyStream", raw)
        with pytest.raises(aioacl.ParameterError, match="expected a live stream, got"):
            simulator.pending(stream)
        rc("aclrtGetLastError", 0)


@pytest.mark.parametrize(
    "wrong",
    [
        0,
        -1,
        1 << 64,
        True,
        None,
        1.5,
        "0x10",
        b"stream",
        object(),
        ffi.NULL,
        ffi.new("aclrtStream *"),
        ffi.cast("int", 7),
    ],
)
@pytest.mark.parametrize(
    "control",
    [
        simulator.hold,
        simulator.release,
        simulator.pending,
        simulator.faulted,
        lambda stream: simulator.held(stream).__enter__(),
        lambda stream: simulator.fail_next(stream, FAULT),
        lambda stream: simulator.trap_next(stream, FAULT),
        lambda stream: simulator.set_next_task(stream, 7),
    ],
)
def test_stream_control_without_a_stream_raises_parameter_error(
    control: Callable[[Any], object], wrong: object
) -> None:
    runtime.load()
    with pytest.raises(aioacl.ParameterError, match=r"expected a stream, got .*Pass a live stream"):
        control(wrong)


@pytest.mark.anyio
@pytest.mark.parametrize("times", [1, 3])
async def test_fail_call_with_times_fails_that_many_calls(open_device: OpenDevice, times: int) -> None:
    async with open_device() as device:
        simulator.fail_call("aclrtGetMemInfo", 507000, times)
        for _ in range(times):
            await raises(aioacl.AclError, device.memory_info())
        await device.memory_info()
        simulator.fail_call("aclrtGetMemInfo", 507000, -1)
        for _ in range(3):
            await raises(aioacl.AclError, device.memory_info())
        simulator.clear()
        await device.memory_info()


def test_hung_call_stays_inside_until_it_is_released() -> None:
    listing = Raised.hung_in("aclrtGetDeviceCount", aioacl.list_devices)
    assert listing.running
    assert simulator.stats().inside == 1
    simulator.release_call("aclrtGetDeviceCount")
    assert listing.join() == aioacl.list_devices()
    assert simulator.hung("aclrtGetDeviceCount") == 0


@pytest.mark.anyio
async def test_journal_after_calls_has_them_in_order_with_arguments_and_codes(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        simulator.fail_call("aclrtMalloc", 207001)
        await raises(aioacl.OutOfMemoryError, device.allocate(64))
        entries = simulator.journal()
    assert [entry["seq"] for entry in entries] == sorted(entry["seq"] for entry in entries)
    (malloc,) = [entry for entry in entries if entry["call"] == "aclrtMalloc"]
    assert (malloc["rc"], malloc["dev"]) == (207001, 0)
    assert malloc["tid"] > 0
    assert [entry["call"] for entry in entries].index("aclrtSetDevice") < entries.index(malloc)
    simulator.forget()
    assert simulator.journal() == []
    assert simulator.calls("aclrtMalloc") == 0


@pytest.mark.uncached
@pytest.mark.anyio
async def test_stats_count_live_objects(open_device: OpenDevice) -> None:
    async with open_device() as device:
        before = simulator.stats()
        async with device.create_stream(), device.allocate(1 << 20), device.pinned(64):
            now = simulator.stats()
            assert now.streams == before.streams + 1
            assert now.device_blocks == before.device_blocks + 1
            assert now.device_bytes >= before.device_bytes + (1 << 20)
            assert now.host_blocks == before.host_blocks + 1
        await until(lambda: simulator.stats().streams == before.streams)
        assert (simulator.stats().inside, simulator.violations()) == (0, [])


@pytest.mark.anyio
async def test_usage_checker_reports_a_dead_handle(open_device: OpenDevice) -> None:
    from aioacl._base.ffi import ffi, lib

    async with open_device() as device:
        dead = ffi.cast("aclrtStream", 0xDEAD)
        code = await device.run(lambda: lib.aio_u_aclrtSynchronizeStream(dead))
        assert code == 107017
        (violation,) = simulator.violations()
        assert violation.startswith("aclrtSynchronizeStream: thread ")
        simulator.forget()
    assert simulator.violations() == []
