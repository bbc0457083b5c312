"""The user's blocking jobs on a device: its executor while somebody has it open, and how a job comes in."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from aioacl._base.ffi import lib, make_pass
from aioacl._base.states import State
from aioacl._lifecycle.abortable import Named
from aioacl._lifecycle.admission import Admission
from aioacl._lifecycle.executor import DeviceExecutor
from aioacl._lifecycle.gate import error_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from aioacl._base.errors import AclError
    from aioacl._lifecycle.executor import Waits
    from aioacl._wait.job_future import JobFuture

P = ParamSpec("P")
T = TypeVar("T")

USER_JOB: Final = -1


class Jobs(Admission):
    """The gate of one device, and the threads for the user's jobs, from the first of them to the last close."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self._executor: DeviceExecutor | None = None
        self.outside = 0  # jobs that have begun, and wait through aioacl
        self.named = Named(self)  # streams of others that a reset may abort

    @property
    def executor(self) -> DeviceExecutor:
        """The threads for the user's jobs, started with the first of them."""
        with self.changed:
            if not self.opens:  # the flight that closes ends the executor once
                raise self.closed()
            if self._executor is None or self._executor.ended:  # who shuts one down ends no other
                self._executor = DeviceExecutor(self.index, self.enter_job)
            return self._executor

    def holds_off(self, holder: object) -> bool:
        """Whether a reset waits for him, or for the job that has submitted his. With the lock held."""
        if isinstance(holder, JobStay) and holder.index == self.index:
            return not holder.over
        return super().holds_off(holder)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> JobFuture[T]:
        """Queues a job; when the executor has ended meanwhile it asks again, and is told if the device is closed."""
        while True:
            executor = self.executor
            try:
                return executor.submit(fn, *args, **kwargs)
            except RuntimeError:
                if not executor.ended:
                    raise

    def outcome(self, future: JobFuture[T]) -> T:
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

    def enter_job(self, holder: object, waits: Waits) -> JobStay:
        """On a worker: waits until the job may begin, enters the device and binds the thread.

        `waits` is what the job's waits are made in.
        """
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
                        return JobStay(self, generation, waits)
                    lib.aio_leave(entered, lib.AIO_LIFETIME)
                    if code > lib.AIO_LIMIT and not self.found_reset(generation, code):
                        raise error_of(code, "aclrtSetCurrentContext", self.index, self.generation)

    def meet_foreign(self) -> None:
        """Answers a foreign reset, if one is to be answered. With the lock held."""
        raise NotImplementedError

    def let_out(self, generation: int) -> None:
        """On a worker, in a job: not inside the device for a while, though a drain still waits for the job."""
        with self.changed:
            self.outside += 1
            lib.aio_leave(make_pass(self.index, generation), lib.AIO_LIFETIME)

    def let_in(self) -> int | None:
        """Inside again, now or when a reset is over: the generation by then. None if nobody can be inside."""
        with self.changed:
            try:
                while self.state not in (State.CLOSED, State.QUARANTINED):
                    generation = self.generation
                    open_still = self.shown in (State.OPEN, State.DRAINING)
                    entered = make_pass(self.index, generation)
                    if open_still and lib.aio_enter(entered, lib.AIO_LIFETIME, USER_JOB) == 0:
                        return generation
                    self.meet_foreign()  # the maintenance lane, which does as a rule, may be in a call
                    self.changed.wait()
                return None
            finally:
                self.outside -= 1

    def parted(self, generation: int) -> AclError:
        """The error of a job that was outside when its device was reset or closed."""
        if self.state is State.QUARANTINED:
            return self.quarantined()
        return self.was_ended(generation, "a job's wait")


class JobStay:
    """A job's stay inside its device, of which a reset may be the end while the job waits."""

    def __init__(self, jobs: Jobs, generation: int, waits: Waits) -> None:
        self.index = jobs.index
        self._waits = waits
        self._jobs = jobs
        self.generation: int | None = generation  # None: outside
        self.over = False

    def end(self) -> None:
        """The job is done."""
        self.over = True
        if self.generation is not None:
            lib.aio_leave(make_pass(self.index, self.generation), lib.AIO_LIFETIME)

    @contextmanager
    def outside(self) -> Generator[None]:
        """Not inside for the time of a wait; DeviceReset, or DeviceQuarantined, if a reset has come in between.

        It says so whatever was waited for: what the job holds of the runtime's own has ended.
        """
        before = self.generation
        with self._waits(), self._left(before):
            yield
        if self.generation != before:
            assert before is not None, "who is outside stays outside"
            raise self._jobs.parted(before)

    @contextmanager
    def _left(self, before: int | None) -> Generator[None]:
        if before is None:  # it has been told, and goes on without
            yield
            return
        self.generation = None
        self._jobs.let_out(before)
        try:
            yield
        finally:
            self.generation = now = self._jobs.let_in()
            if now not in (None, before):
                lib.aio_bind_thread(make_pass(self.index, now))
