"""The supervisor of a device, which resets the device when it has failed: `with device.supervise():`.

It has no thread of its own. The thread that looks for stuck calls (`stuck`) calls `act`: that thread calls no ACL
function, so no call can block it. A change of the device's state wakes it. It then reads the state, so no event can be
missed. The resets are procedures, like every force reset.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from aioacl._base import sync
from aioacl._base.errors import AclError, ParameterError
from aioacl._base.ffi import lib
from aioacl._base.public import publish
from aioacl._base.states import State, Trigger
from aioacl._base.unique import Unique
from aioacl._library.runtime import must_not_be_forked, of_parent
from aioacl._lifecycle.gate import inside
from aioacl._lifecycle.health import is_poisoned
from aioacl._lifecycle.policy import VARIABLE, shared
from aioacl._lifecycle.repair import LOOK_SECONDS, Found, Repair
from aioacl._lifecycle.stuck import holds_up

if TYPE_CHECKING:
    from aioacl._base.health import SupervisorState
    from aioacl._base.records import ResetReport
    from aioacl._lifecycle.manager import Manager
    from aioacl._lifecycle.procedures.reset import ResetProcedure

REPORTS_KEPT: Final = 64
SETTLED: Final[tuple[SupervisorState, ...]] = ("watching", "forbidden")


class Settings(NamedTuple):
    """How a supervisor resets its device: see `Device.supervise`."""

    grace: float
    timeout: float
    foreign: bool


class Supervisor(Unique):
    """Resets a device that has failed: `with device.supervise() as supervisor:`, or `async with`.

    It ends with its block, and with the close of its Device. A reset that runs at the end of the block goes on.
    `device.health.supervisor` is what the supervisor does.
    """

    __slots__ = (
        "__weakref__",
        "_entered",
        "_manager",
        "_repair",
        "_reports",
        "_running",
        "_settings",
        "_user",
    )
    _noun = "supervisor"

    def __init__(self, manager: Manager, user: object, settings: Settings, repair: Repair) -> None:
        self._manager = manager
        self._user = user
        self._settings = settings
        self._repair = repair
        self._reports: deque[ResetReport] = deque(maxlen=REPORTS_KEPT)
        self._running: ResetProcedure | None = (
            None  # the newest reset of the supervisor, until its end is noted
        )
        self._entered = False

    @property
    def reports(self) -> tuple[ResetReport, ...]:
        """The ResetReports of the resets that the supervisor has begun, oldest first; at most the newest 64."""
        if not lib.aio_forked():
            with self._manager.admission.changed:
                self._note_end()
        return tuple(self._reports)

    def __enter__(self) -> Self:
        must_not_be_forked()
        self._manager.supervision.begin(self)
        return self

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        self._manager.supervision.end(self, locked=kind is not GeneratorExit)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        self.__exit__(kind)

    def __repr__(self) -> str:
        is_current = self._manager.supervision.current is self
        state = self._manager.supervision.state if is_current else "ended" if self._entered else "not entered"
        problem = f": {self._repair.problem}" if is_current and self._repair.problem else ""
        return f"<Supervisor of device {self._manager.index}, {state}{problem}{of_parent()}>"

    # --- on the thread of the device, with the lock held --------------------------------------------------------

    def _act(self) -> float | None:
        """Looks at the device, and begins a reset if it needs one. Returns after how many seconds to look again."""
        self._note_end()
        if self._running is not None:
            return LOOK_SECONDS
        step = self._repair.look(self._found(), sync.monotonic())
        if step.act == "reset":
            return self._reset(step.gently)
        if step.act == "give up":
            self._give_up()
        return step.seconds

    def _found(self) -> Found:
        manager = self._manager
        shown = manager.admission.shown
        stuck = any(holds_up(manager, call) for call in inside(manager.index))
        return Found(
            ready=shown is State.OPEN and not stuck and not is_poisoned(manager),
            busy=manager.procedure is not None or shown not in (State.OPEN, State.QUARANTINED),
            stuck=stuck,
            permitted=self._permitted,
        )

    @property
    def _permitted(self) -> bool:
        manager = self._manager
        return manager.own_context.wanted or manager.may_repair_device(foreign=self._settings.foreign)

    def _reset(self, gently: bool) -> float:
        try:
            self._running = self._manager.repair(*self._settings, gently=gently)
        except AclError:  # no thread could be started
            self._repair.ended(sync.monotonic(), ok=False)
            return 0.0
        return LOOK_SECONDS

    def _note_end(self) -> None:
        """Notes the end of the newest reset, if it has ended."""
        running = self._running
        if running is None or not running.done:
            return
        self._running = None
        now = sync.monotonic()
        if not running.finished:  # an error inside aioacl has ended it; the device is quarantined
            self._repair.ended(now, ok=False)
            return
        report = running.report
        self._reports.append(report)
        attempted = not (report.attempts == 0 and report.stuck)
        self._repair.ended(now, ok=report.ok, attempted=attempted, of_context=report.scope == "context")

    def _give_up(self) -> None:
        """Leaves the device quarantined, and sends the event that says why."""
        admission = self._manager.admission
        problem = f"{self._repair.problem}: {self._last_problem()}"
        report = self._reports[-1] if self._reports else None
        if admission.state is State.OPEN:
            admission.revoke_leases()
            admission.apply(Trigger.SEIZE)
            admission.apply(Trigger.FAIL, report, problem)
            return
        admission.problem = problem
        admission.listeners.tell(
            "quarantined", admission.state, admission.generation, report=report, text=problem
        )
        admission.announce()

    def _last_problem(self) -> str:
        fault = self._manager.failures.last_fault
        return self._manager.admission.problem or (str(fault) if fault is not None else "no fault is known")


class Supervision:
    """The supervisor of one device, if there is one. The lock of the device's admission guards it."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._admission = manager.admission
        self.current: Supervisor | None = None

    @property
    def state(self) -> SupervisorState:
        """What the supervisor does, for `health`. While it only watches: whether it may reset the device now."""
        supervisor = self.current
        if supervisor is None:
            return "none"
        state = supervisor._repair.state
        return state if state not in SETTLED else "watching" if supervisor._permitted else "forbidden"

    @property
    def problem(self) -> str:
        """Why the supervisor may not reset the device, or ""."""
        manager = self._manager
        if self.state != "forbidden":
            return ""
        if not manager.policy.resets:
            return f"its supervisor does not reset it, because {VARIABLE}=never or resets=False forbids it"
        why = shared(known=manager.counts.are_known)
        return f"its supervisor does not reset it, because {why}: pass foreign=True to supervise()"

    def begin(self, supervisor: Supervisor) -> None:
        """Makes it the supervisor of the device.

        Raises:
            ParameterError: the device has a supervisor, or its Device is closed, or the supervisor was entered before.
            ResourceExhausted: no thread or no descriptor is left.
        """
        begun = False
        try:
            with self._admission.changed:
                self._must_be_free(supervisor)
                begun = supervisor._entered = True
                self.current = supervisor
            self._manager.stuck_calls.start()
            self._manager.stuck_calls.wake()
        except BaseException:  # also Ctrl-C, after which no block would end the supervisor
            if begun:
                self.end(supervisor)
            raise

    def _must_be_free(self, supervisor: Supervisor) -> None:
        if not self._admission.is_open_for(supervisor._user):
            raise self._admission.closed()
        if supervisor._entered:
            raise ParameterError(
                "the supervisor was already entered",
                device=self._admission.index,
                hint="Call device.supervise() once for each block.",
            )
        if self.current is not None:
            raise ParameterError(
                "the device has a supervisor already",
                device=self._admission.index,
                hint="Leave the block of the other supervisor first, or use only one: for a second pool on the device, "
                "pass supervise=False.",
            )

    def end(self, supervisor: Supervisor, *, locked: bool = True) -> None:
        """Ends the supervisor, unless it has ended. Later, it begins no reset.

        `locked=False` is for finalizers, which take no lock: a look that has begun may still begin a reset.
        """
        if lib.aio_forked():
            return
        if locked:
            with self._admission.changed:
                self._end(supervisor)
        elif self.current is supervisor:
            self.current = None
            for changed in tuple(self._admission.observers.values()):  # these take no lock
                changed()
        self._manager.stuck_calls.wake()  # its thread ends if nothing needs it

    def _end(self, supervisor: Supervisor) -> None:
        if self.current is supervisor:
            self.current = None
            self._admission.announce()  # what waits for a reset by the supervisor would wait for ever

    def drop(self, user: object) -> None:
        """Ends the supervisor of an open that was closed. Call it with the lock held."""
        if self.current is not None and self.current._user is user:
            self._end(self.current)

    def act(self) -> float | None:
        """Lets the supervisor look at the device. Returns after how many seconds to look again, or None."""
        with self._admission.changed:
            supervisor = self.current
            if supervisor is None or not self._admission.is_open_for(supervisor._user):
                return None
            was = self._admission.state
            seconds = supervisor._act()
            gave_up = was is State.OPEN and self._admission.state is State.QUARANTINED
        if gave_up:
            lib.aio_device_flush(self._admission.index)
        return seconds


publish("aioacl", ["Supervisor"], of=__name__)
