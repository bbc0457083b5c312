"""Streams: enqueueing is a plain call that never waits; waiting is an await."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Literal

from aioacl._core import Kept, StreamCore, destroy
from aioacl._errors import AclError, ParameterError, QueueFull
from aioacl._event import Event, Ticket
from aioacl._ffi import code_of, ffi, lib, make_pass, refused
from aioacl._gate import error_of
from aioacl._handle import Handle, Operation, begun, warn_of_drop
from aioacl._lanes import call_on
from aioacl._memory import deferred, free_deferred
from aioacl._options import deadline_of, is_whole
from aioacl._place import Place, place_of
from aioacl._port import run_blocking

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from aioacl._lifecycle import Manager
    from aioacl._memory import Buffer

STAGED_AT_MOST: Final = 1 << 20
LIMBO_BOUND: Final = 64
HALF_A_QUEUE: Final = 1023
TEXT_BYTES: Final = 8192
OnFailure = Literal["continue", "stop"]


class Stream(Handle):
    """A queue of work on a device, from `device.create_stream()`. `await stream` waits for all of it."""

    noun = "stream"
    factory = "device.create_stream()"

    def __init__(self, core: StreamCore) -> None:
        super().__init__(core.manager, core.generation)
        self._core = core

    # --- waiting ---------------------------------------------------------------------------------------------

    async def _wait(self, timeout: float | None) -> None:
        self._check()
        await self._core.arrive(lib.aio_stream_tail(self._core.handle), deadline=deadline_of(timeout))

    def __await__(self) -> Generator[Any, Any, None]:
        return (yield from begun(lambda: self._wait(None)))

    def synchronize(self, timeout: float | None = None) -> Operation[None]:
        """Waits for everything enqueued so far, at most `timeout` seconds (aclrtSynchronizeStream).

        Raises:
            DeviceTimeout: after the time; the stream stays usable.
            DeviceReset, StaleHandleError: its device was reset.
            StreamAborted: its work was aborted.
            DeviceFault and others: one of its tasks failed.
        """
        return Operation("stream.synchronize()", lambda: self._wait(timeout))

    def result(self, timeout: float | None = None) -> None:
        """As `synchronize`, blocking, on a thread without a running loop."""
        run_blocking(lambda: self._wait(None), timeout)

    def query(self) -> bool:
        """Whether all its work is done, well or not (aclrtStreamQuery)."""
        self._check()
        answer = lib.aio_stream_query(self._core.handle, lib.aio_stream_tail(self._core.handle))
        if answer not in (0, 1):
            raise self._error(answer, "aclrtStreamQuery")
        self._core.sweep()
        return answer == 1

    # --- enqueueing ------------------------------------------------------------------------------------------

    def _enqueue(self, call: str, function: Callable[..., int], *arguments: object) -> int:
        """The position of a new entry. A holder of a lease passes while the device drains."""
        held, swept = 0, False
        while True:
            result = function(self._core.handle, held, *arguments)
            if not held and refused(result, lib.AIO_DRAINING_NOW):
                if not self._manager.may_enqueue_while_draining():
                    break
                held = 1
            elif not swept and refused(result, lib.AIO_STAGE_FULL):
                lib.aio_device_sweep(self._manager.index)
                swept = True
            else:
                break
        if result < 0:
            raise self._error(code_of(result), call)
        return result

    def _ticket(
        self,
        buffers: tuple[Buffer, ...],
        held: object,
        call: str,
        function: Callable[..., int],
        *arguments: object,
    ) -> Ticket:
        """Enqueues what uses these objects; also when Ctrl-C comes behind the call, they are kept until it is done."""
        core = self._core
        kept = Kept(core, buffers, held)
        try:
            core.keep(kept)
            kept.position = position = self._enqueue(call, function, *arguments)
            if deferred:
                free_deferred(kept)
            return Ticket(core, position)
        except AclError:  # it was refused
            core.forget(kept)
            raise
        except BaseException:
            kept.position = lib.aio_stream_tail(core.handle)
            free_deferred(kept)
            raise

    def copy(self, target: object, source: object, *, nbytes: int | None = None) -> Ticket:
        """Enqueues a copy (aclrtMemcpyAsync) of `nbytes`, or of the whole source, to the start of the target.

        One of the two is a DeviceBuffer; the other a DeviceBuffer, a PinnedBuffer, or any object with a contiguous
        buffer (pageable memory): up to 1 MiB of that is staged, more goes through `upload` and `download`. The
        stream keeps both until the copy is done.

        Raises:
            ParameterError: sizes or kinds do not fit, the target is read-only, the memory is of another device.
            QueueFull: the stream's queue or the staging memory is full; `await stream.ready()`.
            StaleHandleError: the stream or a buffer is of an older generation.
            DeviceResetting: the device is draining or being reset.
        """
        self._check()
        to, of = place_of(target, self._manager, writable=True), place_of(source, self._manager)
        size, kind = copy_size(to, of, nbytes), copy_kind(to, of)
        if size == 0:
            return Ticket(self._core, lib.aio_stream_tail(self._core.handle), twin=True)
        if to.pageable or of.pageable:
            return self._copy_staged(to, of, size, (to.owner if of.pageable else of.owner,))
        return self._copy_directly(to, of, size, kind, (to.owner, of.owner))

    def _copy_directly(self, to: Place, of: Place, size: int, kind: int, uses: tuple[Buffer, ...]) -> Ticket:
        arguments = (to.address, to.size, of.address, size, kind)
        return self._ticket(uses, None, "aclrtMemcpyAsync", lib.aio_copy, *arguments)

    def _copy_staged(self, to: Place, of: Place, size: int, uses: tuple[Buffer, ...]) -> Ticket:
        if size > STAGED_AT_MOST:
            raise ParameterError(
                f"a copy of {size} bytes from or to pageable memory would block the caller",
                hint="Use memory of device.pinned(n), or `await stream.upload(...)` / `download(...)`.",
            )
        if of.pageable:
            source = (to.address, to.size, of.address, size)
            return self._ticket(uses, None, "aclrtMemcpyAsync", lib.aio_upload, *source)
        target = (to.address, of.address, size)
        return self._ticket(uses, to.owner, "aclrtMemcpyAsync", lib.aio_download, *target)

    def fill(self, target: object, byte: int, *, nbytes: int | None = None) -> Ticket:
        """Enqueues a fill (aclrtMemsetAsync) of the target, a DeviceBuffer or PinnedBuffer, with one byte."""
        self._check()
        to = place_of(target, self._manager, writable=True)
        if to.pageable:
            raise ParameterError(
                "only device and pinned memory can be filled", hint="Fill host memory yourself."
            )
        if not is_whole(byte) or not 0 <= byte <= 255:
            raise ParameterError(f"{byte!r} is not a byte", hint="Pass a number from 0 to 255.")
        size = copy_size(to, to, nbytes)
        arguments = (to.address, to.size, byte, size)
        return self._ticket((to.owner,), None, "aclrtMemsetAsync", lib.aio_fill, *arguments)

    def record(self, event: Event | None = None) -> Event:
        """Records an event at this point of the stream (aclrtRecordEvent): a pooled one, or your own."""
        self._check()
        if event is None:
            event = Event._make(self._manager, self._generation, timing=False)
        if not isinstance(event, Event):
            raise ParameterError(f"{event!r} is no event", hint="Make one with device.create_event().")
        event._check()
        if event._manager is not self._manager:
            raise ParameterError("the event is of another device", hint="Make it from the stream's device.")
        native = ffi.new("aio_event **")
        position = self._enqueue("aclrtRecordEvent", lib.aio_record, event.timing, native)
        event._set_version(self._core, position, native[0])
        return event

    def wait_event(self, event: Event) -> Ticket:
        """Makes all later work of this stream wait for the event's newest record (aclrtStreamWaitEvent)."""
        self._check()
        if not isinstance(event, Event):
            raise ParameterError(f"{event!r} is no event", hint="Pass what stream.record() returns.")
        version = event._recorded_version()
        return self._ticket((), version, "aclrtStreamWaitEvent", lib.aio_wait_event, version.native)

    # --- large copies of pageable memory ---------------------------------------------------------------------

    def upload(self, target: object, source: object) -> Operation[None]:
        """Copies pageable memory of any size to the device, through staging memory, chunk by chunk."""
        return Operation("stream.upload()", lambda: self._pump(target, source, up=True))

    def download(self, target: object, source: object) -> Operation[None]:
        """Copies device memory to pageable memory of any size, through staging memory, chunk by chunk."""
        return Operation("stream.download()", lambda: self._pump(target, source, up=False))

    async def _pump(self, target: object, source: object, *, up: bool) -> None:
        self._check()
        to, of = place_of(target, self._manager, writable=True), place_of(source, self._manager)
        if not (to if up else of).device or (of if up else to).device:
            raise ParameterError(
                f"{'upload' if up else 'download'} goes {'to' if up else 'from'} a DeviceBuffer, and the other "
                "end is host memory",
                hint="The target comes first, as in copy(target, source).",
            )
        size, kind = copy_size(to, of, None), copy_kind(to, of)
        buffers = (
            (to.owner, of.owner) if not (to.pageable or of.pageable) else (to.owner if up else of.owner,)
        )
        kept = Kept(self._core, buffers, (to.owner, of.owner))
        try:
            self._core.hold(kept)
            await self._pump_held(to, of, size, kind)
        except BaseException:  # some chunks may be under way
            self._core.placed(kept)
            raise
        self._core.forget(kept)

    async def _pump_held(self, to: Place, of: Place, size: int, kind: int) -> None:
        tickets: deque[Ticket] = deque()
        for offset in range(0, size, STAGED_AT_MOST):
            if len(tickets) == 4:
                await tickets.popleft()
            chunk = min(STAGED_AT_MOST, size - offset)
            tickets.append(await self._chunk(to.part(offset, chunk), of.part(offset, chunk), chunk, kind))
        while tickets:
            await tickets.popleft()

    async def _chunk(self, to: Place, of: Place, size: int, kind: int) -> Ticket:
        waited = False
        while True:
            try:
                if to.pageable or of.pageable:
                    return self._copy_staged(to, of, size, ())
                return self._copy_directly(to, of, size, kind, ())
            except QueueFull as full:
                if full.code is not None and waited:
                    raise  # what the runtime calls full with nothing in it will not have room either
                waited = full.code is not None
                await (self._wait(None) if waited else self._ready())

    # --- room ------------------------------------------------------------------------------------------------

    def ready(self) -> Operation[None]:
        """Waits until there is room in the queue and in the staging memory."""
        return Operation("stream.ready()", self._ready)

    async def _ready(self) -> None:
        while True:
            self._check()
            if lib.aio_stream_room(self._core.handle) < 2:
                await self._half_empty()
            elif not await self._staging():
                return

    async def _half_empty(self) -> None:
        position = max(1, lib.aio_stream_tail(self._core.handle) - HALF_A_QUEUE)
        result = await self._core.wait(position)
        if result < 0 and code_of(result) <= lib.AIO_LIMIT:
            raise self._core.failure(result, position)

    async def _staging(self) -> bool:
        """Waits for staging memory; True when it had to."""
        index = self._manager.index
        if lib.aio_stage_free_slots(index, STAGED_AT_MOST):
            return False
        code = await self._manager.make(lambda _: lib.aio_stage_grow(index, 1))
        if code == 0:
            return True
        for core in self._manager.cores():
            oldest = core.oldest()
            if oldest and not core.passed(oldest):
                await core.wait(oldest)
                return True
        if lib.aio_stage_free_slots(index, STAGED_AT_MOST):
            return True  # they came back while we were asking for more
        raise self._error(code, "aclrtMallocHost")  # nothing is under way that could give a slot back

    # --- ends ------------------------------------------------------------------------------------------------

    async def _abort(self) -> None:
        self._check()
        code = await call_on(self._manager.maintenance, lambda: lib.aio_stream_abort(self._core.handle))
        if code:
            raise self._error(code, "aclrtStreamAbort", "")

    def abort(self) -> Operation[None]:
        """Drops all its work (aclrtStreamAbort): every ticket of it ends in StreamAborted.

        Raises:
            NotSupported: the firmware cannot (207000); only a reset stops the work then.
        """
        return Operation("stream.abort()", self._abort)

    def _closing(self) -> Callable[[], object] | None:
        self._closed = True
        wanted = self._owed and not self.stale and not lib.aio_forked()
        return self._give_back if wanted else None

    def _give_back(self) -> None:
        """On the maintenance lane: destroys it when its work is done; once, however often it is called."""
        if self._claim():
            destroy(self._core)

    def close(self) -> Operation[None]:
        """Gives the stream back; unfinished work goes on, and the stream is destroyed after it."""
        return Operation("stream.close()", self._close)

    def __del__(self) -> None:
        if not hasattr(self, "_core") or not self._owed or self.stale or lib.aio_forked():
            return
        closed, self._closed = self._closed, True
        self._manager.leave_note(self._give_back)
        if not closed:
            warn_of_drop(self._born, "a stream was not closed: close it, or make it with `async with`")

    def __repr__(self) -> str:
        return f"<Stream of device {self._manager.index}, generation {self._generation}>"


