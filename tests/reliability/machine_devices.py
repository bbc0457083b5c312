"""The machine's rules about devices: open, close, force and foreign resets, leases, listeners, creation and jobs."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition

import aioacl
from aioacl import State, simulator
from aioacl._base.ffi import lib
from aioacl._lifecycle.manager import manager_of
from aioacl._wait.current import run_blocking
from tests.kit import in_thread, until_now
from tests.reliability import setting
from tests.reliability.machine_base import BYTES, DEVICES, PATIENCE_SECONDS, PICK, Base, expect, step
from tests.reliability.machine_model import RESETS, Device, Event, Listener, Pinned, Stream, Thing

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._lifecycle.manager import Manager

with_a_device = precondition(lambda self: self.devices)


def _settled(manager: Manager) -> bool:
    """Whether every foreign reset has been handled, and no procedure is running."""
    with manager.admission.changed:
        return manager.procedure is None and not lib.aio_gate_foreign(manager.index)


class Devices(Base):
    """Rules about devices."""

    @step(index=st.sampled_from(DEVICES), waits=st.sampled_from(["watch", "watch", "thread"]))
    def open(self, index: int, waits: Any) -> None:
        card = self.cards[index]
        expected: type[BaseException] | None = None
        if card.state is State.QUARANTINED:
            expected = aioacl.DeviceQuarantined
        elif card.opens and waits != card.waits:
            expected = aioacl.ParameterError
        made, error = expect(lambda: setting.open_device(index, waits).result(), expected)
        if error is None:
            card.opened(waits)
            self.devices.append(Device(made, card))

    @step(initialize, index=st.sampled_from(DEVICES))
    def begin(self, index: int) -> None:
        made = setting.open_device(index).result()
        self.cards[index].opened("watch")
        self.devices.append(Device(made, self.cards[index]))
        self.create_handles(pick=0)

    @precondition(lambda self: len(self.devices) > 1)
    @step(pick=PICK)
    def close(self, pick: int) -> None:
        device = self.device(pick)
        expect(lambda: device.made.close().result(), None)
        if not device.closed:
            device.closed = True
            device.card.closed()

    # --- resets ---------------------------------------------------------------------------------------------------

    @with_a_device
    @step(pick=PICK, how=st.sampled_from(list(RESETS)), other=st.booleans())
    def force_reset(self, pick: int, how: str, other: bool) -> None:
        """Resets the device from this thread or another. This thread is refused while it holds a lease."""
        device = self.device(pick)
        card = device.card
        expected: type[BaseException] | None = aioacl.ParameterError if device.closed else None
        if card.leases and not other:
            expected = expected or aioacl.LeaseHeldError

        if how == "lies once" and card.faulted and manager_of(card.index).counts.are_shared:
            how = "plain"  # such a reset counts the sets, and then resets once more: so one lie has no effect

        def request() -> Any:
            return device.made.force_reset(grace=0, reason=how).result()

        rule, was_set, was_faulted = RESETS[how].rule, card.retained > 0, card.faulted
        before = simulator.resets(card.index)
        with ExitStack() as armed:
            if rule:
                armed.enter_context(simulator.fault(rule.format(card.index)))
            report, error = expect((lambda: in_thread(request)) if other else request, expected)
        simulator.clear()  # if a reset has falsely returned success, this ends the fault state of the device
        if error is not None:
            assert simulator.resets(card.index) == before
            return
        if card.faulted:
            self.abandoned.add("events")
        wanted = card.reset(how)
        releases = wanted.releases and (was_set or setting.OWN)
        if setting.OWN:  # the reset begins with the device after a fault of the device, or goes on with it
            releases = was_faulted or wanted.attempts > 1
            assert report.scope == ("device" if releases else "context"), report
        assert (simulator.resets(card.index) > before) is releases, report
        seen = (report.ok, report.generation, report.reason, report.joined, report.attempts, report.stuck)
        assert seen == (wanted.opens, card.generation, how, 1, wanted.attempts, ()), report
        assert bool(report.problem) is not wanted.opens

    @precondition(lambda self: any(card.opens for card in self.cards))
    @step(index=st.sampled_from(DEVICES), force=st.booleans())
    def foreign_reset_beside_an_own_context(self, index: int, force: bool) -> None:
        """Another library sets and resets the device. If aioacl has a context of its own, nothing changes for it."""
        if setting.OWN:
            call = lib.aio_u_aclrtResetDeviceForce if force else lib.aio_u_aclrtResetDevice
            assert in_thread(lambda: [act(index) for act in (lib.aio_u_aclrtSetDevice, call)]) == [0, 0]

    @precondition(lambda self: any(card.retained for card in self.cards))
    @step(index=st.sampled_from(DEVICES), force=st.booleans())
    def foreign_reset(self, index: int, force: bool) -> None:
        """Another library resets the device. If aioacl has the device open, aioacl sets it again."""
        card, manager = self.cards[index], manager_of(index)
        call = lib.aio_u_aclrtResetDeviceForce if force else lib.aio_u_aclrtResetDevice
        code = in_thread(lambda: call(index))
        assert code == card.foreign_reset()
        if code == 0:
            self.abandoned.add("events")
        assert until_now(lambda: _settled(manager))

    @precondition(lambda self: any(card.retained for card in self.cards))
    @step(pick=PICK)
    def foreign_set(self, pick: int) -> None:
        """Another library sets and resets the device: nothing changes for aioacl."""
        cards = [card for card in self.cards if card.retained]
        index = self.of(cards, pick).index
        acts = (lib.aio_u_aclrtSetDevice, lib.aio_u_aclrtResetDevice)
        assert in_thread(lambda: [act(index) for act in acts]) == [0, 0]

    # --- creating ---------------------------------------------------------------------------------------------------

    @with_a_device
    @step(pick=PICK, kind=st.sampled_from(["stream", "buffer", "pinned", "event"]))
    def make(self, pick: int, kind: str) -> None:
        device = self.device(pick)
        if kind == "stream":
            self._make(device, device.made.create_stream, Stream, self.streams)
        elif kind == "buffer":
            self._make(device, lambda: device.made.allocate(BYTES), Thing, self.buffers)
        elif kind == "pinned":
            self._make(device, lambda: device.made.pinned(BYTES), Pinned, self.buffers)
        else:
            self._make(device, device.made.create_event, Event, self.events)

    def _make(
        self, device: Device, make: Callable[[], Any], kind: Callable[..., Any], things: list[Any]
    ) -> None:
        made, error = expect(lambda: make().result(), device.card.refusal(device))
        if error is None:
            things.append(kind(made, device.card, device.card.generation))

    @with_a_device
    @step(pick=PICK)
    def create_handles(self, pick: int) -> None:
        """Creates new handles. Without this rule, steps after a reset would mostly use stale handles."""
        for kind in ("stream", "buffer"):
            self.make(pick=pick, kind=kind)

    @with_a_device
    @step(pick=PICK, value=st.integers(0, 9))
    def run(self, pick: int, value: int) -> None:
        """Runs a job, which raises if the number is odd."""
        device = self.device(pick)

        def job(number: int) -> int:
            if number % 2:
                raise aioacl.QueueFull("the job's own error")
            return number

        refusal = device.card.refusal(device) or (aioacl.QueueFull if value % 2 else None)
        answer, error = expect(lambda: device.made.run(job, value).result(), refusal)
        assert error or answer == value

    @with_a_device
    @step(pick=PICK)
    def memory_info(self, pick: int) -> None:
        device = self.device(pick)
        answer, error = expect(lambda: device.made.memory_info().result(), device.card.refusal(device))
        assert error or 0 < answer.free <= answer.total

    # --- leases and listeners -------------------------------------------------------------------------------------

    @with_a_device
    @step(pick=PICK)
    def enter_lease(self, pick: int) -> None:
        device = self.device(pick)
        lease, error = expect(lambda: device.made.lease().__enter__(), device.card.refusal(device))
        if error is None:
            device.card.leases.append(lease)

    @precondition(lambda self: any(card.leases or card.lost for card in self.cards))
    @step(pick=PICK)
    def leave_lease(self, pick: int) -> None:
        lists = [leases for card in self.cards for leases in (card.leases, card.lost) if leases]
        lease = self.of(lists, pick).pop()
        lease.__exit__()
        assert not lease.held

    @with_a_device
    @step(pick=PICK)
    def listen(self, pick: int) -> None:
        device = self.device(pick)
        events, error = expect(device.made.events, aioacl.ParameterError if device.closed else None)
        if error is None:
            device.card.listeners.append(Listener(events, device))

    @precondition(lambda self: any(card.listeners for card in self.cards))
    @step(pick=PICK)
    def read_events(self, pick: int) -> None:
        """Checks all events since the last call, in order. If the device is closed, the listener then ends."""
        listener: Listener = self.of([it for card in self.cards for it in card.listeners], pick)
        missed = listener.missed
        for expected in listener.taken():
            event = run_blocking(listener.events.__anext__, PATIENCE_SECONDS)
            assert (event.kind, event.state, event.generation, event.missed) == (*expected, missed)
            missed = 0
        if listener.by.closed or listener.by.card.state is State.CLOSED:
            try:
                event = run_blocking(listener.events.__anext__, PATIENCE_SECONDS)
            except StopAsyncIteration:
                listener.by.card.listeners.remove(listener)
            else:
                raise AssertionError(f"expected the end of the events, got {event}")
