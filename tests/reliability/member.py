"""One member of a crowd: it runs one operation after another, and records how each ended.

An operation may succeed, be cancelled, or end in an error. The cause of the error must be a reset of the device, the
operation's own time limit or an injected fault. Any other error is a finding, and so is an operation that does not end.
"""

from __future__ import annotations

import random
import threading
import traceback
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import anyio

from aioacl import (
    AclError,
    DeviceQuarantined,
    DeviceReset,
    DeviceResetting,
    DeviceTimeout,
    StaleHandleError,
)
from tests.reliability import operations, setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from aioacl import Device, DeviceBuffer, PinnedBuffer, ResetReport, Stream
    from aioacl._base.options import Strategy
    from tests.reliability.operations import Operation

HANGS_SECONDS: Final = 60.0
TOOL_BYTES: Final = 4096
RESETS: Final = (DeviceReset, StaleHandleError, DeviceResetting, DeviceQuarantined)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yields the errors in a group of errors. For an error that is not a group, yields the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from leaves(one)
    else:
        yield error


@dataclass
class Tools:
    """The objects that a member uses again on a device until a reset makes them stale."""

    stream: Stream
    memory: DeviceBuffer
    pinned: PinnedBuffer
    ends: AsyncExitStack


@dataclass
class Plan:
    """The operations of a crowd and their results. All members of the crowd, on all threads, share one plan."""

    operations: int
    resets: int
    weights: Mapping[Operation, int]
    faulty: bool = False  # whether faults may fire anywhere
    cancelled: float = 0.08  # the share of operations that are cancelled, some before they begin
    time_limited: float = 0.15  # of the operations that accept a time limit, the share that get one
    outcomes: Counter[str] = field(default_factory=Counter[str])
    kinds: Counter[str] = field(default_factory=Counter[str])
    findings: list[str] = field(default_factory=list[str])
    reports: dict[tuple[int, int], ResetReport] = field(default_factory=dict[tuple[int, int], "ResetReport"])
    _begun: int = 0
    _requested: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self, rng: random.Random) -> Operation | None:
        """Returns the next operation; None after the last."""
        with self._lock:
            if self._begun >= self.operations and len(self.reports) + self._requested >= self.resets:
                return None
            self._begun += 1
            if len(self.reports) + self._requested < self.resets * min(1.0, self._begun / self.operations):
                self._requested += 1
                return operations.reset
        (chosen,) = rng.choices(tuple(self.weights), tuple(self.weights.values()))
        return chosen

    def count_reset(self, report: ResetReport) -> None:
        """Counts a reset that has ended."""
        with self._lock:
            self.reports[report.device, report.generation] = report

    def ended(self, kind: str, operation: str, outcome: str, finding: str = "") -> None:
        """Counts an operation that has ended."""
        with self._lock:
            self._requested -= operation == "reset"
            self.outcomes[outcome] += 1
            self.kinds[kind] += 1
            if finding:
                self.findings.append(finding)


