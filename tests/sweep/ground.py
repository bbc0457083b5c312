"""The state between two injections: objects of the simulator, threads, descriptors, open devices."""

from __future__ import annotations

from aioacl import simulator
from aioacl._base.ffi import lib
from aioacl._base.states import State
from aioacl._lifecycle import manager as _lifecycle
from tests.kit import descriptors, until_now

KINDS = ("contexts", "streams", "events", "notifies", "device_blocks", "host_blocks")


def possessions() -> dict[str, int]:
    """Returns the number of objects of each kind."""
    stats = simulator.stats()
    found = {kind: int(getattr(stats, kind)) for kind in KINDS}
    found["retains"] = sum(simulator.retain_count(index) for index in range(2))
    return {**found, "native threads": int(lib.aio_threads()), "descriptors": descriptors()}


def more_than(before: dict[str, int], *allowed: str) -> dict[str, tuple[int, int]]:
    """Returns the kinds with more objects than before, except `allowed`, each with the numbers before and now."""
    now = possessions()
    return {
        kind: (before[kind], now[kind]) for kind in before if now[kind] > before[kind] and kind not in allowed
    }


def open_devices() -> list[_lifecycle.Manager]:
    """Returns the managers whose device is not closed."""
    managers = list(_lifecycle._managers.values())
    return [
        m
        for m in managers
        if m.admission.state is not State.CLOSED or m.procedure is not None or m.admission.opens
    ]


def all_closed(seconds: float) -> bool:
    """Returns True if each device is closed within `seconds`."""
    return until_now(lambda: not open_devices(), seconds)


def force_closed() -> None:
    """Closes each open device in place of the code that opened it."""
    for manager in open_devices():
        until_now(lambda m=manager: m.procedure is None, 5)  # type: ignore[misc]  # mypy requires a type for the default
        with manager.admission.changed:
            manager.admission.users.clear()
            manager.admission.leases.revoke()
            manager.close_if_unused(State.OPEN, State.QUARANTINED)
    all_closed(5)
