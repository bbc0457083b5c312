"""Ctrl-C in every public call of a thread, and loops closed during every await. Resets still work; nothing leaks."""

from __future__ import annotations

import concurrent.futures._base
import gc
import os
import random
import signal
import sys
import threading
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aioacl
from aioacl import lowlevel, simulator, testing
from aioacl._lifecycle.manager import manager_of
from tests.kit import PATIENCE_SECONDS, descriptors, until_now
from tests.reliability import setting
from tests.reliability.interrupts_calls import BY_HAND, CALLS, Bench, call_of
from tests.reliability.interrupts_loops import KINDS, abandon
from tests.reliability.part import Outcome, Scale
from tests.support.steps import beginnings

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

LIMIT_SECONDS = {Scale.QUICK: 60.0, Scale.DEFAULT: 300.0, Scale.SLOW: 1800.0}
INTERRUPTS: Final = {Scale.QUICK: 300, Scale.DEFAULT: 2000, Scale.SLOW: 10_000}
LOOPS: Final = {Scale.QUICK: 1, Scale.DEFAULT: 3, Scale.SLOW: 20}  # closed loops for each kind of await
CHECK_EVERY: Final = 50
PLACES: Final = tuple(
    str(place)
    for place in (Path(aioacl.__file__).parent, concurrent.futures._base.__file__, threading.__file__)
)


class Interrupt:
    """Raises a real SIGINT at the nth function, line or return that the call runs on this thread."""

    def __init__(self, step: int) -> None:
        self.left = step
        self.where = ""

    def __call__(self, frame: FrameType, event: str, _: object) -> Interrupt | None:
        code = frame.f_code
        if not code.co_filename.startswith(PLACES) or _finalizes(frame):
            return None
        if event != "exception" and (event != "line" or frame.f_lasti in beginnings(code)):
            self.left -= 1
            if self.left == 0:
                self.where = (
                    f"{Path(code.co_filename).name}:{frame.f_lineno} in {code.co_name}, at its {event}"
                )
                signal.raise_signal(signal.SIGINT)
        return self


def _finalizes(frame: FrameType | None) -> bool:
    """Whether a finalizer runs. Python ignores the exceptions of finalizers, so an interrupt there would be lost."""
    while frame is not None and frame.f_code.co_name not in ("__del__", "gone"):
        frame = frame.f_back
    return frame is not None


def interrupted(call: Callable[[], object], step: int) -> Interrupt:
    """Interrupts the call at that step, if the call has that many steps."""
    interrupt = Interrupt(step)
    sys.settrace(interrupt)
    try:
        call()
    except (KeyboardInterrupt, aioacl.AclError):
        pass  # an earlier interrupt may have left a running reset, which makes this call fail
    finally:
        sys.settrace(None)
    return interrupt


class Campaign:
    """Runs randomly chosen calls. Interrupts a call one to three steps later than when the same call last ran."""

    def __init__(self, outcome: Outcome, rng: random.Random) -> None:
        self._outcome = outcome
        self._rng = rng
        self._bench = Bench()
        self._steps = dict.fromkeys(CALLS, 0)
        self.interrupts = 0

    def run(self, total: int) -> None:
        """Continues until that many interrupts were delivered, or there is a finding."""
        last = ""
        while self.interrupts < total and not self._outcome.findings:
            name = self._rng.choice(list(CALLS))
            self._steps[name] += 1 + self._rng.randrange(3)
            interrupt = interrupted(partial(CALLS[name], self._bench), self._steps[name])
            if interrupt.left > 0:  # the call has ended before that step
                self._steps[name] = 0
                continue
            self.interrupts += 1
            last = f"{name}, {interrupt.where}"
            if self.interrupts % CHECK_EVERY == 0 or name in ("events", "force_reset"):
                self._check(last)
        self._check(last)
        self._bench.close()

    def _check(self, last: str) -> None:
        """Checks how often one device is set, and that the other device can be reset and works."""
        bench = self._bench
        counted, actual = manager_of(BY_HAND).counts.standing().retained, simulator.retain_count(BY_HAND)
        self._outcome.expect(
            counted == actual, f"after {last}: expected {actual} counted sets, got {counted}"
        )
        if actual:  # an interrupt came between the set of the device and its reset
            lowlevel.reset_device_force(BY_HAND)
        try:
            report = bench.device.force_reset(grace=0).result(PATIENCE_SECONDS)
            self._outcome.expect(report.ok, f"after {last}: expected a reset to succeed, got {report}")
            bench.close_handles()
            bench.renew()
            bench.device.run(int).result(PATIENCE_SECONDS)
            bench.stream.fill(bench.memory, 1).result(PATIENCE_SECONDS)
            call_of(bench).result(PATIENCE_SECONDS)
        except (aioacl.AclError, TimeoutError) as error:
            self._outcome.findings.append(f"after {last}: expected calls to succeed, got {error!r}")
        self._outcome.expect(
            bench.device.health.leases == 0, f"after {last}: expected no held lease, got one"
        )


def _loops(outcome: Outcome, rounds: int) -> int:
    bench = Bench()
    for number in range(rounds * len(KINDS)):
        kind = list(KINDS)[number % len(KINDS)]
        wrong = abandon(bench, kind)
        outcome.expect(not wrong, wrong)
        report = bench.device.force_reset(grace=0).result(PATIENCE_SECONDS)
        outcome.expect(
            report.ok, f"after a loop closed during {kind}: expected a reset to succeed, got {report}"
        )
        bench.close_handles()
        bench.renew()
        outcome.expect(
            not bench.device.health.leases,
            f"after a loop closed during {kind}: expected no held lease, got one",
        )
    bench.close()
    return rounds * len(KINDS)


def _clean(outcome: Outcome, before: testing.Snapshot, files: int, what: str) -> None:
    def settled() -> bool:
        gc.collect()
        return not testing.snapshot().more_than(before) and descriptors() <= files

    clean = until_now(settled)
    left = f"{testing.snapshot().more_than(before)}, {descriptors() - files} descriptors"
    outcome.expect(clean, f"{what}: expected nothing to be left, got {left}")
    outcome.expect(
        not simulator.violations(), f"{what}: expected no violations, got {simulator.violations()}"
    )


def run(scale: Scale, seed: int) -> Outcome:
    """Runs the interrupts, and then the closed loops."""
    os.environ["AIOACL_SIM_DEVICES"] = "3"
    aioacl.use_library("simulator")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    warnings.simplefilter("ignore")  # after an interrupt, handles that are still open correctly emit warnings
    outcome = Outcome()
    for index in range(3):
        with setting.open_device(index) as device:
            device.events()  # this and the open create the objects that exist once per process
    before, files = testing.snapshot(), descriptors()
    campaign = Campaign(outcome, random.Random(seed))
    campaign.run(INTERRUPTS[scale])
    _clean(outcome, before, files, "the interrupts")
    abandoned = 0 if outcome.findings else _loops(outcome, LOOPS[scale])
    _clean(outcome, before, files, "the closed loops")
    outcome.figures = {
        "interrupts": campaign.interrupts,
        "public calls": len(CALLS),
        "closed loops": abandoned,
    }
    return outcome
