"""The device between a foreign reset and its handling by the maintenance thread."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import aioacl
from aioacl import simulator
from aioacl._wait.internal_call import InternalCall
from tests.kit import PATIENCE_SECONDS, Stop, reset_by_other_code, until_now

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.kit import OpenDevice


@contextmanager
def unhandled(device: aioacl.Device) -> Generator[None]:
    """A foreign reset happens at the start of the block and is handled at its end."""
    block = Stop()
    try:
        # The maintenance thread handles foreign resets.
        device._manager.maintenance.submit(InternalCall(block))
        assert block.begun.wait(PATIENCE_SECONDS)
        reset_by_other_code()
        yield
    finally:
        block.go_on.set()


def test_unhandled_foreign_reset_refuses_new_handles(open_device: OpenDevice) -> None:
    device = open_device().result()
    with unhandled(device):
        for new in (device.create_stream(wait=False), open_device(wait=False)):
            with pytest.raises(aioacl.DeviceResetting, match="the device is RESETTING"):
                new.result(timeout=5)
    device.close().result()


def test_unhandled_foreign_reset_is_reported_as_resetting(open_device: OpenDevice) -> None:
    device = open_device().result()
    with unhandled(device):
        assert device.state is device.health.state is aioacl.State.RESETTING
        assert not device.health.ready
    assert until_now(lambda: device.health.ready)
    device.close().result()


def test_unhandled_foreign_reset_ends_the_hold_of_a_lease(open_device: OpenDevice) -> None:
    device = open_device().result()
    with device.lease() as lease:
        generation, before = device.generation, lease.held
        with unhandled(device):
            assert before
            assert device.generation == generation + 1
            assert not lease.held
        assert until_now(lambda: device.health.ready)
        assert not lease.held
    device.close().result()


def test_unhandled_foreign_reset_keeps_the_in_flight_references_of_copies(open_device: OpenDevice) -> None:
    device = open_device().result()
    stream, memory = device.create_stream().result(), device.allocate(64).result()
    pinned = device.pinned(64).result()
    simulator.hold(stream)
    stream.copy(memory, pinned)
    with unhandled(device):
        stream._core.release_done()
        assert stream._core.in_flight
    assert until_now(lambda: device.health.ready)
    stream._core.release_done()
    assert not stream._core.in_flight
    for thing in (stream, memory, pinned, device):
        thing.close().result()
