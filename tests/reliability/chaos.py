"""Chaos: crowds of tasks under injected faults; afterwards at most two resets make every device work again.

The run of each seed has two phases. In the first phase, faults fire. An operation may end in the error that the table
of error codes has for an injected fault. A supervisor resets each device that has failed, as in a service. In the
second phase, no faults fire, but devices may still be in a fault state. Each device must work after at most two resets,
and at the end nothing may be left.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio

from aioacl import AclError, AclWarning, State, simulator
from aioacl._base.errors import error_for
from aioacl.testing import snapshot
from tests.reliability import crowd, operations, setting
from tests.reliability.fault_rules import choose_rules, codes
from tests.reliability.member import Member, Plan
from tests.reliability.part import Outcome, Scale

if TYPE_CHECKING:
    from collections.abc import Generator

    from aioacl import Device
    from aioacl._base.options import Strategy

LIMIT_SECONDS: Final[dict[Scale, float]] = {Scale.QUICK: 60, Scale.DEFAULT: 240, Scale.SLOW: 2400}
DEVICES: Final = 3
KEPT_OPEN: Final = 2
TASKS: Final = 24
RESETS_TO_RECOVER: Final = 2
CALM_TASKS: Final = 6
AFTERWARDS: Final = 60  # operations after the faults, all of which must succeed
PATIENCE_SECONDS: Final = 60.0
MANY: Final = 10_000
WEIGHTS: Final = {**operations.WEIGHTS, operations.synchronize: 1}


class FaultedMember(Member):
    """A member whose operations may fail, but only with the code of an injected fault and the code's error class."""

    codes: frozenset[int] = frozenset()

    def _outcome(self, error: BaseException) -> str:
        outcome = super()._outcome(error)
        if outcome or not isinstance(error, AclError) or error.code is None:
            return outcome
        known = error.code in self.codes and type(error) is type(error_for(error.code, "call"))
        return type(error).__name__ if known else ""


async def supervise(index: int, waits: Strategy, over: anyio.Event) -> None:
    """Keeps a device supervised. Faults come again and again, so the supervisor may make any number of resets."""
    pauses = [0.01] * MANY
    async with (
        setting.open_device(index, waits) as device,
        device.supervise(grace=0.05, pauses=pauses, at_most=MANY, foreign=True),
    ):
        await over.wait()


