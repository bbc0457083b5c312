"""Launch: a block in which other code enqueues on a stream, and the ticket of this work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from aioacl._base import origin
from aioacl._base.errors import AclError, ParameterError
from aioacl._base.ffi import PENDING, code_of, failure, ffi, lib, pointer
from aioacl._base.options import repr_of, whole_of
from aioacl._handles.event import Ticket
from aioacl._handles.handle import Made
from aioacl._handles.native_streams import destroy
from aioacl._library.runtime import of_parent

if TYPE_CHECKING:
    from aioacl._handles.stream import Stream
    from aioacl._handles.stream_core import StreamCore

CALL: Final = "aclrtRecordEvent"  # the function that ends a block


def tasks_of(value: object) -> int:
    """The number of tasks for which a block asks. Raises ParameterError for anything else."""
    tasks, most = whole_of(value), lib.aio_launch_most()
    if tasks is None or not 1 <= tasks <= most:
        raise ParameterError(
            f"tasks must be an int from 1 to {most}, got {repr_of(value)}",
            hint="Pass the largest number of tasks that the block enqueues. Use several blocks for more tasks.",
        )
    return tasks


class Launch(Made):
    """A block in which other code enqueues on a stream: `with stream.launch() as work:`.

    Pass `work.handle` to that code. After the block, `await work.ticket` waits for all work that was enqueued in the
    block, also by other threads.
    """

    __slots__ = ("_awaited", "_block", "_core", "_over", "_reported", "_stream", "_tasks", "_ticket")
    _factory = "stream.launch()"

    def __init__(self, stream: Stream, tasks: int, *, reported: bool) -> None:
        self._stream = stream
        self._tasks = tasks
        self._reported = reported
        self._core: StreamCore | None = None  # of the entered block
        self._block: Any = ffi.new("aio_block *")
        self._ticket: Ticket | None = None
        self._over = False
        self._awaited = False  # whether a task waits for the end

    def __enter__(self) -> Self:
        if self._core is not None:
            raise ParameterError(
                "the launch block was already entered", hint="Call stream.launch() once for each block."
            )
        self._core = core = self._stream._live()
        core.reusable = False  # other code may keep the handle, so the cache must not keep the native stream
        try:
            self._stream._enqueue(core, CALL, self._begin)
        except BaseException:
            self._end()  # Ctrl-C may have interrupted this function after the call to C
            raise
        return self

    def _begin(self, stream: Any, held: int) -> int:
        """Opens the block. Returns 0 or an encoded code, as an enqueue does."""
        code = lib.aio_launch_begin(stream, held, self._tasks, self._block)
        if code:
            return failure(code)
        assert self._core is not None, "the block was not entered"
        self._core.launch = self
        return 0

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        error = None
        try:
            error = self._end()
        finally:
            self._end()  # Ctrl-C may have interrupted the first call
        if error is not None and kind is None:
            raise error

    if not TYPE_CHECKING:  # type checkers do not see these methods, so they report `async with`

        def __aenter__(self, *_: object) -> NoReturn:
            raise TypeError("expected `with`, got `async with`; write `with stream.launch() as work:`")

        __aexit__ = __aenter__  # not called, but Python looks for it first

    def _end(self) -> AclError | None:
        """Ends the block, once. Returns the error if its end could not be recorded."""
        core = self._core
        if core is None or self._over or lib.aio_forked():
            return None
        result, error = lib.aio_launch_end(core.handle, self._block, self._reported), None
        if result == PENDING:  # an interrupted call has ended the block, or the block was not opened
            result = lib.aio_stream_tail(core.handle)
        if result >= 0:
            self._ticket = Ticket(core, result, twin=True)
        else:
            error = core.refused(code_of(result), CALL, self._stream)
        self._over = True
        if core.launch is self:
            core.launch = None
        if core.take_end():
            core.manager.maintenance.leave(lambda: destroy(core))
        if self._awaited:
            with core.manager.admission.changed:
                core.manager.admission.announce()
        return error

    async def ended(self) -> None:
        """Waits for the end of the block."""
        assert self._core is not None, "the block was not entered"
        admission = self._core.manager.admission
        self._awaited = True  # before `_over` is read
        while True:
            with admission.changed:
                seen = admission.version
            if self._over:
                return
            await admission.change(seen, None)

    @property
    def handle(self) -> int:
        """The address of the native stream (aclrtStream), an int, for the code that enqueues in the block.

        Raises:
            ParameterError: the block was not entered.
        """
        if self._core is None:
            raise ParameterError(
                "the launch block was not entered", hint="Write `with stream.launch() as work:`."
            )
        return pointer(self._core.native)

    @property
    def ticket(self) -> Ticket:
        """The Ticket of the work of the block.

        Raises:
            ParameterError: the block is not left yet, or its end could not be recorded.
        """
        if self._ticket is None:
            raise ParameterError(
                "the end of the launch block was not recorded", hint="Read the ticket after the block."
            )
        return self._ticket

    def __del__(self) -> None:
        if getattr(self, "_core", None) is None or self._over or lib.aio_forked():
            return
        self._end()
        origin.warn("a launch block was not left: enter it with `with`", None)

    def __repr__(self) -> str:
        state = "left" if self._over else "not entered" if self._core is None else "open"
        return f"<Launch on {self._stream!r}, {state}{of_parent()}>"
