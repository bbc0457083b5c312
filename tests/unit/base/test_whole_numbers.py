"""Sizes, counts and ids: an int, or an object with `__index__`, such as numpy's integers. A bool is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import aioacl
from aioacl import lowlevel, simulator
from aioacl._base.ffi import pointer
from aioacl._base.options import whole_of
from aioacl.testing import recover_device
from tests.kit import no_call

if TYPE_CHECKING:
    from collections.abc import Callable


class Index:
    """A number that has only `__index__`."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value

    def __repr__(self) -> str:
        return f"Index({self._value})"


KINDS: dict[str, Callable[[int], Any]] = {"numpy": np.int64, "__index__": Index}
of_each_kind = pytest.mark.parametrize("number", KINDS.values(), ids=KINDS)


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        (7, 7),
        (np.uint8(7), 7),
        (np.int64(-7), -7),
        (np.array(7), 7),
        (Index(7), 7),
        (True, None),
        (np.True_, None),
        (7.0, None),
        (np.float64(7), None),
        ("7", None),
        (b"7", None),
        (None, None),
        (np.array([7, 8]), None),
        (np.ma.array(7, mask=True), None),
        (np.ma.array(7), 7),
    ],
    ids=lambda value: f"{type(value).__name__} {value!r}",
)
def test_whole_of_a_value_is_a_python_int_or_none(value: object, meant: int | None) -> None:
    assert (whole_of(value), type(whole_of(value))) == (meant, type(meant))


class IndexFails:
    def __index__(self) -> int:
        raise KeyError("its own")


def test_size_whose_own_index_raises_is_refused_with_that_error_as_the_cause(device: aioacl.Device) -> None:
    with no_call(), pytest.raises(aioacl.ParameterError) as caught:
        device.allocate(IndexFails())
    assert isinstance(caught.value.__cause__, KeyError)
    assert str(caught.value) == (
        "expected a number, got an object of IndexFails whose value cannot be read: KeyError('its own'). Pass an int, "
        "or a float where one is allowed."
    )


@of_each_kind
def test_handles_made_with_integers_of_other_types_report_python_ints(number: Callable[[int], Any]) -> None:
    device = aioacl.open_device(number(1)).result()
    stream = device.create_stream(priority=number(7)).result()
    buffers: list[Any] = [device.allocate(number(64)).result(), device.pinned(number(32)).result()]
    assert (device.index, type(device.index)) == (1, int)
    assert [(buffer.size, type(buffer.nbytes)) for buffer in buffers] == [(64, int), (32, int)]
    for buffer in buffers:
        buffer.close().result()
    stream.close().result()
    device.close().result()


@of_each_kind
def test_copies_and_fills_with_integers_of_other_types_move_that_many_bytes(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer, number: Callable[[int], Any]
) -> None:
    stream.fill(memory, 0).result()
    stream.fill(memory, number(7), nbytes=number(4)).result()
    stream.copy(memory, b"abcd", nbytes=number(2)).result()
    stream.upload(memory, b"AB", nbytes=number(1)).result()
    back = bytearray(8)
    stream.download(back, memory, nbytes=number(6)).result()
    assert back == b"Ab\7\7\0\0\0\0"


@of_each_kind
def test_abortable_accepts_a_handle_as_an_integer_of_another_type(
    device: aioacl.Device, number: Callable[[int], Any]
) -> None:
    def job() -> list[int]:
        with device.abortable(number(0x1000)), device._manager.jobs.named.in_use() as named:
            return named

    assert device.run(job).result() == [0x1000]


@of_each_kind
def test_lowlevel_and_recover_device_accept_a_device_of_another_integer_type(
    number: Callable[[int], Any],
) -> None:
    lowlevel.set_device(number(1))
    assert simulator.retain_count(number(1)) == 1
    lowlevel.reset_device(number(1))
    assert simulator.resets(number(1)) > 0
    assert recover_device(number(1)) == ""


@of_each_kind
def test_controls_of_the_simulator_accept_integers_of_other_types(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer, number: Callable[[int], Any]
) -> None:
    simulator.fail_call("aclrtMemsetAsync", number(107000), number(1))
    with pytest.raises(aioacl.ParameterError):
        stream.fill(memory, 1)
    simulator.set_next_task(stream, number(41))
    simulator.wake(number(0))
    assert simulator.wakes(number(0)) > 0
    simulator.fail_next(stream, number(507015))
    with pytest.raises(aioacl.DeviceFault):
        stream.fill(memory, 1).result()
    simulator.set_seed(number(0))


@of_each_kind
def test_raw_handle_as_an_integer_of_another_type_means_that_stream(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer, number: Callable[[int], Any]
) -> None:
    handle = number(pointer(stream._core.native))
    with simulator.held(handle):
        stream.fill(memory, 1)
        assert simulator.pending(handle) == simulator.pending(stream) == 1
    rules = [simulator.fault("copy", stream=given, rc=1).rule for given in (handle, stream)]
    assert rules[0] == rules[1]


@of_each_kind
def test_fault_rule_with_integers_of_other_types_equals_that_of_the_ints(
    number: Callable[[int], Any],
) -> None:
    options: dict[str, Any] = {
        "device": 1,
        "stream": 4096,
        "size_min": 2,
        "nth": 3,
        "times": -1,
        "rc": 507015,
    }
    given: dict[str, Any] = {name: number(value) for name, value in options.items()}
    assert simulator.fault("copy", **given).rule == simulator.fault("copy", **options).rule


@pytest.mark.parametrize("value", [True, np.True_, 1.0, "1", None], ids=repr)
def test_value_that_is_not_an_integer_is_refused_before_c(
    device: aioacl.Device, stream: aioacl.Stream, memory: aioacl.DeviceBuffer, value: Any
) -> None:
    uses: list[Callable[[], object]] = [
        lambda: aioacl.open_device(value),
        lambda: device.create_stream(priority=value),
        lambda: device.allocate(value),
        lambda: device.pinned(value),
        lambda: stream.fill(memory, value),
        lambda: lowlevel.set_device(value),
        lambda: simulator.fail_call("aclrtMalloc", value),
        lambda: simulator.retain_count(value),
        lambda: simulator.set_next_task(stream, value),
        lambda: simulator.fault("copy", nth=value, rc=1),
        lambda: simulator.fault("copy", stream=value, rc=1),
        lambda: simulator.hold(value),
    ]
    if value is not None:
        uses.append(lambda: stream.copy(memory, b"a", nbytes=value))
        uses.append(lambda: stream.upload(memory, b"a", nbytes=value).result())
        uses.append(lambda: stream.download(bytearray(1), memory, nbytes=value).result())
    with no_call():
        for use in uses:
            with pytest.raises(aioacl.ParameterError):
                use()
