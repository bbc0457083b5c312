"""The user's blocking jobs on a device: its executor while somebody has it open, and how a job comes in."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from aioacl._base.ffi import lib, make_pass
from aioacl._base.states import State
from aioacl._lifecycle.abortable import Named
from aioacl._lifecycle.executor import DeviceExecutor
from aioacl._lifecycle.gate import error_of
from aioacl._wait.job_scope import JobScope

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from aioacl._base.errors import AclError
    from aioacl._lifecycle.admission import Admission
    from aioacl._lifecycle.executor import Waits
    from aioacl._wait.job_future import JobFuture

P = ParamSpec("P")
T = TypeVar("T")

USER_JOB: Final = -1


class Jobs:
    """The threads for the user's jobs, from the first of them to the last close, and the jobs in them.

    Guarded by the lock of the device's admission. `meet_foreign` answers a foreign reset, if one is to be answered;
    it is called with the lock held.
    """

    def __init__(self, admission: Admission, meet_foreign: Callable[[], object]) -> None:
        self.index = admission.index
        self._admission = admission
        self._meet_foreign = meet_foreign
        self._executors: list[DeviceExecutor] = []  # the first that has not ended is used
        self.outside = 0  # jobs that have begun, and wait through aioacl
        self.named = Named(admission)  # streams of others that a reset may abort

    @property
    def executor(self) -> DeviceExecutor:
        """The threads for the user's jobs, started with the first of them."""
        with self._admission.changed:
            if not self._admission.opens:  # the procedure that closes ends the executor once
                raise self._admission.closed()
            while True:
                for executor in [*self._executors]:
                    if not executor.ended:
                        return executor
                    with suppress(ValueError):
                        self._executors.remove(executor)
                # A signal handler of this thread may append one too: then both use its executor.
                self._executors.append(DeviceExecutor(self.index, self.enter_job))

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
            raise self._admission.closed()
        return future.result()

    def end_executor(self) -> None:
        """Takes no more jobs; the threads end on their own."""
        with self._admission.changed:
            executors, self._executors = self._executors, []
        for executor in executors:
            executor.shutdown(wait=False, cancel_futures=True)

    def enter_job(self, holder: object, waits: Waits) -> InsideDevice:
        """On a worker: waits until the job may begin, enters the device and binds the thread.

        `waits` is what the job's waits are made in.
        """
        with self._admission.turns.place() as place:
            while True:
                with self._admission.changed:
                    while not self._admission.may_pass(holder):
                        self._admission.turns.wait(place)
                        self._admission.changed.wait()
                    generation = self._admission.generation
                entered = make_pass(self.index, generation)
                if lib.aio_enter(entered, lib.AIO_LIFETIME, USER_JOB) == 0:
                    code = lib.aio_bind_thread(entered)
                    if code == 0:
                        return InsideDevice(self, generation, waits)
                    lib.aio_leave(entered, lib.AIO_LIFETIME)
                    if code > lib.AIO_LIMIT and not self._admission.found_reset(generation, code):
                        raise error_of(code, "aclrtSetCurrentContext", self.index, self._admission.generation)

    def let_out(self, generation: int) -> None:
        """On a worker, in a job: not inside the device for a while, though a drain still waits for the job."""
        with self._admission.changed:
            self.outside += 1
            lib.aio_leave(make_pass(self.index, generation), lib.AIO_LIFETIME)

    def let_in(self) -> int | None:
        """Inside again, now or when a reset is over: the generation by then. None if nobody can be inside."""
        with self._admission.changed:
            try:
                while self._admission.state not in (State.CLOSED, State.QUARANTINED):
                    generation = self._admission.generation
                    open_still = self._admission.shown in (State.OPEN, State.DRAINING)
                    entered = make_pass(self.index, generation)
                    if open_still and lib.aio_enter(entered, lib.AIO_LIFETIME, USER_JOB) == 0:
                        return generation
                    self._meet_foreign()  # the maintenance thread, which does as a rule, may be in a call
                    self._admission.changed.wait()
                return None
            finally:
                self.outside -= 1

    def parted(self, generation: int) -> AclError:
        """The error of a job that was outside when its device was reset or closed."""
        if self._admission.state is State.QUARANTINED:
            return self._admission.quarantined()
        return self._admission.was_ended(generation, "a job's wait")


class InsideDevice(JobScope):
    """A job inside its device, which a reset may end while the job waits."""

    def __init__(self, jobs: Jobs, generation: int, waits: Waits) -> None:
        super().__init__(jobs.index)
        self._waits = waits
        self._jobs = jobs
        self.generation: int | None = generation  # None: outside

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
