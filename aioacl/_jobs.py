"""The user's blocking jobs on a device: its executor while somebody has it open, and how a job comes in."""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec, TypeVar

from aioacl._admission import Admission
from aioacl._executor import USER_JOB, DeviceExecutor
from aioacl._ffi import lib, make_pass
from aioacl._gate import error_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

P = ParamSpec("P")
T = TypeVar("T")


class Jobs(Admission):
    """The gate of one device, and the threads for the user's jobs, from the first of them to the last close."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self._executor: DeviceExecutor | None = None

    @property
    def executor(self) -> DeviceExecutor:
        """The threads for the user's jobs, started with the first of them."""
        with self.changed:
            if not self.opens:  # the flight that closes ends the executor once
                raise self.closed()
            if self._executor is None or self._executor.ended:  # who shuts one down ends no other
                self._executor = DeviceExecutor(self.index, self.enter_job)
            return self._executor

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queues a job; when the executor has ended meanwhile it asks again, and is told if the device is closed."""
        while True:
            executor = self.executor
            try:
                return executor.submit(fn, *args, **kwargs)
            except RuntimeError:
                if not executor.ended:
                    raise

    def outcome(self, future: Future[T]) -> T:
        """What a job came to; the last close drops those that have not begun."""
        if future.cancelled():
            raise self.closed()
        return future.result()

    def end_executor(self) -> None:
        """Takes no more jobs; the threads end on their own."""
        with self.changed:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)

    def enter_job(self, holder: object) -> int:
        """On a worker: waits until the job may begin, enters the device and binds the thread. Returns the pass."""
        with self.turns.place() as place:
            while True:
                with self.changed:
                    while not self.may_pass(holder):
                        self.turns.wait(place)
                        self.changed.wait()
                    generation = self.generation
                entered = make_pass(self.index, generation)
                if lib.aio_enter(entered, lib.AIO_LIFETIME, USER_JOB) == 0:
                    code = lib.aio_bind_thread(entered)
                    if code == 0:
                        return entered
                    lib.aio_leave(entered, lib.AIO_LIFETIME)
                    if code > lib.AIO_LIMIT and not self.found_reset(generation, code):
                        raise error_of(code, "aclrtSetCurrentContext", self.index, self.generation)
