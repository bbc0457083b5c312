"""Device, `open_device()` and `list_devices()`."""

from __future__ import annotations

from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, SupportsIndex, TypeVar

from aioacl._base import flight, origin, sync
from aioacl._base.errors import DeviceTimeout, ParameterError
from aioacl._base.ffi import ffi, lib, make_pass
from aioacl._base.late import late
from aioacl._base.options import (
    GRACE,
    OnFailure,
    bound_of,
    count_of,
    deadline_of,
    is_one_of,
    limits_of_reset,
    must_be_bool,
    must_be_reason,
    pauses_of,
    repr_of,
    whole_of,
)
from aioacl._base.public import publish
from aioacl._base.records import MemoryInfo, ResetReport
from aioacl._base.states import State
from aioacl._handles.event import Event
from aioacl._handles.handle import Made, error_on, size_of
from aioacl._handles.memory import DeviceBuffer, discard, make_device
from aioacl._handles.native_streams import SYNC_TIMEOUT, synchronize_device
from aioacl._handles.operation import Opening, Operation
from aioacl._handles.pinned import PinnedBuffer, make_pinned
from aioacl._handles.stream import Stream, discard_stream, make_stream
from aioacl._handles.stream_core import CAPTURED, STREAM_ABORTED
from aioacl._library import runtime
from aioacl._lifecycle.abortable import address_of
from aioacl._lifecycle.cache import DEVICE_MEMORY, PINNED_MEMORY, STREAMS
from aioacl._lifecycle.executor import must_be_plain
from aioacl._lifecycle.gate import error_of
from aioacl._lifecycle.health import health_of
from aioacl._lifecycle.lease import Lease
from aioacl._lifecycle.notifications import DeviceEvents
from aioacl._lifecycle.repair import Repair
from aioacl._lifecycle.supervisor import Settings, Supervisor
from aioacl._wait.current import current_port
from aioacl._wait.workers import call_on

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from typing_extensions import Buffer

    from aioacl._base.flight import FlightRecord
    from aioacl._base.health import Health
    from aioacl._base.options import Seconds
    from aioacl._base.origin import Origin, Site
    from aioacl._base.records import Scope
    from aioacl._handles import wrapped
    from aioacl._handles.capsule import Producer
    from aioacl._handles.stream_core import StreamCore
    from aioacl._lifecycle.executor import DeviceExecutor
    from aioacl._lifecycle.hooks import When
    from aioacl._lifecycle.manager import Manager
    from aioacl._models import model as models
    from aioacl._models.model import Model
else:
    models = late("aioacl._models.model")
    wrapped = late("aioacl._handles.wrapped")

P = ParamSpec("P")
T = TypeVar("T")

SLICE_MS: Final = 50
TIMED_EVENTS: Final = 2
HOOK_SECONDS: Final = 5.0


