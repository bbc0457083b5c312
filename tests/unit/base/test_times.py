"""Times: an int, a float, or an object with `__float__` or `__index__`. A bool or a str is refused."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.options import real_of
from aioacl.testing import audit, wait_until_blocking
from tests.kit import no_call

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tests.kit import OpenDevice


class Real:
    """A number that has only `__float__`."""

    def __float__(self) -> float:
        return 0.5

    def __repr__(self) -> str:
        return "Real()"


class Index:
    """A number that has only `__index__`."""

    def __index__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return "Index()"


HALVES: list[Any] = [
    0.5,
    np.float16(0.5),
    np.float32(0.5),
    np.float64(0.5),
    np.array(0.5),
    Fraction(1, 2),
    Decimal("0.5"),
    Real(),
]
LONG: list[Any] = [30, 30.5, np.float32(30), np.int8(30), np.array(30.5), Fraction(61, 2), Decimal("30.5")]
ONES: list[Any] = [1, np.int8(1), np.uint64(1), np.int64(1), np.array(1), Index()]
NOT_TIMES: list[Any] = [
    True,
    np.True_,
    np.array(True),
    "1",
    b"1",
    1j,
    np.complex64(1),
    np.timedelta64(1, "s"),
    [1],
    np.array([1.0]),
    Decimal("sNaN"),
    float("nan"),
    np.float32("nan"),
    -1,
    -(10**400),
    np.int64(-1),
    np.float32(-0.5),
    np.ma.masked,
    np.ma.array(1.0, mask=True),
]


class FloatFails:
    def __float__(self) -> float:
        raise KeyError("its own")


class FloatOverflows:
    def __float__(self) -> float:
        raise OverflowError("its own")


class FloatIsText:
    def __float__(self) -> Any:
        return "x"


class IndexFails:
    def __index__(self) -> int:
        raise OverflowError("its own")


class DtypeFails:
    @property
    def dtype(self) -> Any:
        raise ZeroDivisionError("its own")

    def __float__(self) -> float:
        return 1.0


UNREADABLE: list[tuple[Any, type[Exception]]] = [
    (FloatFails(), KeyError),
    (FloatOverflows(), OverflowError),
    (FloatIsText(), TypeError),
    (IndexFails(), OverflowError),
    (DtypeFails(), ZeroDivisionError),
    (Decimal("sNaN"), ValueError),
]
ZEROS = pytest.mark.parametrize("zero", [np.int64(0), np.float32(0), Fraction(0)], ids=repr)


@pytest.fixture
def device(open_device: OpenDevice) -> Generator[aioacl.Device]:
    with open_device() as opened:
        yield opened


@pytest.fixture
def stream(device: aioacl.Device) -> Generator[aioacl.Stream]:
    with device.create_stream() as made:
        yield made


@pytest.fixture
def memory(device: aioacl.Device) -> Generator[aioacl.DeviceBuffer]:
    with device.allocate(64) as made:
        yield made


@pytest.mark.parametrize(("values", "seconds"), [(HALVES, 0.5), (ONES, 1.0)])
def test_real_of_a_number_of_any_type_is_a_python_float(values: list[Any], seconds: float) -> None:
    for value in values:
        found = real_of(value)
        assert type(found) is float, value
        assert found == seconds, value


@ZEROS
def test_wait_with_a_zero_timeout_of_another_type_times_out(
    device: aioacl.Device, stream: aioacl.Stream, memory: aioacl.DeviceBuffer, zero: Any
) -> None:
    with simulator.held(stream):
        ticket, event = stream.fill(memory, 1), stream.record()
        waits: list[Callable[[], object]] = [
            lambda: stream.result(timeout=zero),
            lambda: stream.synchronize(timeout=zero).result(),
            lambda: stream.synchronize().result(timeout=zero),
            lambda: ticket.result(timeout=zero),
            lambda: event.result(timeout=zero),
            lambda: event.synchronize(timeout=zero).result(),
            lambda: device.synchronize(timeout=zero).result(),
            lambda: stream.renew(timeout=zero).result(),
        ]
        for wait in waits:
            with pytest.raises(aioacl.DeviceTimeout):
                wait()


@pytest.mark.parametrize("value", LONG, ids=repr)
def test_time_of_any_number_type_is_accepted_by_calls_that_make_handles_or_reset(
    open_device: OpenDevice, device: aioacl.Device, value: Any
) -> None:
    with (
        open_device(1, timeout=value),
        device.create_stream(timeout=value),
        device.allocate(8, timeout=value),
        device.pinned(8, timeout=value),
        device.create_event(timeout=value),
        device.lease(timeout=value),
    ):
        assert device.executor.submit(len, "abc").result(timeout=value) == 3
    assert device.force_reset(grace=value).result().ok


@ZEROS
def test_unfinished_job_with_a_zero_timeout_of_another_type_raises_timeout_error(
    device: aioacl.Device, stream: aioacl.Stream, memory: aioacl.DeviceBuffer, zero: Any
) -> None:
    with simulator.held(stream):
        stream.fill(memory, 1)
        job = device.executor.submit(stream.result)
        with pytest.raises(TimeoutError):
            job.result(timeout=zero)
        with pytest.raises(TimeoutError):
            job.exception(timeout=-1)  # every Future accepts a negative timeout
    assert job.result() is None


@pytest.mark.parametrize("value", NOT_TIMES, ids=repr)
def test_value_that_is_not_a_time_is_refused_before_c(
    open_device: OpenDevice, device: aioacl.Device, stream: aioacl.Stream, value: Any
) -> None:
    uses: list[Callable[[], object]] = [
        lambda: open_device(1, timeout=value).result(),
        lambda: device.create_stream(timeout=value).result(),
        lambda: device.lease(timeout=value).__enter__(),
        lambda: device.force_reset(grace=value),
        lambda: device.force_reset(timeout=value),
        lambda: stream.synchronize(timeout=value).result(),
        lambda: stream.result(timeout=value),
        lambda: stream.renew(timeout=value).result(),
        lambda: simulator.fault("copy", latency=value),
        lambda: simulator.fault("copy", p=value, rc=1),
        lambda: simulator.advance_clock(value),
        lambda: wait_until_blocking(lambda: True, value),
        lambda: audit(patience=value).__enter__(),
    ]
    with no_call():
        for use in uses:
            with pytest.raises(aioacl.ParameterError, match=r"got|not from 0|cannot be moved"):
                use()


@pytest.mark.parametrize(("value", "kind"), UNREADABLE, ids=lambda value: type(value).__name__)
def test_time_whose_own_methods_raise_is_refused_with_that_error_as_the_cause(
    device: aioacl.Device, stream: aioacl.Stream, value: Any, kind: type[Exception]
) -> None:
    uses: list[Callable[[], object]] = [
        lambda: stream.result(timeout=value),
        lambda: device.force_reset(timeout=value),
        lambda: device.lease(timeout=value).__enter__(),
    ]
    for use in uses:
        with (
            no_call(),
            pytest.raises(aioacl.ParameterError, match="expected a number, got an object of") as caught,
        ):
            use()
        assert isinstance(caught.value.__cause__, kind)


def test_fault_rule_with_a_time_of_another_type_equals_that_of_the_float() -> None:
    for value in (np.float32(0.5), np.float64(0.5), Fraction(1, 2)):
        assert simulator.fault("copy", latency=value).rule == simulator.fault("copy", latency=0.5).rule
    assert simulator.fault("copy", latency=np.int64(2)).rule == simulator.fault("copy", latency=2).rule


def test_virtual_clock_advances_by_a_time_of_numpy() -> None:
    simulator.set_virtual_clock(True)
    try:
        before = simulator.clock()
        simulator.advance_clock(np.float32(0.5))
        assert simulator.clock() == before + 0.5
    finally:
        simulator.set_virtual_clock(False)
