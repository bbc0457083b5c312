"""`doctor --timing`: the rows of its steps, failures as rows, what waits do, and the strategy that suits."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

import pytest

from aioacl import simulator
from aioacl._cli import _doctor_bench as bench
from aioacl._cli import _doctor_timing as timing
from aioacl._cli._doctor_rows import (
    EMPTY,
    QUERY_EVENT,
    QUERY_STREAM,
    RECORD,
    WAIT_EVENT,
    WAIT_STREAM,
    WAKE_THREAD,
    WAKE_WATCH,
    Row,
    Wait,
    behaviour_of,
    make_rows,
)
from aioacl._cli._doctor_timing import measure
from aioacl._cli._doctor_waits import advise
from aioacl.testing._snapshot import open_devices
from tests.kit import FAULT, until_now

if TYPE_CHECKING:
    from collections.abc import Iterable

SLEEPING, SPINNING = Wait(1.0, 1), Wait(99.0, 0)
UNCLEAR = [Wait(9.5, 1), Wait(17.9, 0), Wait(22.0, 40)]  # seen on CANN's own runtime, on a busy machine


def by_step(rows: Iterable[Row]) -> dict[str, Row]:
    return {row.step: row for row in rows}


def errors(rows: Iterable[Row]) -> dict[str, str]:
    return {row.step: row.error for row in rows if row.error is not None}


def test_every_step_has_a_median_or_an_error_and_the_device_is_closed() -> None:
    rows = measure(0).rows
    assert [row.step for row in rows] == [row.step for row in make_rows()]
    # On a busy machine, the thread that sees the completion may always be later than the task.
    assert set(errors(rows)) <= {WAKE_WATCH, WAKE_THREAD}
    for row in rows:
        assert (row.median is None) == (row.error is not None) == (row.samples == 0)
        assert row.behaviour is None or row.step in (WAIT_STREAM, WAIT_EVENT)
    assert not open_devices()
    assert simulator.calls("aclrtSetDevice") == simulator.calls("aclrtResetDevice") == 2


@pytest.mark.thorough
def test_failure_of_one_call_is_the_error_of_its_row() -> None:
    simulator.fail_call("aclrtSynchronizeEventWithTimeout", FAULT)
    found = errors(measure(0).rows)
    assert found[WAIT_EVENT] == f"aclrtSynchronizeEventWithTimeout returned {FAULT} ACL_ERROR_RT_SYS_DMA"
    assert {QUERY_EVENT, QUERY_STREAM, RECORD, WAIT_STREAM}.isdisjoint(found)


@pytest.mark.thorough
def test_failed_preparation_is_the_error_of_the_steps_of_its_strategy_only() -> None:
    simulator.fail_call("aclrtMalloc", 207001)
    found = errors(measure(0).rows)
    assert found[QUERY_EVENT].startswith("the preparation of the work: aclrtMalloc returned 207001")
    assert found[WAIT_EVENT] == found[QUERY_EVENT]
    assert "aclrtMalloc" not in found.get(WAKE_THREAD, "")


def test_await_that_does_not_end_in_time_is_the_error_of_its_row_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench, "AWAIT_SECONDS", 0)
    found = errors(measure(0).rows)
    assert {found[step] for step in (EMPTY, WAKE_WATCH, WAKE_THREAD)} == {"an await did not end within 0 s"}


@pytest.mark.thorough
def test_call_that_does_not_return_ends_the_measurement_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timing, "TOTAL_SECONDS", 4.0)
    monkeypatch.setattr(timing, "CLOSE_SECONDS", 0.1)
    simulator.hang_call("aclrtSynchronizeStreamWithTimeout")
    run = measure(0)
    assert simulator.hung("aclrtSynchronizeStreamWithTimeout") == 1
    assert set(errors(run.rows).values()) == {"the preparation of the work: did not return within 4 s"}
    assert run.unclosed.startswith("device 0 is open until the command ends, because a call did not return: ")
    simulator.release_all()
    assert until_now(lambda: all(thread.name != "aioacl-timing" for thread in threading.enumerate()))
    assert not open_devices()
    assert simulator.calls("aclrtSetDevice") == 1, "expected no open after the end of the measurement"


@pytest.mark.parametrize(
    ("waits", "behaviour"),
    [
        ([SLEEPING] * 3, "sleeps"),
        ([SPINNING] * 3, "spins"),
        ([Wait(0.5, 0)] * 3, "spins"),  # it yields to other threads
        ([Wait(99.0, 30)] * 3, "spins"),  # it sleeps between long spins
        ([SLEEPING, SLEEPING, Wait(60.0, 1)], "sleeps"),  # one wait was disturbed
        ([Wait(20.0, 30)] * 3, None),
        ([SLEEPING, SLEEPING, SPINNING], None),
        ([SLEEPING, SPINNING, SPINNING], None),
        (UNCLEAR, None),
    ],
)
def test_behaviour_of_waits_is_given_only_if_it_is_clear(waits: list[Wait], behaviour: str | None) -> None:
    assert behaviour_of(waits) == behaviour


def test_row_has_the_median_the_range_and_the_number_of_its_samples() -> None:
    row = Row("step", "what", "us")
    row.fill([3.0, 1.0, 200.0])
    assert (row.median, row.low, row.high, row.samples, row.error) == (3.0, 1.0, 200.0, 3, None)


def test_row_without_samples_has_an_error() -> None:
    row = Row("step", "what", "us")
    row.fill([])
    assert (row.median, row.low, row.high, row.samples) == (None, None, None, 0)
    assert row.error is not None
    assert row.error.startswith("no sample within")


def rows_with(wait: Wait | None, watch: float | None, thread: float | None) -> list[Row]:
    """Rows as after a measurement, with these figures."""
    rows = by_step(make_rows())
    rows[QUERY_EVENT].fill([1.25])
    rows[WAIT_EVENT].fill([wait] if wait else [])
    rows[WAKE_WATCH].fill([watch] if watch else [])
    rows[WAKE_THREAD].fill([thread] if thread else [])
    return list(rows.values())


def test_waits_that_are_not_clear_suit_the_default_and_give_the_range() -> None:
    rows = rows_with(None, 100.0, 10.0)
    by_step(rows)[WAIT_EVENT].fill(UNCLEAR)
    chosen, because = advise(rows)
    assert chosen == "watch"
    assert because.startswith("it is the default, and it is not clear whether a wait in ")
    assert "17.9 % of it on the processor, from 9.5 to 22.0 %" in because


def test_wait_that_spins_and_yields_is_reported_never_to_sleep() -> None:
    _, because = advise(rows_with(Wait(0.5, 0), 100.0, 10.0))
    assert "0.5 % of it on the processor, from 0.5 to 0.5 %, and it never sleeps" in because


@pytest.mark.parametrize(
    ("wait", "watch", "thread", "suits", "reason"),
    [
        (SPINNING, 100.0, 10.0, "watch", r"spins \(99\.0 % of it on the processor.*one query takes 1\.2 us"),
        (SPINNING, None, None, "watch", r"spins"),
        (
            SLEEPING,
            100.0,
            10.0,
            "thread",
            r'10\.0 us after .* "thread", and 100\.0 us with "watch"\. Each unfinished',
        ),
        (
            SLEEPING,
            100.0,
            90.0,
            "watch",
            r'90\.0 us after .* "thread", and 100\.0 us with "watch"\. .* only if .* 20 % sooner',
        ),
        (SLEEPING, None, 10.0, "watch", r'there is no figure for "wake-up, watch"'),
        (SLEEPING, 10.0, None, "watch", r'there is no figure for "wake-up, thread"'),
        (None, 100.0, 10.0, "watch", r'there is no figure for "wait for an event"'),
    ],
)
def test_strategy_that_suits_follows_from_the_figures_and_names_them(
    wait: Wait | None, watch: float | None, thread: float | None, suits: str, reason: str
) -> None:
    chosen, because = advise(rows_with(wait, watch, thread))
    assert chosen == suits
    assert re.search(reason, because)
