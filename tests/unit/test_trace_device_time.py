"""`aioacl.trace(device_time=True)`: the fit of the device's clock, and its stated error, on the simulator's clocks.

The simulator's clock is CLOCK_MONOTONIC plus the time that a virtual clock was advanced. So the true times are known.
"""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest

import aioacl
from aioacl import _digits, simulator
from aioacl._base import flight
from aioacl._base.ffi import lib
from aioacl._trace.device_time import Fit, Span, Spans
from tests.kit import Waiting, equipped, failing_fill, held_fill, raises, until
from tests.unit.test_trace import COUNTER, Decoded

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tests.kit import OpenDevice
    from tests.unit.test_trace import Event

anyio_test = pytest.mark.anyio
AHEAD_SECONDS: Final = 5000.0
ERROR: Final = "error in ns"


@contextmanager
def virtual_clock() -> Generator[None]:
    simulator.set_virtual_clock(True)
    try:
        yield
    finally:
        simulator.set_virtual_clock(False)


def device_slices(found: Decoded) -> list[tuple[Event, Event]]:
    return [pair for pair in found.slices() if found.tracks[pair[0].track].name.endswith("on the device")]


# --- the fit --------------------------------------------------------------------------------------------------------


def made_spans(
    chance: random.Random, offset: float, drift: float, count: int
) -> list[tuple[Span, float, float]]:
    """Returns spans with the true times of their begins and ends, for a clock with that offset and drift."""
    found: list[tuple[Span, float, float]] = []
    at = 1e12
    for number in range(count):
        at += chance.expovariate(1e-6)
        begun = at + chance.expovariate(1e-4)
        ended = begun + chance.expovariate(1e-5)
        stamps = [int((true - offset) * (1 + drift) // 1000) * 1000 for true in (begun, ended)]
        seen = ended + chance.expovariate(1e-5)
        found.append((Span(0, 1, number, 0, int(at), int(seen) + 1, *stamps), begun, ended))
        at = ended
    return found


@pytest.mark.parametrize("seed", range(40))
def test_times_of_the_fit_are_within_the_stated_error(seed: int) -> None:
    chance = random.Random(seed)
    offset, drift = chance.uniform(-1e12, 1e12), chance.uniform(-9e-4, 9e-4)
    made = made_spans(chance, offset, drift, chance.choice([1, 2, 3, 20, 300]))
    fit = Fit([span for span, _, _ in made])
    assert fit.linear
    for span, begun, ended in made:
        assert abs(fit.host_ns(span.began_ns) - begun) <= fit.error_ns(span.began_ns)
        assert abs(fit.host_ns(span.ended_ns) - ended) <= fit.error_ns(span.ended_ns)


def test_more_spans_make_the_error_smaller() -> None:
    made = made_spans(random.Random(1), 1e9, 1e-4, 400)
    few, many = Fit([span for span, _, _ in made[:4]]), Fit([span for span, _, _ in made])
    assert max(many.errors[1:-1]) < max(few.errors)


def test_clock_that_was_set_has_the_error_that_each_span_permits() -> None:
    made = made_spans(random.Random(2), 0, 0, 40)
    later = [
        span._replace(began_ns=span.began_ns + 10**9, ended_ns=span.ended_ns + 10**9)
        for span, _, _ in made[20:]
    ]
    fit = Fit([*(span for span, _, _ in made[:20]), *later])
    assert not fit.linear
    for span, (_, begun, ended) in zip([*(it[0] for it in made[:20]), *later], made, strict=True):
        assert abs(fit.host_ns(span.began_ns) - begun) <= fit.error_ns(span.began_ns)
        assert abs(fit.host_ns(span.ended_ns) - ended) <= fit.error_ns(span.ended_ns)


# --- on the simulator -----------------------------------------------------------------------------------------------


@anyio_test
async def test_device_times_of_a_clock_that_is_ahead_are_within_the_stated_error(
    open_device: OpenDevice, tmp_path: Path
) -> None:
    path = tmp_path / "run.pftrace"
    with virtual_clock():
        simulator.advance_clock(AHEAD_SECONDS)
    async with equipped(open_device) as (_, stream, memory):
        brackets: list[tuple[int, int]] = []
        async with aioacl.trace(path, device_time=True):
            for _ in range(30):
                before = time.monotonic_ns()
                await stream.fill(memory, 1)
                brackets.append((before, time.monotonic_ns()))
    found = device_slices(Decoded(path.read_bytes()))
    assert len(found) == len(brackets)
    for (begin, end), (before, after) in zip(
        sorted(found, key=lambda pair: pair[0].at), brackets, strict=True
    ):
        error = end.values[ERROR]
        assert begin.name == "aclrtMemsetAsync"
        assert before - error <= begin.at <= end.at <= after + error


@anyio_test
async def test_device_times_on_the_virtual_clock_are_within_the_stated_error(
    open_device: OpenDevice, tmp_path: Path
) -> None:
    """The clock stands still while the work waits, and then jumps. So no line fits, and the error says it."""
    path = tmp_path / "run.pftrace"
    brackets: list[tuple[int, int]] = []
    with virtual_clock():
        async with equipped(open_device) as (_, stream, memory), aioacl.trace(path, device_time=True):
            for _ in range(5):
                before = time.monotonic_ns()
                async with anyio.create_task_group() as group:
                    ticket = held_fill(stream, memory)
                    waiting = Waiting(group, lambda ticket=ticket: ticket)  # type: ignore[misc]  # the default's type
                    simulator.advance_clock(0.25)
                    simulator.release(stream)
                    await waiting.outcome()
                brackets.append((before, time.monotonic_ns()))
    decoded = Decoded(path.read_bytes())
    found = sorted(device_slices(decoded), key=lambda pair: pair[0].at)
    assert len(found) == len(brackets)
    for (begin, end), (before, after) in zip(found, brackets, strict=True):
        error = end.values[ERROR]
        assert before - error <= begin.at <= after + error
        assert before - error <= end.at <= after + error


@anyio_test
async def test_fit_on_the_simulator_finds_the_time_that_its_clock_is_ahead(open_device: OpenDevice) -> None:
    with virtual_clock():
        simulator.advance_clock(AHEAD_SECONDS)
    spans, ahead_ns, slack_ns = Spans(), *measured_ahead()
    assert ahead_ns > AHEAD_SECONDS * 1e9
    assert lib.aio_spans_start()
    try:
        async with equipped(open_device) as (_, stream, memory):
            for _ in range(20):
                await stream.fill(memory, 1)
            spans.look([0])
    finally:
        lib.aio_spans_stop()
    fit = Fit(spans.found)
    assert len(spans.found) == 20
    assert fit.linear
    for span in spans.found:
        for stamp in (span.began_ns, span.ended_ns):
            assert abs(fit.host_ns(stamp) - (stamp - ahead_ns)) <= fit.error_ns(stamp) + slack_ns


def measured_ahead() -> tuple[int, int]:
    """Returns how far the simulator's clock is ahead of CLOCK_MONOTONIC, in ns, and the error of that number."""
    before = time.monotonic_ns()
    clock = round(simulator.clock() * 1e9)
    after = time.monotonic_ns()
    return clock - before, after - before + 2000  # the clock is a float in seconds


@anyio_test
async def test_call_of_a_model_has_its_copies_and_its_execution_on_the_device(
    open_device: OpenDevice, tmp_path: Path
) -> None:
    path = tmp_path / "run.pftrace"
    x = _digits.inputs(_digits.digits().images[0])
    async with (
        open_device() as device,
        device.load_model(_digits.MODEL) as model,
        aioacl.trace(path, device_time=True),
    ):
        await model(x)
    names = sorted(begin.name for begin, _ in device_slices(Decoded(path.read_bytes())))
    assert names.count("aclmdlExecuteAsync") == 1
    assert set(names) == {"aclmdlExecuteAsync", "aclrtMemcpyAsync"}


@anyio_test
async def test_arrows_lead_from_the_enqueue_over_the_device_to_the_end(
    open_device: OpenDevice, tmp_path: Path
) -> None:
    path = tmp_path / "run.pftrace"
    async with equipped(open_device) as (_, stream, memory), aioacl.trace(path, device_time=True):
        ticket = held_fill(stream, memory)
        async with anyio.create_task_group() as group:
            waiting = Waiting(group, lambda: ticket)
            await until(lambda: any(each.kind == "wait begins" for each in flight.recent(0, 5)))
            simulator.release(stream)
            await waiting.outcome()
    found = Decoded(path.read_bytes())
    [enqueued] = [event for event in found.events if event.name == "aclrtMemsetAsync" and event.type != 1]
    [flow] = enqueued.flows
    chain = [found.tracks[event.track].name for event in found.events if flow in event.flows]
    assert any(name.endswith("on the device") for name in chain)
    assert len(chain) == 5
    errors = [event for event in found.events if event.type == COUNTER]
    assert any("error of the device times" in found.tracks[event.track].name for event in errors)


@anyio_test
async def test_trace_without_device_time_records_no_further_events(
    open_device: OpenDevice, tmp_path: Path
) -> None:
    async with equipped(open_device) as (_, stream, memory):
        counts: list[int] = []
        for device_time in (False, True, False):
            async with aioacl.trace(tmp_path / "run.pftrace", device_time=device_time):
                before = simulator.calls("aclrtRecordEvent")
                await stream.fill(memory, 1)
                await stream.synchronize()
                counts.append(simulator.calls("aclrtRecordEvent") - before)
    assert counts[1] >= 2 > max(counts[0], counts[2])  # an await may record one


@anyio_test
async def test_failed_task_and_reset_leave_a_valid_trace_with_device_times(
    open_device: OpenDevice, tmp_path: Path
) -> None:
    path = tmp_path / "run.pftrace"
    async with equipped(open_device) as (device, stream, memory), aioacl.trace(path, device_time=True):
        await stream.fill(memory, 1)
        error = await raises(aioacl.DeviceFault, failing_fill(stream, memory))
        assert error.code
        await device.force_reset(grace=0)
        async with device.create_stream() as later, device.allocate(64) as more:
            await later.fill(more, 1)
    found = Decoded(path.read_bytes())
    assert not [begin for begin, end in found.named("await") if "unfinished" in end.values]
    assert len(device_slices(found)) >= 1  # those of the ended generation may be missing


@anyio_test
async def test_full_queue_refuses_as_without_device_times(open_device: OpenDevice, tmp_path: Path) -> None:
    path = tmp_path / "run.pftrace"
    async with equipped(open_device) as (_, stream, memory), aioacl.trace(path, device_time=True):
        tickets = [held_fill(stream, memory)]
        with pytest.raises(aioacl.QueueFull):
            tickets += iter(lambda: stream.fill(memory, 1), None)  # without an end
        simulator.release(stream)
        await tickets[-1]
    assert device_slices(Decoded(path.read_bytes()))


@anyio_test
async def test_second_trace_with_device_time_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with aioacl.trace(first, device_time=True):
        with pytest.raises(RuntimeError, match="another trace has device_time=True; end it first"):
            async with aioacl.trace(second, device_time=True):
                pytest.fail("the block began")
        async with aioacl.trace(second):
            pass
    with pytest.raises(FileNotFoundError):
        async with aioacl.trace(tmp_path / "absent" / "run", device_time=True):
            pytest.fail("the block began")
    async with aioacl.trace(second, device_time=True):
        pass


def test_device_time_must_be_a_bool() -> None:
    wrong: Any = "yes"
    with pytest.raises(aioacl.ParameterError, match="device_time must be a bool, got 'yes'"):
        aioacl.trace("run.pftrace", device_time=wrong)
