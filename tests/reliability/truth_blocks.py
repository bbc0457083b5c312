"""Launch blocks of the truth part's scenarios: other code enqueues tasks of every kind on a stream of aioacl.

The tasks are fills, copies on the device, copies from and to pinned memory, kernels, and waits for notifies and events.
aioacl does not know of these waits, so the block does not depend on the stream of the event. A block that has a wait
which times out is confirmed by a synchronize (`reported=False`), and so are some of the other blocks.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import aioacl
from aioacl import AclError, QueueFull, simulator
from aioacl._base.ffi import lib
from aioacl.lowlevel import constants, ffi, functions, handle
from tests.reliability.truth_bench import CELL_BYTES, EVENT_TIMEOUT
from tests.reliability.truth_oracle import Entry, Failure
from tests.reliability.truth_work import TIMEOUT, Run, Script

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

BLOCK_SHARE: Final = (
    0.5  # of the calls of `_work`; a block has several tasks, but some work is never in a block
)
MOST_TASKS: Final = 3
REPORTED_SHARE: Final = 0.6  # of the blocks whose tasks are all reported
IN_BLOCKS: Final = "in launch blocks"
WAIT: Final = "aclrtStreamWaitEvent"
COPY: Final = "aclrtMemcpyAsync"


@dataclass(eq=False)
class Task:
    """One task of a block: how it is enqueued on the native stream, and how it fails."""

    what: str
    function: str
    enqueue: Callable[[Any], object]
    code: int = 0  # with which it is made to fail; 0 if it succeeds
    cell: int | None = None  # the cell that it writes
    value: bytes = b""  # what it writes
    target: memoryview | None = None  # the pinned memory that it writes

    @property
    def reported(self) -> bool:
        """Whether the runtime reports a failure of it."""
        return self.what != TIMEOUT

    def failing(self, stream: aioacl.Stream) -> AbstractContextManager[object]:
        """Makes the task fail if it is enqueued inside the returned block."""
        if not self.code:
            return nullcontext()
        return simulator.fault(self.function, stream=stream, nth=1, async_error=self.code)


class Blocks(Script):
    """A script that enqueues half of its work in launch blocks."""

    def _work(self, run: Run) -> None:
        """Enqueues something, directly or in a block."""
        if run.locked or (run.failed and self.rng.random() < 0.9):
            return
        if self.rng.random() < BLOCK_SHARE:
            self._block(run)
        else:
            self._directly(run)

    def _block(self, run: Run) -> None:
        makers = (
            self._filled,
            self._copied,
            self._copied_up,
            self._copied_up,
            self._copied_down,
            self._copied_down,
            self._kernel,
            self._notified,
            self._waits,
            self._waits,
        )
        made = [self.rng.choice(makers)(run) for _ in range(self.rng.randint(1, MOST_TASKS))]
        if tasks := [task for task in made if task is not None]:
            reported = all(task.reported for task in tasks) and self.rng.random() < REPORTED_SHARE
            self._enqueue_block(run, tasks, reported=reported)

    def _enqueue_block(self, run: Run, tasks: list[Task], *, reported: bool) -> None:
        queue, entries = run.queue, list[Entry]()
        try:
            with run.stream.launch(tasks=2 * len(tasks), reported=reported) as work:
                first = int(lib.aio_stream_tail(run.stream._core.handle)) + 1
                native = ffi.cast("aclrtStream", work.handle)
                for task in tasks:
                    entries.append(self._entry(run, task, unsure=not reported))
                    with task.failing(run.stream):
                        task.enqueue(native)
        except QueueFull:
            return
        except AclError as error:
            del queue.entries[len(queue.entries) - len(entries) :]
            run.failed = True
            self.checker.refused(self.row("launch block"), queue, None, error)
            return
        for entry in entries:
            queue.enqueued(entry, work.ticket.position, first)
        self._note_tasks(run, tasks, work.ticket)

    def _entry(self, run: Run, task: Task, *, unsure: bool) -> Entry:
        queue, failure = run.queue, None
        if task.code:
            what = f"{task.what} in a launch block"
            failure = Failure(queue, len(queue.entries) + 1, task.code, what, task.reported)
        return queue.add(failure=failure, unsure=unsure)

    def _note_tasks(self, run: Run, tasks: list[Task], ticket: aioacl.Ticket) -> None:
        queue = run.queue
        self.tally.work[IN_BLOCKS] += len(tasks)
        self._ticket(run, ticket)
        for place, task in enumerate(tasks, queue.placed - len(tasks) + 1):
            if task.code:
                self.tally.injected[f"{task.what} in a launch block"] += 1
            if task.cell is not None:
                self.written.append((task.cell, queue, place, task.value))
            if task.target is not None:
                self._ticket(run, ticket, task.target, task.value)

    # --- the kinds of tasks -----------------------------------------------------------------------------------------

    def _slot(self, run: Run) -> aioacl.PinnedBuffer | None:
        """Returns pinned memory that no earlier task of the scenario uses."""
        index = run.board.device.index
        number = self.slots.get(index, 0)
        self.slots[index] = number + 1
        return run.board.pinned[number] if number < len(run.board.pinned) else None

    def _copy_task(self, what: str, kind: int, to: Any, source: Any, value: bytes, cell: int | None) -> Task:
        def enqueue(native: Any) -> None:
            functions.aclrtMemcpyAsync(handle(to), CELL_BYTES, handle(source), CELL_BYTES, kind, native)

        target = None if cell is not None else to.view
        return Task(what, COPY, enqueue, self._code(), cell, value, target)

    def _filled(self, run: Run) -> Task | None:
        byte, number = self.rng.randrange(256), self._cell(run)
        if number is None:
            return None
        cell = run.board.cells[number]

        def enqueue(native: Any) -> None:
            functions.aclrtMemsetAsync(handle(cell), CELL_BYTES, byte, CELL_BYTES, native)

        return Task("fill", "aclrtMemsetAsync", enqueue, self._code(), number, bytes([byte]) * CELL_BYTES)

    def _copied(self, run: Run) -> Task | None:
        source, number = self._readable(run), self._cell(run)
        if source is None or number is None:
            return None
        cells, kind = run.board.cells, constants.ACL_MEMCPY_DEVICE_TO_DEVICE
        return self._copy_task("copy on the device", kind, cells[number], cells[source[0]], source[1], number)

    def _copied_up(self, run: Run) -> Task | None:
        slot, number = self._slot(run), self._cell(run)
        if slot is None or number is None:
            return None
        value, kind = self.rng.randbytes(CELL_BYTES), constants.ACL_MEMCPY_HOST_TO_DEVICE
        slot.view[:] = value
        return self._copy_task("copy up", kind, run.board.cells[number], slot, value, number)

    def _copied_down(self, run: Run) -> Task | None:
        source, slot = self._readable(run), self._slot(run)
        if source is None or slot is None:
            return None
        slot.view[:] = bytes(CELL_BYTES)
        kind = constants.ACL_MEMCPY_DEVICE_TO_HOST
        return self._copy_task("copy down", kind, slot, run.board.cells[source[0]], source[1], None)

    def _kernel(self, run: Run) -> Task:
        return Task("kernel", "aclrtLaunchKernelWithHostArgs", run.board.launch, self._code())

    def _notified(self, run: Run) -> Task | None:
        number = self._next_notify(run)
        if number is None:
            return None
        board = run.board
        return Task(
            "wait for a notify",
            "aclrtWaitAndResetNotify",
            lambda native: board.await_notify(native, number),
            self._code(),
        )

    def _waits(self, run: Run) -> Task | None:
        times_out = self.timeouts and self.rng.random() < 0.3
        point = self._record_held(run) if times_out else self._recorded()
        if point is None:
            return None
        event = point.thing

        def enqueue(native: Any) -> None:
            functions.aclrtStreamWaitEvent(native, handle(event))

        if times_out:
            return Task(TIMEOUT, WAIT, enqueue, EVENT_TIMEOUT)
        return Task("wait for an event", WAIT, enqueue)
