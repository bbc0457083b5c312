"""Calls that do not return from C: which calls count as stuck, and the events "stuck" and "recovered".

Each device that has listeners or a supervisor has a thread that looks for such calls. The thread calls no ACL function,
so it cannot be stuck itself. While no call is inside C, it sleeps. The next call that enters the gate wakes it
(inside.c). While calls are inside, it looks at the latest when one of them has been inside for STUCK_SECONDS. A change
of the device's state wakes it too: it then lets the supervisor act.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aioacl._base import sync
from aioacl._base.errors import ResourceExhausted
from aioacl._base.ffi import lib, name_of_function
from aioacl._base.states import State
from aioacl._lifecycle.gate import INSIDE_AT_MOST, LAUNCH_BLOCK, calls_inside, error_of
from aioacl._lifecycle.jobs import USER_JOB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioacl._base.records import EventKind, Stuck
    from aioacl._lifecycle.manager import Manager

STUCK_SECONDS: Final = 1.0
LONGEST_SLEEP: Final = 3600.0  # poll() refuses a time of more than 24 days
RETURN_SECONDS: Final = 0.5  # how often the thread looks whether a stuck call has returned
# A reset may be made while a wait is inside this function.
MAY_STAY: Final = "aclrtSynchronizeEventWithTimeout"
MAY_TAKE_LONG: Final = (
    name_of_function(USER_JOB),
    LAUNCH_BLOCK,
    "aclrtSynchronizeStreamWithTimeout",
    MAY_STAY,
    "aclmdlLoadFromFileWithMem",
    "aclmdlLoadFromMemWithMem",
)
CONTROL: Final = (
    "aclInit",
    "aclrtSetDevice",
    "aclrtResetDevice",
    "aclrtResetDeviceForce",
    "aclFinalizeReference",
)


def is_stuck(manager: Manager, call: Stuck) -> bool:
    """Whether the call counts as stuck.

    Calls that may take long do not count. While a procedure runs, its calls do not count either, because they have time
    limits.
    """
    exempt = MAY_TAKE_LONG if manager.procedure is None else MAY_TAKE_LONG + CONTROL
    return call.seconds > STUCK_SECONDS and call.function not in exempt


def holds_up(manager: Manager, call: Stuck) -> bool:
    """Whether a reset should not be tried before the call returns.

    In a quarantined device no call enters. What is inside for long has prevented a reset, and would do so again: a job
    or a launch block too, but not a wait that a reset permits.
    """
    quarantined = manager.admission.state is State.QUARANTINED and call.function != MAY_STAY
    return is_stuck(manager, call) or (quarantined and call.seconds > STUCK_SECONDS)


class StuckCalls:
    """Sends the events "stuck" and "recovered" of one device. The lock of the device's admission guards it."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._admission = manager.admission
        self._thread: object = None  # the identity of the running thread
        self._eventfd = -1  # stays open until the process ends, because a thread may be about to write to it
        self._sent: dict[tuple[int, int], Stuck] = {}

    @property
    def eventfd(self) -> int:
        """The descriptor that wakes the thread; -1 before the first listener."""
        return self._eventfd

    def start(self) -> None:
        """Starts the thread, unless it runs. Called when a listener was added, or when a supervisor begins."""
        with self._admission.changed:
            if self._thread is not None:
                return
            self._open()
            self._clear()  # an earlier thread may have left a wake-up
            self._thread = me = object()
            try:
                sync.spawn(f"aioacl-stuck-{self._manager.index}", lambda: self._run(me))
            except BaseException as error:
                self._thread = None
                if not isinstance(error, RuntimeError):
                    raise
                generation = self._admission.generation
                raise error_of(
                    lib.AIO_NO_THREAD, "pthread_create", self._manager.index, generation
                ) from error

    def _open(self) -> None:
        if self._eventfd >= 0:
            return
        try:
            self._eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError as error:
            raise ResourceExhausted(
                f"expected a free file descriptor for the events of device {self._manager.index}, got none",
                hint="Raise the limit of open files (ulimit -n), or close loops that are done.",
            ) from error

    def wake(self) -> None:
        """Wakes the thread, which then ends if nothing needs it, and otherwise lets the supervisor act."""
        if self._eventfd >= 0:
            os.eventfd_write(self._eventfd, 1)

    def _run(self, me: object) -> None:
        pause: float | None = None  # until the next look for stuck calls; None: no call is inside
        while self._goes_on(me):
            try:
                pause = self._turn(pause)
            except Exception as error:  # noqa: BLE001 - a lack of memory, for instance; the thread goes on
                sync.report(error)
                self._sleep(RETURN_SECONDS)

    def _turn(self, pause: float | None) -> float | None:
        """Lets the supervisor act, sleeps, and then looks for stuck calls if calls were inside before."""
        due = self._manager.supervision.act()
        if pause is None and lib.aio_gate_notify(self._manager.index, self._eventfd):
            pause = STUCK_SECONDS
        limits = [limit for limit in (pause, due) if limit is not None]
        woken = self._sleep(min(*limits, LONGEST_SLEEP) if limits else None)
        if pause is None:
            return STUCK_SECONDS if woken else None  # perhaps a call has entered
        return self._look()

    def _goes_on(self, me: object) -> bool:
        with self._admission.changed:
            needed = self._admission.listeners.any or self._manager.supervision.current is not None
            wanted = needed and self._admission.state is not State.CLOSED
            if self._thread is me and not wanted:
                self._thread = None
                self._sent.clear()
            return self._thread is me

    def _sleep(self, seconds: float | None) -> bool:
        """Returns True when the thread was woken, or False after `seconds`."""
        woken = sync.readable(self._eventfd, seconds)
        if woken:
            self._clear()
        return woken

    def _clear(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._eventfd)

    def _look(self) -> float | None:
        """Sends the events. Returns after how many seconds to look again, or None if no call is inside."""
        with self._admission.changed:
            calls = calls_inside(self._manager.index)
            self._send(calls)
        young = [STUCK_SECONDS - call.seconds for call in calls.values() if call.seconds <= STUCK_SECONDS]
        pause = min(young, default=STUCK_SECONDS)
        if self._sent:
            return min(pause, RETURN_SECONDS)
        return pause if calls else None

    def _send(self, calls: Mapping[tuple[int, int], Stuck]) -> None:
        for key, call in calls.items():
            if key not in self._sent and is_stuck(self._manager, call):
                self._sent[key] = call
                self._tell("stuck", call)
            elif key in self._sent:
                self._sent[key] = call
        if len(calls) < INSIDE_AT_MOST:  # all calls are listed
            for key in self._sent.keys() - calls.keys():
                self._tell("recovered", self._sent.pop(key))

    def _tell(self, kind: EventKind, call: Stuck) -> None:
        admission = self._admission
        admission.listeners.tell(
            kind,
            admission.shown,
            admission.generation,
            text=f"{call.function} on thread {call.thread}",
            seconds=call.seconds,
        )
        admission.announce()
