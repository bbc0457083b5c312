"""Streams: enqueueing is a plain call that never waits; waiting is an await."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, SupportsIndex

from aioacl._base.errors import AclError, ParameterError
from aioacl._base.ffi import code_of, ffi, lib, refused
from aioacl._base.options import deadline_of, whole_of
from aioacl._base.origin import warn_of_drop
from aioacl._handles.event import Event, Ticket
from aioacl._handles.handle import Handle
from aioacl._handles.in_flight import InFlight, deferred, free_deferred
from aioacl._handles.native_streams import destroy, make_core
from aioacl._handles.operand import CopyOperand, copy_kind, copy_size, fill_size, operand_of
from aioacl._handles.operation import Operation
from aioacl._handles.transfer import STAGED_AT_MOST, pump, room
from aioacl._lifecycle.failures import LAST, warn
from aioacl._wait.current import begun, run_blocking
from aioacl._wait.workers import call_on, clean_up_on

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from aioacl._base.options import OnFailure, Seconds
    from aioacl._base.origin import Site
    from aioacl._handles.memory import Buffer, DeviceBuffer, PinnedBuffer
    from aioacl._handles.operand import HostMemory, Memory
    from aioacl._handles.stream_core import StreamCore
    from aioacl._lifecycle.manager import Manager


class Stream(Handle):
    """A queue of work on a device, from `device.create_stream()`. `await stream` waits for all of it."""

    __slots__ = ("_core", "_on_failure", "_priority")
    noun = "stream"
    factory = "device.create_stream()"

    def __init__(self, core: StreamCore, priority: int, on_failure: OnFailure) -> None:
        super().__init__(core.manager, core.generation)
        self._core = core
        self._priority = priority
        self._on_failure: OnFailure = on_failure

    # --- waiting ---------------------------------------------------------------------------------------------

    async def _wait(self, timeout: Seconds | None) -> None:
        self._check()
        await self._core.arrive(lib.aio_stream_tail(self._core.handle), deadline=deadline_of(timeout))

    def __await__(self) -> Generator[Any, Any, None]:
        return (yield from begun(lambda: self._wait(None)))

    def synchronize(self, timeout: Seconds | None = None) -> Operation[None]:
        """Waits for everything enqueued so far, at most `timeout` seconds (aclrtSynchronizeStream).

        Raises:
            DeviceTimeout: after the time; the stream stays usable.
            DeviceReset, StaleHandleError: its device was reset.
            StreamAborted: its work was aborted.
            DeviceFault and others: one of its tasks failed.
        """
        return Operation("stream.synchronize()", lambda: self._wait(timeout), self)

    def result(self, timeout: Seconds | None = None) -> None:
        """As `synchronize`, blocking, on a thread without a running loop."""
        run_blocking(lambda: self._wait(None), timeout)

    @property
    def error(self) -> AclError | None:
        """The failure that the stream's next work would be refused with, or None. Calls no ACL function.

        It is that of the first task of its own that failed, else that of the first failed task on which its work
        depends. Each read makes a new exception object. `await stream.renew()` makes the stream usable again.
        """
        failed = self._core.error_at(LAST)
        return None if failed is None else self._core.raised(failed)

    def query(self) -> bool:
        """Whether all its work is done, well or not (aclrtStreamQuery)."""
        self._check()
        answer = lib.aio_stream_query(self._core.handle, lib.aio_stream_tail(self._core.handle))
        if answer not in (0, 1):
            raise self._error(answer, "aclrtStreamQuery")
        self._core.release_done()
        return answer == 1

    # --- enqueueing ------------------------------------------------------------------------------------------

    def _enqueue(self, core: StreamCore, call: str, function: Callable[..., int], *arguments: object) -> int:
        """The position of a new entry. A holder of a lease passes while the device drains."""
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
        """Enqueues what uses these objects; also when Ctrl-C comes behind the call, they are kept until it is done."""
        reference = InFlight(core, buffers, held)
        try:
            core.keep(reference)
            reference.position = position = self._enqueue(core, call, function, *arguments)
            if deferred:
                free_deferred(reference)
            return Ticket(core, position, call)
        except AclError:  # it was refused
            core.forget(reference)
            raise
        except BaseException:
            reference.position = lib.aio_stream_tail(core.handle)
            free_deferred(reference)
            raise

    def copy(self, target: Memory, source: Memory, *, nbytes: SupportsIndex | None = None) -> Ticket:
        """Enqueues a copy (aclrtMemcpyAsync) of `nbytes`, or of the whole source, to the start of the target.

        One of the two is a DeviceBuffer; the other a DeviceBuffer, a PinnedBuffer, or any object with a contiguous
        buffer (pageable memory): up to 1 MiB of that is staged, more goes through `upload` and `download`. The
        stream keeps both until the copy is done, but for a pageable source, whose bytes are taken at once. Where
        nothing awaits the copy, they are released within about a tenth of a second of its end.

        Raises:
            ParameterError: sizes or kinds do not fit, the target is read-only, the memory is of another device.
            QueueFull: the stream's queue or the staging memory is full; `await stream.ready()`.
            StaleHandleError: the stream or a buffer is of an older generation.
            DeviceResetting: the device is draining or being reset.
        """
        self._check()
        to, of = operand_of(target, self._manager, writable=True), operand_of(source, self._manager)
        core, size, kind = self._core, copy_size(to, of, nbytes), copy_kind(to, of)
        if size == 0:
            return self._at_tail(core)
        if to.pageable or of.pageable:
            return self._copy_staged(core, to, of, size, (to.owner if of.pageable else of.owner,))
        return self._copy_directly(core, to, of, size, kind, (to.owner, of.owner))

    def _at_tail(self, core: StreamCore) -> Ticket:
        """The ticket of work that moves nothing: the runtime is not called, and it is done when all before it is."""
        return Ticket(core, lib.aio_stream_tail(core.handle), twin=True)

    def _copy_directly(
        self,
        core: StreamCore,
        to: CopyOperand,
        of: CopyOperand,
        size: int,
        kind: int,
        uses: tuple[Buffer, ...],
    ) -> Ticket:
        arguments = (to.address, to.size, of.address, size, kind)
        return self._ticket(core, uses, None, "aclrtMemcpyAsync", lib.aio_copy, *arguments)

    def _copy_staged(
        self, core: StreamCore, to: CopyOperand, of: CopyOperand, size: int, uses: tuple[Buffer, ...]
    ) -> Ticket:
        if size > STAGED_AT_MOST:
            raise ParameterError(
                f"a copy of {size} bytes from or to pageable memory would block the caller",
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
        """Enqueues a fill (aclrtMemsetAsync) of the target, a DeviceBuffer or PinnedBuffer, with one byte.

        It fills all of it, or `nbytes` from its start. With `nbytes=0` it calls no ACL function, as a copy does: the
        ticket is done when the work before it is.
        """
        self._check()
        to = operand_of(target, self._manager, writable=True)
        if to.pageable:
            raise ParameterError(
                "only device and pinned memory can be filled", hint="Fill host memory yourself."
            )
        value = whole_of(byte)
        if value is None or not 0 <= value <= 255:
            raise ParameterError(f"{byte!r} is not a byte", hint="Pass a number from 0 to 255.")
        core, size = self._core, fill_size(to, nbytes)
        if size == 0:
            return self._at_tail(core)
        arguments = (to.address, to.size, value, size)
        return self._ticket(core, (to.owner,), None, "aclrtMemsetAsync", lib.aio_fill, *arguments)

    def record(self, event: Event | None = None) -> Event:
        """Records an event at this point of the stream (aclrtRecordEvent): a pooled one, or your own."""
        self._check()
        if event is None:
            event = Event._make(self._manager, self._generation, timing=False)
        if not isinstance(event, Event):
            raise ParameterError(
                f"expected an Event, got {event!r}", hint="Make one with device.create_event()."
            )
        event._check()
        if event._manager is not self._manager:
            raise ParameterError("the event is of another device", hint="Make it from the stream's device.")
        native = ffi.new("aio_event **")
        core = self._core
        position = self._enqueue(core, "aclrtRecordEvent", lib.aio_record, event.timing, native)
        event._set_version(core, position, native[0])
        return event

    def wait_event(self, event: Event) -> Ticket:
        """Makes all later work of this stream wait for the event's newest record (aclrtStreamWaitEvent).

        Raises:
            DeviceFault and others: a task before the event has failed; this stream stays usable.
            DeviceFault and others: this stream has failed; see `error`.
            ParameterError: it is not an event, was never recorded, or is closed.
            QueueFull, StaleHandleError, DeviceResetting: as for every enqueue.
        """
        self._check()
        if not isinstance(event, Event):
            raise ParameterError(
                f"expected an Event, got {event!r}", hint="Pass what stream.record() returns."
            )
        version = event._recorded_version()
        arguments = (version.native, version.core.handle, version.position)
        try:
            return self._ticket(
                self._core, (), version, "aclrtStreamWaitEvent", lib.aio_wait_event, *arguments
            )
        except AclError as error:
            failed = version.core.error_at(version.position) if error.code == lib.AIO_EVENT_FAILED else None
            if failed is None:
                raise
        refusal = version.core.raised(failed, "aclrtStreamWaitEvent")
        refusal.hint = (
            "Repeat the work behind the event on a stream that has not failed. This stream stays usable."
        )
        raise refusal

    # --- large copies of pageable memory ---------------------------------------------------------------------

    def upload(
        self, target: DeviceBuffer, source: HostMemory, *, nbytes: SupportsIndex | None = None
    ) -> Operation[None]:
        """Copies `nbytes` of host memory, or the whole source, to the start of a DeviceBuffer.

        It may be of any size: pageable memory goes through staging memory, chunk by chunk, and the operation waits for
        room where `copy` raises QueueFull. It ends when all is copied.

        Raises:
            ParameterError: `nbytes` is no size, or more than one of the two has; kinds do not fit; as for `copy`.
            StaleHandleError, DeviceReset, DeviceFault and others: as for `copy`, and for an await of its ticket.
        """
        return Operation("stream.upload()", lambda: pump(self, target, source, nbytes, up=True), self)

    def download(
        self, target: HostMemory, source: DeviceBuffer, *, nbytes: SupportsIndex | None = None
    ) -> Operation[None]:
        """Copies `nbytes` of a DeviceBuffer, or all of it, to the start of host memory; otherwise as `upload`."""
        return Operation("stream.download()", lambda: pump(self, target, source, nbytes, up=False), self)

    # --- room ------------------------------------------------------------------------------------------------

    def ready(self) -> Operation[None]:
        """Waits until there is room in the queue and in the staging memory."""
        return Operation("stream.ready()", lambda: room(self), self)

    # --- a failed stream ---------------------------------------------------------------------------------------

    def renew(self, *, timeout: Seconds | None = None, abort: bool = False) -> Operation[None]:
        """Gives the stream a new native stream once the old one is idle: the cure for a failed stream.

        Objects that share the stream go on with it. Tickets and events from before keep their outcome. It may be called
        on a stream that has not failed, too.

        Args:
            timeout: seconds to wait at most for the work that still runs.
            abort: drops that work (aclrtStreamAbort) instead of waiting. Work that depends on dropped work never ends,
                so it is always dropped.

        Raises:
            DeviceTimeout: after the time; the stream is as it was.
            NotSupported: the work has to be dropped and the firmware cannot (207000).
            ParameterError: the stream is closed.
            StaleHandleError, DeviceResetting, DeviceReset: its device was reset.
        """
        if not isinstance(abort, bool):
            raise ParameterError(f"abort={abort!r} is not a bool", hint="Pass True or False.")
        return Operation("stream.renew()", lambda: self._renew(deadline_of(timeout), abort=abort), self)

    async def _renew(self, deadline: float | None, *, abort: bool) -> None:
        self._check()
        core = self._core
        if abort:
            await self._abort()
        while not await core.settle(deadline):
            await self._abort()
        made = await self._manager.make(self._made_again, discard=destroy, deadline=deadline)
        if self._closed or self._core is not core:  # another task has closed or renewed it meanwhile
            self._manager.deferred.leave_note(lambda: destroy(made))
            self._check()
            return
        self._core, failed = made, core.uncollected()
        await clean_up_on(self._manager.maintenance, partial(destroy, core))
        if failed is not None:
            warn(failed, "its stream was renewed")

    def _made_again(self, generation: int) -> StreamCore:
        if generation != self._generation:
            raise self._error(lib.AIO_STALE, "aclrtCreateStream")
        return make_core(self._manager, generation, self._priority, self._on_failure, self._core.made)

    # --- ends ------------------------------------------------------------------------------------------------

    async def _close(self) -> None:
        failed = self._core.uncollected()
        try:
            await super()._close()
        finally:  # last, for a warning may be an error
            if failed is not None:
                warn(failed, "its stream was closed")

    async def _abort(self) -> None:
        self._check()
        code = await call_on(self._manager.maintenance, lambda: lib.aio_stream_abort(self._core.handle))
        if code:
            raise self._error(code, "aclrtStreamAbort", "")

    def abort(self) -> Operation[None]:
        """Drops all its work (aclrtStreamAbort): every ticket of it ends in StreamAborted.

        Raises:
            NotSupported: the firmware cannot (207000); only a reset stops the work then.
            AclError: the abort failed. What was unfinished may have been dropped, so it ends in StreamAborted too.
        """
        return Operation("stream.abort()", self._abort, self)

    def _closing(self) -> Callable[[], object] | None:
        self._closed = True
        wanted = self._owed and not self.stale and not lib.aio_forked()
        return self._give_back if wanted else None

    def _give_back(self) -> None:
        """On the maintenance thread: destroys it when its work is done; once, however often it is called."""
        if self._claim():
            destroy(self._core)

    def close(self) -> Operation[None]:
        """Gives the stream back; unfinished work goes on, and the stream is destroyed after it."""
        return Operation("stream.close()", self._close, self)

    def __del__(self) -> None:
        if not hasattr(self, "_core") or not self._owed or self.stale or lib.aio_forked():
            return
        closed, self._closed = self._closed, True
        self._manager.deferred.leave_note(self._give_back)
        if not closed:
            warn_of_drop(self, "a stream was not closed: close it, or make it with `async with`")

    def __repr__(self) -> str:
        return f"<Stream {self._core.number}, {self._state()}{self._core.outcome()}>"


def make_stream(
    manager: Manager, generation: int, priority: int, on_failure: OnFailure, made_at: Site
) -> Stream:
    """On the maintenance thread: makes a stream."""
    core = make_core(manager, generation, priority, on_failure, made_at)
    return Stream._make(core, priority, on_failure)


def discard_stream(stream: Stream) -> None:
    """On the maintenance thread: destroys what was made for a caller that has left, unless its finalizer does."""
    stream._closed = True
    stream._give_back()
