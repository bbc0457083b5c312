"""Truth: the result of every await is compared with a model; no failure of a task is missed or misattributed.

A round is one await of a ticket, event, stream, device, upload or download, or one `.result()` on a thread. An "own
event" is an event of `create_event()`, which the script records repeatedly.

Five processes run, and each finds failures in one way. Two processes use a callback, and each registers the callback in
another way. Two more processes do the same while another library synchronizes the devices. The last process finds
failures by synchronizing. In each process, half of the devices have a thread for each wait. The outcomes are:

- wrong: the bytes are wrong, or the await raised an error that it must not raise;
- missed: nothing was raised, although a task that the await covers or depends on failed;
- spurious: an error was raised, although no such task failed;
- doubtful: the await covers work of which only a synchronize shows whether it has succeeded. The await raised the
  failure of another task of the device, which is allowed: the code of a synchronize does not identify the task. This
  work is: a launch block with `reported=False`, a wait for an event that took a second or more, and all work if the
  runtime reports no failures.

Half of the work is enqueued in launch blocks, by ACL functions: fills, copies on the device and from and to pinned
memory, kernels, and waits for notifies and events.

A failure without a device event is a finding too, and so is an uncollected failure without a warning. While another
library synchronizes, the script makes no wait for an event time out. No callback reports a time-out, and the other
library may take the code of the time-out.
Slow: the engine is also built with each bug of `truth_bugs.py`, and each bug must be noticed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from tests.reliability import setting, truth_bugs
from tests.reliability.part import Outcome, Scale
from tests.reliability.truth_blocks import IN_BLOCKS

if TYPE_CHECKING:
    from pathlib import Path

LIMIT_SECONDS: Final = {Scale.QUICK: 90.0, Scale.DEFAULT: 200.0, Scale.SLOW: 900.0}
# The required rounds of each kind of await, for both strategies and both registrations together.
ROUNDS: Final = {Scale.QUICK: 400, Scale.DEFAULT: 2_000, Scale.SLOW: 10_000}
MODES: Final = ("acl", "runtime", "acl, other", "runtime, other", "confirmed")
AT_ONCE: Final = 2
COLUMNS: Final = ("rounds", "must fail", "wrong", "missed", "spurious", "doubtful")
# The share of the limit for each process. Five processes run, two at a time, so three run one after another.
SHARE: Final = 0.3
BUG_ROUNDS: Final = 250
BUG_SEEDS: Final = 20  # about half of the runs find the rarest bug
ENDS_SECONDS: Final = 5.0


def _child(mode: str, rounds: int, seed: int, seconds: float, package: Path | None = None) -> dict[str, Any]:
    """Runs one process; returns its tally. `package` is the folder with the aioacl to use, if not the installed one."""
    command = [
        sys.executable,
        "-m",
        "tests.reliability.truth_child",
        mode,
        str(rounds),
        str(seed),
        str(seconds),
    ]
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds + ENDS_SECONDS,
            check=False,
            env=os.environ | ({"PYTHONPATH": str(package)} if package else {}),
        )
    except subprocess.TimeoutExpired as error:
        return {
            "findings": [
                f"expected the process to end within {seconds:.0f} s, but it ran: {str(error.stderr)[-2000:]}"
            ]
        }
    try:
        tally: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        tally = {"findings": [f"expected a tally from the process, got none and status {ended.returncode}"]}
    if ended.stderr or ended.returncode:
        tally["findings"].append(
            f"expected status 0 and no stderr, got {ended.returncode}, {ended.stderr[-2000:]}"
        )
    return tally


def _rows(mode: str, counts: dict[str, dict[str, int]]) -> list[str]:
    return [
        f"{key.replace('/', ', '):<22} {mode:<15} "
        + " ".join(f"{count.get(column, 0):>9}" for column in COLUMNS)
        for key, count in sorted(counts.items())
    ]


def run(scale: Scale, seed: int) -> Outcome:
    """Runs all modes, two at a time."""
    outcome = Outcome()
    limit = LIMIT_SECONDS[scale] * SHARE
    each = -(-ROUNDS[scale] // 4)  # divided by two strategies and two registrations
    with ThreadPoolExecutor(AT_ONCE) as pool:
        tallies = list(pool.map(lambda mode: _child(mode, each, seed, limit), MODES))
    rows = [f"{'await, waits=':<22} {'failures by':<15} " + " ".join(f"{column:>9}" for column in COLUMNS)]
    total, again = (
        Counter[str](),
        f"python -m tests.reliability truth --{scale.value} --seed={seed}{setting.AGAIN}",
    )
    for mode, tally in zip(MODES, tallies, strict=True):
        counts = tally.get("counts", {})
        rows += _rows(mode, counts)
        for count in counts.values():
            total.update(count)
        injected, reported = tally.get("injected", {}), tally.get("reported", {})
        outcome.figures[f"{mode}: tasks that were made to fail"] = f"{sum(injected.values())}: {injected}"
        outcome.figures[f"{mode}: reported"] = f"{reported}, in {tally.get('scenarios', 0)} scenarios"
        work = Counter[str](tally.get("work", {}))
        share = 100 * work[IN_BLOCKS] / max(1, work.total())
        outcome.figures[f"{mode}: work"] = f"{dict(work)}, {share:.1f} % in launch blocks"
        outcome.findings += [f"{mode}: {finding}\n  again: {again}" for finding in tally["findings"]]
        more = tally.get("found", 0) - len(tally["findings"])
        outcome.expect(more <= 0, f"{mode}: {more} more findings are not shown")
    if scale is Scale.SLOW:
        truth_bugs.try_all(
            outcome,
            lambda mode, folder: any(
                _child(mode, BUG_ROUNDS, seed + attempt, limit, folder)["findings"]
                for attempt in range(BUG_SEEDS)
            ),
        )
    outcome.figures = {"total": dict(total), "awaits": rows, **outcome.figures}
    return outcome
