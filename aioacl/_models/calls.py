"""Calls of a model. In the usual case, one step of C begins a call, and one step ends it (call.c).

An exception of a signal handler may end the Python code between any two steps. The end of the last reference to the Run
then gives the call up.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from aioacl._base.errors import (
    AclError,
    DeviceFault,
    DeviceResetting,
    DeviceTimeout,
    QueueFull,
    StreamAborted,
)
from aioacl._base.ffi import DONE, NOT_STARTED, OperationBase, Run, ffi, lib, name_of_function, pointer
from aioacl._base.options import deadline_of
from aioacl._handles.handle import error_on
from aioacl._handles.operation import STARTED, Operation
from aioacl._lifecycle.failures import LAST
from aioacl._models.slots import native_dataset
from aioacl._wait.current import begun, current_port
from aioacl._wait.port import TIMED_OUT
from aioacl._wait.thread import ThreadPort

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from aioacl._base.ffi import Arguments, CData, Dataset
    from aioacl._base.options import Seconds
    from aioacl._handles.event import Ticket
    from aioacl._handles.memory import DeviceBuffer
    from aioacl._handles.stream_core import StreamCore
    from aioacl._models.loading import Load
    from aioacl._models.model import Model

EXECUTE: Final = "aclmdlExecuteAsync"
COPY: Final = "aclrtMemcpyAsync"
FAILED_HINT = "Call the model again. aioacl renews the stream of the slot."
TIMED_OUT_HINT = (
    "The call continues on the device, and its slot is free again when it ends. Its result is dropped."
)
NOT_BEGUN_HINT = "The call was not begun: try again, or pass a longer timeout."
NO_SLOT_HINT = "The call was not begun: try again, pass a longer timeout, or load the model with more slots."
# A call that ends with one of these codes before it began is repeated, when the device is open again.
NOT_NOW: Final = frozenset({lib.AIO_STALE, lib.AIO_RESETTING_NOW, lib.AIO_DRAINING_NOW, lib.AIO_QUARANTINE})
# After the begin, these codes also show that a reset or a close has ended the call.
ENDED: Final = NOT_NOW | {lib.AIO_NOT_OPEN, 107023}


class Call(Operation[Any]):
    """What `model(x)` returns: each await runs the model once."""

    __slots__ = ("_arguments", "_life", "_limit", "_load", "_out", "_targets", "_waits")
    if not TYPE_CHECKING:  # in C: it begins the Run of `_quick`, and lets `_after` handle a failure
        __await__ = OperationBase._await_call

    def __init__(
        self,
        model: Model,
        arguments: Arguments | tuple[Arguments, ...],
        targets: tuple[memoryview, ...] | None,
        out: Any,
        *,
        wait: bool,
        timeout: Seconds | None,
    ) -> None:
        self._what = "model()"
        self._of = model  # for the repr
        self._life = model._life
        self._state = NOT_STARTED
        self._arguments = arguments
        self._targets = targets
        self._out = out
        self._waits = wait
        self._limit = timeout

    def _quick(self) -> ModelRun | None:
        """Returns a new run, or None if the call has a time limit, or must first wait for a load."""
        life, load = self._life, self._life.load
        admission = life.manager.admission
        if (
            self._limit is not None
            or load is None
            or life.closed
            or not load.slots.open
            or admission.leases.some_lost
        ):
            return None
        self._state = STARTED
        self._load = load
        held = admission.holds_now()
        run: ModelRun = ModelRun(load.slots, self._arguments, self._targets, self._out, self._waits, held)
        return run

    async def _after(self, run: ModelRun) -> Any:
        """Raises the error of a run that has failed, or calls the model again."""
        try:
            run.must_repeat(self._load)
            result = await self._call()
        except BaseException as error:
            self._failed(error)
            raise
        self._state = DONE
        return result

    def _use(self) -> Coroutine[Any, Any, Any]:
        self._state = STARTED
        return self._call()

    async def _call(self) -> Any:
        life = self._life
        deadline = None if self._limit is None else deadline_of(self._limit)
        admission = life.manager.admission
        while True:
            load = life.load
            if load is None or life.closed or not load.slots.open or admission.leases.some_lost:
                load = await life.ready(self._waits, deadline)
            held = admission.holds_now()
            run = ModelRun(load.slots, self._arguments, self._targets, self._out, self._waits, held)
            result = await run if deadline is None else await run.within(deadline)
            if result is not None:
                return result
            run.must_repeat(load)


class ModelRun(Run):
    """One run of a call."""

    def _await_in_python(self) -> Generator[Any, Any, Any]:
        """On a plain thread, and on a loop with AIOACL_PLAIN_AWAITS=1."""
        if not self.fresh:
            return self._end()
        return (yield from begun(lambda: self.within(None)))

    async def within(self, deadline: float | None) -> Any:
        """Waits in Python. The time limit does not apply to the copy of the results."""
        port, note = current_port(), object()

        def start(handle: CData, key: int) -> int:
            return self._begin(pointer(handle), key)

        def leave() -> None:
            self.leave()
            port.if_closed.pop(note, None)

        port.if_closed[note] = leave
        try:
            result = await port.wait(start, deadline=deadline)
            self._must_be_in_time(result)
            self._arrived(result)
            return self._end() if isinstance(port, ThreadPort) else await self
        except BaseException:
            self.leave()
            raise
        finally:
            port.if_closed.pop(note, None)

    def must_repeat(self, load: Load) -> None:
        """Raises the error of a call that has failed. Returns if a reset or a close came before the call began."""
        try:
            error = _error_of(load, self)
            if error is None:
                return
            if isinstance(error, DeviceFault) and error.action == "new_stream":
                error.hint = FAILED_HINT
            raise error
        finally:
            self.leave()
            error = None  # its traceback refers to this frame

    def _must_be_in_time(self, result: int) -> None:
        if result != TIMED_OUT:
            return
        waited = self.waits
        if self.leave():  # no thread begins the call after this line, if it returns False
            raise DeviceTimeout(
                "the call of the model was not done in time",
                device=self.device,
                hint=TIMED_OUT_HINT,
                started=True,
            )
        raise DeviceTimeout(
            "no slot of the model was free in time"
            if waited
            else "the call of the model was not done in time",
            device=self.device,
            hint=NO_SLOT_HINT if waited else NOT_BEGUN_HINT,
            started=False,
        )


def ended_by_reset(load: Load) -> AclError:
    """The error of a call that a reset or a close has ended: DeviceQuarantined if the reset has failed."""
    return error_on(load.manager, load.generation, lib.AIO_WAS_RESET, EXECUTE)


def _error_of(load: Load, run: Run) -> Exception | None:
    code, core = run.code, run.core
    if not run.begun:
        if code in NOT_NOW:
            return None
        if core is None:
            return _refused(load, code)
        if code == lib.AIO_STREAM_FAILED:  # its failure belongs to an earlier call
            return None
    else:  # no other work is on the stream before the slot is given back
        core.raised_to = lib.aio_stream_tail(core.handle)
    if run.function < 0:
        return _failure(load, core, run)
    failed = core.error_at(LAST) if code == lib.AIO_STREAM_FAILED else None
    error = (
        error_on(load.manager, load.generation, code, name_of_function(run.function), run.text or "")
        if failed is None
        else core.raised(failed, name_of_function(run.function))
    )
    if code in ENDED or isinstance(error, StreamAborted):  # only a reset aborts the stream of a slot
        return ended_by_reset(load)
    return error


def _refused(load: Load, code: int) -> Exception | None:
    """The error of a call that got no slot."""
    if code == lib.AIO_QUEUE_FULL:
        return QueueFull(
            f"all {load.slots.all} slots of the model are in use",
            device=load.manager.index,
            hint="Call the model again later, pass wait=True, or load it with more slots.",
        )
    if code == lib.AIO_STREAM_FAILED and load.slots.error is not None:
        return copy.copy(load.slots.error) if load.slots.open else None
    return error_on(load.manager, load.generation, code, EXECUTE, "")


def _failure(load: Load, core: StreamCore, run: Run) -> Exception:
    """The error of work that has failed, or was not known to be done when a reset ended the wait for it."""
    call = COPY if load.description.outputs else EXECUTE
    error = core.failure(run.result, run.position, call)
    if isinstance(
        error, DeviceResetting | StreamAborted
    ):  # the wait began in the reset, but the call before it
        return ended_by_reset(load)
    return error


def enqueue(load: Load, buffers: tuple[DeviceBuffer, ...], inputs: Dataset, outputs: Dataset) -> Ticket:
    """Enqueues an execution on the stream of the load, with memory of the caller.

    Raises:
        QueueFull: a call of the model is running on the same instance.
        ParameterError: the model is being closed.
    """
    data = native_dataset(inputs), native_dataset(outputs)
    calls = ffi.cast("aio_calls *", load.slots.address)
    stream, held = load.stream, (inputs, outputs)
    return stream._ticket(stream._live(), buffers, held, EXECUTE, lib.aio_calls_execute, calls, *data)
