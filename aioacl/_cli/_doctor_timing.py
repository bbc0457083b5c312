"""Measures for `doctor` what the calls behind an await take on one device, and how blocking waits use the processor.

The measurement runs on a separate thread. So the command ends within a time limit, or soon after Ctrl-C, even if a call
of the runtime does not return. Each step has a row. If the step fails, the error of its row is set.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from aioacl._base.codes import lookup
from aioacl._base.errors import AclError
from aioacl._base.ffi import lib
from aioacl._cli._doctor_bench import bench_on
from aioacl._cli._doctor_rows import (
    EMPTY,
    QUERY_EVENT,
    QUERY_STREAM,
    RECORD,
    WAIT_EVENT,
    WAIT_STREAM,
    WAKE_THREAD,
    WAKE_WATCH,
    make_rows,
)
from aioacl._opening import open_device

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.options import Strategy
    from aioacl._cli._doctor_bench import Bench
    from aioacl._cli._doctor_rows import Row, Wait

    Step = Callable[[], list[float] | list[Wait]]

TOTAL_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 2.0  # after Ctrl-C, or when the time is over, the device has this time to close
CLOSE: Final = "the close of the device"


def measure(index: int) -> Run:
    """Opens the device with that index, measures, and closes the device."""
    run = Run(index)
    worker = threading.Thread(target=run.measure, name="aioacl-timing", daemon=True)
    try:
        worker.start()
        worker.join(TOTAL_SECONDS)
    finally:
        run.stopped.set()
        if worker.ident is not None:
            worker.join(CLOSE_SECONDS)
    if worker.is_alive():
        run.fail(f"{run.now}: did not return within {TOTAL_SECONDS:g} s")
        run.unclosed = (
            f"device {index} is open until the command ends, because a call did not return: {run.now}"
        )
    return run


class Run:
    """One measurement of all steps, with a row for each.

    `now` names what is running. `stopped` ends the measurement before the next sample. If the device was not closed,
    `unclosed` is the reason, else "".
    """

    def __init__(self, index: int) -> None:
        self.rows = make_rows()
        self.stopped = threading.Event()
        self.now = self.unclosed = ""
        self._index = index

    def measure(self) -> None:
        """Takes all steps, on the calling thread."""
        self._with("watch", self._steps)
        self._with("thread", lambda bench: {WAKE_THREAD: bench.wake_ups})

    def fail(self, reason: str, *, waits: Strategy | None = None) -> None:
        """Sets the error of all rows without a result. If `waits` is given, sets only the rows of that strategy."""
        for row in self.rows:
            if row.median is None and row.error is None and waits in (None, strategy_of(row)):
                row.error = reason

    @staticmethod
    def _steps(bench: Bench) -> dict[str, Step]:
        return {
            QUERY_EVENT: bench.event_queries,
            QUERY_STREAM: bench.stream_queries,
            RECORD: bench.records,
            EMPTY: bench.empty_tasks,
            WAIT_STREAM: bench.stream_waits,
            WAIT_EVENT: bench.event_waits,
            WAKE_WATCH: bench.wake_ups,
        }

    def _with(self, waits: Strategy, steps: Callable[[Bench], dict[str, Step]]) -> None:
        """Opens the device with that strategy and takes the steps.

        If a failure is not that of a step, it becomes the error of the steps without a result. Does nothing once the
        measurement is stopped: a device that was opened then would stay open until the command ends.
        """
        if self.stopped.is_set():
            return
        self.now = f'open_device({self._index}, waits="{waits}")'
        try:
            with open_device(self._index, waits, timeout=TOTAL_SECONDS / 2) as device:
                self.now = "the preparation of the work"
                with bench_on(device, self.stopped) as bench:
                    for name, step in steps(bench).items():
                        self._take(name, step)
                    self.now = CLOSE
        except Exception as error:  # noqa: BLE001 - each failure is reported, and the other steps are taken
            self.fail(f"{self.now}: {in_words(error)}", waits=waits)
            if self.now == CLOSE:
                self.unclosed = f"{CLOSE}: {in_words(error)}"

    def _take(self, name: str, step: Step) -> None:
        (row,) = (each for each in self.rows if each.step == name)
        self.now = name
        try:
            row.fill(step())
        except Exception as error:  # noqa: BLE001 - each failure is reported, and the other steps are taken
            row.error = in_words(error)


def strategy_of(row: Row) -> Strategy:
    """The strategy with which the device is open while the row is measured."""
    return "thread" if row.step == WAKE_THREAD else "watch"


def in_words(error: Exception) -> str:
    """An error on one line: the call and its code, or the text."""
    if isinstance(error, AclError) and error.call and error.code is not None and error.code > lib.AIO_LIMIT:
        return f"{error.call} returned {error.code} {lookup(error.code).name}"
    return " ".join(str(error).split()) or type(error).__name__
