"""One scenario of the truth part: streams of two devices, random work, tasks that fail, and many awaits.

The script enqueues on the loop's thread and notes each entry in the oracle. Awaits run at the same time, as tasks of
the loop and as `.result()` on threads. At the end every failure must have been reported, and each uncollected failure
must have emitted a warning.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import aioacl
from aioacl import simulator
from aioacl.lowlevel import ffi
from tests.reliability.truth_bench import (
    CODES,
    MODEL_NUMBERS,
    PATIENCE_SECONDS,
    PIECE_BYTES,
    FailureListener,
)
from tests.reliability.truth_blocks import Blocks
from tests.reliability.truth_oracle import MAYBE, NO, DeviceWait, Failure, Queue
from tests.reliability.truth_work import DIRECTLY, NEVER, Point, Run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.reliability.truth_bench import Board

    Spans = list[tuple[Queue, int, int]]

STEPS: Final = 50
CLASSES: Final = 10


class Scenario(Blocks):
    """One scenario. The docstring of the module describes it."""

    # --- a whole scenario ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Runs the scenario."""
        listeners = [FailureListener(board.device) for board in self.bench.boards]
        for number, board in enumerate(self.bench.boards):
            for each in range(self.rng.randint(2, 4)):
                await self._make(board, f"{self.name}/{number}.{each}", each)
        for _ in range(STEPS):
            if not await self._step():
                break
        for run in self.runs:
            self._release(run)
        for _ in range(4):  # awaits after all work was enqueued
            self._begin_awaits(self.rng.choice(self.runs))
        await self._join()
        await self._check_reports(listeners)
        for run in self.runs:
            await self._idle(run)
        await self._close()

    async def _make(self, board: Board, name: str, number: int) -> None:
        stream = await board.device.create_stream()
        run = Run(stream, board, self._queue(name, board, stream), board.blobs[number])
        self.runs.append(run)

    def _queue(self, name: str, board: Board, stream: aioacl.Stream) -> Queue:
        found = ffi.new("int32_t *")
        board.acl.aclrtStreamGetId(stream, found)
        index, exact = board.device.index, self.tally.mode.exact
        self.queues.append(Queue(name, index, found[0], self.queues, exact, self.waits[index]))
        return self.queues[-1]

    async def _join(self) -> None:
        while self.readers:
            _, late = await asyncio.wait(self.readers, timeout=PATIENCE_SECONDS)
            if late:
                self.tally.find(
                    f"scenario {self.name}: expected awaits to end, "
                    f"got {len(late)} that wait: {[str(one) for one in late][:3]}"
                )
                raise TimeoutError(self.name)

    async def _idle(self, run: Run) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not run.stream.query():  # noqa: ASYNC110 - an await would collect the stream's failure
                await asyncio.sleep(0.001)

    async def _destroyed(self, board: Board) -> None:
        """Waits until no failed stream of the scenario is left. Otherwise, later waits for the device would cover it.

        A native stream that was renewed is destroyed after its last wait. The cache keeps streams that have not failed.
        """
        async with asyncio.timeout(PATIENCE_SECONDS):
            while any(core.outcome() for core in board.device._manager.streams.members()):  # noqa: ASYNC110 - no event exists
                await asyncio.sleep(0.001)

    # --- one step ---------------------------------------------------------------------------------------------------

    async def _step(self) -> bool:
        """Makes one step. Returns False if no more rounds are required."""
        for run in self.runs:
            run.held -= run.held > 1
            if run.held == 1:
                self._release(run)
        free = [run for run in self.runs if not run.locked]
        if not free:
            await asyncio.sleep(0.001)
            return True
        run = self.rng.choice(free)
        if run.failed and self.rng.random() < 0.5:
            run.locked = run.renewing = True
            self._start(self._renew(run))
            return True
        for _ in range(self.rng.randint(1, 4)):
            self._work(self.rng.choice((run, run, self.rng.choice(free))))
        if self.rng.random() < 0.3:
            self._start(self._call(run.board))
        wanted = self._begin_awaits(run)
        if self.rng.random() < 0.6:
            await asyncio.sleep(self.rng.choice((0, 0, 0, 0.001)))
        return wanted

    def _start(self, body: Any) -> None:
        task = asyncio.get_running_loop().create_task(body)
        self.readers.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.readers.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.tally.find(f"scenario {self.name}: expected {task} to return, got {error!r}")

    async def _call(self, board: Board) -> None:
        """Calls the model. No task of the call is made to fail, because awaits of the device would cover it.

        With "confirmed" detection, a wait for the device may take the code of another stream, which then counts for all
        unfinished work.
        """
        start = self.rng.randrange(1 << 16)
        x = array("f", range(start, start + MODEL_NUMBERS))
        y = bytearray(CLASSES * x.itemsize)
        numbers = memoryview(x).cast("B").cast("f", (1, MODEL_NUMBERS))
        try:
            await board.model(numbers, out=memoryview(y).cast("f", (1, CLASSES)))
        except aioacl.DeviceFault as error:
            if self.tally.mode.exact or error.code not in CODES:
                raise
            return
        if y != memoryview(x).cast("B")[: len(y)]:
            self.tally.find(f"scenario {self.name}: expected the result of {start}, got {bytes(y[:8])!r}...")

    def _release(self, run: Run) -> None:
        if run.held:
            run.held = 0
            simulator.release(run.stream)

    async def _renew(self, run: Run) -> None:
        self._release(run)
        for failure in run.queue.all(run.queue.placed):
            failure.collected = max(failure.collected, MAYBE)
        run.queue.renewed = True
        await run.stream.renew(timeout=PATIENCE_SECONDS)
        run.queue = self._queue(f"{run.queue.name}'", run.board, run.stream)
        run.value, run.failed, run.locked, run.renewing = None, False, False, False

    # --- awaits -----------------------------------------------------------------------------------------------------

    def _begin_awaits(self, run: Run) -> bool:
        """Starts awaits of the kind with the most missing rounds. Returns False if no round is missing."""
        kind = self.tally.next_kind(self.bench.strategy)
        if kind is None:
            return False
        ways: dict[str, Callable[[str, Run], None]] = {
            "ticket": partial(self._await_point, self.tickets),
            "event": partial(self._await_point, self.events),
            "own event": self._await_own_event,
            "stream": self._await_stream,
            "device": self._await_device,
            "upload": partial(self._await_pump, up=True),
            "download": partial(self._await_pump, up=False),
            "result": self._await_result,
        }
        ways[kind](kind, run)
        return True

    def _readers(self) -> range:
        return range(self.rng.choice((1, 1, 2, 3)))

    def _read(
        self, kind: str, spans: Callable[[], Spans], begin: Callable[[], Awaitable[object]], point: Any = None
    ) -> None:
        self.tally.begin(kind, self.bench.strategy)

        async def read() -> None:
            before, error = spans(), None
            wait = DeviceWait(time.monotonic())
            if kind == "device":
                self.waits[before[0][0].device].append(wait)
            try:
                await begin()
            except Exception as raised:
                error = raised
            wait.end = time.monotonic()
            if kind == "device":  # the await may also cover work that was enqueued during the wait
                must = {queue: place for queue, place, _ in before}
                before = [(queue, must.get(queue, 0), place) for queue, _, place in spans()]
            self.checker.end(self.row(kind), before, error, point.wrong() if point and not error else "")

        self._start(read())

    def _await_point(self, points: list[Point], kind: str, run: Run) -> None:
        if kind == "event" and self.rng.random() < 0.7 and not run.locked:
            self._record(run)
        if not points:
            self._put(run)
            return
        point = self.rng.choice(points[-6:] if self.rng.random() < 0.8 else points)
        for _ in self._readers():
            self._read(
                kind,
                lambda: [(point.queue, point.place, point.place)],
                lambda: _await_thing(point.thing),
                point,
            )

    def _await_own_event(self, kind: str, run: Run) -> None:
        point = self._record_own(run) if not run.locked else None
        if point is None:
            return
        event = point.thing

        def spans() -> Spans:
            newest = self.own[id(event)]
            return [(newest.queue, newest.place, newest.place)]

        for _ in self._readers():
            self._read(kind, spans, lambda: _await_thing(event))

    def _await_stream(self, kind: str, run: Run) -> None:
        if run.renewing:
            return

        def spans() -> Spans:
            must = 0 if run.renewing else run.queue.counted
            return [(run.queue, must, len(run.queue.entries))]

        for _ in self._readers():
            self._read(kind, spans, lambda: _await_thing(run.stream))

    def _await_device(self, kind: str, run: Run) -> None:
        index = run.board.device.index

        def spans() -> Spans:
            live = {each.queue for each in self.runs if not each.renewing}
            queues = [queue for queue in self.queues if queue.device == index]
            return [(queue, queue.counted if queue in live else 0, len(queue.entries)) for queue in queues]

        self._read(kind, spans, run.board.device.synchronize)

    def _await_result(self, kind: str, run: Run) -> None:
        points = self.tickets[-8:] + self.events[-4:]
        for _ in self._readers():
            point = self.rng.choice(points) if points and (run.locked or self.rng.random() < 0.8) else None
            if point is None and run.locked:
                return
            self.tally.begin(kind, self.bench.strategy)
            loop = asyncio.get_running_loop()
            job = loop.run_in_executor(self.pool, self._take, kind, point, run)
            self._start(_joined(job))

    def _take(self, kind: str, point: Point | None, run: Run) -> None:
        """Waits by `.result()` on a thread of the pool, and checks the result."""
        queue, error = (point or run).queue, None
        place = point.place if point else 0 if run.renewing else queue.counted
        try:
            (point.thing if point else run.stream).result()
        except Exception as raised:
            error = raised
        may = place if point else len(queue.entries)
        self.checker.end(
            self.row(kind), [(queue, place, may)], error, point.wrong() if point and not error else ""
        )

    def _await_pump(self, kind: str, run: Run, *, up: bool) -> None:
        if run.locked or run.blob is None:
            return
        run.locked = True
        self.tally.begin(kind, self.bench.strategy)
        self._start(self._pump(kind, run, run.blob, up=up))

    async def _pump(self, kind: str, run: Run, blob: aioacl.DeviceBuffer, *, up: bool) -> None:
        size, code, queue = blob.size, self._code(), run.queue
        value, target = self.rng.randbytes(8) * (size // 8), bytearray(size)
        failure = Failure(queue, len(queue.entries) + 1, code, kind, reported=True) if code else None
        entry, error = queue.add(failure=failure), None
        nth = self.rng.randint(1, -(-size // PIECE_BYTES)) if code else NEVER
        self._release(run)
        with simulator.fault(
            "aclrtMemcpyAsync", stream=run.stream, nth=nth, async_error=code or CODES[0]
        ) as rule:
            try:
                await (run.stream.upload(blob, value) if up else run.stream.download(target, blob))
            except Exception as raised:
                error = raised
        entry.failure = failure if rule.hits else None
        self.tally.injected[kind] += rule.hits
        if rule.matches:
            self.tally.work[DIRECTLY] += 1
            queue.enqueued(entry)
        else:  # every copy was refused
            queue.entries.remove(entry)
        wrong = not up and run.value is not None and target != run.value
        place = len(queue.entries)
        self.checker.end(
            self.row(kind),
            [(queue, place, place)],
            error,
            f"{kind}: expected the bytes that were sent, got other bytes" if wrong else "",
        )
        run.value = run.value if not up else value if error is None else None
        run.failed, run.locked = run.failed or error is not None, False

    # --- ends -------------------------------------------------------------------------------------------------------

    def _exactly(self, failure: Failure) -> bool:
        """Whether this failure must be reported. If it may be hidden, any reported failure of the stream is enough."""
        return failure.reported and not failure.queue.may_hide(failure)

    def _unreported(self, listener: FailureListener, failures: list[Failure]) -> list[Failure]:
        return [each for each in failures if not listener.was_reported(each, exactly=self._exactly(each))]

    async def _check_reports(self, listeners: list[FailureListener]) -> None:
        """Checks that the first failure of every stream was reported, even if no await covered it."""
        for listener, board in zip(listeners, self.bench.boards, strict=True):
            index = board.device.index
            first = [f for queue in self.queues if queue.device == index and (f := queue.own(queue.placed))]

            unreported = partial(self._unreported, listener, first)

            # A renewed stream may have the same id as before, so an old report may match a later failure. Therefore
            # the number of failures is checked too.
            def all_reported(
                unreported: Any = unreported, board: Board = board, least: int = len(first)
            ) -> bool:
                return not unreported() and (
                    not self.tally.mode.exact or board.device.health.failed_tasks >= least
                )

            if not await listener.wait(all_reported, PATIENCE_SECONDS / 4):
                lost = [str(each) for each in unreported()]
                self.tally.find(
                    f"unreported: scenario {self.name}: expected {lost}, "
                    f"got {listener.received}, {listener.missed} missed"
                )
            self.tally.reported["reported"] += len(first)
            health = board.device.health
            if health.status != "ok" or (self.tally.mode.exact and health.failed_tasks < len(first)):
                self.tally.find(f"scenario {self.name}: expected {len(first)} failed tasks, got {health}")

    async def _close(self) -> None:
        for run in self.runs:
            await run.stream.close()
        for board in self.bench.boards:
            await self._destroyed(board)
        lost = [
            f
            for queue in self.queues
            if (f := queue.own(queue.placed)) and f.collected == NO and self._exactly(f)
        ]
        for failure in lost:
            queue = failure.queue
            place = f"of stream {queue.id} on device {queue.device}"
            end = asyncio.get_running_loop().time() + PATIENCE_SECONDS / 4
            while not any(text.endswith(place) for text in self.warned):
                await asyncio.sleep(0.005)
                if asyncio.get_running_loop().time() > end:
                    self.tally.find(
                        f"unreported: scenario {self.name}: expected a warning of {failure}, got none"
                    )
                    break
        self.tally.reported["uncollected, with a warning"] += len(lost)
        self.warned[:] = [
            text
            for text in self.warned
            if not text.endswith(tuple(f"on device {b.device.index}" for b in self.bench.boards))
        ]


async def _await_thing(thing: Any) -> None:
    await thing


async def _joined(job: asyncio.Future[None]) -> None:
    await job
