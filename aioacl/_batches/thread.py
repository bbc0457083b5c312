"""The thread of a batcher, which waits in C for the ends of its executions.

It handles the ends, so no event loop of the program has to run for the next batch to begin. It also does what another
thread must not do: that thread holds a lock, or Ctrl-C may interrupt it.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from aioacl._base import sync
from aioacl._base.errors import OutOfMemoryError
from aioacl._base.ffi import ffi, lib, pointer
from aioacl._library.runtime import must_not_be_forked

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._models.calls import ModelRun

THREAD: Final = "aioacl-batch"


class BatchThread:
    """The thread, and the runs of models whose ends it waits for."""

    def __init__(self) -> None:
        must_not_be_forked()
        self._runs: dict[int, tuple[ModelRun, Callable[[int], object]]] = {}
        self._keys = itertools.count(1)
        self._soon: deque[Callable[[], object]] = deque()
        self._over = False
        self._port = lib.aio_port_quiet()
        if not self._port:
            raise OutOfMemoryError("the host is out of memory")
        self._address = pointer(self._port)
        sync.spawn(THREAD, self._serve)

    def begin(self, run: ModelRun, ended: Callable[[int], object]) -> int:
        """Begins a run. The thread calls `ended` with its result. Returns 0, or the code of a refusal."""
        key = next(self._keys)
        self._runs[key] = run, ended
        code = run._begin(self._address, key)
        if code:
            self._runs.pop(key, None)
        return code

    def drop(self, belongs: Callable[[ModelRun], bool]) -> None:
        """Gives up the runs for which the function returns True. Their ends are ignored."""
        for key, (run, _) in tuple(self._runs.items()):
            if belongs(run) and self._runs.pop(key, None) is not None:
                run.leave()

    def soon(self, function: Callable[[], object]) -> None:
        """Lets the thread call a function, unless the thread has ended. Takes no lock."""
        self._soon.append(function)
        lib.aio_port_kick(self._port)

    def end(self) -> None:
        """Ends the thread."""
        self._over = True
        lib.aio_port_kick(self._port)

    def __del__(self) -> None:
        if getattr(self, "_port", None):
            lib.aio_port_close(self._port)

    def _serve(self) -> None:
        """Runs on the thread."""
        batch: Any = ffi.new("aio_batch *")
        while not self._over:
            count = lib.aio_port_wait(self._port, batch)
            for at in range(count):
                taken = self._runs.pop(batch.keys[at], None)
                if taken is not None:
                    taken[1](batch.results[at])
                    del taken  # it refers to the batcher
            batch.count = 0
            while self._soon:
                self._soon.popleft()()
        self._soon.clear()
