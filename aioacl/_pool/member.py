"""One device of a pool: it is opened, used and closed on a thread of its own.

Theory of operation. The thread opens the device, supervises it, loads the model, and executes it once. Then it waits
for the end of the pool, and closes all this in the reverse order. So the devices are opened and closed in parallel, and
a device that does not open is tried again without an event loop of the program.

`open_pool` waits for the first try of each member, and gives the models that are ready to the batcher. A member that is
ready later adds its model itself. The member refers weakly to the pool, so that a pool that is dropped is noticed.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from aioacl._base import sync
from aioacl._base.errors import (
    AclError,
    ForkedProcessError,
    LibraryConflict,
    LibraryNotFound,
    NotSupported,
    ParameterError,
)
from aioacl._base.options import deadline_of
from aioacl._batches.execution import results_of
from aioacl._batches.models import must_fit
from aioacl._batches.rows import RowsOfModel
from aioacl._models.model import load, new_model
from aioacl._opening import open_device
from aioacl._wait.current import run_blocking
from aioacl._wait.job_future import JobFuture

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable

    from aioacl._base.options import ContextKind, Seconds, Strategy
    from aioacl._base.origin import Site
    from aioacl._device import Device
    from aioacl._models.model import Model
    from aioacl._models.source import Source
    from aioacl._pool.pool import Pool

T = TypeVar("T")
MODEL_SECONDS: Final = 5.0  # how long the close of the model waits for work; the close of the device drops it

# What no later try can change.
LASTING: Final = (ParameterError, NotSupported, LibraryNotFound, LibraryConflict, ForkedProcessError)


class Settings(NamedTuple):
    """The arguments of `open_pool` for each device, checked.

    Attributes:
        site: the user's line that opens the pool, for warnings.
    """

    waits: Strategy
    context: ContextKind
    resets: bool
    heal: bool
    slots: int
    instances: int
    warm_up: bool
    supervise: bool
    pauses: tuple[float, ...]
    foreign: bool
    timeout: Seconds | None
    site: Site


def spawn(name: str, body: Callable[[], T], future: JobFuture[T]) -> None:
    """Calls a function on a new thread, unless its future is cancelled before that. The future has its outcome."""

    def run() -> None:
        if not future.claim():
            future.drop()
            return
        try:
            outcome = partial(future.set_result, body())
        except BaseException as error:  # noqa: BLE001 - the waiting thread or task gets it
            outcome = partial(future.set_exception, error)
        future.finish(outcome)

    sync.spawn(name, run)


class Member:
    """One device of a pool.

    Attributes:
        index: the index of the device.
        device: the device, once its model is ready.
        model: likewise, the model.
        tried: the future that ends with the first try.
        over: the future that ends when all is closed.
    """

    def __init__(self, index: int, source: Source, settings: Settings) -> None:
        self.index = index
        self.device: Device | None = None
        self.model: Model | None = None
        self.tried = JobFuture[None]()
        self._source = source
        self._settings = settings
        self._error: BaseException | None = None  # of the first try, or of the close
        self._changed = sync.condition()
        self._stopped = False
        self._pool: weakref.ref[Pool] | None = None
        self.over = JobFuture[None]()

    # --- for the pool -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begins the first try. The caller has this object by then, so that after Ctrl-C it can stop the thread."""
        spawn(f"aioacl-pool-{self.index}", self._serve, self.over)

    def join(self, pool: weakref.ref[Pool]) -> None:
        """Sets the pool, to which a member adds its model if it is ready later."""
        with self._changed:
            self._pool = pool
            self._changed.notify_all()

    def stop(self, _: object = None) -> None:
        """Begins the close. Does not wait."""
        self.over.cancel()  # if the thread has not begun, it does not begin
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def take_error(self) -> BaseException | None:
        """Takes the error of the first try, or of the close. Its traceback refers to this object."""
        error, self._error = self._error, None
        return error

    # --- on the thread ----------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        for pause in (0.0, *self._settings.pauses):
            self._wait(lambda: self._stopped, pause)
            try:
                while not self._stopped and not run_blocking(self._attempt, None):
                    pass
            except BaseException as error:  # noqa: BLE001 - `open_pool` or the close raises it
                if self.model is not None:  # the error of the close
                    self._error = error
                if self.model is not None or not may_pass(error):
                    return
            if self._stopped:
                return

    def _wait(self, condition: Callable[[], object], seconds: float | None = None) -> None:
        """Waits until the condition is true, or for so long."""
        end = None if seconds is None else sync.monotonic() + seconds
        with self._changed:
            while not condition():
                left = None if end is None else end - sync.monotonic()
                if left is not None and left <= 0:
                    return
                self._changed.wait(left)

    def _end_first_try(self, error: BaseException | None) -> bool:
        """Ends the first try. Returns False in a later one."""
        if self.tried.done():
            return False
        self._error = error
        self.tried.claim()
        self.tried.finish(partial(self.tried.set_result, None))
        return True

    async def _attempt(self) -> bool:
        """Opens the device, and closes it when the pool ends. Returns False if the pool has another model by then."""
        async with AsyncExitStack() as stack:
            try:
                entered = await self._open(stack)
            except BaseException as error:
                self._end_first_try(error)  # now, because the close may take longer
                raise
            if entered:
                self._wait(lambda: self._stopped)
        return entered

    async def _open(self, stack: AsyncExitStack) -> bool:
        settings, deadline = self._settings, deadline_of(self._settings.timeout)
        opening = open_device(
            self.index,
            settings.waits,
            context=settings.context,
            resets=settings.resets,
            heal=settings.heal,
            timeout=settings.timeout,
        )
        opening._site = settings.site
        device = await stack.enter_async_context(opening)
        if settings.supervise:
            stack.enter_context(device.supervise(pauses=settings.pauses, foreign=settings.foreign))
        if self._stopped:
            return True
        source, replaced = self._newest()
        model = await self._load(device, source, deadline)
        stack.push_async_callback(_close, model)
        rows = RowsOfModel(model._described, model._life.spec)
        await results_of(model._life, (rows.zeros,), rows.gear_for([rows.zeros]), deadline)
        return self._enter(device, model, replaced)

    def _known_pool(self) -> Pool | None:
        return None if self._pool is None else self._pool()

    def _newest(self) -> tuple[Source, int]:
        """Returns the model of the pool, and how often it was replaced."""
        pool = self._known_pool()
        if pool is None:
            return self._source, 0
        replaced = pool._replaced  # read first: if the models are replaced now, `_add` refuses this one
        return pool.models[0]._life.source, replaced

    async def _load(self, device: Device, source: Source, deadline: float | None) -> Model:
        settings, manager = self._settings, device._manager
        counts = settings.slots, settings.instances
        model = new_model(manager, device, source, counts, reload=True, label=None, warm_up=settings.warm_up)
        model._site = settings.site
        return await load(model, wait=True, deadline=deadline)

    def _enter(self, device: Device, model: Model, replaced: int) -> bool:
        """Gives the model to the pool. Returns False if the pool has another model by now."""
        if not self.tried.done():
            self.device, self.model = device, model
            return self._end_first_try(None)
        self._wait(lambda: self._stopped or self._pool is not None)
        pool = self._known_pool()
        if pool is not None:
            must_fit((model,), pool.models[:1])
            if not pool._add(model, replaced):
                return False
            self.device, self.model = device, model
        return True


async def _close(model: Model) -> None:
    await model._life.close(MODEL_SECONDS)


def may_pass(error: BaseException) -> bool:
    """Whether a later try may succeed."""
    return isinstance(error, AclError) and not isinstance(error, LASTING)
