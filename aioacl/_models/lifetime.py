"""The lifetime of a model: its loads, one after each reset, and its close.

This object does not refer to its Model. So the finalizer of a dropped Model leaves the close to the maintenance thread.
"""

from __future__ import annotations

import copy
import math
import warnings
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioacl._base import flight, logs, sync, totals
from aioacl._base.errors import AclError, AclWarning, DeviceQuarantined, DeviceTimeout, StaleHandleError
from aioacl._base.ffi import lib
from aioacl._base.flight import FAILED, flight_note
from aioacl._base.states import State
from aioacl._library.runtime import must_not_be_forked
from aioacl._lifecycle.gate import model_closed
from aioacl._lifecycle.health import health_of
from aioacl._models.loading import Load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from aioacl._base.ffi import Spec
    from aioacl._base.health import Health
    from aioacl._base.records import EventKind
    from aioacl._device import Device
    from aioacl._lifecycle.executor import DeviceExecutor
    from aioacl._lifecycle.manager import Manager
    from aioacl._models.description import Description
    from aioacl._models.source import Source
    from aioacl._wait.job_future import JobFuture

LOOK_SECONDS: Final = 1.0  # how often a close looks for calls that are stuck
CLOSED_LOOK_SECONDS: Final = 0.01  # how often it looks for slots that are back, if the device is closed
STUCK_SECONDS: Final = 10.0
FAULTY_SECONDS: Final = 1.0  # how long it waits on a device with a fault that nothing is about to end


class LoadOptions(NamedTuple):
    """The options of `load_model`, checked.

    Attributes:
        slots: the number of slots of each instance.
        instances: the number of instances.
        reload: whether a call after a reset loads the model again.
        label: the name for messages and events; None for the name of the source.
        warm_up: whether each load runs the model with zeros.
    """

    slots: int
    instances: int
    reload: bool
    label: str | None
    warm_up: bool


