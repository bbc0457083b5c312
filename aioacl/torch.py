"""Waits, tensors and resets beside torch_npu. The functions import torch when they are called.

torch puts its work into a queue on the host, and a thread of torch enqueues it to the streams of ACL. The functions
respect this queue.
"""

from __future__ import annotations

import importlib
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioacl._base import sync
from aioacl._base.errors import DeviceTimeout, ParameterError
from aioacl._base.ffi import lib, pointer
from aioacl._base.options import bound_of, deadline_of, repr_of
from aioacl._base.public import publish as _publish
from aioacl._device import Device
from aioacl._handles.dlpack import wait_outside
from aioacl._handles.event import Event, native_event
from aioacl._handles.memory import DeviceBuffer
from aioacl._handles.npu_tensor import wait_for_other_code
from aioacl._handles.operation import Operation
from aioacl._handles.stream import Stream
from aioacl._wait.current import current_port
from aioacl._wait.workers import WorkerThread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioacl._base.ffi import CData
    from aioacl._base.options import Seconds
    from aioacl._base.records import ResetReport, Scope
    from aioacl._lifecycle.manager import Manager
    from aioacl._wait.port import Port

__all__ = ["attach", "synchronize", "tensor", "wait"]

FIRST_NAP: Final = 0.0001
LONGEST_NAP: Final = 0.002
ROUSE_SECONDS: Final = 0.02  # how often the runtime is woken, which otherwise does not notice a failed task
RESET_SECONDS: Final = 30.0
KEEP_SECONDS: Final = 5.0
QUEUE_THREAD: Final = "acl_thread"  # the name that torch gives to the threads of its queues


def _npu() -> Any:
    return importlib.import_module("torch_npu").npu


def _is_torch(thing: object, *kinds: str) -> bool:
    """Whether the object is a stream or an event of torch_npu."""
    npu = _npu()
    return isinstance(thing, tuple(getattr(npu, kind) for kind in kinds))


# --- waits ------------------------------------------------------------------------------------------------------------


def synchronize(thing: Any, timeout: Seconds | None = None) -> Operation[None]:
    """Waits until work of torch is done, without a thread and without blocking the event loop.

    Asks `torch.npu.Event.query()` at most every 2 ms. This call neither blocks nor empties torch's queue on the host.

    Args:
        thing: a `torch.npu.Stream`: waits for the work that is on it, or in torch's queue for it, when the wait begins.
            Or a `torch.npu.Event`: waits for its newest record.
        timeout: the longest wait in seconds; None waits without a limit.

    Returns:
        An Operation; await it, or call its `result()`. A cancellation ends the wait only.

    Raises:
        DeviceTimeout: the work was not done within `timeout` seconds.
        RuntimeError: torch reports that the work has failed. The error is torch's own. While aioacl has the device
            open, the failure is noticed at once. Otherwise the wait may continue until other code of the process
            synchronizes.
        ParameterError: `thing` is neither a stream nor an event of torch_npu.
        ImportError: torch_npu cannot be imported.
    """
    if not _is_torch(thing, "Stream", "Event"):
        raise ParameterError(
            f"expected a torch.npu.Stream or a torch.npu.Event, got {repr_of(thing)}",
            hint="Await streams and tickets of aioacl directly.",
        )
    return Operation("aioacl.torch.synchronize()", lambda: _synchronize(thing, deadline_of(timeout)))


async def _synchronize(thing: Any, deadline: float | None) -> None:
    event, port, nap, npu = thing, current_port(), FIRST_NAP, _npu()
    device = thing.device.index if _is_torch(thing, "Stream") else npu.current_device()
    if _is_torch(thing, "Stream"):
        event = npu.Event()
        event.record(thing)
    rouse_at = sync.monotonic() + ROUSE_SECONDS
    await port.breathe()
    while not event.query():
        now = sync.monotonic()
        if deadline is not None and now >= deadline:
            raise DeviceTimeout(
                "the work of torch was not done in time", hint="The work continues: wait again."
            )
        if now >= rouse_at:
            lib.aio_device_rouse(device)
            rouse_at = now + ROUSE_SECONDS
        await _sleep(port, now + nap if deadline is None else min(now + nap, deadline))
        nap = min(2 * nap, LONGEST_NAP)
    event.synchronize()  # it is done, so this only raises the error of torch, if there is one


