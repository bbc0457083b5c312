"""What can be stuck in C when a device is reset."""

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

    from aioacl import Device, DeviceBuffer, Stream

JOB: Final = "a job on device.executor"
ABORT: Final = "aclrtStreamAbort"


class Somebody(Protocol):
    """Who waits or works, in a task or a thread."""

    value: Any

    @property
    def ended(self) -> bool:
        """Whether he has been told something."""
        ...

    @property
    def error(self) -> BaseException | None:
        """What he was told, if that is an error."""
        ...


class InThread(Raised):
    """Somebody in a plain thread."""

    @property
    def ended(self) -> bool:
        """Whether he is done."""
        return not self.running


class Scene:
    """A device with a stream that is held, and what the cases use."""

    def __init__(self, device: Device, held: Stream, spare: Stream, memory: tuple[DeviceBuffer, ...]) -> None:
        self.device = device
        self.held = held
        self.spare = spare  # to be closed, or enqueued on
        self.memory, self.spare_memory = memory
        self.begun, self.go_on = threading.Event(), threading.Event()

    def job(self) -> None:
        """What does not end."""
        self.begun.set()
        self.go_on.wait()

    def refused(self) -> dict[str, Callable[[], Any]]:
        """What is refused on a device that is quarantined, by what it is called."""
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
    """Something that does not come back from C.

    Attributes:
        name: of the ACL function, or of the job, as a report names it.
        begin: who gets stuck; without it, the procedure itself does.
        maintenance: whether it is the maintenance thread that is stuck: whoever waits for that is told so at once.
        closes: whether he closes something: his waiting ends then, and that is no error.
        resets: calls of aclrtResetDeviceForce.
        aborts: whether waits can be aborted; else threads in them stay there until a reset has been made.
        waits: whether others wait for streams; without them, it is the procedure that asks how far these are.
    """

    name: str
    begin: Callable[[Scene, TaskGroup], Somebody] | None = None
    maintenance: bool = False
    closes: bool = False
    resets: int = 0
    aborts: bool = True
    waits: bool = True

    @property
    def title(self) -> str:
        """What tells it from the others."""
        return self.name if self.aborts or self.name == ABORT else f"{self.name}, and no wait can be aborted"

    async def hang(self, scene: Scene, group: TaskGroup) -> Somebody | None:
        """It hangs, or will when the procedure comes to it."""
        simulator.set_abort_supported(self.aborts or self.name == ABORT)
        if self.name != JOB:
            simulator.hang_call(self.name)
        if self.begin is None:
            return None
        stuck = self.begin(scene, group)
        await until(lambda: scene.begun.is_set() if self.name == JOB else simulator.hung(self.name))
        return stuck

    def let_go(self, scene: Scene) -> None:
        """It comes back."""
        if self.name == JOB:
            scene.go_on.set()
        else:
            simulator.unhang(self.name)


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
    Case(ABORT, aborts=False),
    replace(NAMED[0], aborts=False),
    Case("aclrtStreamQuery", waits=False),
    Case("aclrtDestroyEvent"),
    Case("aclrtResetDeviceForce", resets=1),
    Case("aclrtSetDevice", resets=1),
    Case("aclrtMemcpy", resets=1),
)
