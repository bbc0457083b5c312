"""Known bugs that are put into the aioacl of this process. A limited number of schedules must find each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aioacl._base.ffi import lib
from aioacl._base.states import State, Trigger
from aioacl._lifecycle.admission import Admission
from aioacl._lifecycle.manager import Manager
from aioacl._lifecycle.procedures.close import CloseProcedure
from aioacl._lifecycle.procedures.reset import ResetProcedure
from aioacl._lifecycle.turns import Turns
from aioacl._wait.current import current_holder, current_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import CData


@dataclass(frozen=True)
class Bug:
    """A description, the scenario that must find the bug, and the function that puts the bug in."""

    sentence: str
    scenario: str
    put: Callable[[], None]


def _put(owner: type, name: str, wrong: Callable[..., object]) -> None:
    setattr(owner, name, wrong)


async def _change_without_a_second_check(self: Any, _: int, deadline: float | None) -> None:
    port = current_port()

    def start(_: CData, key: int) -> int:
        with self.changed:
            self._subscribers[port, key] = None
        return 0

    await port.wait(start, deadline=deadline)


def _lose_wake_ups() -> None:
    _put(Admission, "change", _change_without_a_second_check)


async def _reset_without_the_lock(self: Any, *, grace: float, timeout: float, reason: str) -> Any:
    procedure = self.procedure
    if not isinstance(procedure, ResetProcedure):
        with self.admission.changed:
            holder = current_holder()
        procedure = ResetProcedure(self, grace=grace, timeout=timeout, reason=reason, by=holder)
        with self.admission.changed:
            self.start_procedure(procedure)
    await procedure.wait(None)
    return procedure.report


def _run_twice() -> None:
    _put(Manager, "force_reset", _reset_without_the_lock)


def _may_pass_when_open(self: Any, holder: object) -> bool:
    if self.leases.lost(holder):
        raise self._revoked()
    if self.state is State.CLOSED:
        raise self.closed()
    return self.state is State.OPEN and not lib.aio_gate_foreign(self.index)


def _wait_within_a_lease() -> None:
    _put(Admission, "may_pass", _may_pass_when_open)


def _leave_quietly(self: Any, place: Any) -> None:
    with self.changed:
        self._waiting.discard(place)
        self._due.discard(place)


def _wake_no_waiter_of_the_last_turn() -> None:
    _put(Turns, "leave", _leave_quietly)


def _close_later(self: Any, *states: State) -> Any:
    if self.admission.opens or self.procedure is not None or self.admission.state not in states:
        return None
    procedure = CloseProcedure(self)
    run = procedure.run

    def drain_first() -> None:
        procedure._apply(Trigger.DRAIN)
        run()

    if self.admission.state is State.OPEN:
        procedure.run = drain_first  # type: ignore[method-assign]  # the bug
    self.start_procedure(procedure)
    return procedure


def _drain_late() -> None:
    _put(Manager, "close_if_unused", _close_later)


BUGS: Final[dict[str, Bug]] = {
    "lost-wake-up": Bug(
        "a waiter for a change does not check again under the lock", "reset_open_close", _lose_wake_ups
    ),
    "two-procedures": Bug(
        "a reset is launched after a check without the lock", "reset_reset_close", _run_twice
    ),
    "nested-lease": Bug("a lease within a lease waits for the reset", "lease_reset", _wait_within_a_lease),
    "no-wake-at-last-turn": Bug(
        "the end of the last turn wakes no waiter", "core_turns", _wake_no_waiter_of_the_last_turn
    ),
    "late-drain": Bug(
        "the last close drains on its procedure's thread, so another open may be counted before the drain",
        "open_close",
        _drain_late,
    ),
}