async def _sleep(port: Port, until: float) -> None:
    begun: list[int] = []

    def start(_: CData, key: int) -> int:
        begun.append(key)
        port.take_token(key)
        return 0

    try:
        await port.wait(start, deadline=until)
    finally:
        for key in begun:
            port.refuse(key)


def wait(stream: Any, behind: Any) -> None:
    """Makes later work of a stream wait on the device for work of the other library (aclrtStreamWaitEvent).

    The call waits until torch's queue on the host is empty, and holds the GIL meanwhile, because a wait for a record
    that is still in this queue would not wait. Failures do not pass from one library to the other.

    Args:
        stream: the stream that waits: a Stream of aioacl, or a `torch.npu.Stream`.
        behind: the work for which it waits: for a Stream, a `torch.npu.Event` or a `torch.npu.Stream`; for a stream of
            torch, an Event or a Stream of aioacl. If this is a stream, its work up to now.

    Raises:
        ParameterError: the arguments are not of these types, or the event of aioacl was never recorded.
        AclError: one of the errors that each enqueue can raise; see `Stream`.
        ImportError: torch_npu cannot be imported.
    """
    if isinstance(stream, Stream) and _is_torch(behind, "Stream", "Event"):
        _ours_waits(stream, behind)
    elif _is_torch(stream, "Stream") and isinstance(behind, Stream | Event):
        _theirs_waits(stream, behind.record() if isinstance(behind, Stream) else behind)
    else:
        raise ParameterError(
            f"expected a stream of one library and an event or a stream of the other one, got {repr_of(stream)} "
            f"and {repr_of(behind)}",
            hint="Within one library, use its own wait_event.",
        )


def _ours_waits(stream: Stream, behind: Any) -> None:
    manager, event = stream._manager, behind
    if _is_torch(behind, "Stream"):
        event = _npu().Event()
        event.record(behind)
    _empty_queue(manager)
    if event.npu_event:  # 0: the event was never recorded
        wait_for_other_code(manager, pointer(stream._live().native), event.npu_event)


def _theirs_waits(stream: Any, behind: Event) -> None:
    manager, version = behind._manager, behind._recorded_version()
    held = manager.admission.may_enqueue_while_draining()
    wait_outside(manager, behind._generation, stream.npu_stream, native_event(version), held=held)


def _empty_queue(manager: Manager) -> None:
    """Waits until torch has enqueued all its work. All streams of a device share one queue."""
    _npu().current_stream(manager.index).npu_stream  # noqa: B018 - reading the property empties the queue


# --- tensors ----------------------------------------------------------------------------------------------------------


class _Export:
    """A buffer whose capsule is ordered before the work of a stream; torch passes no arguments to `__dlpack__`."""

    def __init__(self, buffer: DeviceBuffer, stream: int) -> None:
        self._buffer = buffer
        self._stream = stream

    def __dlpack_device__(self) -> Any:
        return self._buffer.__dlpack_device__()

    def __dlpack__(self, **_: object) -> object:
        return self._buffer.__dlpack__(stream=self._stream)


def tensor(buffer: DeviceBuffer, dtype: Any = None, shape: Sequence[int] | None = None) -> Any:
    """Returns a tensor of torch with the memory of a buffer, without a copy.

    torch's current stream of this thread waits on the device for the work of aioacl that uses the buffer. The tensor
    keeps the memory allocated, also after the buffer is closed. For the other direction, call
    `device.from_dlpack(tensor, stream=stream)`.

    Args:
        buffer: a DeviceBuffer.
        dtype: the type of the elements, a `torch.dtype`; None for `torch.uint8`.
        shape: the sizes of the tensor; None for one dimension.

    Returns:
        A `torch.Tensor` on the device.

    Raises:
        ParameterError: `buffer` is not a DeviceBuffer, or is closed.
        BufferError: an upload or a download that uses the buffer is not done.
        RuntimeError: the bytes do not fit `dtype` and `shape`. The error is torch's own.
        TypeError: `dtype` or `shape` has a wrong type. The error is torch's own.
        AclError: the wait could not be enqueued; see `wait`.
        ImportError: torch_npu cannot be imported.
    """
    if not isinstance(buffer, DeviceBuffer):
        raise ParameterError(
            f"expected a DeviceBuffer, got {repr_of(buffer)}", hint="Pass device.allocate(nbytes)."
        )
    stream = _npu().current_stream(buffer._manager.index).npu_stream
    made = importlib.import_module("torch").from_dlpack(_Export(buffer, stream))
    made = made if dtype is None else made.view(dtype)
    return made if shape is None else made.view(*shape)


