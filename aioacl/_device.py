"""A device, how it is opened, and which devices there are."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, ParamSpec, SupportsIndex, TypeVar

from aioacl._base import origin, sync
from aioacl._base.errors import DeviceTimeout, ParameterError
from aioacl._base.ffi import ffi, lib, make_pass, text_of
from aioacl._base.options import (
    GRACE,
    OnFailure,
    Strategy,
    deadline_of,
    limits_of_reset,
    must_be_reason,
    whole_of,
)
from aioacl._base.records import DeviceInfo, Health, MemoryInfo, ResetReport
from aioacl._base.states import State
from aioacl._handles.event import Event
from aioacl._handles.handle import Made, error_on, size_of
from aioacl._handles.memory import DeviceBuffer, PinnedBuffer, discard, make_device, make_pinned
from aioacl._handles.native_streams import SYNC_TIMEOUT, synchronize_device
from aioacl._handles.operation import Opening, Operation
from aioacl._handles.stream import Stream, discard_stream, make_stream
from aioacl._handles.stream_core import STREAM_ABORTED, streams_of
from aioacl._library import runtime
from aioacl._lifecycle.abortable import address_of
from aioacl._lifecycle.executor import must_be_plain
from aioacl._lifecycle.gate import error_of
from aioacl._lifecycle.health import health_of
from aioacl._lifecycle.lease import Lease
from aioacl._lifecycle.manager import manager_of
from aioacl._lifecycle.notifications import DeviceEvents
from aioacl._wait.current import current_port
from aioacl._wait.workers import call_on

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from aioacl._base.options import Seconds
    from aioacl._base.origin import Origin, Site
    from aioacl._handles.stream_core import StreamCore
    from aioacl._lifecycle.executor import DeviceExecutor
    from aioacl._lifecycle.manager import Manager

P = ParamSpec("P")
T = TypeVar("T")

SLICE_MS: Final = 50
TIMED_EVENTS: Final = 2


class Device(Made):
    """An open device, from `open_device(index)`. It outlives resets; what was made from it before one does not."""

    __slots__ = ("_born", "_closed", "_handed_out", "_manager", "_site", "_user")
    factory = "open_device(index)"

    def __init__(self, manager: Manager) -> None:
        self._born: Origin | None = None
        self._site: Site | None = None
        self._manager = manager
        self._closed = self._handed_out = False
        self._user = object()  # for the manager: whom it is open for

    # --- what it is ------------------------------------------------------------------------------------------

    @property
    def index(self) -> int:
        """Its number among the visible devices."""
        return self._manager.index

    @property
    def state(self) -> State:
        """What may be done with it now."""
        return self._manager.admission.shown

    @property
    def generation(self) -> int:
        """Raised by every reset, ours or somebody else's."""
        return self._manager.generation

    @property
    def health(self) -> Health:
        """How it is, ready for a readiness probe. Calls no ACL function."""
        runtime.must_not_be_forked()
        return health_of(self._manager)

    @property
    def executor(self) -> DeviceExecutor:
        """Threads with the device bound, for `loop.run_in_executor(device.executor, fn)`."""
        self._check()
        return self._manager.jobs.executor

    def _check(self) -> None:
        runtime.must_not_be_forked()
        if self._closed:
            raise self._manager.admission.closed()

    # --- making ----------------------------------------------------------------------------------------------

    def create_stream(
        self,
        *,
        priority: SupportsIndex = 0,
        on_failure: OnFailure = "continue",
        wait: bool = True,
        timeout: Seconds | None = None,
    ) -> Opening[Stream]:
        """Makes a stream (aclrtCreateStream, aclrtCreateStreamWithConfig).

        Args:
            priority: 0, the highest, to 7.
            on_failure: "continue" runs the tasks behind a failed one; "stop" stops the whole context.
            wait: with False, raises DeviceResetting at once instead of waiting for a reset to end.
            timeout: seconds to wait at most.

        Raises:
            ParameterError, ResourceExhausted, DeviceResetting, DeviceQuarantined, DeviceTimeout.
        """
        urgency = whole_of(priority)
        if urgency is None or not 0 <= urgency <= 7:
            raise ParameterError(
                f"priority must be an int from 0 (highest) to 7, got {priority!r}",
                hint="Pass one of these, or leave it out for the highest.",
            )
        if on_failure not in ("continue", "stop"):
            raise ParameterError(
                f'on_failure must be "continue" or "stop", got {on_failure!r}',
                hint='Leave it out for "continue".',
            )
        manager, site = self._manager, origin.site()
        return self._opening(
            "create_stream()",
            lambda generation: make_stream(manager, generation, urgency, on_failure, site),
            discard_stream,
            wait,
            timeout,
        )

    def allocate(
        self, nbytes: SupportsIndex, *, wait: bool = True, timeout: Seconds | None = None
    ) -> Opening[DeviceBuffer]:
        """Allocates device memory (aclrtMalloc), `nbytes` of it, contents undefined.

        Raises:
            ParameterError, OutOfMemoryError, DeviceResetting, DeviceQuarantined, DeviceTimeout.
        """
        size, manager = size_of(nbytes, "nbytes"), self._manager
        return self._opening(
            f"allocate({size})",
            lambda generation: make_device(manager, generation, size),
            discard,
            wait,
            timeout,
        )

    def pinned(
        self, nbytes: SupportsIndex, *, wait: bool = True, timeout: Seconds | None = None
    ) -> Opening[PinnedBuffer]:
        """Allocates pinned host memory (aclrtMallocHost), `nbytes` of it, contents undefined.

        Raises:
            ParameterError, OutOfMemoryError, DeviceResetting, DeviceQuarantined, DeviceTimeout.
        """
        size, manager = size_of(nbytes, "nbytes"), self._manager
        return self._opening(
            f"pinned({size})",
            lambda generation: make_pinned(manager, generation, size),
            discard,
            wait,
            timeout,
        )

    def create_event(
        self, *, timing: bool = False, wait: bool = True, timeout: Seconds | None = None
    ) -> Opening[Event]:
        """Makes an event of your own (aclrtCreateEventExWithFlag), to record again and again."""
        manager, timing = self._manager, bool(timing)

        def work(generation: int) -> Event:
            code = lib.aio_device_refill(manager.index, timing, TIMED_EVENTS if timing else 1)
            if code:
                raise error_of(code, "aclrtCreateEventExWithFlag", manager.index, generation)
            return Event._make(manager, generation, timing=timing)

        return self._opening("create_event()", work, lambda _: None, wait, timeout)

    def _opening(
        self,
        what: str,
        work: Callable[[int], Any],
        undo: Callable[[Any], object],
        wait: bool,
        timeout: Seconds | None,
    ) -> Opening[Any]:
        async def make() -> Any:
            self._check()
            return await self._manager.make(work, discard=undo, wait=wait, deadline=deadline_of(timeout))

        return Opening(what, make, self)

    # --- waiting and running ---------------------------------------------------------------------------------

    def synchronize(self, timeout: Seconds | None = None) -> Operation[None]:
        """Waits for all work on the device, other libraries' too (aclrtSynchronizeDeviceWithTimeout).

        Raises:
            DeviceTimeout: after `timeout` seconds.
            DeviceReset: the device was reset meanwhile.
            DeviceFault and others: a task failed, of a stream that is not closed or renewed, or is not done yet.
        """
        return Operation("device.synchronize()", lambda: self._synchronize(timeout), self)

    async def _synchronize(self, timeout: Seconds | None) -> None:
        self._check()
        manager, generation, deadline = self._manager, self.generation, deadline_of(timeout)
        failed: tuple[StreamCore, int, int] | None = None
        for core in [core for core in streams_of(manager) if core.generation == generation]:
            position = lib.aio_stream_tail(core.handle)
            result = await core.wait(position, deadline)
            if result < 0 and failed is None:
                failed = core, result, position
        if failed is not None:  # that of any other stream stays uncollected
            core, result, position = failed
            raise core.failure(result, position)
        while not await self._slice(generation, deadline):
            pass

    async def _slice(self, generation: int, deadline: float | None) -> bool:
        """One bounded wait for streams that are not ours; True when everything is done."""
        manager, call = self._manager, "aclrtSynchronizeDeviceWithTimeout"
        await manager.admission.until_open(deadline=deadline)
        if deadline is not None:  # one question is asked, however little time there is
            deadline = max(deadline, sync.monotonic() + 2 * SLICE_MS / 1000)

        wait = partial(synchronize_device, manager, generation, SLICE_MS)
        error = await call_on(manager.maintenance, wait, deadline=deadline)
        if error is None or error.code == SYNC_TIMEOUT:
            return error is None
        if manager.generation != generation:
            raise error_on(manager, generation, lib.AIO_WAS_RESET, call) from error
        if error.code == STREAM_ABORTED and manager.admission.state is not State.OPEN:
            return False  # by our own reset: the next one waits until it is over
        raise error

    def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Operation[T]:
        """Calls `fn(*args, **kwargs)` on one of the device's threads, with the device's context current.

        A job that has begun is not stopped by a cancellation: the await ends, the job goes on.

        Raises:
            ParameterError: it is no function, or an async one, or it returns a coroutine.
        """
        must_be_plain(fn)
        return Operation("device.run()", lambda: self._run(fn, *args, **kwargs), self)

    async def _run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        self._check()
        await self._manager.admission.until_open()
        future = self._manager.jobs.submit(fn, *args, **kwargs)
        try:
            ended = await future.ended()
        except BaseException:
            future.cancel()
            raise
        if not ended:
            future.cancel()
            hint = "A job that has begun goes on, and nobody hears its result; one that has not never begins."
            raise DeviceTimeout("the job was not done in time", device=self.index, hint=hint)
        return self._manager.jobs.outcome(future)

    def abortable(self, *streams: Any) -> AbstractContextManager[None]:
        """`with device.abortable(stream):` in a job: a force reset may abort these `aclrtStream` handles of others."""
        self._check()
        return self._manager.jobs.named.within(tuple(address_of(stream) for stream in streams))

    # --- lifecycle -------------------------------------------------------------------------------------------

    def lease(self, *, wait: bool = True, timeout: Seconds | None = None) -> Lease:
        """A promise that no reset parts the steps inside `async with device.lease():`, at most its grace time."""
        self._check()
        return origin.lent(Lease(self._manager.admission, wait=wait, timeout=timeout))

    def force_reset(
        self, *, grace: Seconds = GRACE, timeout: Seconds = 60.0, reason: str = ""
    ) -> Operation[ResetReport]:
        """Resets the device once nobody is inside it (aclrtResetDeviceForce), sets it again and probes it.

        Callers that ask meanwhile share it, with the arguments of the first; one that leaves does not stop it.

        Args:
            grace: seconds that leases and work in flight get to end by themselves. A `grace` above half of `timeout`
                counts as half of it: with `grace=4, timeout=5` they get 2.5 seconds.
            timeout: seconds for all of it, at least 0.05; then it is quarantined, and the report says why.
            reason: goes into the report.

        Returns:
            The report; `report.ok` says whether the device is open again.

        Raises:
            LeaseHeldError: the caller holds a lease.
            ParameterError: the device is closed; `grace` is above `timeout`; an argument is not what it has to be.
        """
        drain, whole = limits_of_reset(grace, timeout)
        must_be_reason(reason)
        return Operation("device.force_reset()", lambda: self._force_reset(drain, whole, reason), self)

    async def _force_reset(self, grace: float, timeout: float, reason: str) -> ResetReport:
        self._check()
        return await self._manager.force_reset(grace=grace, timeout=timeout, reason=reason)

    def events(self) -> DeviceEvents:
        """What happens to the device from now on: `async for event in device.events():`. Ends when it is closed.

        A thread without a loop iterates with `for`. Calls no ACL function. Raises ParameterError if it is closed.
        """
        self._check()
        manager, user = self._manager, self._user
        return DeviceEvents(
            manager.admission,
            manager.admission.listeners,
            lambda: not manager.admission.is_open_for(user) and manager.left(),
        )

    def memory_info(self) -> Operation[MemoryInfo]:
        """Free and total device memory in bytes (aclrtGetMemInfo)."""
        return Operation("device.memory_info()", self._memory_info, self)

    async def _memory_info(self) -> MemoryInfo:
        self._check()
        index = self._manager.index

        def work(generation: int) -> MemoryInfo:
            free, total = ffi.new("size_t *"), ffi.new("size_t *")
            code = lib.aio_g_aclrtGetMemInfo(make_pass(index, generation), lib.ACL_HBM_MEM, free, total)
            if code:
                raise error_of(code, "aclrtGetMemInfo", index, generation)
            return MemoryInfo(int(free[0]), int(total[0]))

        return await self._manager.make(work)

    async def _close(self) -> None:
        again, self._closed = self._closed, True
        if lib.aio_forked():
            return
        if origin.keeper is not None and not again:
            origin.keeper.closing(self)
        await self._manager.close(self._user)

    def close(self) -> Operation[None]:
        """One open less; the last resets the device (aclrtResetDevice) and waits for no work. Twice is no error."""
        return Operation("device.close()", self._close, self)

    async def _close_at_end(self) -> None:
        """Waits for the end of the close, which has a bound, even if a scope around the block is cancelled.

        A `task.cancel()` of asyncio's own reaches the await all the same, and ends it; the close goes on.
        """
        with current_port().shield():
            await self._close()

    def _close_later(self) -> bool:
        return False  # the process may end behind the block, and the card has to be given back by then

    def _leave_open(self) -> None:
        self._closed, user, manager = True, self._user, self._manager
        manager.deferred.leave_note(lambda: manager.count_out(user))

    def __del__(self) -> None:
        if (
            not hasattr(self, "_user")
            or not self._manager.admission.is_open_for(self._user)
            or lib.aio_forked()
        ):
            return
        self._leave_open()
        if self._handed_out:
            sentence = f"device {self.index} was not closed: close it, or use `async with open_device()`"
            origin.warn_of_drop(self, sentence)

    def __repr__(self) -> str:
        manager, fault = self._manager, self._manager.failures.last_fault
        closed = ", closed" if self._closed and manager.admission.state is not State.CLOSED else ""
        failed = "" if fault is None else f", fault: {fault.code} {fault.name}"
        state = f"{self.state.name}, generation {self.generation}{closed}{failed}"
        return f"<Device {self.index}, {state}{runtime.of_parent()}>"


