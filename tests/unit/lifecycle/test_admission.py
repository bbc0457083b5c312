"""Admission when a reset or another change happens between a check and the step that depends on the check."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Self

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib
from aioacl._lifecycle import admission, jobs
from aioacl._lifecycle.lease import Lease
from aioacl._lifecycle.manager import manager_of
from aioacl._lifecycle.procedures import reset as _reset
from aioacl._wait.current import current_holder, current_port
from tests.kit import Engine, Raised, Stop, Waiting, in_thread, until, until_now

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from aioacl._lifecycle.jobs import InsideDevice
    from aioacl._lifecycle.manager import Manager


class Condition:
    """A manager's condition. A subclass replaces some of its methods for a test."""

    def __init__(self, manager: Manager) -> None:
        self._inner: Any = manager.admission.changed

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._inner.__exit__(*raised)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Interleaved(Condition):
    """Calls `act` when this thread releases the condition for the nth time (`exits`)."""

    def __init__(self, manager: Manager, act: Callable[[], object], exits: int) -> None:
        super().__init__(manager)
        self._thread = threading.current_thread()
        self._exits = exits
        self._act = act

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        if threading.current_thread() is self._thread:
            self._exits -= 1
            if self._exits == 0:
                self._act()


@pytest.fixture
def device() -> Generator[aioacl.Device]:
    opened = aioacl.open_device(0).result()
    yield opened
    simulator.release_all()
    opened.close().result()


def begin_reset(device: aioacl.Device) -> Raised:
    """Starts a reset that hangs in C."""
    return Raised.hung_in("aclrtResetDeviceForce", lambda: device.force_reset(grace=0).result())