# --- resets -----------------------------------------------------------------------------------------------------------


def _queue_threads() -> set[str]:
    """The ids of the threads that enqueue what is in torch's queues."""
    found = set[str]()
    for task in Path("/proc/self/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
        except OSError:  # the thread has ended
            continue
        if name == QUEUE_THREAD:
            found.add(task.name)
    return found


class _Attached:
    """The hooks that let torch survive a reset of the device. torch is called on one thread of its own.

    torch sets the device on each new thread that calls it, so other threads would raise the number of sets.
    """

    def __init__(self, manager: Manager, drop: Callable[[], object] | None) -> None:
        self._manager = manager
        self._drop = drop
        self._queues = set[str]()
        self._thread = WorkerThread(f"aioacl-torch-{manager.index}")
        self._thread.start()
        weakref.finalize(self, self._thread.stop, 0)

    def bind(self) -> None:
        npu, index = _npu(), self._manager.index
        npu.set_device(index)
        npu.current_device()
        self._queues = _queue_threads()

    def call(self, work: Callable[[], None]) -> None:
        self._thread.call(work, None)  # the hook has a time limit

    def before(self, scope: Scope) -> None:
        if scope == "device":
            self.call(self._give_back)

    def _give_back(self) -> None:
        npu = _npu()
        try:
            npu.synchronize()
        except RuntimeError:  # a task has failed
            self._keep()
        if self._queues - _queue_threads():
            # The thread of a queue ends at the first failed call, and torch never starts another one. With the queue
            # on, the next work of torch would wait for it for ever.
            npu.set_task_queue_enable(0)
        if self._drop is not None:
            self._drop()
        try:
            npu.empty_cache()
        except RuntimeError:  # it fails in a stopped context
            self._keep()

    def _keep(self) -> None:
        """Keeps the memory of the device during the reset, because torch cannot give its memory back before it."""
        manager = self._manager
        manager.control.call(manager.own_context.keep_device, KEEP_SECONDS)

    def after(self, report: ResetReport) -> None:
        if report.scope == "device":
            self.call(self._restart if report.ok else self._let_go)

    def _restart(self) -> None:
        npu = _npu()
        try:
            npu.restart_device(self._manager.index, rebuild_all_resources=True)
            npu.empty_cache()
            self._queues = _queue_threads()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        manager = self._manager
        if manager.own_context.keeps_device:
            manager.control.call(manager.own_context.let_device_go, KEEP_SECONDS)


def attach(
    device: Device, *, drop: Callable[[], object] | None = None, timeout: Seconds = RESET_SECONDS
) -> Callable[[], None]:
    """Registers hooks after which torch works again when `device.force_reset()` has reset the device.

    Before the reset: `torch.npu.synchronize()`, `drop()`, `torch.npu.empty_cache()`. After it:
    `torch.npu.restart_device(rebuild_all_resources=True)`, `torch.npu.empty_cache()`. The hooks do nothing if the reset
    only replaces aioacl's own context, as `force_reset()` does by default with `context="own"`. Call `attach` after
    torch has used the device. If a hook fails, `report.hook_errors` has the error.

    Args:
        device: the Device.
        drop: a function without arguments that deletes all tensors and events of torch on the device. torch's tensors
            of before the reset must not be used after it.
        timeout: the longest time in seconds for each of the two hooks, 30 by default.

    Returns:
        A function that removes the hooks. The close of the Device removes them too.

    Raises:
        ParameterError: `device` is not a Device, `drop` is not a function, `timeout` is not a finite number, or the
            device is closed.
        ImportError: torch_npu cannot be imported.
    """
    if not isinstance(device, Device):
        raise ParameterError(f"expected a Device, got {repr_of(device)}", hint="Pass open_device(index).")
    if drop is not None and not callable(drop):
        raise ParameterError(f"drop must be a function or None, got {repr_of(drop)}", hint="Omit drop.")
    limit = bound_of("timeout", timeout)
    device._check()  # before torch sets the device
    _npu()
    attached = _Attached(device._manager, drop)
    attached.call(attached.bind)
    removes = (
        device.before_reset(attached.before, timeout=limit),
        device.after_reset(attached.after, timeout=limit),
    )

    def detach() -> None:
        for remove in removes:
            remove()

    return detach


_publish(__name__, __all__)
