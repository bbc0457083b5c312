"""The thread of a batcher, which waits in C for the ends of its executions.

It handles the ends, so no event loop of the program has to run for the next batch to begin. If one event loop waits for
all items, the loop may handle them first: that saves the switch between the threads, and the waits for the GIL. The
thread handles what the loop has left for 5 ms, for example because the loop is blocked.

The thread also does what another thread must not do: that thread holds a lock, or Ctrl-C may interrupt it.
"""

from __future__ import annotations

import itertools
from collections import deque
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from aioacl._base import sync
from aioacl._base.ffi import Baton, ffi, lib, pointer
from aioacl._batches.failures import closed_error
from aioacl._batches.interrupts import uninterrupted
from aioacl._wait.port import Port

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

    from aioacl._batches.execution import BatchRun, ModelExecutor

    Between = Callable[[Callable[[Any], object], object], None]

THREAD: Final = "aioacl-batch"


class BatchThread:
    """The thread, and the runs of models whose ends it waits for.

    Attributes:
        number: the number of the thread; 0 if it does not run.
    """

    def __init__(self) -> None:
        self.number = 0
        self._runs: dict[int, BatchRun] = {}
        self._keys = itertools.count(1)
        self._soon: deque[Callable[[], object]] = deque()
        self._reader: AbstractEventLoop | None = None
        self._baton = Baton()
        self._batch: Any = ffi.new("aio_batch *")  # keeps what an exception of a signal handler has left
        # None after the end. The thread, the reader and each call have a reference of their own while they use it.
        self._port: Port | None = Port()
        self._pointer = pointer(self._port.handle)

    def start(self) -> None:
        """Starts the thread. The owner has this object by then, so that after Ctrl-C its finalizer ends the thread."""
        sync.spawn(THREAD, self._serve)

    def join(self, loop: AbstractEventLoop, between_tasks: Between) -> None:
        """Lets a loop handle ends too, unless another open loop does. Called on the thread of the loop, and once.

        `between_tasks` calls a function while no task of the loop runs.
        """
        port = self._port
        if port is not None and (self._reader is None or self._reader.is_closed()):
            self._reader = loop
            loop.add_reader(port.fd, self._read, loop, port, between_tasks)

    def share(self, only: AbstractEventLoop | None) -> None:
        """The thread gives way to a loop that handles ends, if `only` that loop waits for items."""
        port = self._port
        if port is not None:
            lib.aio_port_share(port.handle, only is not None and only is self._reader)

    def begin(self, run: BatchRun) -> int:
        """Begins a run. Its `over` is called with its result. Returns 0, or the code of a refusal.

        Raises:
            ParameterError: the thread has ended.
        """
        port, key = self._port, next(self._keys)
        if port is None:
            raise closed_error()
        self._runs[key] = run
        code = run._begin(self._pointer, key)
        if code:
            self._runs.pop(key, None)
        return code

    def drop(self, executor: ModelExecutor) -> None:
        """Gives up the runs of an executor. Their ends are ignored."""
        for key, run in tuple(self._runs.items()):
            if run.executor is executor and self._runs.pop(key, None) is not None:
                run.leave()

    def soon(self, function: Callable[[], object]) -> None:
        """Lets the thread or the loop call a function, unless the thread has ended. Takes no lock."""
        port = self._port
        self._soon.append(function)
        if port is not None:
            port.kick()

    def end(self) -> None:
        """Ends the thread."""
        port, self._port = self._port, None
        if port is not None:
            port.kick()

    def _serve(self) -> None:
        """Runs on the thread."""
        port, self.number = self._port, get_ident()
        while port is not None and self._port is not None:
            lib.aio_port_wait(port.handle)
            self._handle()
        self.number = 0
        self._soon.clear()
        del port  # the traceback of an error refers to this frame, and the descriptor must not last as long

    def _read(self, loop: AbstractEventLoop, port: Port, between_tasks: Between) -> None:
        """Runs on the loop when the descriptor is readable."""
        if self._port is None:
            loop.remove_reader(port.fd)
        else:
            between_tasks(uninterrupted, self._handle)
        del port  # as above

    def _handle(self) -> None:
        """Handles the ends that have come. If another thread does so, the descriptor stays readable, or it is done."""
        port = self._port
        with self._baton as mine:
            if not mine or port is None:
                return
            batch = self._batch
            try:
                for at in range(lib.aio_port_fill(port.handle, batch)):
                    run = self._runs.pop(batch.keys[at], None)
                    if run is not None:
                        run.over(batch.results[at])
                        del run  # it refers to the batcher
                batch.count = 0
                while self._soon:
                    self._soon.popleft()()
            finally:
                if self._port is None or batch.count or self._soon:
                    port.kick()  # the thread or the loop has not seen it
                del port  # as above
