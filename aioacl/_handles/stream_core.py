"""StreamCore: the part of a stream to which tickets, events and buffers refer. It holds the in-flight references.

The in-flight references name the objects that the device still uses. A reference is taken before the call to C. So the
reference can be found at any moment, by `close()` on another thread, by a signal handler, and after a Ctrl-C. A
reference is dropped when the work that needs it is known to be done. Each wait that ends drops such references. Each
enqueue does so too if there are many references (`release_if_many` in aioacl/_binding/handles.c). The maintenance
thread drops them after a reset, after the close of the device, and when the watcher wakes that thread. If work has
ended that nothing awaits, the watcher wakes the thread, at most ten times a second.

No lock guards the references. If a signal handler interrupts one of these functions, the handler may enqueue too. It
would wait forever for a lock that the interrupted function holds. Each step is one operation of a dict or of the list
in C, and can be repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypedDict

from aioacl._base.errors import (
    NEW_STREAM,
    AclError,
    DeviceReset,
    DeviceTimeout,
    StaleHandleError,
    StreamAborted,
    TaskTimeout,
)
from aioacl._base.ffi import (
    PENDING,
    Core,
    InFlight,
    borrow_event,
    code_of,
    ffi,
    lib,
    make_pass,
    owner,
    pointer,
)
from aioacl._base.states import State
from aioacl._handles.handle import Handle, error_on
from aioacl._handles.in_flight import UNKNOWN, deferred, free_deferred
from aioacl._library.runtime import must_not_be_forked
from aioacl._lifecycle.failures import (
    CALL,
    LAST,
    Failed,
    name_of,
    name_of_stream,
    warn,
    warn_of_failure,
)
from aioacl._lifecycle.manager import manager_of
from aioacl._wait.current import current_port
from aioacl._wait.port import TIMED_OUT

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.codes import Action
    from aioacl._base.ffi import CData, Recorded
    from aioacl._base.options import OnFailure
    from aioacl._base.origin import Site
    from aioacl._lifecycle.manager import Manager

STREAM_ABORTED: Final = 107023
CAPTURED: Final = 107027  # the stream captures
# The usual hints of these codes are about objects of aioacl.
_HINTS_OF_BORROWED: Final = {
    CAPTURED: "Repeat the call when the owner has ended the capture.",
    107002: "Pass the context of the stream as `context=`.",
    107003: "Pass the Device on which the stream is, and its context as `context=`.",
    107017: "The stream was destroyed, or the address is wrong: borrow a stream that its owner has not destroyed.",
}
# In these states, work of older generations has ended.
NOTHING_OLDER_RUNS: Final = (State.OPEN, State.DRAINING, State.CLOSED)


_own: Final = owner(lib.aio_stream_drop)


class _Where(TypedDict):
    device: int | None
    generation: int | None


class StreamCore(Core):
    """The engine's record of a stream, and the in-flight references of its work."""

    __slots__ = (
        "__weakref__",
        "borrowed",
        "borrowed_from",
        "generation",
        "handle",
        "made",
        "manager",
        "native",
        "number",
        "on_failure",
        "priority",
        "put_off",
        "raised_to",
        "reusable",
        "waiting",
    )

    def __init__(
        self,
        manager: Manager,
        generation: int,
        native: CData,
        made: Site | None,
        priority: int,
        on_failure: OnFailure,
    ) -> None:
        record = lib.aio_stream_new(make_pass(manager.index, generation), native)
        self._take(record, manager, generation, native, lib.aio_stream_id(record) if record else 0)
        self.made = made  # the line that made the stream
        self.priority = priority
        self.on_failure: OnFailure = on_failure
        self.reusable = on_failure == "continue"  # whether the cache may keep the native stream
        self.owned = True

    @classmethod
    def borrow(
        cls, manager: Manager, generation: int, native: CData, context: CData, owner: object
    ) -> StreamCore:
        """Makes a record of a native stream that other code owns. `owner` is kept alive with the record."""
        record = lib.aio_stream_borrow(make_pass(manager.index, generation), native, context)
        return cls._borrowed(record, manager, generation, native, owner)

    @classmethod
    def borrow_event(
        cls, manager: Manager, generation: int, native: CData, owner: object
    ) -> tuple[StreamCore, Recorded]:
        """Makes a record of a native event that other code owns. It is the only mark of a stream's record."""
        event = ffi.new("aio_event **")
        record = lib.aio_event_borrow(make_pass(manager.index, generation), native, event)
        core = cls._borrowed(record, manager, generation, ffi.NULL, owner)
        return core, borrow_event(core, pointer(event[0]))

    @classmethod
    def _borrowed(
        cls, record: CData, manager: Manager, generation: int, native: CData, owner: object
    ) -> StreamCore:
        core = cls.__new__(cls)
        core._take(record, manager, generation, native, lib.aio_stream_id(record) if record else 0)
        core.made = None
        core.priority = 0
        core.on_failure = "continue"
        core.reusable = False
        core.borrowed_from = owner
        core.borrowed = True
        return core

    def again(self) -> StreamCore:
        """Returns a new record of the native stream, which does not own the stream yet; see cache_take.c.

        The engine has released this record.
        """
        core = StreamCore.__new__(StreamCore)
        record = lib.aio_stream_again(self.handle)
        core._take(record, self.manager, self.generation, self.native, self.number)
        core.made = None
        core.priority = self.priority
        core.on_failure = self.on_failure
        core.reusable = True
        return core

    def _take(self, record: CData, manager: Manager, generation: int, native: CData, number: int) -> None:
        if not record:
            raise MemoryError
        self.handle = _own(record)
        self._attach(pointer(record))
        self.native = native
        self.number: int = number  # from aclrtStreamGetId; -1 if the runtime lacks it
        self.manager = manager
        self.generation = generation
        # The waits of Python code that are in progress; `awaits` counts the waits of C. Each change is one dict
        # operation, so no lock is needed.
        self.waiting: dict[object, None] = {}
        self.borrowed = False  # whether other code owns the native stream
        self.borrowed_from: object = None  # the object that other code wants to be kept
        self.put_off: list[Callable[[], object]] = []  # what the end of the open launch block calls
        self.raised_to = (
            0  # the callers of the work up to this position got an error, perhaps of another call
        )
        manager.streams.add(self)

    @property
    def stale(self) -> bool:
        """Whether the device was reset or closed after the stream was made."""
        return self.generation != self.manager.generation

    @property
    def shown(self) -> str:
        """The stream's number, for a repr. A new stream may have the number of an ended one."""
        return f"stream {self.number}{' (ended)' if self.gone else ''}"

    def dispose(self) -> None:
        """Destroys the idle native stream (aclrtDestroyStream), which no Stream uses. For the cache.

        After a device fault it calls nothing, because a reset frees the stream.
        """
        core = self
        if self.gone:
            core = self.again()
            lib.aio_stream_list(
                core.handle, core.number
            )  # otherwise no record could end a wait; see streamlock.c
        code = 0 if self.manager.failures.last_fault else lib.aio_stream_destroy(core.handle)
        core.gone = True
        self.manager.streams.discard(core)
        if code > 0 and not self.manager.admission.found_reset(self.generation, code):
            warn_of_failure(self.manager, "aclrtDestroyStream", code, "the stream")

    def puts_off(self, work: Callable[[], object]) -> bool:
        """Whether the end of the open launch block will call `work`. False if no block is open."""
        if not lib.aio_stream_launches(self.handle):
            return False
        self.put_off.append(work)
        if lib.aio_stream_launches(self.handle):
            return True
        try:
            self.put_off.remove(work)  # the block may have ended before the append
        except ValueError:
            return True
        return False

    def run_put_off(self) -> None:
        """Called by C at the end of a launch block."""
        while self.put_off:
            self.put_off[0]()
            del self.put_off[:1]

    def passed(self, position: int) -> bool:
        """Whether the device is done with the work up to the position."""
        return self.stale or lib.aio_stream_completed(self.handle) >= position

    def keep(self, reference: InFlight) -> None:
        """Takes the references of work that is about to be enqueued. Raises ParameterError if a buffer is closed.

        It adds the reference first and reads `_closed` second. `close()` sets `_closed` first and reads the references
        second. So at least one of the two functions sees what the other has written.
        """
        self._add(reference)
        for buffer in reference.buffers:
            buffer._uses.add(reference)
            if buffer._closed:
                buffer._check()
        self._release_if_many()

    def hold(self, reference: InFlight) -> None:
        """Takes references as `keep` does, for an operation of several enqueues. `placed` or `forget` ends it.

        The references are not added to the list, because later references would stay in the list until the operation
        ends.
        """
        for buffer in reference.buffers:
            buffer._uses.add(reference)
            if buffer._closed:
                buffer._check()

    def placed(self, reference: InFlight) -> None:
        """Ends `hold` for an operation whose enqueued work may be unfinished."""
        reference.position = lib.aio_stream_tail(self.handle)
        self._add(reference)
        if deferred:
            free_deferred(reference)
        self.release_done()

    def forget(self, reference: InFlight) -> None:
        """Drops the references of work that was refused or is completely done."""
        reference.position = 0
        self._drop(reference)
        if deferred:
            free_deferred(reference)

    def _release_stale(self) -> int:
        """Returns the position up to which the work of a stale stream is done.

        Once the reset or close has ended, all of its work counts as done.
        """
        dropped = self.manager.admission.shown in NOTHING_OLDER_RUNS
        return UNKNOWN - 1 if dropped else lib.aio_stream_completed(self.handle)

    async def wait(self, position: int, deadline: float | None = None) -> int:
        """Waits for the work up to the position and returns the engine's result."""
        must_not_be_forked()
        result = lib.aio_stream_poll(self.handle, position)
        port = current_port()
        if result != PENDING:
            await port.breathe()
        else:
            result = await port.wait(
                lambda handle, key: lib.aio_watch(self.handle, position, handle, key),
                deadline=deadline,
                after=self.release_done,
            )
        self.release_done()
        return result

    async def settle(self, deadline: float | None) -> bool:
        """Waits until the device is done with all enqueued work, whether it succeeded or failed.

        Returns False if the work never ends because some of it depends on dropped work.
        """
        tail = lib.aio_stream_tail(self.handle)
        while lib.aio_stream_completed(self.handle) < tail:
            if self.stranded:
                return False
            result = await self.wait(tail, deadline)
            if result < 0 and lib.aio_stream_completed(self.handle) < tail and not self.stranded:
                raise self.failure(result, tail)
        return True

    async def arrive(self, position: int, deadline: float | None = None, call: str = "") -> None:
        """Waits until the work up to the position has succeeded. If the work has failed, raises its failure.

        `call` is the ACL function that enqueued the task at the position, or "".
        """
        self.waiting[me := object()] = None
        try:
            result = await self.wait(position, deadline)
            if result < 0:
                raise self.failure(result, position, call)
        finally:
            del self.waiting[me]
            if self.gone and not self.waiting:
                self.warn_of_closed()

    def failure(self, result: int, position: int, call: str = "") -> Exception:
        """The error for a negative result of a wait. `call` is the function that enqueued the task at the position."""
        if result == TIMED_OUT:
            name = name_of_stream(self.number)
            return DeviceTimeout(
                "the borrowed event was not done in time"
                if self.is_event
                else f"the work of {name} up to position {position} was not done in time",
                device=self.manager.index,
                generation=self.generation,
                hint="The work may still end: wait again." if self.borrowed else None,
            )
        stale = self.stale
        if not stale:  # the gate refuses calls for older generations
            lib.aio_stream_take_code(self.handle)
        failed, code = self.error_at(position), code_of(result)
        if failed is not None:
            return self.raised(failed, by=call if failed.position == position else "")
        # The wait began after the reset or close.
        if stale and code <= lib.AIO_LIMIT and code != lib.AIO_WAS_RESET:
            return self.manager.admission.was_ended(self.generation, CALL)
        return self.refusal(code)

    def error_at(self, position: int) -> Failed | None:
        """The failure of work that the position covers or depends on, or None. The failure counts as collected."""
        found: Any = ffi.new("aio_error *")
        code = lib.aio_stream_error(self.handle, position, found)
        return Failed.read(found) if code else None

    def refusal(self, code: int) -> AclError:
        """The error for a code that belongs to no task: the gate or a query returned it."""
        return error_on(self.manager, self.generation, code, CALL, "")

    def raised(self, failed: Failed, call: str = CALL, by: str = "") -> AclError:
        """A new error object for a failure, to be raised once.

        `call` is the function that was refused because of the failure. `by` is the function that enqueued the failed
        task, or "".
        """
        elsewhere = failed.device != self.manager.index
        if failed.code == STREAM_ABORTED or (failed.code == lib.AIO_WAS_RESET and elsewhere):
            return self._dropped(failed)
        if failed.code <= lib.AIO_LIMIT:
            return error_on(self.manager, self.generation, failed.code, "aclrtStreamWaitEvent", "")
        text = self._text(failed, by)
        manager = manager_of(failed.device) if elsewhere else self.manager
        error = error_on(
            manager, failed.generation, failed.code, call, text, reported=True, stops=failed.stops
        )
        error = _of_task(error) if isinstance(error, DeviceTimeout) else error
        error.hint = self._remedy(error.action, failed) or error.hint
        return error

    @property
    def _place(self) -> str:
        return f"{name_of_stream(self.number)} on device {self.manager.index}"

    def _text(self, failed: Failed, by: str) -> str:
        text = f"the work of {self._place} depends on {failed.task}, which failed"
        text = failed.ending(by) if failed.own else text
        return f"{text}. {failed.text}" if failed.text else text

    def _remedy(self, action: Action, failed: Failed) -> str:
        """A hint that replaces the usual hint of the code, or "" if the usual hint applies."""
        if action not in ("new_stream", "reset"):
            return ""
        if self.stale:
            return "The device was reset or closed after the failure: repeat the work with new handles."
        if self.gone:
            return "The stream was renewed or closed after it failed: repeat the work on a stream that has not failed."
        if failed.own or action == "reset":
            return ""
        other = f"{name_of_stream(failed.stream)} on device {failed.device}"
        return (
            f"Make a new stream, or renew {self._place}: `await stream.renew()`. "
            f"Renewing only {other}, where the task failed, does not help."
        )

    def _dropped(self, failed: Failed) -> AclError:
        """Returns the error for work that an abort or the reset of another device dropped, and for dependent work."""
        where: _Where = {"device": self.manager.index, "generation": self.generation}
        if failed.code == lib.AIO_WAS_RESET:
            return DeviceReset(
                f"this work depends on the work at {failed.place}, which was dropped by a reset or close",
                call="aclrtStreamWaitEvent",
                hint=f"Repeat the work on device {failed.device}. {NEW_STREAM}",
                action="new_stream",
                **where,
            )
        if not failed.position and self.borrowed:
            text = f"{self._ended_by}, before the work was known to be done"
            return StreamAborted(text, code=failed.code, call=CALL, hint=self._borrow_again, **where)
        if not failed.position:  # its own stream was aborted
            text = "the work was dropped by an abort of its stream"
            return StreamAborted(text, code=failed.code, call=CALL, **where)
        return StreamAborted(
            f"this work depends on the work at {failed.place}, which was dropped by an abort",
            code=failed.code,
            call="aclrtStreamWaitEvent",
            hint=NEW_STREAM,
            action="new_stream",
            **where,
        )

    @property
    def is_event(self) -> bool:
        """Whether this is the record of a borrowed event, which names no native stream."""
        return self.borrowed and self.native == ffi.NULL

    @property
    def _ended_by(self) -> str:
        """What has ended the record of a borrowed stream or event."""
        return (
            "other code has reset the device" if self.is_event else "the owner of the stream has destroyed it"
        )

    @property
    def _borrow_again(self) -> str:
        """The hint for a borrowed stream or event that has ended."""
        noun = "Event" if self.is_event else "Stream"
        return f"Borrow the new {noun.lower()} of its owner with {noun}.from_handle()."

    def refused(self, code: int, call: str, stream: Handle, version: Recorded | None = None) -> AclError:
        """The error for an enqueue that was refused or that failed.

        `version`: the record that a `wait_event` waits for.
        """
        if code == lib.AIO_EVENT_FAILED and version is not None:
            earlier: StreamCore = version.core
            failed = earlier.error_at(version.position)
            if failed is not None:
                error = earlier.raised(failed, call)
                error.hint = (
                    "Repeat the work that the event covers, on a stream that has not failed. "
                    "The waiting stream stays usable."
                )
                return error
        if code == lib.AIO_STAGE_FULL and self.stale:  # a close frees the staging memory
            code = lib.AIO_STALE
        failed = self.error_at(LAST) if code in (lib.AIO_STREAM_FAILED, lib.AIO_STALE) else None
        if failed is not None and not self.stale:
            return self.raised(failed, call)
        if code == lib.AIO_STREAM_FAILED:  # a reset has happened since the enqueue
            code = lib.AIO_STALE
        if code == lib.AIO_STALE and self.borrowed and not self.stale and not stream._closed:
            return StaleHandleError(
                self._ended_by,
                call=call,
                device=self.manager.index,
                generation=self.generation,
                hint=self._borrow_again,
            )
        if code == lib.AIO_STALE and not self.stale:
            if stream._closed:  # another thread has closed the stream
                return stream._was_closed()
            return StaleHandleError(
                "the stream was renewed while work was enqueued on it",
                call=call,
                device=self.manager.index,
                generation=self.generation,
                hint="Repeat the operation. It then uses the new native stream.",
            )
        # aioacl itself refuses a captured stream, so the runtime's latest text is about another call.
        text = "the owner of the stream captures it" if self.borrowed and code == CAPTURED else None
        error = error_on(self.manager, self.generation, code, call, text)
        if self.borrowed and code in _HINTS_OF_BORROWED:
            error.hint = _HINTS_OF_BORROWED[code]
        return error

    @property
    def stranded(self) -> bool:
        """Whether some work of the stream depends on dropped work and therefore never ends."""
        return lib.aio_stream_stranded(self.handle) <= lib.aio_stream_tail(self.handle)

    def outcome(self, position: int | None = None) -> str:
        """The part of a repr that shows the known outcome of the work up to the position, or of all work.

        Calls no ACL function. A failure that is shown does not count as collected.
        """
        if lib.aio_forked():  # a thread of the parent may have held a lock of C
            return ""
        code = lib.aio_stream_error(self.handle, LAST if position is None else position, ffi.NULL)
        if code:
            return f", failed: {name_of(code)}"
        if position is None:
            return ""
        if lib.aio_stream_known(self.handle, position) != PENDING:
            return ", done"
        if self.stale:
            return ", dropped"
        return ", done" if self.passed(position) else ", not known to be done"

    def uncollected(self) -> Failed | None:
        """The uncollected failure of a task of this stream, or None. A returned failure counts as collected.

        A failure up to `raised_to` counts as raised: it may be known only after its caller got the error of a later
        step.
        """
        found: Any = ffi.new("aio_error *")
        if (
            self.waiting
            or self.awaits
            or lib.aio_forked()
            or not lib.aio_stream_uncollected(self.handle, found)
        ):
            return None
        failed = Failed.read(found)
        return None if failed.position <= self.raised_to else failed

    def warn_of_closed(self) -> None:
        """Called when the last wait for a stream that was closed or renewed has ended."""
        self.warn_of_uncollected("its stream was closed")

    def warn_of_uncollected(self, what: str) -> None:
        """Emits an AclWarning for an uncollected failure, at the line that made the stream. `what` names the reason."""
        failed = self.uncollected()
        if failed is not None:
            warn(failed, what, self.made)


class EndedCore:
    """Takes the place of the StreamCore in a closed Stream, if the cache has kept the StreamCore.

    All work of the stream has succeeded.
    """

    __slots__ = ("number",)
    gone = True

    def __init__(self, number: int) -> None:
        self.number = number

    def error_at(self, _: int) -> None:
        """The failure of work: there is none."""

    def outcome(self) -> str:
        """The part of a repr that shows a failure: there is none."""
        return ""

    def uncollected(self) -> None:
        """The uncollected failure: there is none."""


def _of_task(error: AclError) -> TaskTimeout:
    """Makes a TaskTimeout from a DeviceTimeout.

    A wait returns this code when the caller's time limit has passed. Here it is the code of a failed task.
    """
    where: _Where = {"device": error.device, "generation": error.generation}
    return TaskTimeout(error.message, code=error.code, call=error.call, action="new_stream", **where)
