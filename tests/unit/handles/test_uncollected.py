"""The AclWarning for an uncollected failure: the line that it refers to, and which hook receives it as an error."""

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
from tests.kit import failing_fill, until_now

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tests.kit import OpenDevice


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The errors that the hooks of threads and finalizers have received, each with the name of the hook."""
    found: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: found.append(("thread", args.exc_value)))
    monkeypatch.setattr(sys, "unraisablehook", lambda args: found.append(("unraisable", args.exc_value)))
    return found


@pytest.fixture
def errors() -> Generator[None]:
    """Turns AclWarnings into errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", aioacl.AclWarning)
        yield


def failed(device: aioacl.Device, memory: aioacl.DeviceBuffer) -> aioacl.Stream:
    stream = device.create_stream().result()  # the line
    failing_fill(stream, memory)
    assert until_now(lambda: lib.aio_device_busy(device.index) == 0)
    return stream


def drop(device: aioacl.Device, memory: aioacl.DeviceBuffer) -> None:
    failed(device, memory)


def close_before_it_fails(device: aioacl.Device, memory: aioacl.DeviceBuffer) -> None:
    with device.create_stream() as stream:  # the line
        simulator.hold(stream)
        failing_fill(stream, memory)
    simulator.release(stream)


def close_after_a_renewal(device: aioacl.Device, memory: aioacl.DeviceBuffer) -> None:
    stream = device.create_stream().result()  # the line
    stream.renew().result()
    simulator.hold(stream)
    failing_fill(stream, memory)
    stream.close().result()
    simulator.release(stream)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("leave", [drop, close_before_it_fails, close_after_a_renewal])
def test_failure_found_after_the_close_of_its_stream_warns_at_the_line_that_created_the_stream(
    device: aioacl.Device, memory: aioacl.DeviceBuffer, leave: Callable[..., None]
) -> None:
    with warnings.catch_warnings(record=True, action="always", category=aioacl.AclWarning) as warned:
        leave(device, memory)
        assert until_now(lambda: warned)
    (warning,) = (one for one in warned if one.category is aioacl.AclWarning)
    assert "its stream was closed" in str(warning.message)
    assert warning.filename == __file__
    assert "# the line" in linecache.getline(warning.filename, warning.lineno)


def test_failure_found_at_the_close_of_the_device_warns_at_the_line_that_created_the_stream(
    open_device: OpenDevice,
) -> None:
    device = open_device().result()
    memory = device.allocate(64).result()
    stream = failed(device, memory)
    with pytest.warns(aioacl.AclWarning, match="its device was closed") as warned:
        device.close().result()
    (warning,) = (one for one in warned if one.category is aioacl.AclWarning)
    assert warning.filename == __file__
    assert "# the line" in linecache.getline(warning.filename, warning.lineno)
    assert stream.stale


@pytest.mark.usefixtures("errors")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_warning_as_error_on_the_maintenance_thread_goes_to_the_unraisable_hook(
    device: aioacl.Device, memory: aioacl.DeviceBuffer, heard: list[Any]
) -> None:
    before = len(manager_of(0).streams.members())
    drop(device, memory)
    assert until_now(lambda: heard)
    ((where, error),) = heard
    assert where == "unraisable"
    assert isinstance(error, aioacl.AclWarning)
    assert len(manager_of(0).streams.members()) == before  # the stream is destroyed and no longer listed
    with device.create_stream() as stream:
        stream.fill(memory, 1).result()


@pytest.mark.usefixtures("errors")
def test_close_of_a_device_with_two_warnings_as_errors_raises_one_and_reports_the_other(
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
