"""Finds calls that made resources without an object of aioacl. The simulator's journal has the calls and threads."""

from __future__ import annotations

import re
import threading
from typing import Any, Final

from aioacl import simulator

SHOWN: Final = 3
_MAKERS: Final = {
    "contexts": re.compile(r"aclrtCreateContext"),
    "streams": re.compile(r"aclrtCreateStream"),
    "events": re.compile(r"aclrtCreateEvent"),
    "notifies": re.compile(r"aclrt(Cnt)?(Create)?Notify(Create)?$"),
    "device_blocks": re.compile(r"aclrtMalloc(?!Host|Physical)"),
    "host_blocks": re.compile(r"aclrtMallocHost"),
    "pools": re.compile(r"aclrtMemPoolCreate"),
    "pool_blocks": re.compile(r"aclrtMemPoolMallocAsync"),
    "managed_blocks": re.compile(r"aclrtMemAllocManaged"),
    "physical": re.compile(
        r"aclrtMallocPhysical|aclrtMemImportFromShareableHandle|aclrtMemRetainAllocationHandle"
    ),
    "mappings": re.compile(r"aclrtMapMem|aclrtMemMapNoAccess"),
    "registrations": re.compile(r"aclrtHostRegister"),
    "reservations": re.compile(r"aclrtReserveMemAddress"),
    "exports": re.compile(r"aclrtIpcMemGetExportKey"),
    "set_counts": re.compile(r"aclrtSetDevice$"),
}


def _line(entry: dict[str, Any], threads: dict[int | None, str]) -> str:
    thread = threads.get(entry["tid"], str(entry["tid"]))
    arguments = ", ".join(str(argument) for argument in entry["args"])
    return f"    {entry['call']}({arguments}), call {entry['seq']}, on thread {thread}"


def makers_of(name: str) -> list[str]:
    """Returns a line for each of the newest three calls in the journal that made a resource of this kind."""
    maker = _MAKERS.get(name)
    if maker is None:
        return []
    threads = {thread.native_id: thread.name for thread in threading.enumerate()}
    made = [entry for entry in simulator.journal() if entry["rc"] == 0 and maker.match(entry["call"])]
    return [_line(entry, threads) for entry in made[-SHOWN:]]
