"""Where CANN writes its own log, and which times of it belong to records of the flight recorder.

CANN's runtime writes a log for each process below `$ASCEND_PROCESS_LOG_PATH`, else below `$ASCEND_WORK_PATH/log`, else
below `$HOME/ascend/log`, with local times. The simulator writes none.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from aioacl._base.ffi import lib

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioacl._base.flight import FlightRecord


def log_of(records: Sequence[FlightRecord]) -> str:
    """Returns in words where CANN's log of the time of the records is; "" on the simulator, and without records."""
    if not records or lib.aio_library_is_simulator():
        return ""
    ahead = time.time() - time.monotonic()
    return described(files(os.environ, os.getpid()), records[0].at + ahead, records[-1].at + ahead)


def files(environ: Mapping[str, str], process: int) -> str:
    """Returns the pattern of the files of a process."""
    work = environ.get("ASCEND_WORK_PATH")
    usual = f"{work}/log" if work else f"{environ.get('HOME') or '~'}/ascend/log"
    return f"{environ.get('ASCEND_PROCESS_LOG_PATH') or usual}/*/plog/plog-{process}_*.log"


def described(pattern: str, first: float, last: float) -> str:
    """Returns the files and the local times, in seconds of the system clock, in words."""
    begin, end = (time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) for at in (first, last))
    return f"{pattern}, from {begin} to {end} local time"
