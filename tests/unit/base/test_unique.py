"""Objects that refer to a device can be neither copied nor pickled."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import TYPE_CHECKING

import pytest

from aioacl import State, simulator
from tests.kit import until_now

if TYPE_CHECKING:
    from collections.abc import Callable

    import aioacl

WAYS = pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
ON_A_DEVICE: dict[str, Callable[[aioacl.Device], object]] = {
    "device": lambda device: device,
    "executor": lambda device: device.executor,
    "events": lambda device: device.events(),
    "lease": lambda device: device.lease(),
    "shared lease": lambda device: device.lease().share(),
}


@WAYS
@pytest.mark.parametrize("what", ON_A_DEVICE)
def test_object_of_a_device_that_is_copied_raises_type_error(
    device: aioacl.Device, what: str, copied: Callable[[object], object]
) -> None:
    thing = ON_A_DEVICE[what](device)
    with pytest.raises(TypeError, match="cannot be copied or pickled, because it refers to a device"):
        copied(thing)


def test_device_whose_copy_was_refused_stays_open(device: aioacl.Device) -> None:
    with pytest.raises(TypeError):
        copy.copy(device)
    gc.collect()
    assert device.state is State.OPEN
    assert not until_now(lambda: simulator.calls("aclrtResetDevice"), 0.01)


@WAYS
def test_ticket_and_operations_that_are_copied_raise_type_error(
    device: aioacl.Device, copied: Callable[[object], object]
) -> None:
    operation, opening = device.memory_info(), device.create_stream()
    for one in (operation, opening):
        with pytest.raises(TypeError, match="operation cannot be copied"):
            copied(one)
    operation.result()
    stream, memory = opening.result(), device.allocate(64).result()
    ticket = stream.fill(memory, 1)
    with pytest.raises(TypeError, match="ticket cannot be copied"):
        copied(ticket)
    ticket.result()
    stream.close().result()
    memory.close().result()