def test_lease_is_not_granted_if_a_reset_begins_after_the_check(
    device: aioacl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = device._manager
    lease = Lease(manager.admission, wait=False, timeout=None)
    resets: list[Raised] = []
    # The thread takes the lock for the check, releases it, and takes it again for the grant.
    between = Interleaved(manager, lambda: resets.append(begin_reset(device)), exits=1)
    monkeypatch.setattr(manager.admission, "changed", between)
    with pytest.raises(aioacl.DeviceResetting):
        lease.__enter__()
    monkeypatch.undo()
    assert not lease.held
    assert device.health.leases == 0
    simulator.release_all()
    assert resets[0].join().ok


def test_job_does_not_begin_if_a_reset_begins_after_the_check(
    device: aioacl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = manager_of(0)
    generation = device.generation
    entered: list[InsideDevice] = []
    resets: list[Raised] = []

    def enter() -> None:
        between = Interleaved(manager, lambda: resets.append(begin_reset(device)), exits=1)
        monkeypatch.setattr(manager.admission, "changed", between)
        entered.append(manager.jobs.enter_job(object(), nullcontext))

    entering = Raised(enter)
    assert until_now(lambda: resets)
    assert until_now(lambda: manager.admission.turns._waiting)
    assert device.health.in_flight == 0
    simulator.release_all()
    assert resets[0].join().ok
    entering.join()
    assert [stay.generation for stay in entered] == [generation + 1]
    entered[0].end()
    assert until_now(lambda: device.health.in_flight == 0)  # `in_flight` also counts work of the reset itself


class Overtaken(Engine):
    """Calls `act` once, after a job has entered and before its thread is bound."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._acts = [act]

    def aio_bind_thread(self, entered: int) -> int:
        while self._acts:
            self._acts.pop()()
        return int(lib.aio_bind_thread(entered))


def test_job_that_enters_during_a_foreign_reset_begins_after_it(
    device: aioacl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    generation = device.generation
    resets: list[Raised] = []

    def reset() -> None:
        resets.append(Raised(lambda: lib.aio_u_aclrtResetDeviceForce(0)))
        assert until_now(lambda: lib.aio_gate_foreign(0))

    def job() -> int | None:
        stay = device._manager.jobs.enter_job(object(), nullcontext)
        stay.end()
        return stay.generation

    monkeypatch.setattr(jobs, "lib", Overtaken(reset))
    assert in_thread(job) == generation + 1
    assert resets[0].join() == 0
    assert until_now(lambda: device.health.in_flight == 0)


def test_change_between_the_check_and_the_subscription_is_not_lost(
    device: aioacl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = device._manager
    resetting = begin_reset(device)

    def end_reset() -> None:
        simulator.release_all()
        assert resetting.join().ok
        assert until_now(lambda: manager.procedure is None)

    between = Interleaved(manager, end_reset, exits=1)
    monkeypatch.setattr(manager.admission, "changed", between)
    lease = Lease(manager.admission, wait=True, timeout=5)  # times out if the lease has missed the change
    with lease:
        assert lease.held
    monkeypatch.undo()


class Late(Interleaved):
    """Replaces a manager's condition: calls `act` before the condition is acquired for the first time."""

    def __init__(self, manager: Manager, act: Callable[[], object]) -> None:
        super().__init__(manager, act, exits=0)
        self._acts = [act]

    def __enter__(self) -> Self:
        while self._acts:
            self._acts.pop()()
        return super().__enter__()


def test_lease_that_a_finalizer_drops_during_its_exit_is_not_held(
    device: aioacl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = device.lease().__enter__()
    holder = current_holder()

    def drop() -> None:  # removes the holder as a finalizer on this thread would
        device._manager.admission.abandon_lease(lease, holder)

    monkeypatch.setattr(device._manager.admission, "changed", Late(device._manager, drop))
    lease.__exit__(None, None, None)
    monkeypatch.undo()
    assert not lease.held
    assert until_now(lambda: device.health.leases == 0)  # the maintenance thread completes the release


def waits_here(manager: Manager) -> bool:
    """Whether a task of this loop waits for a change."""
    return any(port is current_port() for port, _ in manager.admission._subscribers)


@pytest.mark.anyio
async def test_task_cancelled_after_the_change_was_announced_leaves_no_wait(
    device: aioacl.Device,
) -> None:
    manager, waits = device._manager, current_port()._waits
    resetting = begin_reset(device)
    async with anyio.create_task_group() as group:
        leaving = Waiting(group, manager.admission.until_open)
        await until(lambda: waits_here(manager))
        with manager.admission.changed:
            manager.admission.announce()
        await leaving.cancel_and_wait()
        assert leaving.cancelled
    assert not waits_here(manager)
    await until(lambda: not waits)
    simulator.release_all()
    assert resetting.join().ok


@pytest.mark.anyio
async def test_task_cancelled_when_the_change_came_before_its_wait_leaves_no_wait(
    device: aioacl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, waits = device._manager, current_port()._waits
    resetting = begin_reset(device)
    scope = anyio.CancelScope()

    def change() -> None:
        with manager.admission.changed:
            manager.admission.announce()
        scope.cancel()

    with scope:
        monkeypatch.setattr(manager.admission, "changed", Interleaved(manager, change, exits=1))
        await manager.admission.until_open()
    monkeypatch.undo()
    assert scope.cancelled_caught
    assert not waits_here(manager)
    await until(lambda: not waits)
    simulator.release_all()
    assert resetting.join().ok


class Waited(Condition):
    """Records the names of the threads that wait for the condition."""

    def __init__(self, manager: Manager) -> None:
        super().__init__(manager)
        self.by: list[str] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.by.append(threading.current_thread().name)
        return bool(self._inner.wait(timeout))


def test_operation_that_waited_for_a_reset_is_tried_before_the_next_drain(
    device: aioacl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = device._manager
    busy = Stop()
    first = begin_reset(device)
    making = Raised(lambda: device.create_stream().result())
    assert until_now(lambda: manager.admission.turns._waiting)
    manager.deferred.leave_note(busy)  # blocks the thread that makes streams
    assert until_now(busy.begun.is_set)
    simulator.release_all()
    generation = first.join().generation
    waited = Waited(manager)
    monkeypatch.setattr(manager.admission, "changed", waited)
    monkeypatch.setattr(_reset, "TURN_SECONDS", 20.0)
    second = Raised(lambda: device.force_reset().result())
    assert until_now(lambda: "aioacl-reset-0" in waited.by or device.generation > generation)
    assert (device.state, device.generation) == (aioacl.State.OPEN, generation)
    busy.go_on.set()
    stream = making.join()
    assert stream.generation == generation
    assert second.join().generation == generation + 1
    monkeypatch.undo()
    stream.close().result()


@pytest.mark.parametrize(
    ("seconds", "timeout"), [(0.01, 60.0), (1000.0, 0.5)], ids=["its own limit", "half of the timeout"]
)
def test_reset_waits_for_a_turn_no_longer_than_its_limits(
    device: aioacl.Device, monkeypatch: pytest.MonkeyPatch, seconds: float, timeout: float
) -> None:
    manager = device._manager
    with manager.admission.changed:
        never_left = manager.admission.turns.place()
        manager.admission.turns.wait(never_left)
        manager.admission.turns.give()
    waited = Waited(manager)
    monkeypatch.setattr(manager.admission, "changed", waited)
    monkeypatch.setattr(_reset, "TURN_SECONDS", seconds)
    try:
        resetting = Raised(lambda: device.force_reset(grace=0.1, timeout=timeout).result())
        assert until_now(lambda: not resetting.running, 10)  # the time limit has ended the wait for the turn
    finally:
        manager.admission.turns.leave(never_left)
    monkeypatch.undo()
    assert list(resetting.join().stages)[:2] == ["turns", "drain"]
    assert "aioacl-reset-0" in waited.by
    assert device.force_reset().result().ok


class SeenBetween(Engine):
    """Records the device's state and generation around each write of the gate."""

    def __init__(self, device: aioacl.Device) -> None:
        self.seen: set[tuple[str, int]] = set()
        self._device = device

    def aio_gate_set(self, index: int, state: int, generation: int) -> None:
        self._look()
        lib.aio_gate_set(index, state, generation)
        self._look()

    def _look(self) -> None:
        self.seen.add((self._device.state.name, self._device.generation))


def test_device_that_is_seen_open_after_a_reset_has_its_new_generation(
    device: aioacl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    generation, between = device.generation, SeenBetween(device)
    monkeypatch.setattr(admission, "lib", between)
    assert device.force_reset().result().ok
    assert ("OPEN", generation + 1) not in between.seen  # OPEN is visible only after the last write
    assert {at for state, at in between.seen if state in ("DRAINING", "OPEN")} == {generation}
    assert ("RESETTING", generation + 1) in between.seen
