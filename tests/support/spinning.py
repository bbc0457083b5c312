"""Another library's wait for the device that does not return, with the simulator's trap."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aioacl import simulator
from aioacl._base.ffi import ffi, lib, make_pass
from aioacl.simulator._control import control_function
from tests.kit import Raised, in_thread, until_now

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from aioacl import Device, DeviceBuffer, Stream


def blocked(function: str) -> int:
    """The number of calls of the function that are blocked inside the simulator."""
    return int(control_function("aclsim_waiting", "int (*)(const char *)")(function.encode()))


def _bound(device: Device, call: Callable[[], int]) -> int:
    lib.aio_bind_thread(make_pass(device.index, device.generation))
    return call()


def _busy_stream(device: Device) -> Any:
    made, event = ffi.new("aclrtStream *"), ffi.new("aclrtEvent *")
    assert _bound(device, lambda: lib.aio_u_aclrtCreateStream(made)) == 0
    simulator.hold(made[0])
    assert lib.aio_u_aclrtCreateEvent(event) == 0
    assert lib.aio_u_aclrtRecordEvent(event[0], made[0]) == 0
    assert lib.aio_u_aclrtDestroyEvent(event[0]) == 0
    return made[0]


def synchronize(device: Device) -> int:
    """Calls aclrtSynchronizeDevice without a time limit, as another library would."""
    return _bound(device, lib.aio_u_aclrtSynchronizeDevice)


def spin(device: Device, stream: Stream, memory: DeviceBuffer, code: int = 0) -> Raised:
    """Starts a thread inside aclrtSynchronizeDevice, which does not return although the stream is idle.

    The last task of the stream fails with the code, if this is not 0. If an earlier call still waits for the stream
    lock, a record for that call may end the wait at once.
    """
    simulator.set_device_livelock()
    native = stream._core.native  # the cache would not take a stream whose handle was read
    with simulator.held(native):
        stream.fill(memory, 1)
        thread = Raised(lambda: synchronize(device))
        assert until_now(lambda: blocked("aclrtSynchronizeDevice"))
        if code:
            simulator.fail_next(native, code)
        stream.fill(memory, 2)
    assert until_now(lambda: not simulator.pending(native))
    return thread


@contextmanager
def spinning(device: Device, stream: Stream, memory: DeviceBuffer) -> Generator[Raised]:
    """Calls `spin`. At the end, the thread returns in any case."""
    thread = spin(device, stream, memory)
    try:
        yield thread
    finally:
        simulator.set_device_livelock(on=False)
        thread.join()


@contextmanager
def synchronizing(device: Device) -> Generator[Raised]:
    """A thread inside aclrtSynchronizeDevice, which waits for the work of a stream of another library."""
    native = in_thread(lambda: _busy_stream(device))
    thread = Raised(lambda: synchronize(device))
    assert until_now(lambda: blocked("aclrtSynchronizeDevice"))
    try:
        yield thread
    finally:
        simulator.release(native)
        thread.join()
        in_thread(lambda: _bound(device, lambda: lib.aio_u_aclrtDestroyStream(native)))