class Lifetime:
    """The loads of a model, and its close.

    Attributes:
        manager: the manager of the device.
        source: the file, or the bytes.
        options: the options of `load_model`.
        name: the name of the model in messages and events.
        label: its name for metrics and logs, without a path.
        slots: the number of slots of all instances.
        load: the newest load; None before the first one and after the close.
        description: the inputs, outputs and gears; None before the first load.
        spec: the same for C.
        closed: whether the model was closed, so that calls are refused.
    """

    spec: Spec  # since the first load

    def __init__(self, manager: Manager, device: Device, source: Source, options: LoadOptions) -> None:
        self.manager = manager
        self.source = source
        self.options = options
        self.name = source.name if options.label is None else options.label
        self.label = totals.model_label(source.label if options.label is None else options.label)
        self.slots = options.slots * options.instances
        self.load: Load | None = None
        self.description: Description | None = None
        self.closed = False
        self._device = device
        self._lock = sync.lock()
        self._loading: JobFuture[None] | None = None
        self._unloading: JobFuture[None] | None = None
        self._over = False  # whether the close has ended
        self._executor: DeviceExecutor = manager.jobs.model_executor()

    def check(self) -> None:
        """Raises an error if the model is closed, or was loaded before a fork."""
        must_not_be_forked()
        if self.closed:
            raise model_closed("", self.manager.index, 0)

    def was_reset(self) -> StaleHandleError:
        """Returns the error of a use of a load from before a reset, or from before the close of the device."""
        if self._executor.ended:
            return StaleHandleError(
                "the device was closed after the model was loaded",
                device=self.manager.index,
                hint="Load it again with load_model().",
            )
        return StaleHandleError(
            "the device was reset after the model was loaded",
            device=self.manager.index,
            hint="Call the model, which loads it again; if it was loaded with reload=False, call model.reload() first.",
        )

    # --- loading ----------------------------------------------------------------------------------------------------

    async def ready(self, wait: bool, deadline: float | None, *, again: bool = False) -> Load:
        """Waits until the device is open, and returns the load of its generation. Loads the model if needed.

        With `again`, it also loads a model with reload=False again.
        """
        while True:
            self.check()
            try:
                await self.manager.admission.until_open(wait=wait, deadline=deadline)
            except DeviceTimeout as error:
                error.started = False
                raise
            load = self.load  # before the check, because a close drops it
            self.check()
            if load is not None and not load.stale:
                return load
            if load is not None and not (self.options.reload or again):
                raise self.was_reset()
            future = self._load_once()
            if future is None:
                continue
            if not await future.ended(deadline):
                raise DeviceTimeout(
                    "the model was not loaded in time",
                    device=self.manager.index,
                    hint="The load continues, and a later call uses it: try again, or pass a longer timeout.",
                    started=False,
                )
            try:
                self.manager.jobs.outcome(future)
            except AclError as error:
                raise copy.copy(error) from error  # all callers of one load get an object of their own
            finally:
                del future  # the traceback of its exception refers to this frame

    def _load_once(self) -> JobFuture[None] | None:
        """Begins a load, or returns the one that runs, which all callers share. Returns None if none is needed."""
        with self._lock:
            self.check()  # a load that begins after the close would never be unloaded
            if self.load is not None and not self.load.stale:  # another caller was faster
                return None
            loading = self._loading
            if loading is None or loading.done():
                self._loading = loading = self._begin_load()
                loading.add_done_callback(self._loaded)
            return loading

    def _loaded(self, loading: Future[None]) -> None:
        """Drops the future of a load that has ended: the traceback of its error refers to this object."""
        with self._lock:
            if self._loading is loading:
                self._loading = None

    def _begin_load(self) -> JobFuture[None]:
        executor = self._executor
        try:
            return executor.submit(self._load_now)
        except RuntimeError:
            if executor.ended:  # by the last close; the device may be open again
                raise self.was_reset() from None
            raise

    def _load_now(self) -> None:
        """Loads the model. A job.

        After an interrupt in `_load_once`, another caller may have begun a second job, and a close may not know of it.
        """
        if self.load is not None and not self.load.stale:
            return
        load, began = Load(self.manager, self._device, self.name, self.label), sync.monotonic()
        self._tell("model_loading")
        try:
            load.make(self.source, self.options)
        except AclError as error:
            self._record([0], began, error.code or FAILED)
            raise
        self._record(load.instances, began)
        with self._lock:
            old, self.load = self.load, load
            self.description, self.spec = load.description, load.spec
        seconds = sync.monotonic() - began
        totals.count("model_loads_total", self.manager.index, self.label)
        totals.observe("model_load_duration_seconds", seconds, self.manager.index, self.label)
        self._tell("model_loaded", seconds=seconds, nbytes=load.nbytes)
        if old is not None:
            old.slots.end(old.free)
        if self.closed:
            self._end_load()

    def _record(self, instances: Sequence[int], began: float, code: int = 0) -> None:
        spent_us = round((sync.monotonic() - began) * 1e6)
        for instance in instances:
            flight.name_model(instance, self.label)
            flight_note(lib.AIO_FLIGHT_LOAD, self.manager.index, instance, code, spent_us)

    def _tell(self, kind: EventKind, **details: Any) -> None:
        admission = self.manager.admission
        with admission.changed:
            admission.listeners.tell(kind, admission.shown, admission.generation, text=self.name, **details)
            admission.announce()

    # --- closing ----------------------------------------------------------------------------------------------------

    async def close(self, patience: float = math.inf) -> None:
        """Closes the model. After `patience` seconds it returns, and the close continues."""
        if lib.aio_forked():
            return
        self.begin_close()
        if self.manager.admission.state is State.CLOSED:  # no thread does the notes of finalizers
            self.manager.deferred.do_notes()
        await self._until_over(patience)
        with self._lock:
            unloading, self._unloading = self._unloading, None
        if unloading is not None and self.manager.admission.opens:
            try:
                self.manager.jobs.outcome(unloading)
            except DeviceQuarantined:  # a reset frees the memory
                pass
            finally:
                del unloading  # the traceback of its exception refers to this frame

    async def _until_over(self, patience: float) -> None:
        """Waits for the end of the close, for `patience` seconds at most.

        Returns earlier if the device cannot end it soon, or if a call is stuck in C. The close continues then.
        """
        admission, began = self.manager.admission, sync.monotonic()
        while True:
            with admission.changed:
                seen = admission.version
            closed = admission.state is State.CLOSED
            if closed and self.load is not None:  # no maintenance thread does so
                self.load.slots.tend()
            if self._over:
                return
            health = health_of(self.manager)
            left = began + self._patience_with(health, patience) - sync.monotonic()
            if left <= 0:
                return
            if health.stuck_for > STUCK_SECONDS:
                self._warn_of_stuck(health.stuck_for)
                return
            look = sync.monotonic() + min(left, CLOSED_LOOK_SECONDS if closed else LOOK_SECONDS)
            try:
                await admission.change(seen, look)
            except DeviceTimeout:
                if sync.monotonic() < look:  # the deadline of the caller
                    raise DeviceTimeout(
                        "the model was not closed in time, because its calls have not ended",
                        device=self.manager.index,
                        hint="The close continues. A second close waits for it.",
                    ) from None

    @staticmethod
    def _patience_with(health: Health, patience: float) -> float:
        """How long a close waits for calls. After a fault, only a reset or the close of the device may end them."""
        if health.state is State.QUARANTINED:
            return 0.0
        no_reset = health.state is State.OPEN and not health.recovering
        return min(patience, FAULTY_SECONDS) if health.status == "poisoned" and no_reset else patience

    def _warn_of_stuck(self, seconds: float) -> None:
        sentence = f"the close of a model waits for a call that has been inside C for {seconds:.0f} s"
        logs.warning(f"{sentence}; it continues", device=self.manager.index, duration=seconds)
        warnings.warn(f"{sentence}; it continues", AclWarning, stacklevel=2)

    def begin_close(self) -> None:
        """Refuses new calls, and unloads the model when no call and no load runs any more. Does not wait."""
        with self._lock:
            self.closed = True
            loading = self._loading
        if loading is None:
            self._end_load()
        else:
            loading.add_done_callback(lambda _: self._end_load())

    def _end_load(self) -> None:
        """Ends the load of a closed model. May be called several times."""
        load = self.load
        if load is None:
            self._finish()
        else:
            load.slots.end(lambda: self._unload(load))

    def _unload(self, load: Load) -> None:
        """Called when all slots are back."""
        try:
            self._unloading = future = self._executor.submit(load.unload)
        except (RuntimeError, AclError):  # the device was closed, which has unloaded the model
            self._finish()
            return
        future.add_done_callback(lambda _: self._finish())

    def _finish(self) -> None:
        """Ends the close. May be called twice. The load is dropped, because its slots have memory of the runtime."""
        with self._lock:
            load, self.load = self.load, None
            self._loading = None  # its callback refers to this object
            first, self._over = not self._over, True
        if load is not None:
            load.free()
        self.manager.jobs.let_go(self._executor)
        if first:
            with self.manager.admission.changed:
                self.manager.admission.announce()
