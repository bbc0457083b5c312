"""`aioacl.trace()`: collects the records of the flight recorder during a block, and then writes a trace of them.

A thread of its own collects the records before later ones overwrite them, encodes them at the end, and writes the
files. So neither happens on an event loop.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import threading
import time
from collections import deque
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from aioacl._base import flight, flight_ring, sync, totals
from aioacl._base.errors import ParameterError
from aioacl._base.ffi import ffi, lib
from aioacl._base.flight import LAYOUT
from aioacl._base.options import must_be_bool, repr_of
from aioacl._base.public import publish
from aioacl._base.unique import Unique
from aioacl._library.runtime import must_not_be_forked
from aioacl._lifecycle.manager import opened_managers
from aioacl._trace import page, perfetto
from aioacl._trace.device_time import Spans, ends_of
from aioacl._wait.current import run_blocking
from aioacl._wait.job_future import JobFuture

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from aioacl._lifecycle.manager import Manager

MOST_RECORDS: Final = 1 << 22  # 160 MB; the oldest records of a longer trace are dropped
LOOK_SECONDS: Final = 0.05  # in this time, far fewer records are written than the recorder has room for
PRIVATE: Final = 0o600


class Trace(Unique):
    """A trace of what the process does in a block: `async with aioacl.trace(path):`.

    On a thread without a running event loop, use it with `with`. A Trace can be used once.
    """

    __slots__ = ("_device_time", "_done", "_files", "_stop")
    _noun = "trace"

    def __init__(self, path: Path, html: Path | None, *, device_time: bool) -> None:
        self._device_time = device_time
        self._files = {path: perfetto.encode, **({html: page.encode} if html is not None else {})}
        self._stop = threading.Event()
        self._done: JobFuture[None] | None = None

    async def _begin(self) -> Self:
        must_not_be_forked()
        if self._done is not None:
            raise RuntimeError("the trace was already used; make another one with aioacl.trace(path)")
        if self._device_time and not lib.aio_spans_start():
            raise RuntimeError("another trace has device_time=True; end it first, or omit device_time")
        made = dict[Path, Path]()
        try:
            for path in self._files:
                made[path] = make_beside(path)
            self._done = done = JobFuture[None]()
            collected = _Collected(Spans() if self._device_time else None)
            sync.spawn("aioacl-trace", partial(_work, collected, self._stop, done, made, self._files))
        except BaseException:
            if self._device_time:
                lib.aio_spans_stop()
            _remove(made.values())
            raise
        return self

    async def _end(self) -> None:
        done = self._done
        self._stop.set()
        if done is not None:
            await done.ended()
            try:
                done.result(0)
            finally:
                del done  # the traceback of its exception refers to this frame

    async def __aenter__(self) -> Self:
        return await self._begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    def __enter__(self) -> Self:
        return run_blocking(self._begin, None, "use `async with` instead of `with`")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run_blocking(self._end, None, "use `async with` instead of `with`")


def trace(
    path: str | os.PathLike[str], *, html: str | os.PathLike[str] | None = None, device_time: bool = False
) -> Trace:
    """Writes a trace of what the process does in a block, for https://ui.perfetto.dev and for a browser.

    Use it as `async with aioacl.trace("run.pftrace"):`, or with `with` on a thread without a running event loop. At the
    end of the block, the files are written on a thread, also if the block raises. Calls no ACL function, except with
    `device_time`.

    Args:
        path: the file for Perfetto. An existing file is replaced.
        html: a page for a browser, which needs no network; None for no page.
        device_time: whether the trace also has the time that each execution, copy and fill takes on the device. For
            that, an event is recorded before and after each of them (aclrtRecordEvent), and its timestamp is read
            (aclrtEventGetTimestamp). So each of them takes three entries of the stream's queue.

    Returns:
        A Trace, whose block is traced. The block raises OSError if a file cannot be made or written, and RuntimeError
        if another block of the process already has `device_time`.

    Raises:
        ParameterError: a path is neither a str nor an os.PathLike[str], or names no file, or both are the same; or
            `device_time` is not a bool.
    """
    must_be_bool("device_time", device_time)
    first = _path("path", path)
    second = None if html is None else _path("html", html)
    if first == second:
        raise ParameterError(
            f"path and html must be different files, got {str(first)!r} for both",
            hint="Pass html='run.html'.",
        )
    return Trace(first, second, device_time=device_time)


def _path(name: str, value: object) -> Path:
    convert: Any = getattr(type(value), "__fspath__", None)
    found: object = convert(value) if convert is not None else value
    if not isinstance(found, str):
        raise ParameterError(
            f"{name} must be a str or an os.PathLike[str], got {repr_of(value)}",
            hint="Pass the path of a file, such as 'run.pftrace'.",
        )
    path = Path(found)
    if not path.name or "\0" in found:  # "", ".", "/"
        raise ParameterError(
            f"{name} must name a file, got {found!r}", hint="Pass the path of a file, such as 'run.pftrace'."
        )
    return path.absolute()


# --- on the thread ------------------------------------------------------------------------------------------------


class _Collected:
    """The records since it was made, after one with the state of each device."""

    def __init__(self, spans: Spans | None) -> None:
        self._spans, self._ended = spans, False
        now_ns = time.monotonic_ns()  # before the first record
        self._first = self._next = flight_ring.count()
        self._states = b"".join(_state_of(manager, now_ns) for manager in opened_managers())
        self._chunks: deque[bytes] = deque()
        self._count = self._left = 0

    def look(self, *, ends: bool) -> None:
        """Takes the new records. With `ends`, it does not wait for records that are being written."""
        if self._spans is not None:
            self._spans.look(manager.index for manager in opened_managers())
        records, following = ffi.new("aio_flight_record[]", flight_ring.SLOTS), ffi.new("uint64_t *")
        found = lib.aio_flight_since(self._next, ends, records, flight_ring.SLOTS, following)
        self._next = following[0]
        self._chunks.append(bytes(ffi.buffer(records, found * LAYOUT.size)))
        self._count += found
        while self._count > MOST_RECORDS:
            dropped = len(self._chunks.popleft()) // LAYOUT.size
            self._count -= dropped
            self._left += dropped

    def end(self) -> None:
        """Takes the last records."""
        self.look(ends=True)
        self.stop_spans()

    def stop_spans(self) -> None:
        """Ends the records of device times. A later call has no effect."""
        if self._spans is not None and not self._ended:
            self._ended = True
            lib.aio_spans_stop()

    def ring(self) -> flight_ring.Ring:
        """Returns the records. Those that were overwritten before they were taken count as missing."""
        written = self._next - self._first
        missing = written - self._count - self._left
        totals.count("trace_overwritten_total", by=missing + self._left)
        clocks = time.time_ns(), time.monotonic_ns()
        raw = b"".join((self._states, *self._chunks))
        if self._spans is not None:
            raw += self._spans.records(ends_of(raw))
        return flight_ring.Ring(raw, os.getpid(), *clocks, written, self._left, 0, missing)


def _state_of(manager: Manager, now_ns: int) -> bytes:
    """Returns a record of the state of the device, as the lifecycle writes it when the state changes."""
    state = manager.admission.shown
    thread = threading.get_native_id()
    return LAYOUT.pack(
        0, now_ns, manager.generation, lib.AIO_FLIGHT_STATE, manager.index, int(state), thread, 0
    )


def _work(
    collected: _Collected,
    stop: threading.Event,
    done: JobFuture[None],
    made: dict[Path, Path],
    files: dict[Path, Any],
) -> None:
    done.claim()
    try:
        while not stop.wait(LOOK_SECONDS):
            collected.look(ends=False)
        collected.end()
        ring = collected.ring()
        for path, temporary in made.items():
            temporary.write_bytes(files[path](ring, flight.models()))
            temporary.replace(path)  # replaces a link, and does not follow it
    except BaseException as error:  # noqa: BLE001 - the end of the block raises it
        collected.stop_spans()
        _remove(made.values())
        done.finish(partial(done.set_exception, error))
    else:
        done.finish(partial(done.set_result, None))


def _remove(files: Iterable[Path]) -> None:
    for each in files:
        with suppress(OSError):
            each.unlink(missing_ok=True)


def make_beside(path: Path) -> Path:
    """Makes an empty file that only its owner can read, in the folder of the path, which will replace the path.

    Raises:
        OSError: that fails, or the path is something else than a file or a link. To root, a replace is permitted in
            /dev: without this check, the path /dev/null would replace the device for all programs.
    """
    with suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            raise FileExistsError(errno.EEXIST, "expected a file, a link or nothing", str(path))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))
    return temporary


publish("aioacl", ["Trace", "trace"], of=__name__)
