"""Cancels awaits in every phase and in every way: each ends within one turn of its loop and leaves nothing behind."""

from __future__ import annotations

import os
import random
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.lowlevel import checkpoint

import aioacl
from aioacl import simulator, testing
from tests.kit import PATIENCE_SECONDS, until, until_now
from tests.reliability import cancel_lifecycle, cancel_resets, cancel_waits, loops
from tests.reliability.cancel_bench import DEVICES, Bench
from tests.reliability.cancel_kinds import KINDS
from tests.reliability.cancel_phases import PHASES
from tests.reliability.part import Outcome, Scale

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.reliability.cancel_kinds import Kind
    from tests.reliability.cancel_phases import Phase, Setup
    from tests.reliability.loops import Turns

LIMIT_SECONDS = {Scale.QUICK: 60.0, Scale.DEFAULT: 300.0, Scale.SLOW: 1800.0}

TOTAL: Final = {
    Scale.QUICK: {"asyncio": 100, "trio": 50},
    Scale.DEFAULT: {"asyncio": 2000, "trio": 1000},
    Scale.SLOW: {"asyncio": 20_000, "trio": 10_000},
}
OTHERS_AT_MOST: Final = 3
VOID_AT_MOST: Final = 5
FEWEST: Final = 8  # awaits to cancel in a batch, if the phase allows that many
DEFINED_IN: Final = (cancel_waits, cancel_lifecycle, cancel_resets)  # importing these registers the phases


class Await:
    """One await and its outcome."""

    def __init__(self, turns: Turns, begin: Callable[[], Awaitable[Any]]) -> None:
        self._turns = turns
        self._begin = begin
        self.ended: int | None = None  # the turn of the loop in which it ended
        self.cancelled = False
        self.error: Exception | None = None
        self.value: Any = None

    async def run(self) -> None:
        """The body of the task that awaits."""
        try:
            self.value = await self._begin()
        except anyio.get_cancelled_exc_class():
            self.cancelled = True
            raise
        except Exception as error:
            self.error = error.with_traceback(None)
        finally:
            self.ended = self._turns.count

    def __repr__(self) -> str:
        if self.ended is None:
            return "still waiting"
        return "cancelled" if self.cancelled else repr(self.error or self.value)


class Batch:
    """Some awaits in a phase; some of them are cancelled."""

    def __init__(self, bench: Bench, phase: Phase, kind: Kind, where: str) -> None:
        self._bench = bench
        self._phase = phase
        self._kind = kind
        self._where = where
        self._asked = 0  # the turn in which the awaits were cancelled
        self._void = False

    async def run(self, cancel_count: int, other_count: int) -> int:
        """Runs the batch. Returns how many awaits were cancelled in the phase; 0 if they did not reach the phase."""
        bench, count = self._bench, cancel_count + other_count
        bench.touched, bench.void = [0], False
        async with self._phase.enter(bench, count) as setup:
            every = [Await(bench.turns, partial(setup.begin, number)) for number in range(count)]
            chosen = bench.rng.sample(every, cancel_count)
            others = [one for one in every if one not in chosen]
            await self._live(setup, chosen, others)
            wrong = setup.done(count, sum(not one.cancelled for one in every))
            bench.expect(not wrong, f"{self._where}: {wrong}")
            for one in every:
                await self._dispose(one)
        return 0 if bench.void else sum(one.cancelled for one in chosen)

    async def _live(self, setup: Setup, chosen: list[Await], others: list[Await]) -> None:
        some = self._bench.rng.randint(0, len(others))
        async with anyio.create_task_group() as group:
            for one in others[:some]:
                group.start_soon(one.run)
            if chosen:
                group.start_soon(self._kind.run, [one.run for one in chosen])
            for one in others[some:]:
                group.start_soon(one.run)
            await self._cancel(setup, chosen, others)
            await setup.finish()
        for one in others:
            fine = one.error is None or isinstance(one.error, setup.allowed)
            self._expect(
                fine and not one.cancelled,
                f"expected an await that was not cancelled to succeed, got {one!r}",
            )

    async def _cancel(self, setup: Setup, chosen: list[Await], others: list[Await]) -> None:
        count = len(chosen) + len(others)
        try:
            await until(lambda: (setup.gathered or setup.reached)(count))
        except TimeoutError:
            state = self._bench.state(), [*chosen, *others]
            simulator.clear()
            simulator.release_all()  # otherwise the clean-up would hang
            raise AssertionError(
                f"{self._where}: expected the awaits to reach the phase, got {state}"
            ) from None
        if setup.arrive is not None:
            setup.arrive()
        # The loop runs no other task between this line and the request.
        self._bench.void = not setup.reached(count)
        if self._bench.void or not chosen:
            if chosen:
                self._kind.cancel()
            return
        await (setup.request or self._at_once)(self._request)
        await self._delivered(setup, count)
        await self._ended(chosen)
        wrong = setup.check(count, len(others))
        self._expect(not wrong, wrong)

    def _request(self) -> None:
        self._asked = self._bench.turns.count
        self._kind.cancel()

    @staticmethod
    async def _at_once(cancel: Callable[[], None]) -> None:
        cancel()

    async def _delivered(self, setup: Setup, count: int) -> None:
        """Waits until all chosen awaits are cancelled. If an await leaves the phase earlier, the batch is void."""
        while not self._kind.cancelled:
            self._bench.void |= not setup.reached(count)
            self._asked = self._bench.turns.count + 1
            await checkpoint()

    async def _ended(self, chosen: list[Await]) -> None:
        with anyio.fail_after(PATIENCE_SECONDS):
            while any(one.ended is None for one in chosen):
                await checkpoint()
        for one in chosen:
            late = (one.ended or 0) - self._asked
            self._expect(one.cancelled, f"expected an await to end as cancelled, got {one!r}")
            self._expect(late <= 1, f"expected a cancelled await to end within 1 turn, got {late} turns")

    def _expect(self, holds: object, finding: str) -> None:
        self._bench.expect(holds or self._bench.void, f"{self._where}: {finding}")

    @staticmethod
    async def _dispose(one: Await) -> None:
        close = getattr(one.value, "close", None)
        one.value = None
        if close is not None:
            await close()