class Member:
    """A task or a thread of a crowd."""

    def __init__(
        self, kind: str, number: int, plan: Plan, devices: Sequence[Device], waits: Strategy, seed: int
    ) -> None:
        self.kind = kind
        self.name = f"{kind} {number}"
        self.plan = plan
        self.waits: Strategy = waits
        self.random = random.Random(f"{seed} {self.name}")
        self._devices = devices  # these stay open; each user opens and closes the device with the next index
        self._tools: dict[int, Tools] = {}
        self._has_limit = False
        self._expected = 0

    # --- what operations use --------------------------------------------------------------------------------------

    async def tools(self, device: Device) -> Tools:
        """Returns a stream and memory on the device: those of the last operation, unless a reset made them stale."""
        kept = self._tools.get(device.index)
        if kept is not None and not kept.stream.stale:
            return kept
        await self._drop(device.index)
        async with AsyncExitStack() as stack:
            stream = await stack.enter_async_context(device.create_stream())
            memory = await stack.enter_async_context(device.allocate(TOOL_BYTES))
            pinned = await stack.enter_async_context(device.pinned(TOOL_BYTES))
            self._tools[device.index] = Tools(stream, memory, pinned, stack.pop_all())
        return self._tools[device.index]

    def bytes(self) -> bytes:
        """Returns random bytes to copy."""
        return self.random.randbytes(self.random.choice((1, 64, 1000, TOOL_BYTES)))

    def timeout(self) -> float | None:
        """Returns a time limit in seconds; in most cases None."""
        if self.random.random() >= self.plan.time_limited:
            return None
        self._has_limit = True
        return self.random.choice((0.0, 0.0005, 0.005))

    def open_options(self) -> dict[str, Any]:
        """Returns options for open_device: whether it waits for a reset, and for how long."""
        return (
            {"wait": False}
            if self.random.random() < self.plan.time_limited / 2
            else {"timeout": self.timeout()}
        )

    def expects(self, code: int) -> None:
        """Notes that the operation may end in an error with that code, because it causes the error."""
        self._expected = code

    def check_report(self, report: ResetReport) -> None:
        """Checks the report of a reset that this member requested."""
        self.plan.count_reset(report)
        operations.must(
            report.ok or self.plan.faulty,
            f"expected a reset without a fault to succeed, got {report}, {report.codes}",
        )

    # --- one operation after another -----------------------------------------------------------------------------

    async def work(self) -> None:
        """Runs the operations of the plan."""
        try:
            while (operation := self.plan.next(self.random)) is not None:
                await self._do(operation)
        finally:
            for index in tuple(self._tools):
                await self._drop(index)

    def begins(self) -> None:
        """Starts another operation: the allowed errors of the last operation no longer apply."""
        self._has_limit, self._expected = False, 0

    def device(self) -> Device | int:
        """Returns a device that stays open, or the index of the device that each user opens."""
        index = self.random.randrange(len(self._devices) + 1)
        return self._devices[index] if index < len(self._devices) else index

    async def _do(self, operation: Operation) -> None:
        name = operation.__name__
        self.begins()
        try:
            with anyio.move_on_after(HANGS_SECONDS) as patience, anyio.CancelScope() as scope:
                if operation is not operations.reset and self.random.random() < self.plan.cancelled:
                    when = self.random.choice((-1, 0.003)) * self.random.random()
                    scope.deadline = anyio.current_time() + when
                await self._on_some_device(operation)
        except Exception as error:
            self.ended(name, error)
            return
        if patience.cancelled_caught:
            finding = f"expected {name} of {self.name} to end within {HANGS_SECONDS:g} s, but it hangs"
            self.plan.ended(self.kind, name, "hangs", finding)
        else:
            self.plan.ended(self.kind, name, "cancelled" if scope.cancelled_caught else "ok")

    async def _on_some_device(self, operation: Operation) -> None:
        device = self.device()
        if not isinstance(device, int):
            await operation(self, device)
            return
        async with setting.open_device(device, self.waits, **self.open_options()) as opened:
            await operation(self, opened)

    def ended(self, name: str, error: Exception) -> None:
        """Counts an operation that ended in an error. If nothing explains the error, adds a finding."""
        outcomes = [(self._outcome(one), one) for one in leaves(error)]
        unexpected = [repr(one) for outcome, one in outcomes if not outcome]
        if unexpected:
            trace = "".join(traceback.format_exception(error)[-6:])
            finding = (
                f"expected {name} of {self.name} to end as allowed, got {', '.join(unexpected)}\n{trace}"
            )
            self.plan.ended(self.kind, name, "other", finding)
        else:
            self.plan.ended(self.kind, name, outcomes[0][0])

    def _outcome(self, error: BaseException) -> str:
        """Returns the expected outcome that explains the error; "" if there is none."""
        if isinstance(error, RESETS):
            return type(error).__name__
        if isinstance(error, DeviceTimeout) and error.code is None:
            return "DeviceTimeout" if self._has_limit else ""
        return "injected" if isinstance(error, AclError) and self._explained(error) else ""

    def _explained(self, error: AclError) -> bool:
        """Whether the operation has announced an error with this code."""
        return error.code is not None and error.code == self._expected

    async def _drop(self, index: int) -> None:
        tools = self._tools.pop(index, None)
        if tools is not None:
            with anyio.CancelScope(shield=True):
                await tools.ends.aclose()
