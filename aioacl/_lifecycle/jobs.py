"""The user's blocking jobs on a device: its executor while the device is open, and how a job enters the device."""

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
    """The threads for the user's jobs, from the first job to the last close, and the jobs that run on them.

    Guarded by the lock of the device's admission. `meet_foreign` starts the procedure that follows a foreign reset, if
    there was one. It is called with the lock held.
    """

    def __init__(self, admission: Admission, meet_foreign: Callable[[], object]) -> None:
        self.index = admission.index
        self._admission = admission
        self._meet_foreign = meet_foreign
        self._executors: list[DeviceExecutor] = []  # the first one that has not ended is used
        self._of_models: list[DeviceExecutor] = []
        self.outside = 0  # jobs that have begun and now wait through aioacl
        self.named = Named(admission)  # streams of other libraries that a reset may abort

    @property
    def executor(self) -> DeviceExecutor:
        """The executor for the user's jobs, made at the first use. Raises ParameterError if the device is closed."""
        with self._admission.changed:
            if not self._admission.opens:  # no code would end an executor that is made after the last close
                raise self._admission.closed()
            while True:
                for executor in [*self._executors]:
                    if not executor.ended:
                        return executor
                    with suppress(ValueError):
                        self._executors.remove(executor)
                # A signal handler on this thread may also append an executor. Then both use the handler's executor.
                self._executors.append(DeviceExecutor(self.index, self.enter_job))

    @property
    def used(self) -> bool:
        """Whether the program has used the executor since the device was opened."""
        return bool(self._executors)

    def model_executor(self) -> DeviceExecutor:
        """Makes an executor for an instance of a model. It runs its jobs in order. `let_go` or the last close ends it.

        Raises:
            ParameterError: the device is closed.
        """
        with self._admission.changed:
            if not self._admission.opens:
                raise self._admission.closed()
            executor = DeviceExecutor(self.index, self.enter_job, 1, "model", in_order=True)
            self._of_models.append(executor)
            return executor

    def let_go(self, executor: DeviceExecutor) -> None:
        """Ends the executor of a model. Jobs that are in its queue still run."""
        with self._admission.changed, suppress(ValueError):
            self._of_models.remove(executor)
        executor.shutdown(wait=False)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> JobFuture[T]:
        """Queues a job. If the current executor was just shut down, the job goes to the next executor.

        Raises:
            ParameterError: the device is closed, or `fn` is not a plain function.
        """
        while True:
            executor = self.executor
            try:
                return executor.submit(fn, *args, **kwargs)
            except RuntimeError:
                if not executor.ended:
                    raise

    def outcome(self, future: JobFuture[T]) -> T:
        """Returns the result of a job, or raises its error.

        Raises ParameterError if the last close dropped the job before it began.
        """
        if future.cancelled():
            raise self._admission.closed()
        try:
            return future.result()
        finally:
            del future  # the traceback of its exception refers to this frame

    def end_executor(self) -> None:
        """Shuts the executor down: it refuses new jobs, and its threads end on their own."""
        with self._admission.changed:
            executors, self._executors, self._of_models = self._executors + self._of_models, [], []
        for executor in executors:
            executor.shutdown(wait=False, cancel_futures=True)

    def enter_job(self, holder: object, waits: Waits) -> InsideDevice:
        """On a worker: waits until the job may begin, enters the device and binds the thread.

        `waits` returns a new context manager for each wait of the job.
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
        """On a worker, in a job: leaves the device until `let_in`. A drain still waits for the job."""
        with self._admission.changed:
            self.outside += 1
            lib.aio_leave(make_pass(self.index, generation), lib.AIO_LIFETIME)

    def let_in(self) -> int | None:
        """Enters the device again, now or after a reset. Returns None if the device is closed or quarantined.

        Otherwise it returns the generation.
        """
        with self._admission.changed:
            try:
                while self._admission.state not in (State.CLOSED, State.QUARANTINED):
                    generation = self._admission.generation
                    open_still = self._admission.shown in (State.OPEN, State.DRAINING)
                    entered = make_pass(self.index, generation)
                    if open_still and lib.aio_enter(entered, lib.AIO_LIFETIME, USER_JOB) == 0:
                        return generation
                    self._meet_foreign()  # usually the maintenance thread does this, but a call may block that thread
                    self._admission.changed.wait()
                return None
            finally:
                self.outside -= 1

    def parted(self, generation: int) -> AclError:
        """The error of a job that was outside the device when it was reset or closed."""
        if self._admission.state is State.QUARANTINED:
            return self._admission.quarantined()
        return self._admission.was_ended(generation, "a job")


class InsideDevice(JobScope):
    """A job that is inside its device, except while it waits. A reset may happen during such a wait."""

    def __init__(self, jobs: Jobs, generation: int, waits: Waits) -> None:
        super().__init__(jobs.index)
        self._waits = waits
        self._jobs = jobs
        self.generation: int | None = generation  # None: outside

    def end(self) -> None:
        """Called when the job has ended. Leaves the device."""
        self.over = True
        if self.generation is not None:
            lib.aio_leave(make_pass(self.index, self.generation), lib.AIO_LIFETIME)

    @contextmanager
    def outside(self) -> Generator[None]:
        """Returns a context manager for one wait. Inside its block, the job is outside the device.

        Raises DeviceReset or DeviceQuarantined if the device was reset or closed during the wait. It does so even if
        the wait itself succeeded, because the runtime's objects that the job uses no longer exist.
        """
        before = self.generation
        with self._waits(), self._left(before):
            yield
        if self.generation != before:
            assert before is not None, "a job that was outside has entered the device"
            raise self._jobs.parted(before)

    @contextmanager
    def _left(self, before: int | None) -> Generator[None]:
        if before is None:  # the error was raised already, and the job continues outside the device
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
