"""The state that the threads of a scenario share: devices, outcomes of operations, and the checks at the end."""

from __future__ import annotations

import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import aioacl
from aioacl import DeviceQuarantined, DeviceTimeout, ParameterError, StaleHandleError, simulator
from aioacl._base import ffi, sync
from aioacl._base.states import State
from aioacl._library import runtime
from aioacl._lifecycle import manager as _lifecycle
from aioacl._lifecycle.procedures import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioacl import Device, ResetReport
    from tests.reliability.scheduler import Scheduler

T = TypeVar("T")

INDEX: Final = 0
# Fewer events than usual: each foreign reset leaves its events in the simulator, which can hold 65,536 events.
POOL_EVENTS: Final = 2
# Calls into C that another thread can notice: the gate, the ports, the device's state.
NOTICED: Final = frozenset(
    {
        "aio_enter",
        "aio_leave",
        "aio_bind_thread",
        "aio_gate_set",
        "aio_gate_met",
        "aio_gate_foreign",
        "aio_port_kick",
        "aio_token_post",
        "aio_port_fill",
        "aio_device_start",
        "aio_device_stop",
        "aio_device_flush",
        "aio_device_kicks",
        "aio_device_abort_named",
        "aio_device_destroy_events",
        "aio_device_refill",
        "aio_stage_grow",
        "aio_stage_close",
        "aio_stream_destroy",
        "aio_watch",
        "aio_set_context",
        "aio_count_set",
        "aio_u_aclrtResetDevice",
        "aio_u_aclrtResetDeviceForce",
        "aio_u_aclrtGetCurrentContext",
        "aio_g_aclrtCreateStream",
        "aio_g_aclrtDestroyStream",
        "aio_g_aclrtMalloc",
        "aio_g_aclrtFree",
    }
)

Closed = ParameterError
Stale = StaleHandleError
Quarantined = DeviceQuarantined
TimedOut = DeviceTimeout


def install(scheduler: Scheduler) -> None:
    """Installs the scheduler in `aioacl._base.sync`, once, in a process that has not opened a device yet."""
    aioacl.use_library("simulator")
    runtime.acquire("schedules")  # never released, because initialising is not part of a schedule
    setattr(limits, "POOL_EVENTS", POOL_EVENTS)  # noqa: B010 - type checkers refuse an assignment to a constant
    sync.backend = scheduler
    _lifecycle._managers_lock = scheduler.lock()
    runtime._lock = scheduler.lock()
    Crossings(ffi.lib, scheduler, NOTICED).put(_modules())
    scheduler.engine_at_work = lambda: ffi.lib.aio_device_waits(INDEX)


def _modules() -> list[Any]:
    return [module for name, module in sys.modules.items() if name.startswith("aioacl._")]


class Crossings:
    """Replaces the compiled module, and adds a point before each call that other threads can notice."""

    def __init__(self, real: Any, scheduler: Scheduler, names: frozenset[str]) -> None:
        self._real = real
        self._crossing = scheduler.crossing
        self._names = names

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._real, name)
        if name in self._names:
            value = self._with_a_point(value)
        self.__dict__[name] = value
        return value

    def _with_a_point(self, call: Callable[..., Any]) -> Callable[..., Any]:
        crossing = self._crossing

        def crossed(*arguments: Any) -> Any:
            crossing()
            return call(*arguments)

        return crossed

    def put(self, modules: Sequence[Any]) -> Self:
        """Replaces the compiled module in the modules that use it."""
        for module in modules:
            if vars(module).get("lib") is self._real:
                module.lib = self
        return self


