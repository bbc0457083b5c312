"""The AclWarning for a failure that nothing has collected: where it is located, and where it goes as an error."""

from __future__ import annotations

import linecache
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib
from aioacl._lifecycle.manager import manager_of
from tests.kit import TASK_FAULT, until_now

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tests.kit import OpenDevice


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What has come to one of the hooks for errors that no call raises."""
    found: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda told: found.append(("thread", told.exc_value)))
    monkeypatch.setattr(sys, "unraisablehook", lambda told: found.append(("unraisable", told.exc_value)))
    return found


@pytest.fixture
def errors() -> Generator[None]:
    """AclWarnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", aioacl.AclWarning)
        yield


def failed(device: aioacl.Device, memory: aioacl.DeviceBuffer) -> aioacl.Stream:
    stream = device.create_stream().result()  # the line
    simulator.fail_next(stream, TASK_FAULT)
    stream.fill(memory, 1)
    assert until_now(lambda: lib.aio_device_busy(device.index) == 0)
    return stream


def drop(device: aioacl.Device, memory: aioacl.DeviceBuffer) -> None:
    failed(device, memory)


def close_before_it_fails(device: aioacl.Device, memory: aioacl.DeviceBuffer) -> None:
    with device.create_stream() as stream:  # the line
        simulator.hold(stream)
        simulator.fail_next(stream, TASK_FAULT)
        stream.fill(memory, 1)
    simulator.release(stream)


def close_after_a_renewal(device: aioacl.Device, memory: aioacl.DeviceBuffer) -> None:
    stream = device.create_stream().result()  # the line
    stream.renew().result()
    simulator.hold(stream)
    simulator.fail_next(stream, TASK_FAULT)
    stream.fill(memory, 1)
    stream.close().result()
    simulator.release(stream)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("leave", [drop, close_before_it_fails, close_after_a_renewal])
def test_failure_found_behind_the_close_of_its_stream_warns_at_the_line_that_made_it(
    device: aioacl.Device, memory: aioacl.DeviceBuffer, leave: Callable[..., None]
) -> None:
    with warnings.catch_warnings(record=True, action="always", category=aioacl.AclWarning) as warned:
        leave(device, memory)
        assert until_now(lambda: warned)
    (told,) = (one for one in warned if one.category is aioacl.AclWarning)
    assert "its stream was closed" in str(told.message)
    assert told.filename == __file__
    assert "# the line" in linecache.getline(told.filename, told.lineno)


def test_failure_of_a_stream_left_to_the_close_of_the_device_warns_at_the_line_that_made_it(
    open_device: OpenDevice,
) -> None:
    device = open_device().result()
    memory = device.allocate(64).result()
    stream = failed(device, memory)
    with pytest.warns(aioacl.AclWarning, match="its device was closed") as warned:
        device.close().result()
    (told,) = (one for one in warned if one.category is aioacl.AclWarning)
    assert told.filename == __file__
    assert "# the line" in linecache.getline(told.filename, told.lineno)
    assert stream.stale


@pytest.mark.usefixtures("errors")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_warning_of_the_maintenance_thread_that_is_an_error_goes_to_the_unraisable_hook(
    device: aioacl.Device, memory: aioacl.DeviceBuffer, heard: list[Any]
) -> None:
    before = len(manager_of(0).streams.members())
    drop(device, memory)
    assert until_now(lambda: heard)
    ((where, error),) = heard
    assert where == "unraisable"
    assert isinstance(error, aioacl.AclWarning)
    assert len(manager_of(0).streams.members()) == before  # it is destroyed, and forgotten
    with device.create_stream() as stream:
        stream.fill(memory, 1).result()


@pytest.mark.usefixtures("errors")
def test_close_of_a_device_whose_warnings_are_errors_raises_one_and_loses_none(
    open_device: OpenDevice, heard: list[Any]
) -> None:
    device = open_device().result()
    memory = device.allocate(64).result()
    kept = [failed(device, memory) for _ in range(2)]
    with pytest.raises(aioacl.AclWarning, match="its device was closed"):
        device.close().result()
    assert [(where, type(error)) for where, error in heard] == [("unraisable", aioacl.AclWarning)]
    assert device.state is aioacl.State.CLOSED
    assert all(stream.stale for stream in kept)
