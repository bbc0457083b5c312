"""Calls stuck in C: a reset reports them in time and makes no ACL reset beside them. Later the device recovers."""

from __future__ import annotations

import math
import traceback
from functools import partial
from typing import TYPE_CHECKING, Final

import aioacl
from aioacl import simulator, testing
from aioacl.testing._snapshot import growth
from tests.kit import until_now
from tests.reliability import loops
from tests.reliability.part import Outcome, Scale
from tests.reliability.stuck_cases import CASES, NAMED
from tests.reliability.stuck_procedures import Bench, end_waits_without_abort, quarantine_and_recover

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioacl._base.options import Strategy
    from tests.reliability.loops import Turns
    from tests.reliability.stuck_cases import Case

LIMIT_SECONDS: Final = {Scale.QUICK: 90.0, Scale.DEFAULT: 240.0, Scale.SLOW: 900.0}

ALLOWED_SECONDS: Final = 0.075  # half of the shortest deadline of a reset in this part
TRIES: Final = 8
HOPELESS_SECONDS: Final = 5.0
PAIRS: Final[tuple[tuple[str, Strategy], ...]] = (
    ("asyncio", "watch"),
    ("trio", "thread"),
    ("asyncio", "thread"),
    ("trio", "watch"),
)


class Run:
    """The cases on one backend, with one way to wait."""

    def __init__(self, bench: Bench, cases: tuple[Case, ...], times: int) -> None:
        self.late: dict[str, list[float]] = {}
        self.count = 0
        self._bench = bench
        self._cases = cases
        self._times = times

    async def run(self, turns: Turns) -> None:
        """The body of the loop. It stops at the first finding, because later findings would be its consequences."""
        del turns  # this part measures time, not turns
        bench = self._bench
        async with aioacl.open_device(0):
            pass  # creates the loop's port
        for case in self._cases:
            late = self.late[case.title] = []
            while not bench.findings and self._wants_more(late):
                late.append(await self._clean(case.title, partial(quarantine_and_recover, bench, case)))
            if not bench.findings:
                text = f"expected a report at most {ALLOWED_SECONDS} s late, got {min(late):.3f} s in {len(late)} runs"
                bench.expect(min(late) <= ALLOWED_SECONDS, text)
        if bench.waits == "thread" and not bench.findings:
            await self._clean("waits that cannot be aborted", partial(end_waits_without_abort, bench))

    def _wants_more(self, late: list[float]) -> bool:
        """Whether the case must run again. All reports may be late by chance, because the machine was busy."""
        spoilt = late and min(late) > ALLOWED_SECONDS and len(late) < TRIES and sum(late) < HOPELESS_SECONDS
        return len(late) < self._times or bool(spoilt)

    async def _clean(self, title: str, once: Callable[[], Awaitable[float]]) -> float:
        """Runs a case once, and checks that it leaves nothing behind."""
        bench, before = self._bench, testing.snapshot()
        bench.title = title
        simulator.forget()
        try:
            late = await once()
        except Exception as error:
            bench.expect(None, "".join(traceback.format_exception(error)))
            return math.inf
        await bench.expect_soon(
            lambda: not testing.snapshot().more_than(before),
            lambda: (
                f"expected no growth, got {testing.snapshot().more_than(before)}, {growth(before, testing.snapshot())}"
            ),
        )
        self.count += 1
        bench.expect(not simulator.violations(), f"expected no violations, got {simulator.violations()}")
        return late


def run(scale: Scale, seed: int) -> Outcome:
    """Runs each loop with one strategy of waiting. Slow: with both. Quick: one loop, and the most common calls."""
    del seed  # nothing here is random
    aioacl.use_library("simulator")
    aioacl.open_device(0).result().close().result()  # creates the objects that exist once per process
    until_now(lambda: not testing.snapshot().devices)
    outcome = Outcome()
    timeout = scale.pick(150, 200, 400) / 1000
    rows: list[str] = []
    count = 0
    for backend, waits in PAIRS[: scale.pick(1, 2, 4)]:
        bench = Bench(backend, waits, timeout)
        these = Run(bench, NAMED if scale is Scale.QUICK else CASES, scale.pick(1, 1, 2))
        loops.run(backend, these.run)
        outcome.findings += bench.findings
        count += these.count
        rows += [
            f"{bench.name}, {name}: {', '.join(f'{each * 1000:.1f}' for each in late)} ms"
            for name, late in these.late.items()
        ]
    outcome.figures = {
        "deadline of the resets": f"{timeout:g} s",
        "devices recovered": count,
        "delay of the reports, compared with a wait for the same time": rows,
    }
    return outcome
