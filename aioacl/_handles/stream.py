"""Stream: enqueueing is a plain call that never waits; waiting is an await."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

from aioacl._base.errors import AclError, ParameterError
from aioacl._base.ffi import (
    Awaitable,
    InFlight,
    bind_enqueue,
    bind_maker,
    code_of,
    enqueue_copy,
    enqueue_fill,
    enqueue_record,
    enqueue_wait_event,
    ffi,
    lib,
    new_launch,
    refused,
    state_of,
)
from aioacl._base.options import deadline_of, repr_of, whole_of
from aioacl._base.origin import warn_of_drop
from aioacl._base.public import publish
from aioacl._base.states import State
from aioacl._handles.borrowing import context_of, manager_of_device
from aioacl._handles.event import Event, Ticket
from aioacl._handles.handle import Handle, is_a
from aioacl._handles.in_flight import deferred, free_deferred
from aioacl._handles.launch import Launch, tasks_of
from aioacl._handles.memory import DeviceBuffer
from aioacl._handles.native_streams import destroy, keep_if_done, make_core
from aioacl._handles.operand import (
    CopyOperand,
    copy_kind,
    copy_size,
    fill_size,
    fill_target,
    must_not_overlap,
    operand_of,
)
from aioacl._handles.operation import Operation
from aioacl._handles.stream_core import EndedCore, StreamCore
from aioacl._handles.transfer import STAGED_AT_MOST, pump, room
from aioacl._lifecycle.abortable import address_of
from aioacl._lifecycle.cache import DESTROY, STREAMS
from aioacl._lifecycle.failures import LAST, warn
from aioacl._wait.current import begun, run_blocking
from aioacl._wait.workers import call_on, clean_up_on

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from aioacl._base.options import OnFailure, Seconds
    from aioacl._base.origin import Site
    from aioacl._device import Device
    from aioacl._handles.memory import Buffer
    from aioacl._handles.operand import HostMemory, Memory
    from aioacl._handles.pinned import PinnedBuffer
    from aioacl._lifecycle.failures import Failed
    from aioacl._lifecycle.manager import Manager


bind_enqueue(Ticket, Event, DeviceBuffer, deferred, free_deferred)


class Stream(Handle, Awaitable):
    """A queue of work on a device, made by `device.create_stream()`.

    Tasks run in the order in which they were enqueued. `await stream` waits for all work enqueued so far.

    Each enqueue (`copy`, `fill`, `record`, `wait_event`) can raise these errors:

    - `QueueFull`: the stream's queue is full. `await stream.ready()`, then try again.
    - `DeviceFault`: the stream has failed; see `error`. The code of the failure may select another subclass.
    - `DeviceResetting`: the device is draining or being reset.
    - `StaleHandleError`: the stream, or a buffer or event that was passed, is from an older generation.
    - `ParameterError`: an argument is wrong, or the stream or an argument is closed. Each method lists its reasons.
    """

    __slots__ = ()
    _noun = "stream"
    _factory = "device.create_stream()"

    def __init__(self, core: StreamCore) -> None:
        super().__init__(core.manager, core.generation)
        self._core = core

    @classmethod
    def from_handle(cls, handle: Any, device: Device, context: Any = None, *, owner: object = None) -> Stream:
        """Borrows a native stream that other code owns, for example one of torch_npu.

        aioacl never destroys, synchronizes, queries or aborts the stream. It records an event on the stream at once,
        and one for each await of the Stream: `await stream` waits for all work that any code has enqueued before.

        The Stream ends when the owner destroys the native stream (aclrtRegStreamStateCallback). Then an await of work
        that is not known to be done raises StreamAborted, and later calls raise StaleHandleError. An abort by the owner
        is not noticed: dropped work then looks done. While the owner captures the stream, enqueues and awaits raise
        ParameterError (107027).

        Args:
            handle: the aclrtStream, as an int or a C value of cffi. With ctypes, pass the `value` of the pointer.
            device: the Device of aioacl on which the stream is. It must be open.
            context: the aclrtContext of the stream, as an int or a C value; None is the primary context of the device.
                No function of ACL returns the context of a stream.
            owner: an object that is kept alive as long as the Stream.

        Returns:
            A Stream. Its `abort` and `renew` are refused, and its `close` leaves the native stream alone.

        Raises:
            ParameterError: `handle` is 0 or a stream of aioacl, an argument has a wrong type, the stream captures, or
                the device is closed or not set by other code.
            ContextError: the stream belongs to another context or device (107003), or there is no such stream (107017).
            AclError: another error of an enqueue; see `Stream`.
        """
        manager = manager_of_device(device)
        native = ffi.cast("aclrtStream", address_of(handle))
        if lib.aio_stream_is_ours(native):
            raise ParameterError("expected a stream of other code, got one of aioacl", hint="Use its Stream.")
        where = context_of(manager, context)
        core = StreamCore.borrow(manager, manager.generation, native, where, owner)
        stream: Stream = cls._make(core)
        try:
            _ = stream.record()
        except BaseException:
            stream._closed, core.gone = True, True
            stream._claim()
            raise
        return stream

    # --- waiting ---------------------------------------------------------------------------------------------

    def _live(self) -> StreamCore:
        """Returns the StreamCore of a stream that is neither closed nor stale.

        The caller's reference keeps the cache from giving the StreamCore to another Stream.
        """
        core: StreamCore | EndedCore = self._core
        self._check()
        if isinstance(core, EndedCore):
            raise self._was_closed()
        return core

    async def _wait(self, timeout: Seconds | None) -> None:
        core, position, _ = self._target()
        await core.arrive(position, deadline=deadline_of(timeout))

    def _target(self) -> tuple[StreamCore, int, str]:
        core = self._live()
        if core.borrowed:  # the await also covers what the owner has enqueued
            _ = self.record()
        return core, lib.aio_stream_tail(core.handle), ""

    def _await_in_python(self) -> Generator[Any, Any, None]:
        return (yield from begun(lambda: self._wait(None)))

    def synchronize(self, timeout: Seconds | None = None) -> Operation[None]:
        """Waits for all work enqueued so far (as aclrtSynchronizeStream does).

        Args:
            timeout: the longest wait in seconds; None waits without a limit.

        Returns:
            An Operation; await it, or call its `result()`.

        Raises:
            DeviceTimeout: the work was not done within `timeout` seconds. The stream stays usable.
            DeviceReset: the device was reset or closed during the wait.
            StaleHandleError: the device was reset or closed before the wait.
            StreamAborted: an abort dropped the work, or work that it depends on.
            DeviceFault: a task of the stream, or a task on which its work depends, failed. The code of the failure may
                select another subclass of AclError.
            ParameterError: the stream is closed.
        """
        return Operation("stream.synchronize()", lambda: self._wait(timeout), self)

    def result(self, timeout: Seconds | None = None) -> None:
        """Blocks until all work enqueued so far is done. For threads without a running event loop.

        Args:
            timeout: the longest wait in seconds; None waits without a limit.

        Raises:
            RuntimeError: this thread runs an event loop.
            AclError: the wait failed. `synchronize` lists the subclasses.
        """
        run_blocking(lambda: self._wait(None), timeout)

    @property
    def error(self) -> AclError | None:
        """The failure that an enqueue on this stream raises, an AclError, or None. Calls no ACL function.

        The error is the failure of the first failed task of this stream. If no task of this stream failed, the error is
        the failure of the first `wait_event` of this stream whose event has failed. Until all work of the stream is
        done, a failure that becomes known later may replace this one. Each read makes a new exception object. The
        stream is usable again after `await stream.renew()`.
        """
        failed = self._core.error_at(LAST)
        return None if failed is None else self._core.raised(failed)

    def query(self) -> bool:
        """Returns whether all work enqueued so far is done (aclrtStreamQuery). Never waits.

        On a borrowed stream, each call records an event and queries that event, so it can return False although the
        stream is idle. To poll, call `record()` once, and query the Event that it returns.

        Returns:
            True if all of that work is finished, successfully or not.

        Raises:
            ParameterError: the stream is closed.
            StaleHandleError: the stream is from an older generation.
            DeviceResetting: the device is being reset.
            AclError: the query failed. The code selects the subclass of AclError.
        """
        core = self._live()
        if core.borrowed:
            _ = self.record()
        answer = lib.aio_stream_query(core.handle, lib.aio_stream_tail(core.handle))
        if answer not in (0, 1):
            raise self._error(answer, "aclrtStreamQuery")
        core.release_done()
        return answer == 1

    # --- enqueueing ------------------------------------------------------------------------------------------
    #
    # Each enqueue is a call of C, which returns None in an unusual case (`_binding/enqueue.c`). Then the method raises
    # the error, or calls C again with operands that it has checked. C returns None once more only if another thread has
    # closed an operand or reset the device meanwhile; the next check raises that error.

    def _right(self) -> bool | None:
        """Whether the caller may enqueue while the device drains; None if it does not drain. Then no lock is taken."""
        if state_of(self._manager.index) != State.DRAINING:
            return None
        return self._manager.admission.may_enqueue_while_draining()

    def _enqueue(self, core: StreamCore, call: str, function: Callable[..., int], *arguments: object) -> int:
        """Calls the C function that enqueues, and returns the position.

        A lease holder may enqueue while the device drains.
        """
        held, swept = 0, False
        while True:
            result = function(core.handle, held, *arguments)
            if not held and refused(result, lib.AIO_DRAINING_NOW):
                if not self._manager.admission.may_enqueue_while_draining():
                    break
                held = 1
            elif not swept and refused(result, lib.AIO_STAGE_FULL):
                lib.aio_device_ask_streams(self._manager.index)
                swept = True
            else:
                break
        if result < 0:
            raise core.refused(code_of(result), call, self)
        return result

    def _ticket(
        self,
        core: StreamCore,
        buffers: tuple[Buffer, ...],
        held: object,
        call: str,
        function: Callable[..., int],
        *arguments: object,
    ) -> Ticket:
        """Enqueues work, and keeps the objects that the work uses alive until the work is done.

        It keeps them even if a Ctrl-C interrupts this function after the call to C.
        """
        reference = InFlight(core, buffers, held)
        try:
            core.keep(reference)
            reference.position = position = self._enqueue(core, call, function, *arguments)
            if deferred:
                free_deferred(reference)
            return Ticket(core, position, call)
        except AclError:  # the enqueue was refused
            core.forget(reference)
            raise
        except BaseException:
            reference.position = lib.aio_stream_tail(core.handle)
            free_deferred(reference)
            raise

    def copy(self, target: Memory, source: Memory, *, nbytes: SupportsIndex | None = None) -> Ticket:
        """Enqueues a copy to the start of the target (aclrtMemcpyAsync). Never waits.

        At least one of `target` and `source` is a DeviceBuffer. The other may also be a PinnedBuffer, or pageable
        memory: any object with a contiguous buffer, or a contiguous DLPack tensor in host memory, for example of torch.
        A copy of pageable memory goes through staging memory, at most 1 MiB per copy; `upload` and `download` copy
        more. A copy of 0 bytes calls no ACL function.

        The stream refers to the target and the source until the copy is done. It does not refer to a pageable source,
        because the bytes of such a source are copied at once. If nothing awaits the copy, the references are dropped
        within about 0.1 seconds after the copy is done.

        Args:
            target: the memory to write to.
            source: the memory to read from.
            nbytes: the number of bytes to copy, an int of at least 0; None copies the whole source.

        Returns:
            A Ticket. It may be dropped without being awaited.

        Raises:
            ParameterError: the sizes or kinds of memory do not fit; the target is read-only; or the memory is of
                another device.
            QueueFull: the stream's queue or the staging memory is full. `await stream.ready()`, then try again.
            AclError: one of the errors that each enqueue can raise; see `Stream`.
        """
        ticket: Ticket | None = enqueue_copy(self, target, source, nbytes)
        while ticket is None:
            self._check()
            to, of = operand_of(target, self._manager, writable=True), operand_of(source, self._manager)
            core, size = self._live(), copy_size(to, of, nbytes)
            copy_kind(to, of)
            must_not_overlap(to, of, size)
            if size == 0:
                return self._at_tail(core)
            if to.pageable or of.pageable:
                return self._copy_staged(core, to, of, size, (to.owner if of.pageable else of.owner,))
            ticket = enqueue_copy(self, to.owner, of.owner, size, self._right())
        return ticket

    def _at_tail(self, core: StreamCore) -> Ticket:
        """Returns the ticket of a copy or fill of 0 bytes, for which no ACL function is called.

        The ticket is done when the earlier work is done.
        """
        return Ticket(core, lib.aio_stream_tail(core.handle), twin=True)

    def _copy_part(self, core: StreamCore, to: CopyOperand, of: CopyOperand, size: int, kind: int) -> Ticket:
        """Copies a part of two buffers, to which another InFlight refers."""
        arguments = (to.address, to.size, of.address, size, kind)
        return self._ticket(core, (), None, "aclrtMemcpyAsync", lib.aio_copy, *arguments)

    def _copy_staged(
        self, core: StreamCore, to: CopyOperand, of: CopyOperand, size: int, uses: tuple[Buffer, ...]
    ) -> Ticket:
        if size > STAGED_AT_MOST:
            raise ParameterError(
                f"expected at most {STAGED_AT_MOST} bytes for a copy from or to pageable memory, got {size}: a longer "
                "copy would block the caller",
                hint="Use memory of device.pinned(n), or `await stream.upload(...)` / `download(...)`.",
            )
        if of.pageable:
            source = (to.address, to.size, of.address, size)
            return self._ticket(core, uses, None, "aclrtMemcpyAsync", lib.aio_upload, *source)
        target = (to.address, of.address, size)
        return self._ticket(core, uses, to.owner, "aclrtMemcpyAsync", lib.aio_download, *target)

    def fill(
        self, target: DeviceBuffer | PinnedBuffer, byte: SupportsIndex, *, nbytes: SupportsIndex | None = None
    ) -> Ticket:
        """Enqueues a fill of a buffer with one byte value (aclrtMemsetAsync). Never waits.

        A fill of 0 bytes calls no ACL function, and its ticket is done when the earlier work is done.

        Args:
            target: the DeviceBuffer or PinnedBuffer to fill.
            byte: the value of each byte, an int from 0 to 255.
            nbytes: the number of bytes to fill from the start, an int of at least 0; None fills the whole target.

        Returns:
            A Ticket. It may be dropped without being awaited.

        Raises:
            ParameterError: the target is pageable memory, too small or of another device, or `byte` is out of range.
            AclError: one of the errors that each enqueue can raise; see `Stream`.
        """
        ticket: Ticket | None = enqueue_fill(self, target, byte, nbytes)
        while ticket is None:
            self._check()
            to = fill_target(target, self._manager)
            value = whole_of(byte)
            if value is None or not 0 <= value <= 255:
                raise ParameterError(
                    f"byte must be an int from 0 to 255, got {repr_of(byte)}",
                    hint="Pass an int in this range.",
                )
            core, size = self._live(), fill_size(to, nbytes)
            if size == 0:
                return self._at_tail(core)
            ticket = enqueue_fill(self, target, value, size, self._right())
        return ticket

    def record(self, event: Event | None = None) -> Event:
        """Records an event at the current end of the queue (aclrtRecordEvent). Never waits.

        Args:
            event: an Event of the same device; None makes a new one.

        Returns:
            The recorded Event.

        Raises:
            ParameterError: `event` is not an Event, or is of another device.
            AclError: one of the errors that each enqueue can raise; see `Stream`.
        """
        recorded: Event | None = enqueue_record(self, event)
        while recorded is None:
            self._live()
            if event is not None:
                self._must_be_recordable(event)
            recorded = enqueue_record(self, event, self._right())
        return recorded

    def _must_be_recordable(self, event: object) -> None:
        if not is_a(event, Event):
            raise ParameterError(
                f"expected an Event, got {repr_of(event)}",
                hint="Pass an Event made by device.create_event().",
            )
        event._check()
        if event._manager is not self._manager:
            raise ParameterError(
                f"expected an event of device {self._manager.index}, got one of device {event._manager.index}",
                hint="Make the event from the stream's device.",
            )

    def wait_event(self, event: Event) -> Ticket:
        """Makes later work of this stream wait on the device for the event's newest record (aclrtStreamWaitEvent).

        The call itself never waits.

        Args:
            event: a recorded Event. It may be of another device.

        Returns:
            A Ticket. It may be dropped without being awaited.

        Raises:
            DeviceFault: a task that the event covers or depends on has failed; then this stream stays usable. Or this
                stream has failed; see `error`. The code of the failure may select another subclass of AclError.
            ParameterError: `event` is not an Event, or was never recorded.
            AclError: one of the errors that each enqueue can raise; see `Stream`.
        """
        ticket: Ticket | None = enqueue_wait_event(self, event)
        while ticket is None:
            self._live()
            if not is_a(event, Event):
                raise ParameterError(
                    f"expected an Event, got {repr_of(event)}",
                    hint="Pass an Event that stream.record() returned.",
                )
            event._recorded_version()
            ticket = enqueue_wait_event(self, event, self._right())
        return ticket

    # --- work of other code ----------------------------------------------------------------------------------

    def launch(self, tasks: SupportsIndex = 256, reported: bool = False) -> Launch:
        """Returns a block in which other code enqueues on this stream: `with stream.launch() as work:`.

        In the block, pass `work.handle` to an aclnn operator, to a kernel that is launched through ctypes or cffi, or
        to `torch.npu.ExternalStream`. The stream's context is current on the thread of the block. At the end of the
        block, aioacl records an event. After the block, `work.ticket` covers the work that any thread has enqueued on
        the handle before that event. A borrowed stream needs no block, because its awaits cover the work of its owner.

        While the block is open, other threads get QueueFull if they enqueue on this stream. The thread of the block
        gets ParameterError if it enqueues on this stream, waits for unfinished work of it, or opens a second block on
        it. Do not await anything in the block: a reset waits for the end of the block, as for a job.

        Args:
            tasks: how many tasks the block enqueues at most, an int of at least 1. The queue has room for them when the
                block begins. More tasks may block the thread until the device has done some.
            reported: whether the runtime reports each kind of task in the block if it fails. If False, the position is
                confirmed by a synchronize, which also finds failures of event waits, values, DVPP and HCCL. On a
                borrowed stream they are not found, because a synchronize would take the code from the owner.

        Returns:
            A Launch, to be entered with `with` once.

        Raises:
            ParameterError: `tasks` is out of range, or `reported` is not a bool.
            AclError: entering the block can raise the errors of an enqueue; see `Stream`. Leaving it raises the error
                of the record (aclrtRecordEvent), or ParameterError (107027) if a capture of the stream is open.
        """
        made: Launch | None = new_launch(self, tasks, reported)
        if made is None:
            if not isinstance(reported, bool):
                raise ParameterError(
                    f"reported must be a bool, got {repr_of(reported)}", hint="Pass True or False."
                )
            return cast("Launch", new_launch(self, tasks_of(tasks), reported))
        return made

    # --- large copies of pageable memory ---------------------------------------------------------------------

    def upload(
        self, target: DeviceBuffer, source: HostMemory, *, nbytes: SupportsIndex | None = None
    ) -> Operation[None]:
        """Copies host memory of any size to the start of a DeviceBuffer (aclrtMemcpyAsync).

        The copy runs in chunks. Pageable memory goes through staging memory. When `copy` would raise QueueFull, the
        operation waits for room.

        Args:
            target: the DeviceBuffer to write to.
            source: a PinnedBuffer, any object with a contiguous buffer, or a contiguous tensor in host memory.
            nbytes: the number of bytes to copy, an int of at least 0; None copies the whole source.

        Returns:
            An Operation. It ends when all bytes are copied.

        Raises:
            ParameterError: `target` is not a DeviceBuffer, or for a reason that `copy` lists.
            DeviceReset: the device was reset or closed during the copy.
            QueueFull: the runtime reports a full queue although the stream is idle.
            AclError: one of the errors that each enqueue, or `synchronize`, can raise; see `Stream`.
        """
        return Operation("stream.upload()", lambda: pump(self, target, source, nbytes, up=True), self)

    def download(
        self, target: HostMemory, source: DeviceBuffer, *, nbytes: SupportsIndex | None = None
    ) -> Operation[None]:
        """Copies a DeviceBuffer of any size to the start of host memory (aclrtMemcpyAsync).

        The copy runs in chunks and waits for room, as `upload` does.

        Args:
            target: a PinnedBuffer, any object with a contiguous, writable buffer, or a contiguous tensor in host
                memory.
            source: the DeviceBuffer to read from.
            nbytes: the number of bytes to copy, an int of at least 0; None copies the whole source.

        Returns:
            An Operation. It ends when all bytes are copied.

        Raises:
            ParameterError: `source` is not a DeviceBuffer, or for a reason that `copy` lists.
            DeviceReset: the device was reset or closed during the copy.
            QueueFull: the runtime reports a full queue although the stream is idle.
            AclError: one of the errors that each enqueue, or `synchronize`, can raise; see `Stream`.
        """
        return Operation("stream.download()", lambda: pump(self, target, source, nbytes, up=False), self)

    # --- room ------------------------------------------------------------------------------------------------

    def ready(self) -> Operation[None]:
        """Waits until the stream's queue and the staging memory have room for another copy.

        Returns:
            An Operation; await it, or call its `result()`.

        Raises:
            ParameterError: the stream is closed.
            StaleHandleError: the stream is from an older generation.
            OutOfMemoryError: there is no staging memory, and none can be allocated (aclrtMallocHost).
            StreamAborted: the work of the stream depends on dropped work, so it never ends.
            DeviceReset: the device was reset or closed during the wait.
            DeviceQuarantined: the device is quarantined.
        """
        return Operation("stream.ready()", lambda: room(self), self)

    # --- a failed stream ---------------------------------------------------------------------------------------

    def renew(self, *, timeout: Seconds | None = None, abort: bool = False) -> Operation[None]:
        """Replaces the native stream when it is idle, so that a failed stream is usable again.

        Calls aclrtCreateStream or aclrtCreateStreamWithConfig, then aclrtDestroyStream. The Stream object stays the
        same for all code that shares it. Earlier tickets and events keep their outcome. A stream that has not failed
        may be renewed too.

        Args:
            timeout: the longest wait in seconds for the work that still runs; None waits without a limit.
            abort: if True, drops the work that still runs (aclrtStreamAbort) instead of waiting for it. Work that
                depends on dropped work never ends, so it is always dropped.

        Returns:
            An Operation; await it, or call its `result()`.

        Raises:
            DeviceTimeout: the stream was not renewed within `timeout` seconds. The stream is unchanged.
            NotSupported: work must be dropped, and the firmware does not support aborts (207000).
            ParameterError: the stream is closed or borrowed, a launch block of this thread is open on it, or `abort` is
                not a bool.
            StaleHandleError: the stream is from an older generation.
            DeviceResetting: the device is draining or being reset.
            DeviceReset: the device was reset or closed during the wait.
        """
        self._must_be_own("renewed")
        if not isinstance(abort, bool):
            raise ParameterError(f"abort must be a bool, got {repr_of(abort)}", hint="Pass True or False.")
        return Operation("stream.renew()", lambda: self._renew(deadline_of(timeout), abort=abort), self)

    async def _renew(self, deadline: float | None, *, abort: bool) -> None:
        core = self._live()
        if lib.aio_stream_launches(core.handle) == lib.AIO_LAUNCHING_HERE:
            raise core.refusal(
                lib.AIO_LAUNCHING_HERE
            )  # the renewal waits for resets, which wait for the block
        if abort:
            await self._abort()
        while not await core.settle(deadline):
            await self._abort()
        made = await self._manager.make(self._made_again, discard=_destroy_if_made, deadline=deadline)
        if made is None and not self.stale:
            raise self._was_closed()
        if made is None:
            raise self._error(lib.AIO_WAS_RESET, "aclrtCreateStream")
        if self._closed or self._core is not core:  # another task has just closed or renewed the stream
            self._manager.deferred.leave_note(lambda: destroy(made))
            self._check()
            return
        failed = self._replace(core, made)
        await clean_up_on(self._manager.maintenance, partial(destroy, core))
        if failed is not None:
            warn(failed, "its stream was renewed")

    def _replace(self, core: StreamCore, made: StreamCore) -> Failed | None:
        """Uses the new native stream from now on. Returns the failure of the old one, if no caller has received it."""
        self._core, failed = made, core.uncollected()
        if (
            not self._owed
        ):  # another thread has closed the stream, and has perhaps not seen the new native stream
            self._manager.deferred.leave_note(lambda: destroy(made))
        return failed

    def _renew_now(self) -> None:
        """Renews the stream, which has no work. Runs on the maintenance thread. After a reset, does nothing."""
        core = self._core
        made = self._made_again(self._generation)
        if made is None:
            return
        failed = self._replace(core, made)
        destroy(core)
        if failed is not None:
            warn(failed, "its stream was renewed")

    def _made_again(self, generation: int) -> StreamCore | None:
        """Makes the new native stream.

        Returns None if the device was reset before this call. An error would not end `Manager.make`, which repeats work
        that a reset interrupted.
        """
        old: StreamCore | EndedCore = self._core
        if generation != self._generation or isinstance(old, EndedCore):
            return None
        return make_core(self._manager, generation, old.priority, old.on_failure, old.made)

    # --- closing ---------------------------------------------------------------------------------------------

    def _close_now(self) -> bool:
        if not self._owed or self.stale or lib.aio_forked():
            return False
        self._closed = True
        if self._manager.cache.keep_idle(self, EndedCore(self._core.number)):
            return True
        core: StreamCore | EndedCore = self._core
        if isinstance(core, EndedCore):  # another thread has just closed the stream
            return True
        return keep_if_done(core) and (self._claim() or True)

    async def _close(self) -> None:
        if self._close_now():
            return
        failed = self._core.uncollected()
        try:
            await super()._close()
        finally:  # last, because the warning may be raised as an exception
            if failed is not None:
                warn(failed, "its stream was closed")

    async def _abort(self) -> None:
        core = self._live()  # the thread must not abort the work of the next Stream
        code = await call_on(self._manager.maintenance, lambda: lib.aio_stream_abort(core.handle))
        if code:
            raise self._error(code, "aclrtStreamAbort", "")

    def abort(self) -> Operation[None]:
        """Drops all unfinished work of the stream (aclrtStreamAbort): its tickets raise StreamAborted.

        Returns:
            An Operation; await it, or call its `result()`.

        Raises:
            NotSupported: the firmware does not support aborts (207000). Then only a reset stops the work.
            AclError: the abort failed. Unfinished work may have been dropped, so its tickets raise StreamAborted too.
            ParameterError: the stream is closed.
            StaleHandleError: the stream is from an older generation.
        """
        self._must_be_own("aborted")
        return Operation("stream.abort()", self._abort, self)

    def _must_be_own(self, what: str) -> None:
        core: StreamCore | EndedCore = self._core
        if not isinstance(core, EndedCore) and core.borrowed:
            raise ParameterError(
                f"the stream is borrowed from other code, so it cannot be {what} here",
                hint="Its owner can do this. Then borrow the stream again.",
            )

    def _closing(self) -> Callable[[], object] | None:
        self._closed = True
        wanted = self._owed and not self.stale and not lib.aio_forked()
        return self._destroy_once if wanted else None

    def _destroy_once(self) -> None:
        """Destroys the native stream when its work is done. Runs on the maintenance thread; later calls do nothing."""
        if self._claim():
            destroy(self._core)

    def _leave(self) -> None:
        """Queues the destroy, because another thread can go on only with the maintenance thread's queue."""
        self._manager.maintenance.leave(self._destroy_once)

    def close(self) -> Operation[None]:
        """Closes the stream. Its unfinished work runs to its end.

        The native stream is then used again by a later `create_stream`, or destroyed (aclrtDestroyStream).

        The close emits an AclWarning if a task has failed and the failure was not collected: no await, `result()` or
        enqueue raised the failure, and `error` was not read. A second close is not an error.

        Returns:
            An Operation; await it, or call its `result()`.
        """
        return Operation("stream.close()", self._close, self)

    def __del__(self) -> None:
        if not hasattr(self, "_core") or not self._owed or self.stale or lib.aio_forked():
            return
        closed, self._closed = self._closed, True
        self._manager.deferred.leave_note(self._leave)
        if not closed:
            warn_of_drop(self, "a stream was not closed: close it, or make it with `async with`")

    def __repr__(self) -> str:
        return f"<Stream {self._core.number}, {self._state()}{self._core.outcome()}>"


def _destroy_if_made(core: StreamCore | None) -> None:
    if core is not None:
        destroy(core)


def make_stream(
    manager: Manager, generation: int, priority: int, on_failure: OnFailure, made_at: Site
) -> Stream:
    """Makes a stream. Runs on the maintenance thread."""
    core = make_core(manager, generation, priority, on_failure, made_at)
    return Stream._make(core)


def discard_stream(stream: Stream) -> None:
    """Closes a stream that was made for a caller that no longer waits. Runs on the maintenance thread."""
    stream._closed = True
    stream._destroy_once()


bind_maker(STREAMS, Stream)
DESTROY.append(destroy)


publish("aioacl", ["Stream"], of=__name__)
