"""The log records of aioacl: the loggers `aioacl.device`, `aioacl.reset`, `aioacl.model` and `aioacl.warnings`.

A record is made where something happens, perhaps with locks held or in a finalizer. So no handler is called there: a
handler may block, and may use aioacl. The record goes into a queue, and the thread `aioacl-log` gives it to the
handlers. The thread runs while there are records, and ends IDLE_SECONDS later.

Without a handler, `log` does nearly nothing: it imports nothing, makes no record and starts no thread.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from aioacl._base import sync

if TYPE_CHECKING:
    import logging

DEBUG: Final = 10  # as in logging, which a program that has no handlers may not have imported
INFO: Final = 20
WARNING: Final = 30
FIELDS: Final = ("device", "id", "generation", "code", "action", "call", "duration")
IDLE_SECONDS: Final = 0.01  # longer would keep a thread while a test or a process ends
FLUSH_SECONDS: Final = 1.0
THREAD: Final = "aioacl-log"


class _Writer:
    """The queue of records, and the thread that gives them to the handlers."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[logging.Logger, logging.LogRecord] | threading.Event] = SimpleQueue()
        self._lock = threading.RLock()  # re-entrant, because a finalizer may log
        self._running = False

    def put(self, logger: logging.Logger, record: logging.LogRecord) -> None:
        """Leaves the record to the thread. If no thread can be started, the record waits for the next one."""
        self._queue.put((logger, record))
        self._start()

    def flush(self, seconds: float) -> bool:
        """Waits until all earlier records were given to their handlers. Returns False after `seconds`."""
        done = threading.Event()
        self._queue.put(done)
        self._start()
        return done.wait(seconds)

    def _start(self) -> None:
        with self._lock:
            if self._running:
                return
            self._running = True
            try:
                sync.Threads().spawn(THREAD, self._run)
            except RuntimeError:  # no thread could be started
                self._running = False

    def _run(self) -> None:
        while True:
            try:
                found = self._queue.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._queue.empty():
                        self._running = False
                        return
                continue
            if isinstance(found, threading.Event):
                found.set()
            else:
                _handle(*found)


def _handle(logger: logging.Logger, record: logging.LogRecord) -> None:
    try:
        logger.handle(record)
    except Exception as error:  # noqa: BLE001 - of a filter of the program
        sync.report(error)


_writer = _Writer()


def log(name: str, level: int, sentence: str, **fields: Any) -> None:
    """Logs a sentence. `fields` are some of FIELDS; the others are None in the record. Any thread may call it."""
    module: Any = sys.modules.get("logging")
    if module is None:  # so no program has made a handler
        return
    logger = _logger_of(module, name)
    if not (logger.isEnabledFor(level) and _has_handler(module, logger)):
        return
    extra = {**dict.fromkeys(FIELDS), **fields}
    _writer.put(logger, logger.makeRecord(logger.name, level, "", 0, sentence, (), None, extra=extra))


def warning(sentence: str, **fields: Any) -> None:
    """Logs what an AclWarning says."""
    log("warnings", WARNING, sentence, **fields)


def flush(seconds: float = FLUSH_SECONDS) -> bool:
    """Waits until all earlier records were given to their handlers. Returns False after `seconds`."""
    return _writer.flush(seconds)


def _logger_of(module: Any, name: str) -> logging.Logger:
    """Returns a logger of aioacl, which prints nothing unless the program adds a handler."""
    root: logging.Logger = module.getLogger("aioacl")
    if not root.handlers:
        root.addHandler(module.NullHandler())
    child: logging.Logger = module.getLogger(f"aioacl.{name}")
    return child


def _has_handler(module: Any, logger: logging.Logger) -> bool:
    each: logging.Logger | None = logger
    while each is not None:
        if any(not isinstance(handler, module.NullHandler) for handler in each.handlers):
            return True
        each = each.parent if each.propagate else None
    return False


@atexit.register
def _at_exit() -> None:
    if _writer._running:
        flush()


def _in_child() -> None:
    global _writer  # noqa: PLW0603 - the thread and the locks of the parent do not exist in the child
    _writer = _Writer()


os.register_at_fork(after_in_child=_in_child)
