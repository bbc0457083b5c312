"""Launch: a block in which other code enqueues on a stream, and the ticket of this work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from aioacl._base import origin
from aioacl._base.errors import ParameterError
from aioacl._base.ffi import Block, bind_launch, lib, pointer
from aioacl._base.options import repr_of, whole_of
from aioacl._base.public import publish
from aioacl._base.unique import Unique
from aioacl._handles.event import Ticket
from aioacl._handles.handle import Owned
from aioacl._handles.stream_core import CAPTURED
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


class Launch(Unique, Block, metaclass=Owned):
    """A block in which other code enqueues on a stream: `with stream.launch() as work:`.

    Pass `work.handle` to that code. After the block, `await work.ticket` waits for all work that was enqueued in the
    block, also by other threads.
    """

    if TYPE_CHECKING:
        _ticket: Ticket | None

        @property
        def _stream(self) -> Stream: ...
        @property
        def _core(self) -> StreamCore | None: ...
        @property
        def _over(self) -> bool: ...
        def __enter__(self) -> Self: ...
        def __exit__(self, *error: object) -> None: ...
    else:
        __slots__ = ()

        def __aenter__(
            self, *_: object
        ) -> NoReturn:  # type checkers do not see it, so they report `async with`
            raise TypeError("expected `with`, got `async with`; write `with stream.launch() as work:`")

        __aexit__ = __aenter__  # not called, but Python looks for it first
    _factory = "stream.launch()"

    def _refused(self, code: int) -> Self:
        """Called by C when the block could not be opened. A lease holder may open it while the device drains."""
        if self._core is not None:
            raise ParameterError(
                "the launch block was already entered", hint="Call stream.launch() once for each block."
            )
        stream = self._stream
        core = stream._live()
        if code == lib.AIO_DRAINING_NOW and stream._manager.admission.may_enqueue_while_draining():
            code = self._open(True)
        if code:
            raise core.refused(code, CALL, stream)
        return self

    def _not_recorded(self, code: int) -> NoReturn:
        """Called by C when the end of the block could not be recorded."""
        core: Any = self._core
        error = core.refused(code, CALL, self._stream)
        if code == CAPTURED:
            error.hint = "End the capture in the block. It is intact, and this block has no ticket."
        raise error

    def _dropped(self) -> None:
        """Called by the finalizer of an open block."""
        self._end()
        origin.warn("a launch block was not left: enter it with `with`", None, 2)

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
            ParameterError: the block was not left yet, or its end could not be recorded.
        """
        position = self._position
        if position is None or self._core is None:
            left = (
                "The block raised the reason when it was left."
                if self._over
                else "Read the ticket after the block."
            )
            raise ParameterError("the end of the launch block was not recorded", hint=left)
        if self._ticket is None:
            self._ticket = Ticket(self._core, position, CALL)
        return self._ticket

    def __repr__(self) -> str:
        state = "left" if self._over else "not entered" if self._core is None else "open"
        return f"<Launch on {self._stream!r}, {state}{of_parent()}>"


bind_launch(Launch)
publish("aioacl", ["Launch"], of=__name__)