class Campaign:
    """Runs all phases on one backend, each until the required number of awaits was cancelled in it."""

    def __init__(self, backend: str, total: int, seed: int) -> None:
        self.hits: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.batches = self.voids = 0
        self.findings: list[str] = []
        self._backend = backend
        self._rng = random.Random(f"{seed} {backend}")
        self._where = f"{backend}, --seed={seed}"
        self._phases = [phase for phase in PHASES if phase.on(backend)]
        self._share = -(-total // len(self._phases))

    async def run(self, turns: Turns) -> None:
        """The body of the loop."""
        async with Bench(turns, self._rng) as bench:
            for number, phase in enumerate(self._phases):
                await self._phase(bench, phase, number)
                if bench.findings:
                    break
            self.findings += bench.findings

    async def _phase(self, bench: Bench, phase: Phase, number: int) -> None:
        kinds = [kind for kind in KINDS if phase.takes(kind, self._backend)]
        at_once = min(phase.most - 1, max(FEWEST, -(-self._share // len(kinds))))
        # A batch without a cancellation is the most likely to show a lost wake-up.
        await self._batch(bench, phase, kinds[0], 0, min(phase.most, at_once + 1))
        while self.hits[phase.name] < self._share and not bench.findings:
            kind = kinds[(number + self.batches) % len(kinds)]
            cancel_count = min(at_once, self._share - self.hits[phase.name])
            other_count = self._rng.randint(0, min(OTHERS_AT_MOST, phase.most - cancel_count))
            await self._batch(bench, phase, kind, cancel_count, other_count)
            if self.voids > VOID_AT_MOST + self.batches // 20:
                bench.findings.append(
                    f"{self._where}: expected batches to reach the phase {phase.name}, got {self.voids} that did not"
                )

    async def _batch(
        self, bench: Bench, phase: Phase, kind: type[Kind], cancel_count: int, other_count: int
    ) -> None:
        self.batches += 1
        where = f"{self._where}, batch {self.batches}: {phase.name}, {kind.name}"
        try:
            hits = await Batch(bench, phase, kind(), where).run(cancel_count, other_count)
        except Exception as error:
            error.add_note(where)
            raise
        await bench.settle(where)  # not earlier, because the batch keeps its objects alive
        self.hits[phase.name] += hits
        self.kinds[kind.name] += hits
        self.voids += bench.void


def run(scale: Scale, seed: int) -> Outcome:
    """Runs both backends, one after the other."""
    os.environ["AIOACL_SIM_DEVICES"] = str(DEVICES)
    aioacl.use_library("simulator")
    outcome = Outcome()
    campaigns: dict[str, Campaign] = {}
    aioacl.open_device(0).result().close().result()  # creates the objects that exist once per process
    before = testing.snapshot()
    for backend in loops.BACKENDS:
        campaign = campaigns[backend] = Campaign(backend, TOTAL[scale][backend], seed)
        loops.run(backend, campaign.run)
        outcome.findings += campaign.findings
    clean = until_now(lambda: not testing.snapshot().more_than(before))
    outcome.expect(clean, f"expected nothing to be left, got {testing.snapshot().more_than(before)}")
    outcome.expect(not simulator.violations(), f"expected no violations, got {simulator.violations()}")
    outcome.figures = _figures(campaigns)
    return outcome


def _figures(campaigns: dict[str, Campaign]) -> dict[str, Any]:
    both = list(campaigns.values())
    names = [phase.name for phase in PHASES]
    return {
        "cancelled": {backend: campaign.hits.total() for backend, campaign in campaigns.items()},
        "batches": sum(campaign.batches for campaign in both),
        "fewest in a phase": min(sum(campaign.hits[name] for campaign in both) for name in names),
        "by phase": [
            f"{name}: {' + '.join(str(campaign.hits[name]) for campaign in both)}" for name in names
        ],
        "by kind": [f"{kind.name}: {sum(c.kinds[kind.name] for c in both)}" for kind in KINDS],
    }
