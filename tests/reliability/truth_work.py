"""Enqueues the work of the truth part's scenarios. Each entry is noted in the oracle, and some are made to fail."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import aioacl
from aioacl import AclError, QueueFull, simulator
from tests.reliability.truth_bench import CELL_BYTES, CODES, EVENT_TIMEOUT, fail_next_task
from tests.reliability.truth_oracle import DeviceWait, Failure, Queue
from tests.reliability.truth_tally import Checker, Row, Tally

if TYPE_CHECKING:
    import asyncio
    import random
    from collections.abc import Callable
    from concurrent.futures import ThreadPoolExecutor

    from tests.reliability.truth_bench import Bench, Board

    Spans = list[tuple[Queue, int, int]]

STEPS: Final = 50
DEEPEST: Final = 5
NEVER: Final = 1 << 40
FAILING: Final = (0.0, 0.01, 0.03, 0.1)
TIMEOUT: Final = "a wait for an event that times out"
DIRECTLY: Final = "directly"


@dataclass(eq=False)
class Run:
    """A stream, and the state that the script records for it."""

    stream: aioacl.Stream
    board: Board
    queue: Queue
    blob: aioacl.DeviceBuffer | None = None
    value: bytes | None = None  # the bytes of the blob after the last upload
    locked: bool = False  # an operation that enqueues several times is in progress
    failed: bool = False
    # The stream is being renewed, so a wait for the device need not cover the old native stream.
    renewing: bool = False
    held: int = 0  # the number of steps until the held stream is released; 0 if it is not held


@dataclass(eq=False)
class Point:
    """A ticket or an event, and the place up to which it covers its stream."""

    queue: Queue
    place: int
    thing: Any
    run: Run
    target: bytearray | memoryview | None = None
    expected: bytes | None = None

    def wrong(self) -> str:
        """Returns a text if the copied bytes differ from the bytes that were sent, otherwise ""."""
        if self.target is None or self.expected is None or bytes(self.target) == self.expected:
            return ""
        return f"expected {self.expected[:4]!r}..., got {bytes(self.target[:4])!r}..., at {self.place} of {self.queue}"


@dataclass(eq=False)
class Script:
    """The state of a scenario, and the functions that enqueue its work."""

    name: str
    bench: Bench
    tally: Tally
    rng: random.Random
    pool: ThreadPoolExecutor
    warned: list[str]
    timeouts: bool
    runs: list[Run] = field(default_factory=list[Run])
    queues: list[Queue] = field(default_factory=list[Queue])
    tickets: list[Point] = field(default_factory=list[Point])
    events: list[Point] = field(default_factory=list[Point])
    # The waits for each device.
    waits: defaultdict[int, list[DeviceWait]] = field(
        default_factory=lambda: defaultdict[int, list[DeviceWait]](list)
    )
    own: dict[int, Point] = field(default_factory=dict[int, Point])
    cells: dict[int, int] = field(default_factory=dict[int, int])  # the number of used cells of each device
    slots: dict[int, int] = field(default_factory=dict[int, int])  # the number of used slots of each device
    # The number of used notifies of each device.
    notified: dict[int, int] = field(default_factory=dict[int, int])
    written: list[tuple[int, Queue, int, bytes]] = field(default_factory=list[tuple[int, Queue, int, bytes]])
    readers: set[asyncio.Task[None]] = field(default_factory=set["asyncio.Task[None]"])

    def __post_init__(self) -> None:
        self.checker = Checker(self.tally)
        self.failing = self.rng.choice(FAILING)

    def row(self, kind: str) -> Row:
        """Returns the description of an await in this scenario."""
        return Row(self.name, kind, self.bench.strategy)

    # --- work -------------------------------------------------------------------------------------------------------

    def _directly(self, run: Run) -> None:
        works = (self._fill, self._put, self._put, self._copy, self._get, self._get, self._record, self._wait)
        self.rng.choice((*works, *works, self._wait, self._launch, self._notify))(run)

    def _code(self) -> int:
        return self.rng.choice(CODES) if self.rng.random() < self.failing else 0

    def _enqueue(
        self,
        run: Run,
        what: str,
        call: Callable[[], Any],
        code: int = 0,
        *,
        reported: bool = True,
        counted: bool = True,
        source: Point | None = None,
    ) -> Any:
        """Makes the call, and notes the entry that it enqueues. Returns the call's result; None if it was refused."""
        queue, at = run.queue, source.place if source else 0
        failure = Failure(queue, len(queue.entries) + 1, code, what, reported) if code else None
        entry = queue.add(failure=failure, counted=counted, source=source.queue if source else None, at=at)
        try:
            result = call()
        except QueueFull:
            queue.entries.pop()
            fail_next_task(run.stream, 0)
            return None
        except AclError as error:
            queue.entries.pop()
            run.failed = source is None
            self.checker.refused(self.row(what), queue, (source.queue, at) if source else None, error)
            return None
        queue.enqueued(entry, getattr(result, "position", 0))
        self.tally.work[DIRECTLY] += 1
        if code:
            self.tally.injected[what] += 1
        return result if result is not None else True

    def _task(self, run: Run, what: str, call: Callable[[], Any], *, counted: bool = True) -> Any:
        """Enqueues a task, and by chance makes it fail."""
        if code := self._code():
            fail_next_task(run.stream, code)
        return self._enqueue(run, what, call, code, counted=counted)

    def _ticket(
        self,
        run: Run,
        thing: Any,
        target: bytearray | memoryview | None = None,
        expected: bytes | None = None,
    ) -> None:
        if thing is not None:
            self.tickets.append(Point(run.queue, run.queue.placed, thing, run, target, expected))

    def _cell(self, run: Run) -> int | None:
        index = run.board.device.index
        number = self.cells.get(index, 0)
        self.cells[index] = number + 1
        return number if number < len(run.board.cells) else None

    def _write(self, run: Run, what: str, value: bytes, call: Callable[[aioacl.DeviceBuffer], Any]) -> None:
        number = self._cell(run)
        if number is None:
            return
        thing = self._task(run, what, lambda: call(run.board.cells[number]))
        if thing is not None:
            self.written.append((number, run.queue, run.queue.placed, value))
            self._ticket(run, thing)

    def _fill(self, run: Run) -> None:
        byte = self.rng.randrange(256)
        self._write(run, "fill", bytes([byte]) * CELL_BYTES, lambda cell: run.stream.fill(cell, byte))

    def _put(self, run: Run) -> None:
        value = self.rng.randbytes(8) * (CELL_BYTES // 8)
        self._write(run, "staged copy up", value, lambda cell: run.stream.copy(cell, value))

    def _readable(self, run: Run) -> tuple[int, bytes] | None:
        """Chooses a cell whose bytes are written before the stream reaches its next entry."""
        queue = run.queue
        reach = {link.source: link.at for link in queue.links(queue.placed)}
        reach[queue] = queue.placed
        found = [
            (number, value)
            for number, writer, place, value in self.written[-40:]
            if writer.device == queue.device and place <= reach.get(writer, 0)
        ]
        return self.rng.choice(found) if found else None

    def _copy(self, run: Run) -> None:
        if (source := self._readable(run)) is None:
            return
        of = run.board.cells[source[0]]
        self._write(run, "copy on the device", source[1], lambda cell: run.stream.copy(cell, of))

    def _get(self, run: Run) -> None:
        if (source := self._readable(run)) is None:
            return
        target = bytearray(CELL_BYTES)
        thing = self._task(
            run, "staged copy down", lambda: run.stream.copy(target, run.board.cells[source[0]])
        )
        self._ticket(run, thing, target, source[1])

    def _record(self, run: Run) -> Point | None:
        event = self._enqueue(run, "record", run.stream.record)
        if event is None:
            return None
        self.events.append(Point(run.queue, run.queue.placed, event, run))
        return self.events[-1]

    def _record_own(self, run: Run) -> Point | None:
        event = self.rng.choice(run.board.own)
        if self._enqueue(run, "record of an own event", partial(run.stream.record, event)) is not None:
            self.own[id(event)] = Point(run.queue, run.queue.placed, event, run)
        return self.own.get(id(event))

    def _wait(self, run: Run) -> None:
        if self.timeouts and self.rng.random() < 0.3:
            self._wait_that_times_out(run)
        elif (point := self._recorded()) is not None:
            wait = partial(run.stream.wait_event, point.thing)
            self._ticket(run, self._enqueue(run, "wait for an event", wait, source=point))

    def _recorded(self) -> Point | None:
        """Chooses an event."""
        points = [point for point in (*self.events[-12:], *self.own.values()) if point.queue.depth < DEEPEST]
        return self.rng.choice(points) if points else None

    def _wait_that_times_out(self, run: Run) -> None:
        if (point := self._record_held(run)) is None:
            return
        code = EVENT_TIMEOUT
        with simulator.fault("aclrtStreamWaitEvent", stream=run.stream, nth=1, async_error=code):
            wait = partial(run.stream.wait_event, point.thing)
            self._ticket(run, self._enqueue(run, TIMEOUT, wait, code, reported=False, source=point))

    def _record_held(self, run: Run) -> Point | None:
        """Records an event on another stream, which it holds: a wait for a complete event cannot time out."""
        sources = [each for each in self.runs if each is not run and not each.locked and not each.failed]
        if not sources:
            return None
        source = self.rng.choice(sources)
        simulator.hold(source.stream)
        source.held = max(source.held, self.rng.randint(1, 6))
        point = self._record(source)
        return point if point is not None and point.queue.depth < DEEPEST else None

    def _launch(self, run: Run) -> None:
        self._task(run, "kernel", lambda: run.board.launch(run.stream), counted=False)

    def _next_notify(self, run: Run) -> int | None:
        index = run.board.device.index
        number = self.notified.get(index, 0)
        self.notified[index] = number + 1
        return number if number < len(run.board.notifies) else None

    def _notify(self, run: Run) -> None:
        what, number = "a wait for a notify", self._next_notify(run)
        if number is None:
            return
        call = partial(run.board.await_notify, run.stream, number)
        if not (code := self._code()):
            self._enqueue(run, what, call, counted=False)
            return
        with simulator.fault("aclrtWaitAndResetNotify", stream=run.stream, nth=1, async_error=code):
            self._enqueue(run, what, call, code, counted=False)
