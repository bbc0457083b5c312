"""Failed tasks through the Python controls: ids, wakes, and both registrations of callbacks."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import aioacl
from aioacl import simulator
from aioacl.simulator._releases import RELEASES
from tests.kit import until_now
from tests.simulator.rawacl import device, fill, good, is_waiting, new_event, new_memory, new_stream, rc
from tests.support import forkserver

if TYPE_CHECKING:
    from aioacl.simulator._releases import Release
    from tests.kit import OpenDevice

REGISTRATIONS = """
import ctypes
import sys

from aioacl import simulator

cann = sys.argv[1]
library = ctypes.CDLL(str(simulator.library_path(cann)))
Callback = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint32))
seen = []
callback = Callback(lambda info: seen.append(info[:5]))
try:
    register = library.rtRegTaskFailCallbackByModule
except AttributeError:
    assert cann == "8.1", cann
    sys.exit(0)
assert cann != "8.1"
assert register(b"test", callback) == 0
assert library.aclInit(None) == library.aclrtSetDevice(0) == 0
stream, memory, task = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint32()
assert library.aclrtCreateStream(ctypes.byref(stream)) == 0
assert library.aclrtMalloc(ctypes.byref(memory), ctypes.c_size_t(64), 0) == 0
assert library.aclsim_set_next_task(stream, ctypes.c_uint32(70001)) == 0
assert library.aclsim_fail_next(stream, 507001) == 0
assert library.aclrtMemsetAsync(memory, ctypes.c_size_t(64), 1, ctypes.c_size_t(64), stream) == 0
assert library.aclrtSynchronizeStream(stream) == 507001
(info,) = seen
assert (info[0], info[3], info[4]) == (70001, 0, 507001), info
assert register(b"test", Callback(0)) == 0
assert library.aclsim_fail_next(stream, 507001) == 0
assert library.aclrtMemsetAsync(memory, ctypes.c_size_t(64), 1, ctypes.c_size_t(64), stream) == 0
assert library.aclrtSynchronizeStream(stream) == 507001
assert len(seen) == 1
"""


@pytest.mark.process
@pytest.mark.parametrize("cann", RELEASES)
def test_registration_by_module_is_exported_by_every_release_but_the_first(cann: Release) -> None:
    ran = forkserver.run([sys.executable, "-W", "error", "-c", REGISTRATIONS, cann])
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.process
def test_recycle_thread_has_its_name() -> None:
    program = (
        REGISTRATIONS
        + "\nfrom pathlib import Path\n"
        + ("print({path.read_text().strip() for path in Path('/proc/self/task').glob('*/comm')})")
    )
    ran = forkserver.run([sys.executable, "-W", "error", "-c", program, "master"])
    assert "'aclsim-rec0'" in ran.stdout
    assert "'aclsim-exc'" not in ran.stdout


@pytest.mark.anyio
async def test_set_next_task_near_the_maximum_wraps_around(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        simulator.set_next_task(stream, 0xFFFFFFFF)
        for _ in range(3):
            await stream.fill(memory, 7)
        for wrong in (-1, 1 << 32):
            with pytest.raises(aioacl.ParameterError, match="task_id must be an int from 0"):
                simulator.set_next_task(stream, wrong)


@pytest.mark.anyio
async def test_wakes_of_an_unknown_device_raises_parameter_error(open_device: OpenDevice) -> None:
    async with open_device():
        with pytest.raises(aioacl.ParameterError):
            simulator.wakes(99)
        with pytest.raises(aioacl.ParameterError):
            simulator.wake(99)


def test_set_lost_wait_lets_a_wait_last_until_its_time_out() -> None:
    with device(), ThreadPoolExecutor(2) as pool:
        stream, event, memory = new_stream(), new_event(), new_memory()
        simulator.set_virtual_clock(virtual=True)
        simulator.set_lost_wait()
        simulator.hold(stream)
        assert fill(memory, stream) == 0
        good("aclrtRecordEvent", event, stream)
        wait = pool.submit(rc, "aclrtSynchronizeEventWithTimeout", event, 1500)
        until_now(lambda: is_waiting("aclrtSynchronizeEventWithTimeout"))

        def release() -> None:
            until_now(lambda: is_waiting("aclrtDestroyStream"))
            simulator.release(stream)

        released = pool.submit(release)
        good("aclrtDestroyStream", stream)
        released.result()
        simulator.advance_clock(1.5)
        assert wait.result() == 507047
        good("aclrtSynchronizeEventWithTimeout", event, 1500)
        good("aclrtDestroyEvent", event)