class Device(Made):
    """An open device, made by `open_device(index)`.

    A Device stays valid across resets. Its streams, events and device buffers are stale after a reset, and each use of
    them raises StaleHandleError. Pinned buffers stay valid.
    """

    __slots__ = ("_born", "_closed", "_handed_out", "_manager", "_site", "_user")
    _factory = "open_device(index)"

    def __init__(self, manager: Manager) -> None:
        self._born: Origin | None = None
        self._site: Site | None = None
        self._manager = manager
        self._closed = self._handed_out = False
        self._user = object()  # identifies this open of the device: the manager counts opens

    # --- properties ------------------------------------------------------------------------------------------

    @property
    def index(self) -> int:
        """The index of the device among the visible devices, an int from 0."""
        return self._manager.index

    @property
    def state(self) -> State:
        """The State of the device: CLOSED, OPEN, DRAINING, RESETTING or QUARANTINED. Calls no ACL function.

        Compare it with `aioacl.State.OPEN`, not with a str: State is an IntEnum.
        """
        return self._manager.admission.shown

    @property
    def generation(self) -> int:
        """The generation of the device, an int. Each reset, each foreign reset and the last close raise it.

        A close does not set the generation back to 1, so a test must compare it with an earlier value.
        """
        return self._manager.generation

    @property
    def health(self) -> Health:
        """A Health record of the device, for readiness probes. Calls no ACL function.

        Raises:
            ForkedProcessError: the process was forked after it had used a device or the library.
        """
        runtime.must_not_be_forked()
        return health_of(self._manager)

    @property
    def executor(self) -> DeviceExecutor:
        """A DeviceExecutor. On its threads, the context of the device is current (aclrtSetCurrentContext).

        `loop.run_in_executor(device.executor, fn)` runs `fn` on a thread of the executor.

        Raises:
            ParameterError: the device is closed.
        """
        self._check()
        return self._manager.jobs.executor

    def _check(self) -> None:
        runtime.must_not_be_forked()
        if self._closed:
            raise self._manager.admission.closed()

    # --- streams, memory and events --------------------------------------------------------------------------

    def create_stream(
        self,
        *,
        priority: SupportsIndex = 0,
        on_failure: OnFailure = "continue",
        wait: bool = True,
        timeout: Seconds | None = None,
    ) -> Opening[Stream]:
        """Makes a stream (aclrtCreateStream; with a priority above 0, aclrtCreateStreamWithConfig).

        If the cache has a native stream of the same priority, no ACL function is called.

        Args:
            priority: an int from 0 (highest) to 7.
            on_failure: "continue" runs the tasks after a failed task. "stop" stops the whole context at the first
                failed task, until a reset (aclrtSetStreamFailureMode).
            wait: if False, raises DeviceResetting at once instead of waiting for a reset to end.
            timeout: the longest wait in seconds; None waits without a limit.

        Returns:
            An Opening of a Stream: await it, or enter it with `async with`.

        Raises:
            ParameterError: an argument is out of its range, or the device is closed.
            ResourceExhausted: the runtime has no stream left.
            DeviceResetting: the device is draining or being reset, and `wait` is False.
            DeviceQuarantined: the device is quarantined.
            DeviceTimeout: the stream was not made within `timeout` seconds.
        """
        urgency = priority if type(priority) is int else whole_of(priority)
        if urgency is None or not 0 <= urgency <= 7:
            raise ParameterError(
                f"priority must be an int from 0 (highest) to 7, got {repr_of(priority)}",
                hint="Pass 0 to 7, or omit priority for the highest.",
            )
        if not is_one_of(on_failure, "continue", "stop"):
            raise ParameterError(
                f'on_failure must be "continue" or "stop", got {repr_of(on_failure)}',
                hint='Omit on_failure for "continue".',
            )
        if on_failure == "continue":
            return Opening._of_cache(self, STREAMS, urgency, wait, timeout)
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
        """Allocates device memory (aclrtMalloc). The contents are undefined at first.

        If the cache has memory of the same size class, no ACL function is called.

        Args:
            nbytes: the size in bytes, an int of at least 0. For 0 bytes, no ACL function is called.
            wait: if False, raises DeviceResetting at once instead of waiting for a reset to end.
            timeout: the longest wait in seconds; None waits without a limit.

        Returns:
            An Opening of a DeviceBuffer: await it, or enter it with `async with`.

        Raises:
            ParameterError: `nbytes` is not a valid size, or the device is closed.
            OutOfMemoryError: the device does not have enough free memory.
            DeviceResetting: the device is draining or being reset, and `wait` is False.
            DeviceQuarantined: the device is quarantined.
            DeviceTimeout: the memory was not allocated within `timeout` seconds.
        """
        return Opening._of_cache(self, DEVICE_MEMORY, size_of(nbytes, "nbytes"), wait, timeout)

    def pinned(
        self, nbytes: SupportsIndex, *, wait: bool = True, timeout: Seconds | None = None
    ) -> Opening[PinnedBuffer]:
        """Allocates pinned host memory (aclrtMallocHost). The contents are undefined at first.

        If the cache has memory of the same size class, no ACL function is called.

        Args:
            nbytes: the size in bytes, an int of at least 0. For 0 bytes, no ACL function is called.
            wait: if False, raises DeviceResetting at once instead of waiting for a reset to end.
            timeout: the longest wait in seconds; None waits without a limit.

        Returns:
            An Opening of a PinnedBuffer: await it, or enter it with `async with`.

        Raises:
            ParameterError: `nbytes` is not a valid size, or the device is closed.
            OutOfMemoryError: the host does not have enough free memory.
            DeviceResetting: the device is draining or being reset, and `wait` is False.
            DeviceQuarantined: the device is quarantined.
            DeviceTimeout: the memory was not allocated within `timeout` seconds.
        """
        return Opening._of_cache(self, PINNED_MEMORY, size_of(nbytes, "nbytes"), wait, timeout)

    async def _make_new(self, kind: int, key: int, site: Site, wait: bool, deadline: float | None) -> Any:
        """Makes a new stream, or a buffer of new memory, because the cache has none that fits."""
        manager = self._manager

        def work(generation: int) -> Any:
            if kind == STREAMS:
                return make_stream(manager, generation, key, "continue", site)
            return (make_device if kind == DEVICE_MEMORY else make_pinned)(manager, generation, key)

        undo: Any = discard_stream if kind == STREAMS else discard
        return await manager.make(work, discard=undo, wait=wait, deadline=deadline)

    def wrap_memory(
        self, address: SupportsIndex, nbytes: SupportsIndex, *, owner: object = None
    ) -> DeviceBuffer:
        """Makes a DeviceBuffer of device memory that another library allocated. Calls no ACL function.

        aioacl never frees the memory. It cannot check the address: the memory must be on this device, and must exist
        until the buffer is closed and the work that uses it is done. Close the buffer like any other; it is stale after
        a reset.

        Args:
            address: the address of the memory, an int from 1.
            nbytes: the size in bytes, an int of at least 0.
            owner: an object that keeps the memory alive. The buffer refers to it until the buffer is closed and no work
                uses the buffer, or until a reset or the close of the device has ended. None: the caller keeps the
                memory alive.

        Returns:
            A DeviceBuffer.

        Raises:
            ParameterError: `address` or `nbytes` has a wrong type or range, or the device is closed.
            DeviceReset: the device was reset during the call.
            DeviceResetting: the device is draining or being reset.
            DeviceQuarantined: the device is quarantined.
        """
        self._check()
        return wrapped.wrap(self._manager, address, nbytes, owner)

    def from_dlpack(self, x: Producer, *, stream: Stream | int | None = None) -> DeviceBuffer:
        """Makes a DeviceBuffer of a tensor of another library, without a copy of the bytes.

        The buffer contains the bytes of the tensor, whatever their type. The producer's memory stays allocated until
        the buffer is closed and no work uses it, or until a reset or the close of the device has ended. Then the
        tensor's deleter is called once, usually on the device's maintenance thread. A buffer of a read-only tensor may
        be the source of a copy, but not a target.

        Args:
            x: an object with `__dlpack__` and `__dlpack_device__`, for example a tensor of torch_npu. Its device type
                is 12 (kDLExtDev) or 21 (kDLAscend), and its index is that of this device. It is contiguous, in C order.
            stream: the Stream that uses the buffer first, or the address of an aclrtStream. The producer makes this
                stream wait for its work. For a tensor of torch_npu, aioacl makes the stream wait for torch's current
                stream (aclrtStreamWaitEvent). -1: nothing waits. None: the producer gets no stream, and the caller
                waits for the producer's work.

        Returns:
            A DeviceBuffer.

        Raises:
            ParameterError: `x` is not a tensor, is on another device, is in host memory, is not contiguous, or is of a
                major version of DLPack other than 1; `stream` has a wrong type or value; or the device is closed.
            BufferError: the producer refused the export. The producer may also raise other errors.
            DeviceReset: the device was reset while the producer made the tensor.
            DeviceResetting: the device is draining or being reset.
            DeviceQuarantined: the device is quarantined.
        """
        self._check()
        return wrapped.from_dlpack(self._manager, x, stream)

    def load_model(
        self,
        model: str | os.PathLike[str] | Buffer,
        *,
        slots: SupportsIndex = 3,
        instances: SupportsIndex = 1,
        reload: bool = True,
        label: str | None = None,
        warm_up: bool = False,
        wait: bool = True,
        timeout: Seconds | None = None,
    ) -> Opening[Model]:
        """Loads an offline model (aclmdlLoadFromFileWithMem, aclmdlLoadFromMemWithMem), on a thread of its own.

        Args:
            model: the path of an `.om` file, or its bytes. The simulator also loads an ONNX model, with an AclWarning.
            slots: how many calls each instance may have in progress, an int from 1 to 64. Each slot has memory for the
                inputs and outputs. With 2 or 3 slots, uploads, executions and downloads overlap.
            instances: how often the model is loaded, an int from 1 to 64. Each instance has its own work memory; the
                weights are shared. Each executes one call at a time.
            reload: whether the first call after a reset loads the model again, from the path or from the bytes. If
                False, this call raises StaleHandleError, until `model.reload()` has loaded the model.
            label: a name for events, errors and the repr of the model, a str of printable characters; None for the name
                of the file.
            warm_up: whether each load, also after a reset, calls the model with zeros once for each gear and slot. So
                the first calls of the program do not pay for what the runtime does at a first execution. If one of
                these calls fails, the load fails.
            wait: if False, raises DeviceResetting at once instead of waiting for a reset to end.
            timeout: the longest wait in seconds; None waits without a limit.

        Returns:
            An Opening of a Model: await it, or enter it with `async with`.

        Raises:
            ParameterError: the file cannot be read or is not a model, an argument is out of its range, or the device is
                closed.
            OutOfMemoryError: the device does not have enough free memory. The message has the sizes, and the models
                that this process has loaded on the device. Raised before the load if the weights and the work memory
                do not fit.
            DeviceFault: a call of `warm_up` failed. The code may select another subclass.
            NotSupported: the model was made for the simulator and the library is another one; or its shapes are known
                only when it runs.
            DeviceReset: the device was reset during the load.
            DeviceResetting: the device is draining or being reset, and `wait` is False.
            DeviceQuarantined: the device is quarantined.
            DeviceTimeout: the model was not loaded within `timeout` seconds.
        """
        self._check()
        made = models.new_model(
            self._manager, self, model, (slots, instances), reload=reload, label=label, warm_up=warm_up
        )

        async def make() -> Model:
            self._check()
            return await models.load(made, wait=wait, deadline=deadline_of(timeout))

        return Opening(f"load_model({made.name!r})", make, self)

    def create_event(
        self, *, timing: bool = False, wait: bool = True, timeout: Seconds | None = None
    ) -> Opening[Event]:
        """Makes an event that can be recorded any number of times (aclrtCreateEventExWithFlag).

        Args:
            timing: if True, the event can be passed to `elapsed_since`.
            wait: if False, raises DeviceResetting at once instead of waiting for a reset to end.
            timeout: the longest wait in seconds; None waits without a limit.

        Returns:
            An Opening of an Event: await it, or enter it with `async with`.

        Raises:
            ParameterError: the device is closed.
            ResourceExhausted: the runtime has no event left.
            DeviceResetting: the device is draining or being reset, and `wait` is False.
            DeviceQuarantined: the device is quarantined.
            DeviceTimeout: the event was not made within `timeout` seconds.
        """
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
        """Waits for all work of the context that aioacl uses (aclrtSynchronizeDeviceWithTimeout).

        In the primary context this includes the work of other code. In an own context it does not.

        Args:
            timeout: the longest wait in seconds; None waits without a limit.

        Returns:
            An Operation; await it, or call its `result()`.

        Raises:
            DeviceTimeout: the work was not done within `timeout` seconds.
            DeviceReset: the device was reset or closed during the wait.
            DeviceFault: a task failed. The code of the failure may select another subclass of AclError.
                A failure on a closed or renewed stream is raised only while work of that stream is unfinished.
            ParameterError: the device is closed.
            DeviceQuarantined: the device is quarantined.
        """
        return Operation("device.synchronize()", lambda: self._synchronize(timeout), self)

    async def _synchronize(self, timeout: Seconds | None) -> None:
        self._check()
        manager, generation, deadline = self._manager, self.generation, deadline_of(timeout)
        failed: tuple[StreamCore, int, int] | None = None
        for core in [core for core in manager.streams.members() if core.generation == generation]:
            position = lib.aio_stream_tail(core.handle)
            result = await core.wait(position, deadline)
            if result < 0 and failed is None:
                failed = core, result, position
        if failed is not None:  # the failures of other streams stay uncollected
            core, result, position = failed
            raise core.failure(result, position)
        while not await self._slice(generation, deadline):
            pass

    async def _slice(self, generation: int, deadline: float | None) -> bool:
        """Waits until the device is open, then at most SLICE_MS milliseconds for the work on the device.

        The work includes that of other libraries. Returns True when all work is done. The runtime refuses the wait
        while other code captures a stream of the context; the next slice tries again.
        """
        manager, call = self._manager, "aclrtSynchronizeDeviceWithTimeout"
        await manager.admission.until_open(deadline=deadline)
        if deadline is not None:  # at least one wait runs, even if the deadline has passed
            deadline = max(deadline, sync.monotonic() + 2 * SLICE_MS / 1000)

        wait = partial(synchronize_device, manager, generation, SLICE_MS)
        error = await call_on(manager.maintenance, wait, deadline=deadline)
        try:
            if error is None or error.code in (SYNC_TIMEOUT, CAPTURED):
                return error is None
            if manager.generation != generation:
                raise error_on(manager, generation, lib.AIO_WAS_RESET, call) from error
            if error.code == STREAM_ABORTED and manager.admission.state is not State.OPEN:
                return False  # aioacl's own reset ended the wait: the next slice waits until it has ended
            raise error
        finally:
            del error  # its traceback refers to this frame

    def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Operation[T]:
        """Calls `fn(*args, **kwargs)` on a thread of `device.executor`, with the context of the device current.

        A cancellation ends the await, but does not stop a job that has begun: the job runs to its end.

        Args:
            fn: a plain callable. An async function is refused.
            *args: positional arguments of `fn`.
            **kwargs: keyword arguments of `fn`.

        Returns:
            An Operation. Its result is what `fn` returns, and it raises what `fn` raises.

        Raises:
            ParameterError: `fn` is not callable, is async or returns a coroutine; or the device is closed.
            DeviceQuarantined: the device is quarantined.
            DeviceTimeout: the job was not done within the `timeout` seconds of `result()`.
        """
        must_be_plain(fn)
        return Operation("device.run()", lambda: self._run(fn, *args, **kwargs), self)

    async def _run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        self._check()
        await self._manager.admission.until_open()
        future = self._manager.jobs.submit(fn, *args, **kwargs)
        try:
            if await future.ended():
                return self._manager.jobs.outcome(future)
        finally:
            future.cancel()  # does nothing if the job has begun
            del future  # the traceback of its exception refers to this frame
        hint = (
            "A job that has begun continues, and its result is dropped. A job that has not begun never runs."
        )
        raise DeviceTimeout("the job was not done in time", device=self.index, hint=hint)

    def abortable(self, *streams: Any) -> AbstractContextManager[None]:
        """Allows a force reset to abort native streams that aioacl did not make (aclrtStreamAbort).

        Use it inside a job: `with device.abortable(stream):`. A reset may abort the streams while the block runs.

        Args:
            *streams: `aclrtStream` handles, each as an int or a cffi value. Streams of aioacl need not be passed.

        Returns:
            A context manager.

        Raises:
            ParameterError: an argument is not the address of an `aclrtStream`, or the device is closed.
            NotSupported: when the block is entered: the library has no aclrtStreamAbort.
            DeviceResetting: when the block is entered: the device is draining or being reset, and refuses the caller.
            RuntimeError: when the block is entered: this thread runs an event loop.
        """
        self._check()
        return self._manager.jobs.named.within(tuple(address_of(stream) for stream in streams))

    # --- lifecycle -------------------------------------------------------------------------------------------

    def lease(self, *, wait: bool = True, timeout: Seconds | None = None) -> Lease:
        """Returns a Lease. A force reset waits for the task that holds the lease, at most for the grace time.

        Enter the lease with `async with device.lease():`. A foreign reset and the last close revoke the lease at
        once. Calls no ACL function.

        Args:
            wait: if False, entering the lease raises DeviceResetting at once instead of waiting for a reset to end.
            timeout: the longest wait in seconds when the lease is entered; None waits without a limit.

        Returns:
            A Lease. It can be entered once.

        Raises:
            ParameterError: the device is closed.
        """
        self._check()
        return origin.lent(Lease(self._manager.admission, wait=wait, timeout=timeout))

    def force_reset(
        self,
        *,
        grace: Seconds = GRACE,
        timeout: Seconds = 60.0,
        reason: str = "",
        scope: Scope | None = None,
        foreign: bool | None = None,
    ) -> Operation[ResetReport]:
        """Drains the device, resets it (aclrtResetDeviceForce), sets it again (aclrtSetDevice) and probes it.

        With `context="own"` it replaces aioacl's context instead (aclrtCreateContext, aclrtDestroyContext), frees the
        memory of aioacl, and probes the new context. Other code of the process keeps its streams and memory.

        Some calls inside C would crash during a reset, or would block the reset. While there is such a call,
        aclrtResetDeviceForce is not called. If `force_reset` is called while a reset is in progress, the call joins
        that reset. The arguments of the first call apply. Cancelling the await does not stop the reset.

        Args:
            grace: the time in seconds for leases and work in flight to end by themselves. A `grace` above half of
                `timeout` counts as half of `timeout`: `grace=4, timeout=5` gives them 2.5 seconds. First, the reset
                waits at most a second for operations that waited for the previous reset. This wait is part of the same
                half of `timeout`.
            timeout: the time in seconds for the whole reset, at least 0.05. When it has passed, the device is
                quarantined, and the report gives the reason. The device is also quarantined if a thread is inside C,
                or in a job, for more than 10 seconds after the grace time.
            reason: a text for the report.
            scope: "context" replaces aioacl's own context, "device" resets the device. "context" also clears a failure
                of the device from `health`, if the new context works. None: with `context="own"`, it replaces the
                context; after a failure of the device itself, and if the new context does not work, it resets the
                device, unless `foreign` forbids it. Otherwise it resets the device.
            foreign: whether the device may be reset although other code of the process has perhaps set it. If False,
                no reset of the device is made then. Before CANN 8.5, this is always so. A device on which other code
                only has an explicit context is reset. None: True, unless the device was opened with `resets=False`,
                or AIOACL_RESETS is "never".

        Returns:
            An Operation. Its result is a ResetReport: `report.ok` is True if the device is open again.

        Raises:
            LeaseHeldError: the caller holds a lease on the device, or is a job that runs on it.
            ParameterError: the device is closed, `grace` is above `timeout`, an argument has a wrong type or range,
                `scope` is "context" without an own context, or `foreign` is False and other code has perhaps set the
                device.
        """
        drain, whole = limits_of_reset(grace, timeout)
        must_be_reason(reason)
        if scope is not None and not is_one_of(scope, "context", "device"):
            raise ParameterError(
                f'scope must be "context", "device" or None, got {repr_of(scope)}', hint="Omit the scope."
            )
        if not isinstance(foreign, (bool, NoneType)):
            raise ParameterError(
                f"foreign must be True, False or None, got {repr_of(foreign)}", hint="Omit foreign for None."
            )
        return Operation(
            "device.force_reset()", lambda: self._force_reset(drain, whole, reason, scope, foreign), self
        )

    async def _force_reset(
        self, grace: float, timeout: float, reason: str, scope: Scope | None, foreign: bool | None
    ) -> ResetReport:
        self._check()
        return await self._manager.force_reset(
            grace=grace, timeout=timeout, reason=reason, scope=scope, foreign=foreign
        )

    def before_reset(
        self, fn: Callable[[Scope], object], *, timeout: Seconds = HOOK_SECONDS
    ) -> Callable[[], None]:
        """Registers a function that each force reset calls before it drains the device.

        The device is then still open, unless it is quarantined.
        A plain function runs on a new thread without a current context. An async function runs in a new task of the
        event loop that has registered it. The newest hook runs first. The reset waits for the hooks one after the
        other, then goes on, also if a hook fails. The time of the hooks is not part of the reset's `timeout`. Foreign
        resets, resets by `lowlevel` and the last close run no hooks.

        Args:
            fn: a function of one argument, the scope with which the reset begins: "context" or "device".
            timeout: the longest time in seconds that the reset waits for the function, 5 by default. An async function
                is then cancelled. A plain one goes on beside the reset, so it should call no ACL function then.

        Returns:
            A function that removes the hook. The close of this Device removes it too.

        Raises:
            ParameterError: `fn` is not a function, is async on a thread without a running event loop, `timeout` is not
                a finite number, or the device is closed.
        """
        return self._add_hook("before_reset", fn, timeout)

    def after_reset(
        self, fn: Callable[[ResetReport], object], *, timeout: Seconds = HOOK_SECONDS
    ) -> Callable[[], None]:
        """Registers a function that each force reset calls after it, and before `force_reset()` returns.

        The function also runs after a reset that has failed: `report.ok` is False then. The oldest hook runs first.
        Operations that waited for the reset may start before the hooks have ended. For all other rules see
        `before_reset`.

        Args:
            fn: a function of one argument, the ResetReport. `hook_errors` of this report has the errors of the hooks
                before the reset. The errors of the hooks after it are added to the report that `force_reset` returns.
            timeout: the longest time in seconds that the reset waits for the function, 5 by default.

        Returns:
            A function that removes the hook. The close of this Device removes it too.

        Raises:
            ParameterError: as for `before_reset`.
        """
        return self._add_hook("after_reset", fn, timeout)

    def _add_hook(self, when: When, fn: Callable[[Any], object], timeout: Seconds) -> Callable[[], None]:
        self._check()
        return self._manager.hooks.add(when, self._user, fn, bound_of("timeout", timeout))

    def supervise(
        self,
        grace: Seconds = 1.0,
        timeout: Seconds = 30.0,
        pauses: Iterable[Seconds] = (0.5, 5.0, 50.0),
        at_most: SupportsIndex = 6,
        per: Seconds = 3600.0,
        foreign: bool = False,
    ) -> Supervisor:
        """Returns a Supervisor, which resets the device whenever `health.ready` is False and no reset runs.

        Enter it with `with device.supervise():` or `async with`. It ends with its block, and with the close of this
        Device. A device has at most one supervisor, also if it is opened several times. It runs on a thread of the
        device, so it works while event loops are blocked. Its resets run the hooks and join the callers of
        `force_reset()`, as any force reset does.

        - The failure of one task (action `new_stream`) causes no reset.
        - While a call is inside C, no reset can be made. The supervisor waits, and resets the device when the call has
          returned, if the device is not ready then.
        - If a reset fails, the next one begins after a pause. After the last pause and one more reset that fails, the
          supervisor gives up. It also gives up if the device needs another reset after `at_most` resets in `per`
          seconds. The device is quarantined then. If another caller's reset succeeds later, the supervisor goes on.
        - With `context="own"`, a reset first replaces aioacl's context. The device is reset if the new context does not
          work, or if the device fails again within a minute.
        - It does not reset a device that other code of the process has perhaps set, unless `foreign` is True. With
          `resets=False` or AIOACL_RESETS=never, it resets no device, and only replaces an own context.

        Args:
            grace: the `grace` of each reset, in seconds: see `force_reset`.
            timeout: the `timeout` of each reset, in seconds, at least 0.05.
            pauses: the seconds between a reset that fails and the next one. An empty one allows one reset.
            at_most: how many resets may begin within `per` seconds, an int of at least 1. Resets that succeed count.
            per: the seconds in which at most `at_most` resets begin.
            foreign: whether it may reset a device that other code of the process has perhaps set. Before CANN 8.5,
                every device counts as set by other code, unless it has an own context.

        Returns:
            A Supervisor. It can be entered once. Entering it raises ParameterError if the device has a supervisor or
            is closed, and ResourceExhausted if no thread or no descriptor is left.

        Raises:
            ParameterError: the device is closed, `grace` is above `timeout`, or an argument has a wrong type or range.
        """
        self._check()
        drain, whole = limits_of_reset(grace, timeout)
        must_be_bool("foreign", foreign)
        repair = Repair(pauses_of(pauses), count_of("at_most", at_most), bound_of("per", per))
        return Supervisor(self._manager, self._user, Settings(drain, whole, foreign), repair)

    def events(self) -> DeviceEvents:
        """Returns an iterator over the events of the device from now on. It ends when the device is closed.

        Iterate with `async for event in device.events():`, or with `for` on a thread without a running loop. Calls no
        ACL function.

        Returns:
            A DeviceEvents, which yields DeviceEvent records.

        Raises:
            ParameterError: the device is closed.
            ResourceExhausted: no thread or no descriptor is left for the events "stuck" and "recovered".
        """
        self._check()
        manager, user = self._manager, self._user
        events = DeviceEvents(
            manager.admission,
            manager.admission.listeners,
            lambda: not manager.admission.is_open_for(user) and manager.left(),
        )
        manager.stuck_calls.start()
        return events

    def recent(self) -> tuple[FlightRecord, ...]:
        """Returns the last records of the device in the flight recorder. Calls no ACL function.

        The recorder is always on: it has what was enqueued, what waited, what took long and what failed, also of a
        device that is closed. `print(record)` shows a record in words.

        Returns:
            At most 256 FlightRecords, newest last.
        """
        return flight.recent(self._manager.index)

    def memory_info(self) -> Operation[MemoryInfo]:
        """Reads the free and the total memory of the device (aclrtGetMemInfo), and the sizes of the cached memory.

        Returns:
            An Operation. Its result is a MemoryInfo, with all sizes in bytes.

        Raises:
            ParameterError: the device is closed.
            DeviceQuarantined: the device is quarantined.
        """
        return Operation("device.memory_info()", self._memory_info, self)

    async def _memory_info(self) -> MemoryInfo:
        self._check()
        index = self._manager.index

        def work(generation: int) -> MemoryInfo:
            free, total = ffi.new("size_t *"), ffi.new("size_t *")
            code = lib.aio_g_aclrtGetMemInfo(make_pass(index, generation), lib.ACL_HBM_MEM, free, total)
            if code:
                raise error_of(code, "aclrtGetMemInfo", index, generation)
            _, cached, pinned = self._manager.cache.sizes
            return MemoryInfo(int(free[0]), int(total[0]), cached, pinned)

        return await self._manager.make(work)

    def empty_cache(self) -> Operation[int]:
        """Frees the cached device memory, pinned memory and streams (aclrtFree, aclrtFreeHost, aclrtDestroyStream).

        Call it before other code of the process needs the memory. aioacl itself calls it when an allocation fails for
        lack of memory, at a reset, and at the last close.

        Returns:
            An Operation. Its result is the number of objects that were freed.

        Raises:
            ParameterError: the device is closed.
            DeviceQuarantined: the device is quarantined.
        """
        return Operation("device.empty_cache()", self._empty_cache, self)

    async def _empty_cache(self) -> int:
        self._check()
        return await self._manager.make(lambda _: self._manager.cache.empty())

    async def _close(self) -> None:
        again, self._closed = self._closed, True
        if lib.aio_forked():
            return
        if origin.keeper is not None and not again:
            origin.keeper.closing(self)
        await self._manager.close(self._user)

    def close(self) -> Operation[None]:
        """Ends this open of the device. The last close undoes the set of the first open (aclrtResetDevice).

        With `context="own"`, it destroys aioacl's context instead (aclrtDestroyContext).

        Await unfinished work before the last close, or abort its streams. The runtime's reset waits for work that makes
        progress, and drops the other work of a stream after about 3 seconds. An await of unfinished work raises
        DeviceReset once the work is gone. If the reset fails or takes too long, or a call is still inside C, the close
        emits an AclWarning. A second close is not an error.

        Returns:
            An Operation; await it, or call its `result()`.
        """
        return Operation("device.close()", self._close, self)

    async def _close_at_end(self) -> None:
        """Waits until the close has ended, even if a cancel scope around the block is cancelled.

        The wait always ends, because each step of the close has a time limit. asyncio's own `task.cancel()` still ends
        the await; the close continues.
        """
        with current_port().shield():
            await self._close()

    def _close_now(self) -> bool:
        return False

    def _close_later(self) -> bool:
        return False  # the process may end after the block, so the device must be closed before that

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
        supervisor = manager.supervision.state
        watched = "" if supervisor == "none" else f", supervisor: {supervisor}"
        state = f"{self.state.name}, generation {self.generation}{closed}{failed}{watched}"
        return f"<Device {self.index}, {state}{runtime.of_parent()}>"


publish("aioacl", ["Device"], of=__name__)
