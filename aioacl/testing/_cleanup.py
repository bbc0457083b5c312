"""Putting things in order again: after a test that has left something, and after one that broke a device."""

from __future__ import annotations

import gc
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, SupportsIndex, TypeVar

from aioacl import simulator
from aioacl._base.errors import AclError
from aioacl._base.states import State
from aioacl._device import Device, open_device
from aioacl._handles.operation import Operation
from aioacl._lifecycle import manager as _lifecycle
from aioacl._lifecycle.gate import inside
from aioacl._lifecycle.health import health_of
from aioacl._lifecycle.lease import Lease
from aioacl._lifecycle.probe import probe
from aioacl.testing._snapshot import is_simulated, open_devices
from aioacl.testing._waiting import PATIENCE_SECONDS, holds_within

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from aioacl._lifecycle.manager import Manager

T = TypeVar("T")

STEP_SECONDS: Final = 10.0
RESET_SECONDS: Final = 30.0


def plainly(body: Callable[[], T]) -> T:
    """The body's result on a thread of its own, without a loop, wherever the caller is. Blocks."""
    found: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            found.append(body())
        except BaseException as error:  # noqa: BLE001 - it is raised in the caller
            errors.append(error)

    thread = threading.Thread(target=run, name="aioacl-testing", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors.pop()
    return found.pop()


def release_everything() -> None:
    """The simulator goes on: what is held, hung, armed or set otherwise than its environment says is over.

    On a card, nothing.
    """
    if not is_simulated():
        return
    simulator.clear()
    simulator.release_all()
    simulator.set_abort_supported(supported=True)
    simulator.set_count_notify_supported(supported=False)
    simulator.set_ipc_event_supported(supported=False)
    simulator.set_query_lag(on=False)
    simulator.set_sync_livelock(on=False)
    simulator.set_reset_crash(on=False)
    simulator.watch_uninitialised(on=os.environ.get("AIOACL_SIM_UNINIT", "0") not in {"", "0"})
    simulator.set_virtual_clock(virtual=os.environ.get("AIOACL_SIM_CLOCK") == "virtual")
    simulator.set_limits()


def begin_anew() -> None:
    """As when the simulator was loaded: the rules and limits of its environment hold again, and count from nothing."""
    if not is_simulated():
        return
    release_everything()
    simulator.forget()
    simulator.set_limits(os.environ.get("AIOACL_SIM_LIMITS", ""))
    simulator.set_seed(_seed(os.environ.get("AIOACL_SIM_SEED", "0")))
    for rule in os.environ.get("AIOACL_SIM_FAULTS", "").split(";"):
        name, _, number = rule.strip().partition("=")
        if name == "seed":
            simulator.set_seed(_seed(number))
        elif name:
            simulator.Fault(rule.strip()).__enter__()


def _seed(text: str) -> int:
    """As the simulator reads it, which has refused what is no number: 10, 0xA or 012."""
    digits = text.strip()
    return int(digits, 8 if digits.startswith("0") and digits.isdigit() else 0)


def close_left(things: Collection[Any]) -> None:
    """Closes what somebody has left open, memory and streams before devices, each within ten seconds; ends leases."""
    leases = [thing for thing in things if isinstance(thing, Lease)]
    others = [thing for thing in things if not isinstance(thing, Lease)]

    def close_all() -> None:
        for lease in leases:
            lease._holders.clear()
            lease._lost.clear()
            lease._grantor.tidy_leases()
        for thing in sorted(others, key=lambda thing: isinstance(thing, Device)):
            with suppress(AclError):  # the device is broken: that is told by whoever mends it
                thing.close().result(STEP_SECONDS)

    plainly(close_all)


def force_close(*, but: Collection[int] = ()) -> tuple[int, ...]:
    """Closes the devices that are open in this process, whoever has them. Returns those that stay open."""
    for manager in _others(but):
        # The default of `m` has a type that mypy does not infer.
        holds_within(lambda m=manager: m.procedure is None, PATIENCE_SECONDS)  # type: ignore[misc]  # as said
        _disown(manager)
        with manager.admission.changed:
            manager.admission.users.clear()
            manager.admission.leases.revoke()
            manager.close_if_unused(State.OPEN, State.QUARANTINED)
    holds_within(lambda: not _others(but), PATIENCE_SECONDS)
    return tuple(manager.index for manager in _others(but))


def _disown(manager: Manager) -> None:
    """Nobody has the device open any more: closing or dropping a Device later must not count once more."""
    for thing in gc.get_objects():
        if isinstance(thing, Device) and thing._manager is manager:
            thing._closed = True


def _others(but: Collection[int]) -> list[Manager]:
    return [manager for manager in open_devices() if manager.index not in but]


# --- does it work? -----------------------------------------------------------------------------------------------


def recover_device(index: SupportsIndex = 0) -> str:
    """Tries the device with a stream, memory and a copy, and force resets it if it does not work.

    It is opened for that if nobody has it open. For after a test that has failed, so that the next one does not.

    Returns:
        What was wrong and what came of the reset; "" for a device that works.
    """
    manager = _lifecycle.manager_of(index)
    return plainly(lambda: _mend_open(manager) if manager.admission.opens else _mend_closed(manager))


def _mend_closed(manager: Manager) -> str:
    try:
        device = open_device(manager.index).result(STEP_SECONDS)
    except AclError as error:
        return f"device {manager.index} cannot be opened: {error}"
    try:
        return _mend_open(manager)
    finally:
        device.close().result(STEP_SECONDS)


def _mend_open(manager: Manager) -> str:
    wrong = _wrong_with(manager)
    if not wrong:
        return ""
    reset = Operation(
        "recover_device()",
        lambda: manager.force_reset(grace=0.0, timeout=RESET_SECONDS, reason=f"recover_device(): {wrong}"),
    )
    return f"device {manager.index} {wrong}; force reset: {reset.result()}"


def _wrong_with(manager: Manager) -> str:
    health = health_of(manager)
    if health.state is not State.OPEN or health.status != "ok":
        return f"is {health.status} ({health.last_fault or health.state.name})"
    trial = manager.jobs.executor.submit(lambda: probe(manager.index, manager.counts.foreign_resets_seen))
    try:
        failure = trial.result(STEP_SECONDS)
    except TimeoutError:
        trial.cancel()
        calls = ", ".join(call.function for call in inside(manager.index))
        return f"does not answer within {STEP_SECONDS:g} s (inside: {calls or 'nothing'})"
    except AclError as error:
        return f"refuses a trial: {error}"
    return "" if failure is None else f"fails a trial: {failure[0]} answered {failure[1]}"
