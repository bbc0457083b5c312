"""The calls that can be stuck in C when a device is reset."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from aioacl import open_device, simulator
from tests.kit import Raised, Waiting, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskGroup

    from aioacl import Device, DeviceBuffer, Event, Stream

JOB: Final = "a job on device.executor"
ABORT: Final = "aclrtStreamAbort"


class Caller(Protocol):
    """A caller that waits for a result, in a task or in a thread."""

    value: Any

    @property
    def ended(self) -> bool:
        """Whether the caller has a result or an error."""
        ...

    @property
    def error(self) -> BaseException | None:
        """The caller's error, if it has one."""
        ...


class InThread(Raised):
    """A caller in a plain thread."""

    @property
    def ended(self) -> bool:
        """Whether the thread has ended."""
        return not self.running


class Setup:
    """A device with a held stream, and the objects that the cases use."""

    def __init__(self, device: Device, held: Stream, spare: Stream, memory: tuple[DeviceBuffer, ...]) -> None:
        self.device = device
        self.held = held
        self.spare = spare  # a stream that cases close, or on which they enqueue
        self.memory, self.spare_memory = memory
        self.begun, self.go_on = threading.Event(), threading.Event()

    def job(self) -> None:
        """The body of the job: waits until the job is released."""
        self.begun.set()
        self.go_on.wait()

    def recorded(self) -> Event:
        """Returns a new event of the held stream."""
        return self.held.record()

    def refused(self) -> dict[str, Callable[[], Any]]:
        """Returns the operations that a quarantined device refuses, by name."""
        device = self.device
        return {
            "allocate": partial(device.allocate, 64),
            "pinned": partial(device.pinned, 64),
            "create_event": device.create_event,
            "run": partial(device.run, int),
            "open_device": partial(open_device, device.index),
        }


@dataclass(frozen=True)
class Case:
    """A call or job that does not return.

    Attributes:
        name: the name of the ACL function, or of the job, as it is in a report.
        begin: starts the call that gets stuck. If it is None, the procedure itself makes the call.
        maintenance: whether the maintenance thread is stuck. Then operations that wait for the thread fail at once.
        closes: whether the stuck operation is a close. Its wait then ends without an error.
        resets: the number of calls of aclrtResetDeviceForce.
        aborts: whether waits can be aborted. If not, threads stay in waits until a reset has been made.
        waits: whether other callers wait for streams. If not, the procedure itself queries the streams.
    """

    name: str
    begin: Callable[[Setup, TaskGroup], Caller] | None = None
    maintenance: bool = False
    closes: bool = False
    resets: int = 0
    aborts: bool = True
    waits: bool = True

    @property
    def title(self) -> str:
        """The unique name of the case."""
        return self.name if self.aborts or self.name == ABORT else f"{self.name}, and no wait can be aborted"

    async def hang(self, setup: Setup, group: TaskGroup) -> Caller | None:
        """Makes the call hang, at once or when the procedure reaches it."""
        simulator.set_abort_supported(self.aborts or self.name == ABORT)
        if self.name != JOB:
            simulator.hang_call(self.name)
        if self.begin is None:
            return None
        stuck = self.begin(setup, group)
        await until(lambda: setup.begun.is_set() if self.name == JOB else simulator.hung(self.name))
        return stuck

    def release(self, setup: Setup) -> None:
        """Releases the stuck call, so that it returns."""
        if self.name == JOB:
            setup.go_on.set()
        else:
            simulator.release_call(self.name)


NAMED: Final = (
    Case("aclrtMalloc", lambda s, group: Waiting(group, lambda: s.device.allocate(64)), maintenance=True),
    Case("aclrtCreateStream", lambda s, group: Waiting(group, s.device.create_stream), maintenance=True),
    Case(JOB, lambda s, group: Waiting(group, lambda: s.device.run(s.job))),
)
CASES: Final = (
    *NAMED,
    Case("aclrtDestroyStream", lambda s, group: Waiting(group, s.spare.close), maintenance=True, closes=True),
    Case("aclrtFree", lambda s, group: Waiting(group, s.spare_memory.close), maintenance=True, closes=True),
    Case("aclrtMallocHost", lambda s, group: Waiting(group, lambda: s.device.pinned(64)), maintenance=True),
    Case(
        "aclrtSynchronizeDeviceWithTimeout",
        lambda s, group: Waiting(group, s.device.synchronize),
        maintenance=True,
    ),
    Case("aclrtMemcpyAsync", lambda s, _: InThread(lambda: s.spare.copy(s.memory, bytes(64)))),
    Case("aclrtMemsetAsync", lambda s, _: InThread(lambda: s.spare.fill(s.memory, 2))),
    Case("aclrtRecordEvent", lambda s, _: InThread(s.spare.record)),
    Case("aclrtStreamWaitEvent", lambda s, _: InThread(lambda: s.spare.wait_event(s.recorded()))),
    Case(ABORT, aborts=False),
    replace(NAMED[0], aborts=False),
    Case("aclrtStreamQuery", waits=False),
    Case("aclrtDestroyEvent"),
    Case("aclrtResetDeviceForce", resets=1),
    Case("aclrtSetDevice", resets=1),
    Case("aclrtMemcpy", resets=1),
)
