"""The ways to wait really wait, and all of them use one simulator."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import raw
from benchmarks.suites import lag
from benchmarks.suites.await_ import WAYS
from benchmarks.suites.copy import TimedSelector
from tests.support.command import finished

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json
from contextlib import closing
from pathlib import Path
from functools import partial

from aioacl import simulator
from benchmarks.bench import Bench
from benchmarks.suites.await_ import WAYS
from benchmarks.ways import BareTrio, Ours

found = {"copies": {}, "left": {}}
with Bench(streams=2) as bench:
    for tid in (int(path.name) for path in Path("/proc/self/task").iterdir()):
        if Path(f"/proc/{tid}/comm").read_text().startswith("aclsim-dev"):
            found["slack"] = int(Path(f"/proc/{tid}/timerslack_ns").read_text())
    for kind in WAYS:
        if kind is BareTrio:  # it waits for no task
            continue
        with closing(kind(bench)) as way:
            streams = bench.streams if kind.__name__.startswith("Ours") else bench.raw_streams
            before = simulator.calls("aclrtMemcpyAsync")
            left = []

            async def work(index):
                await way.wait(index)
                left.append(simulator.pending(streams[index]))

            async def main():
                await way.together([partial(work, index) for index in (0, 1)])

            way.run(main)
            found["copies"][way.name] = simulator.calls("aclrtMemcpyAsync") - before
            found["left"][way.name] = left
    with closing(Ours(bench)) as ours:
        simulator.hold(bench.streams[0])

        async def held():
            import asyncio
            asyncio.get_running_loop().call_later(0.01, simulator.release, bench.streams[0])
            return await ours.waits_inline(0)

        found["inline"] = ours.run(held)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found() -> Any:
    ran = finished([sys.executable, "-W", "error", "-c", PROGRAM], cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.process
def test_each_way_enqueues_its_copies_in_the_simulator_that_aioacl_loaded(found: Any) -> None:
    assert len(found["copies"]) == len(WAYS) - 1
    assert set(found["copies"].values()) == {2}


@pytest.mark.process
def test_each_way_returns_after_its_copy_is_done(found: Any) -> None:
    # The host function of the callback way is a task of the stream too. This task ends just after the call of Python.
    callback = found["left"].pop("callback way")
    assert len(callback) == 2
    assert set(map(tuple, found["left"].values())) == {(0, 0)}


@pytest.mark.process
def test_await_of_held_work_does_not_count_as_inline(found: Any) -> None:
    assert found["inline"] is False


@pytest.mark.process
def test_bench_makes_the_timers_of_the_simulated_device_exact(found: Any) -> None:
    assert found["slack"] == 1


def test_prototypes_of_the_peers_come_from_the_table() -> None:
    text = raw.source()
    assert all(f"(*{name})(" in text and f'"{name}"' in text for name in raw.FUNCTIONS)


def test_check_of_a_failed_call_raises_runtime_error() -> None:
    raw.check(0, "aclrtSetDevice")
    with pytest.raises(RuntimeError, match="aclrtSetDevice: expected 0, got 107001"):
        raw.check(107001, "aclrtSetDevice")


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.99, 99), (1.0, 100)])
def test_percentile_is_the_least_value_with_the_share_of_values_at_or_below_it(
    share: float, value: float
) -> None:
    assert lag.percentile([float(number) for number in range(100, 0, -1)], share) == value


def test_selector_records_the_longest_turn_of_its_loop() -> None:
    with TimedSelector() as selector:
        selector.select(0)
        selector.start()
        assert (selector.longest, selector.longest_cpu) == (0, 0)
        selector.select(0)
        longest = selector.longest
        selector.select(0)
        assert selector.longest >= longest > 0