def open_device(
    index: SupportsIndex = 0, waits: Strategy = "watch", *, wait: bool = True, timeout: Seconds | None = None
) -> Opening[Device]:
    """Opens a device; the first open of one sets it (aclrtSetDevice), the last close resets it.

    Args:
        index: among the visible devices.
        waits: "watch": one native thread asks for all awaits. "thread": a thread in the blocking call for each.
        wait: with False, raises DeviceResetting at once instead of waiting for a reset to end.
        timeout: seconds to wait at most.

    Raises:
        LibraryNotFound: no ACL library could be loaded.
        ParameterError: no such device, or it is open with another `waits`.
        DeviceResetting, DeviceQuarantined, DeviceTimeout.
    """
    if waits not in ("watch", "thread"):
        raise ParameterError(
            f'waits must be "watch" or "thread", got {waits!r}', hint='Leave it out for "watch".'
        )
    manager = manager_of(index)

    async def make() -> Device:
        device = Device._make(manager)
        await manager.open(device._user, waits, wait=wait, deadline=deadline_of(timeout))
        device._handed_out = True
        return device

    return Opening(f"open_device({manager.index})", make)


def list_devices() -> tuple[DeviceInfo, ...]:
    """The devices that the runtime can see (aclrtGetDeviceCount); makes no context.

    Raises:
        LibraryNotFound: no ACL library could be loaded.
        AclError: the runtime cannot tell, for instance for a bad ASCEND_RT_VISIBLE_DEVICES (207004).
    """
    runtime.load()
    found = ffi.new("uint32_t *")
    code = lib.aio_u_aclrtGetDeviceCount(found)
    if code:
        raise error_of(code, "aclrtGetDeviceCount", -1, 0)
    soc = text_of(lib.aio_u_aclrtGetSocName())
    return tuple(DeviceInfo(index, soc) for index in range(found[0]))