class World:
    """One run of a scenario."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.manager = _lifecycle.manager_of(INDEX)
        self.problems: list[str] = []
        self.outcomes: list[str] = []
        self.reports: list[ResetReport] = []
        self.warned: set[type[Warning]] = set()
        self.foreign = False
        self._kept: list[Device] = []
        self._resets = simulator.calls("aclrtResetDeviceForce")
        before = simulator.stats()
        self._violations, self._events = before.violations, before.events
        self._changed = scheduler.condition()
        self._flags: dict[str, Any] = {}
        for worker in (self.manager.control, self.manager.maintenance):
            if worker._port is not None:  # the last run may have left a wake-up
                worker._port.drain()

    # --- what threads do --------------------------------------------------------------------------------------

    def attempt(self, what: str, act: Callable[[], T], *allowed: type[Exception]) -> T | None:
        """Runs an operation and notes its outcome. An error that is not allowed is a problem."""
        try:
            result = act()
        except allowed as error:
            self.outcomes.append(f"{what}: {type(error).__name__}")
            return None
        except Exception as error:
            self.expect(False, f"{what} raised {error!r}")
            return None
        self.outcomes.append(f"{what}: ok")
        return result

    def expect(self, holds: object, problem: str) -> None:
        """Notes a problem unless the condition holds."""
        if not holds:
            self.problems.append(problem)

    def open(self, *allowed: type[Exception], keep: bool = False) -> Device | None:
        """Opens the device. With `keep`, the driver closes it at the end."""
        device = self.attempt("open", lambda: aioacl.open_device(INDEX).result(), *allowed)
        if keep and device is not None:
            self._kept.append(device)
        return device

    def opened(self) -> Device:
        """Opens the device before the threads start."""
        device = self.open(keep=True)
        assert device is not None
        return device

    def reset(self, device: Device, *allowed: type[Exception], grace: float = 0.0) -> ResetReport | None:
        """Runs a force reset and notes its report."""
        report = self.attempt("reset", lambda: device.force_reset(grace=grace).result(), *allowed)
        if report is not None:
            self.reports.append(report)
        return report

    def close(self, thing: Any, *allowed: type[Exception]) -> None:
        """Closes an object, if there is one. An error that is not allowed is a problem."""
        if thing is not None:
            self.attempt(f"close {type(thing).__name__}", lambda: thing.close().result(), *allowed)

    def set_flag(self, name: str, value: object = True) -> None:
        """Sets a flag that another thread waits for."""
        with self._changed:
            self._flags[name] = value
            self._changed.notify_all()

    def wait_for_flag(self, name: str) -> Any:
        """Waits for a flag that another thread sets."""
        with self._changed:
            while name not in self._flags:
                self._changed.wait()
            return self._flags[name]

    # --- checks ---------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Closes the kept devices, and drops the handles that are left."""
        self.scheduler.garbage.clear()
        for device in self._kept:
            self.close(device)
        self._kept.clear()

    def check(self) -> None:
        """Checks the state at the end, when no other thread runs any more."""
        self._check_python()
        self._check_simulator()
        ok = [report for report in self.reports if report.ok]
        generations = {report.generation for report in ok}
        self.expect(
            len({id(report) for report in ok}) == len(generations),
            "expected each reset to report a different generation, got one generation twice",
        )

    def _check_python(self) -> None:
        manager = self.manager
        self.expect(
            manager.admission.state is State.CLOSED,
            f"expected a closed device, got {manager.admission.state.name}",
        )
        self.expect(
            manager.admission.opens == 0, f"expected no opens to be left, got {manager.admission.opens}"
        )
        self.expect(manager.procedure is None, f"expected no procedure to be left, got {manager.procedure}")
        self.expect(
            not len(manager.admission.leases),
            f"expected no leases to be left, got {len(manager.admission.leases)}",
        )
        self.expect(
            not manager.admission.turns.due and not manager.admission.turns._waiting,
            "expected no turns to be left, got some",
        )
        self.expect(not manager.jobs._executors, "expected no executor to be left, got one")
        self.expect(
            not manager.control._calls and not manager.maintenance._calls,
            "expected no jobs to be left, got some",
        )
        self.expect(not manager.deferred.notes, "expected no notes of finalizers to be left, got some")
        self.expect(
            manager.counts.now.retained == 0, f"expected no counted sets to be left, got {manager.counts.now}"
        )

    def _check_simulator(self) -> None:
        stats = simulator.stats()
        new = stats.violations - self._violations
        self.expect(not new, f"expected no violations, got {simulator.violations()[-new:]}")
        self.expect(stats.inside == 0, f"expected no calls inside the simulator, got {stats.inside}")
        retained = simulator.retain_count(INDEX)
        self.expect(retained == 0, f"expected the device not to be set at the end, got {retained} sets")
        # A foreign reset leaves events in the runtime.
        events = 0 if self.foreign else stats.events - self._events
        left = (stats.contexts, stats.streams, events, stats.device_blocks)
        self.expect(not any(left), f"expected no contexts, streams, events and blocks to be left, got {left}")
        foreign = ffi.lib.aio_gate_foreign(INDEX)
        self.expect(not foreign, "expected foreign resets to be handled, got one that was not")


class Hooks:
    """Collects warnings (except ResourceWarning), uncaught errors of threads, and unraisable errors."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.errors: list[str] = []

    def put(self) -> None:
        """Starts collecting."""
        warnings.simplefilter("always")
        warnings.showwarning = self._warn
        threading.excepthook = self._hook
        sys.unraisablehook = self._unraisable

    def _warn(self, message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if category is not ResourceWarning:
            self.warnings.append(f"{category.__name__}: {message}")

    def _hook(self, args: threading.ExceptHookArgs, /) -> None:
        self.errors.append(f"{args.thread and args.thread.name}: {args.exc_value!r}")

    def _unraisable(self, args: sys.UnraisableHookArgs, /) -> None:
        self.errors.append(f"unraisable: {args.exc_value!r}")
