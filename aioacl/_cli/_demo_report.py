"""The report at the end of the demo, or of one of its parts: a summary of some rows, or one JSON object."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from aioacl._cli._demo_digits import SLOTS
from aioacl._cli._demo_lag import RUNS, TICK_SECONDS
from aioacl._cli._library import described
from aioacl._cli._screen import BOLD, GREEN, RED, Screen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioacl._cli._demo_digits import Inference, Rates, Times
    from aioacl._cli._demo_job import Tally
    from aioacl._cli._demo_lag import Comparison
    from aioacl._library.load import LibraryInfo


@dataclass(frozen=True, slots=True)
class Outcome:
    """All results of the demo."""

    library: LibraryInfo
    source: str
    tasks: int
    streams: int
    generation: int
    tally: Tally
    lag: Comparison | None  # None if the job failed
    seconds: float  # from opening the device to closing it, including the measurement of the lag
    inference: Inference | None
    skipped: str | None  # why `inference` is None

    @property
    def mismatches(self) -> int:
        """The number of files that came back changed, in the job and in the comparison after the job."""
        return self.tally.mismatches + (self.lag.mismatches if self.lag else 0)

    @property
    def well(self) -> bool:
        """Whether every task finished, every reset succeeded, and all results are right."""
        tally = self.tally
        moved = self.mismatches == 0 and tally.finished == self.tasks and not tally.failures
        return moved and (self.inference is None or self.inference.well)


def as_json(outcome: Outcome) -> str:
    """Returns the outcome as one JSON object on one line."""
    tally = outcome.tally
    found: dict[str, Any] = {
        "backend": outcome.library.backend,
        "files": tally.files,
        "bytes": tally.bytes,
        "mismatches": outcome.mismatches,
        "tasks": outcome.tasks,
        "streams": outcome.streams,
        "awaits": tally.awaits,
        "resets": tally.resets,
        "tasks_at_work": tally.at_work,
        "generation": outcome.generation,
        "stale_refused": tally.stale_refused,
        "resetting_refused": tally.resetting_refused,
        "interrupted": tally.interrupted,
        **_lag_fields(outcome.lag),
        "seconds": round(outcome.seconds, 3),
        "finished": tally.finished,
        "failures": tally.failures,
        "inference": None if outcome.inference is None else _digits_fields(outcome.inference),
        "inference_skipped": outcome.skipped,
    }
    return json.dumps(found)


def digits_as_json(library: LibraryInfo, found: Inference) -> str:
    """Returns the results of `demo inference` as one JSON object on one line."""
    return json.dumps({"backend": library.backend, **_digits_fields(found)})


def _digits_fields(found: Inference) -> dict[str, Any]:
    return {
        "digits": found.digits,
        "results": found.results,
        "wrong": found.wrong,
        "duplicates": found.duplicates,
        "lost": found.lost,
        "held_out": found.held_out,
        "accuracy": round(found.accuracy, 4),
        "resets": found.resets,
        "repeated": found.repeated,
        "seconds": round(found.seconds, 3),
        "slots": SLOTS,
        **_rate_fields(found.rates),
        "failures": found.failures,
    }


def _rate_fields(rates: Rates | None) -> dict[str, Any]:
    times = rates.times if rates else None
    return {
        "alone_per_s": round(rates.alone, 1) if rates else None,
        "together_per_s": round(rates.together, 1) if rates else None,
        "overlap": round(rates.overlap, 3) if rates else None,
        "bound_per_s": round(rates.bound, 1) if rates and rates.bound else None,
        "share_of_bound": round(rates.share, 3) if rates and rates.share else None,
        "simulated_ms": _milliseconds(times) if times else None,
    }


def _milliseconds(times: Times) -> dict[str, float]:
    return {name: round(seconds * 1000, 3) for name, seconds in asdict(times).items()}


def _lag_fields(lag: Comparison | None) -> dict[str, float | None]:
    return {
        "loop_lag_p50_ms": round(lag.awaited.p50, 3) if lag else None,
        "loop_lag_p99_ms": round(lag.awaited.p99, 3) if lag else None,
        "blocking_loop_lag_p50_ms": round(lag.blocking.p50, 3) if lag else None,
        "blocking_loop_lag_p99_ms": round(lag.blocking.p99, 3) if lag else None,
    }


def show(outcome: Outcome, screen: Screen) -> None:
    """Prints the outcome in some rows, and a line for each failure."""
    dot = "·" if screen.drawing else "-"
    screen.heading(f"aioacl demo {dot} {described(outcome.library, 'was')}")
    screen.rows(_rows(outcome))
    _show_failures(outcome.tally.failures, screen)
    if outcome.inference is not None:
        _show_failures(outcome.inference.failures, screen)


def show_digits(library: LibraryInfo, found: Inference, screen: Screen) -> None:
    """Prints the results of `demo inference` in some rows, and a line for each failure."""
    dot = "·" if screen.drawing else "-"
    screen.heading(f"aioacl demo inference {dot} {described(library, 'was')}")
    screen.rows([*_digits_rows(found, None), ("result", *_digits_result(found))])
    _show_failures(found.failures, screen)


def _show_failures(failures: Sequence[str], screen: Screen) -> None:
    for failure in failures:
        screen.wrapped("  failed: ", failure, RED, body=[RED])


def _rows(outcome: Outcome) -> list[tuple[str, str, *tuple[str, ...]]]:
    tally = outcome.tally
    verified = (
        f"{tally.files:,} files ({tally.bytes:,} bytes) from {outcome.source}: "
        f"{outcome.mismatches:,} came back changed"
    )
    work = (
        f"{tally.finished:,} of {outcome.tasks:,} tasks finished, after {tally.awaits:,} awaits on "
        f"{outcome.streams:,} streams; this and the measurement of the loop lag took "
        f"{outcome.seconds:.1f} s"
    )
    return [
        ("verified", verified),
        ("work", work),
        ("resets", _resets(outcome)),
        ("loop lag", _lag(outcome.lag)),
        *_digits_rows(outcome.inference, outcome.skipped),
        ("result", *_result(outcome)),
    ]


def _resets(outcome: Outcome) -> str:
    tally = outcome.tally
    if not tally.at_work:
        return "none"
    repeated = tally.stale_refused + tally.resetting_refused + tally.interrupted
    return (
        f"{tally.resets} of {len(tally.at_work)} succeeded, while {' and '.join(map(str, tally.at_work))} tasks "
        f"were running. As expected, the resets interrupted or refused work {repeated:,} times; each time, the task "
        f"started its copies again. The device's generation is now {outcome.generation}: 1, plus 1 for each reset."
    )


def _lag(lag: Comparison | None) -> str:
    if lag is None:
        return "not measured, because the job failed"
    return (
        f"lower is better. While tasks used await, 99% of the event loop's {TICK_SECONDS * 1000:g} ms timers fired at "
        f"most {lag.awaited.p99:.2f} ms late, and 50% at most {lag.awaited.p50:.2f} ms late. While tasks used blocking "
        f"calls, 99% fired at most {lag.blocking.p99:.2f} ms late, and 50% at most {lag.blocking.p50:.2f} ms late. "
        f"Each number is the median of {RUNS} runs."
    )


def _digits_rows(found: Inference | None, skipped: str | None) -> list[tuple[str, str]]:
    if found is None:
        return [("digits", f"skipped: {skipped}")]
    digits = (
        f"{found.results:,} results for {found.digits:,} digits, all classified at the same time, in "
        f"{found.seconds:.1f} s: {found.duplicates:,} came twice, {found.lost:,} are lost, {found.wrong:,} differ from "
        f"NumPy's. {found.accuracy:.1%} of the {found.held_out:,} held-out digits were recognized. {found.resets} of 1 "
        f"resets succeeded meanwhile. The demo repeated the {found.repeated:,} calls that the reset ended."
    )
    return [("digits", digits), ("rate", _rate(found))]


def _rate(found: Inference) -> str:
    rates = found.rates
    if rates is None:
        return "not measured, because a call failed"
    text = (
        f"{rates.alone:.0f} digits per second one at a time, and {rates.together:.0f} with {SLOTS} slots, which is "
        f"{rates.overlap:.2f} times as many"
    )
    if rates.times is None or rates.bound is None or rates.share is None:
        return f"{text}."
    upload, run, download = _milliseconds(rates.times).values()
    return (
        f"{text} and {rates.share:.0%} of the most that the slowest stage allows, {rates.bound:.0f}. These are the "
        f"simulator's times, not those of a card: an upload takes {upload:g} ms, a run {run:g} ms, a download "
        f"{download:g} ms."
    )


def _digits_result(found: Inference) -> tuple[str, str, str]:
    """The text, and its styles."""
    if found.well:
        return "every digit has one result, and every result is that of NumPy", GREEN, BOLD
    return "FAILED: a call or the reset failed, or a result is missing or wrong", RED, BOLD


def _result(outcome: Outcome) -> tuple[str, str, str]:
    """The text, and its styles."""
    if outcome.well:
        return "every task finished, and all results are right", GREEN, BOLD
    return "FAILED: a task or a reset failed, a file came back changed, or a result is wrong", RED, BOLD