def copy_size(to: Place, of: Place, nbytes: int | None) -> int:
    """How many bytes a copy moves. ParameterError when they do not fit."""
    size = of.size if nbytes is None else nbytes
    if not is_whole(size) or size < 0:
        raise ParameterError(f"nbytes={nbytes!r} is not a size", hint="Pass a number of bytes.")
    if size > of.size or size > to.size:
        raise ParameterError(
            f"{size} bytes do not fit: the source has {of.size}, the target {to.size}",
            hint="Pass nbytes=, at most the smaller of the two.",
        )
    return size


def copy_kind(to: Place, of: Place) -> int:
    """The aclrtMemcpyKind. ParameterError when neither is on the device."""
    if to.device and of.device:
        return lib.ACL_MEMCPY_DEVICE_TO_DEVICE
    if to.device:
        return lib.ACL_MEMCPY_HOST_TO_DEVICE
    if of.device:
        return lib.ACL_MEMCPY_DEVICE_TO_HOST
    raise ParameterError(
        "neither the source nor the target is on the device", hint="Copy host memory yourself."
    )


def make_stream(manager: Manager, generation: int, priority: int, on_failure: OnFailure) -> Stream:
    """On the maintenance lane: makes the native stream."""
    shown = make_pass(manager.index, generation)
    made = ffi.new("aclrtStream *")
    if priority:
        call, code = (
            "aclrtCreateStreamWithConfig",
            lib.aio_g_aclrtCreateStreamWithConfig(shown, made, priority, 0),
        )
    else:
        call, code = "aclrtCreateStream", lib.aio_g_aclrtCreateStream(shown, made)
    if code:
        raise error_of(code, call, manager.index, generation)
    if on_failure == "stop":
        manager.stop_generation = generation
        code = lib.aio_g_aclrtSetStreamFailureMode(shown, made[0], 1)
        if code:
            error = error_of(code, "aclrtSetStreamFailureMode", manager.index, generation)
            lib.aio_g_aclrtDestroyStream(shown, made[0])
            raise error
    return Stream._make(StreamCore(manager, generation, made[0]))


def discard_stream(stream: Stream) -> None:
    """On the maintenance lane: destroys what was made for a caller that has left, unless its finalizer does."""
    stream._closed = True
    stream._give_back()