@dataclass
class SeedRun:
    """The run of one seed, and its findings."""

    seed: int
    operations: int
    rules: dict[str, str] = field(init=False)
    fired: Counter[str] = field(default_factory=Counter[str])
    plan: Plan = field(init=False)
    # For each device, the number of resets until it worked again.
    needed: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        self.rules = choose_rules(self.seed)
        self.plan = Plan(self.operations, self.operations // 200, WEIGHTS, faulty=True)
        self.backend = tuple(crowd.BACKENDS)[self.seed % 3]
        self.waits: Strategy = "thread" if self.seed // 3 % 2 else "watch"
        self.findings = self.plan.findings

    def settings(self) -> str:
        """The seed, and the settings that repeat its run."""
        faults = "; ".join((f"seed={self.seed}", *self.rules.values()))
        return f'seed {self.seed}, {self.backend}, waits="{self.waits}", AIOACL_SIM_FAULTS="{faults}"'

    # --- while faults fire -------------------------------------------------------------------------------------

    async def run_with_faults(self, devices: list[Device]) -> None:
        """Runs the crowd, and a supervisor for each device that is kept open."""
        over = anyio.Event()
        async with anyio.create_task_group() as outer:
            for device in devices:
                outer.start_soon(supervise, device.index, self.waits, over)
            async with anyio.create_task_group() as inner:
                for number in range(TASKS):
                    member = FaultedMember(self.backend, number, self.plan, devices, self.waits, self.seed)
                    member.codes = codes(self.rules)
                    inner.start_soon(member.work)
            over.set()

    # --- after the faults --------------------------------------------------------------------------------------

    async def recover(self) -> None:
        """Resets each device until it works, then runs a crowd on the devices."""
        async with anyio.create_task_group() as group:
            for index in range(DEVICES):
                group.start_soon(self._bring_back, index)
        calm = Plan(AFTERWARDS, 0, operations.WEIGHTS, cancelled=0, time_limited=0)
        async with (
            setting.open_device(0, self.waits) as one,
            setting.open_device(1, self.waits) as two,
            anyio.create_task_group() as group,
        ):
            for number in range(CALM_TASKS):
                member = Member(self.backend, number, calm, (one, two), self.waits, self.seed)
                group.start_soon(member.work)
        self.findings += calm.findings
        if calm.outcomes.keys() != {"ok"}:
            self.findings.append(
                f"expected each operation after the faults to succeed, got {dict(calm.outcomes)}"
            )

    async def _bring_back(self, index: int) -> None:
        with anyio.move_on_after(PATIENCE_SECONDS) as patience, self._noting(index):
            async with setting.open_device(index, self.waits) as device:
                trouble, resets = await _trouble(device), 0
                while trouble and resets < RESETS_TO_RECOVER:
                    await device.force_reset(grace=0.5, reason=trouble)
                    trouble, resets = await _trouble(device), resets + 1
                self.needed.append(resets)
                if trouble:
                    self.findings.append(
                        f"expected device {index} to work after at most {resets} resets, got: {trouble}"
                    )
        if patience.cancelled_caught:
            self.findings.append(
                f"expected device {index} to work again within {PATIENCE_SECONDS:g} s, but it does not"
            )

    @contextmanager
    def _noting(self, index: int) -> Generator[None]:
        try:
            yield
        except AclError as error:
            self.findings.append(f"expected to open and close device {index}, got {error!r}")

    # --- both phases -----------------------------------------------------------------------------------------------

    def run(self, limit: float) -> None:
        """Runs both phases, and checks that nothing is left."""
        before = snapshot()
        with crowd.collecting_errors(self.findings, expected=(AclWarning,)):
            devices = [setting.open_device(index, self.waits).result() for index in range(KEPT_OPEN)]
            simulator.set_seed(self.seed)
            with ExitStack() as stack:
                faults = {
                    kind: stack.enter_context(simulator.Fault(rule)) for kind, rule in self.rules.items()
                }
                self.findings += crowd.at_once(
                    [crowd.loop(self.backend, lambda: self.run_with_faults(devices))], limit
                )
                self.fired.update({kind: fault.hits for kind, fault in faults.items()})
            self.findings += crowd.at_once([crowd.loop(self.backend, self.recover)], limit)
            self.findings += crowd.idle(devices)
            while devices:
                self.findings += crowd.at_once([devices.pop().close().result], crowd.SETTLES_SECONDS)
            # After a fault, the engine does not destroy its events.
            self.findings += crowd.left_since(before, "events")
            self.findings += crowd.violations()


async def _trouble(device: Device) -> str:
    """Returns why the device does not work; "" if it works."""
    try:
        async with device.create_stream() as stream, device.allocate(256) as memory:
            sent, answer = bytes(range(256)), bytearray(256)
            stream.copy(memory, sent)
            await stream.copy(answer, memory)
            await device.synchronize()
    except AclError as error:
        return str(error)
    if answer != sent:
        return "expected copies to return the 256 bytes that were sent, got other bytes"
    return "" if device.state is State.OPEN else f"expected the state OPEN, got {device.state.name}"


def run(scale: Scale, seed: int) -> Outcome:
    """Runs all seeds, one after another."""
    outcome = Outcome()
    os.environ["AIOACL_SIM_DEVICES"] = str(DEVICES)
    crowd.warmed_up(range(DEVICES))
    seeds, size = scale.pick(2, 6, 100), scale.pick(200, 500, 2_000)
    totals, fired, needed, resets, done = Counter[str](), Counter[str](), Counter[int](), 0, 0
    for each in range(seed, seed + seeds):
        one = SeedRun(each, size)
        one.run(LIMIT_SECONDS[scale] * 0.9)
        totals, fired = totals + one.plan.outcomes, fired + one.fired
        needed.update(one.needed)
        resets, done = resets + len(one.plan.reports), done + 1
        again = f"python -m tests.reliability chaos --{scale.value} --seed={each}{setting.AGAIN}"
        outcome.findings += [f"{one.settings()}\n{finding}\n  again: {again}" for finding in one.findings]
        if one.findings:
            break  # the next seed would report the leftovers of this one again
    outcome.figures = {
        "seeds": done,
        "operations": totals.total(),
        "faults that fired": dict(fired.most_common()),
        "outcomes": dict(totals.most_common()),
        "resets requested by members": resets,
        "devices by the number of resets until they worked": dict(sorted(needed.items())),
    }
    return outcome
