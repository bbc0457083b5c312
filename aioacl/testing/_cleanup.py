"""Cleaning up after a test that has left resources behind, or that has broken a device."""

from __future__ import annotations

import gc
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, SupportsIndex, TypeVar

from aioacl import simulator
from aioacl._base.errors import AclError
from aioacl._base.states import State
from aioacl._device import Device
from aioacl._handles.operation import Operation
from aioacl._lifecycle import manager as _lifecycle
from aioacl._lifecycle.gate import inside
from aioacl._lifecycle.health import health_of
from aioacl._lifecycle.lease import Lease
from aioacl._lifecycle.probe import probe
from aioacl._opening import open_device
from aioacl.testing._snapshot import is_simulated, open_devices
from aioacl.testing._waiting import PATIENCE_SECONDS, holds_within

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from aioacl._lifecycle.manager import Manager

T = TypeVar("T")

STEP_SECONDS: Final = 10.0
RESET_SECONDS: Final = 30.0


def plainly(body: Callable[[], T]) -> T:
    """Runs the body on a new thread without an event loop, blocks, and returns or raises its result."""
    found: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            found.append(body())
        except BaseException as error:  # noqa: BLE001 - the caller's thread raises it
            errors.append(error)

    thread = threading.Thread(target=run, name="aioacl-testing", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors.pop()
    return found.pop()


def release_everything() -> None:
    """Releases held streams and hung calls of the simulator, removes its faults, and restores its settings.

    Settings are restored to the values of the environment variables, or to their defaults. Limits are removed. On a
    card, this function does nothing.
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
    simulator.set_device_livelock(on=False)
    simulator.set_reset_crash(on=False)
    simulator.set_lost_wait(on=False)
    simulator.watch_uninitialised(on=os.environ.get("AIOACL_SIM_UNINIT", "0") not in {"", "0"})
    simulator.set_virtual_clock(virtual=os.environ.get("AIOACL_SIM_CLOCK") == "virtual")
    simulator.set_limits()


def restore_initial_state() -> None:
    """Restores the simulator's initial state: rules and limits of its environment variables, and all counts at 0."""
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
    """Returns a seed (10, 0xA or 012) as the simulator reads it. The simulator refuses text that is not a number."""
    digits = text.strip()
    return int(digits, 8 if digits.startswith("0") and digits.isdigit() else 0)


def close_left(things: Collection[Any]) -> None:
    """Ends the leases, and closes the other objects, devices last. Waits at most ten seconds for each close."""
    leases = [thing for thing in things if isinstance(thing, Lease)]
    others = [thing for thing in things if not isinstance(thing, Lease)]

    def close_all() -> None:
        for lease in leases:
            lease._holders.clear()
            lease._lost.clear()
            lease._admission.tidy_leases()
        for thing in sorted(others, key=lambda thing: isinstance(thing, Device)):
            with suppress(AclError):  # the device is broken, which recover_device reports
                thing.close().result(STEP_SECONDS)

    plainly(close_all)


def do_notes_of_closed_devices() -> None:
    """Closes the models that were dropped after the close of their devices, whose threads have ended."""
    for manager in list(_lifecycle._managers.values()):
        if manager.admission.state is State.CLOSED:
            plainly(manager.deferred.do_notes)


def force_close(*, but: Collection[int] = ()) -> tuple[int, ...]:
    """Closes all devices that are open in this process, and revokes the leases of these devices.

    A device is closed even if other code still uses it. The function blocks. For each device, it waits at most 5
    seconds for an open, close or reset that is running. Then it waits at most 5 seconds for all closes together.

    Args:
        but: the indices of devices to leave open.

    Returns:
        The indices of the devices that are still open.
    """
    for manager in _others(but):
        # The default of `m` has a type that mypy does not infer.
        holds_within(lambda m=manager: m.procedure is None, PATIENCE_SECONDS)  # type: ignore[misc]  # see above
        _disown(manager)
        with manager.admission.changed:
            manager.admission.users.clear()
            manager.admission.leases.revoke()
            manager.close_if_unused(State.OPEN, State.QUARANTINED)
    holds_within(lambda: not _others(but), PATIENCE_SECONDS)
    return tuple(manager.index for manager in _others(but))


def _disown(manager: Manager) -> None:
    """Marks all Device objects of the manager as closed, so that their later close or drop is not counted again."""
    for thing in gc.get_objects():
        if isinstance(thing, Device) and thing._manager is manager:
            thing._closed = True


def _others(but: Collection[int]) -> list[Manager]:
    return [manager for manager in open_devices() if manager.index not in but]


# --- testing and recovering devices ------------------------------------------------------------------------------


def recover_device(index: SupportsIndex = 0) -> str:
    """Tests the device with a stream, memory and a copy, and force-resets it if the test fails. Blocks.

    Call it after a failed test, so that the next test has a working device. If the device is not open, it is opened
    and closed again.

    Args:
        index: the index of the device.

    Returns:
        The problem and the report of the reset, as text; "" if the device works.

    Raises:
        ParameterError: there is no such device.
        AclError: the reset, or the close after it, failed.
    """
    manager = _lifecycle.manager_of(index)
    return plainly(lambda: _recover_open(manager) if manager.admission.opens else _recover_closed(manager))


def _recover_closed(manager: Manager) -> str:
    try:
        device = open_device(manager.index).result(STEP_SECONDS)
    except AclError as error:
        return f"device {manager.index} cannot be opened: {error}"
    try:
        return _recover_open(manager)
    finally:
        device.close().result(STEP_SECONDS)


def _recover_open(manager: Manager) -> str:
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
        return f"does not respond within {STEP_SECONDS:g} s (inside C: {calls or 'no call'})"
    except AclError as error:
        return f"refuses a test: {error}"
    return "" if failure is None else f"fails a test: {failure[0]} returned {failure[1]}"
