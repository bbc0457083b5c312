"""kill -9 of a busy process, at a random moment: it leaves nothing that affects the next open of the device.

Like aioacl, the simulator keeps its state in the process. So on the simulator, a kill cannot make the next open fail.
Therefore this part also checks that aioacl and the simulator create nothing that can outlive a process: no shared
memory, no file and no socket.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aioacl
from tests.process.child import Child

if TYPE_CHECKING:
    from collections.abc import Iterator

LATEST_SECONDS: Final = 0.1  # the longest time from the child's report that it is busy to the kill

BUSY: Final = """
use_library("simulator")
def copies():
    while True:
        try:
            device = open_device(0).result()
            stream, memory = device.create_stream().result(), device.allocate(1 << 16).result()
            for _ in range(5):
                stream.copy(memory, bytes(1 << 16)).result()
            stream.close().result(), memory.close().result(), device.close().result()
        except aioacl.ResetError:
            pass
def resets():
    while True:
        open_device(0).result().force_reset(grace=0.01).result()
def opens():
    while True:
        open_device(1).result().close().result()
for busy in (copies, copies, resets, opens):
    threading.Thread(target=busy, daemon=True).start()
while simulator.resets(0) < 2 or simulator.calls("aclrtMemcpyAsync") < 10:
    time.sleep(0.001)
say("busy")
threading.Event().wait()
"""


def killed(moment: float, index: int) -> list[str]:
    """Kills a busy child at that moment, then opens device `index` here. Returns findings."""
    with tempfile.TemporaryDirectory(prefix="killed-") as folder:
        homes = dict.fromkeys(("TMPDIR", "HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME"), folder)
        with Child(BUSY, strict=False, more={**homes, "PYTHONSAFEPATH": "1"}) as child:
            found = (
                []
                if child.line() == "busy"
                else ["expected the child to report that it is busy, got no report"]
            )
            time.sleep(moment)
            found += [
                f"expected nothing that another process could share, got {thing}"
                for thing in _shared(child.pid)
            ]
            child.send(signal.SIGKILL)
            status, output, stderr = child.end()
        found += [
            f"expected the child to leave nothing, got {path}"
            for path in (*Path(folder).iterdir(), *_left(child.pid))
        ]
    if (status, output, stderr) != (-signal.SIGKILL, "", ""):
        found.append(f"expected the child to be killed without output, got {status}, {output!r}, {stderr!r}")
    return found + ([] if works(index) else ["expected a copy to succeed after the next open, but it failed"])


def works(index: int) -> bool:
    """Whether the device can be opened here, and copies to and from the device return the same bytes."""
    device = aioacl.open_device(index).result()
    stream, memory, answer = device.create_stream().result(), device.allocate(5).result(), bytearray(5)
    stream.copy(memory, b"hello")
    stream.copy(answer, memory).result()
    stream.close().result()
    memory.close().result()
    device.close().result()
    return answer == b"hello"


def _shared(pid: int) -> Iterator[str]:
    """Yields each mapping and open file of a running process that another process could map, or find by a name."""
    process = Path("/proc", str(pid))
    for line in (process / "maps").read_text().splitlines():
        if line.split()[1].startswith("rw") and line.split()[1].endswith("s"):
            yield line
    for descriptor in (process / "fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except OSError:  # the process has closed the descriptor since the folder was listed
            continue
        if target.startswith(("/dev/shm/", "/memfd:", "socket:", tempfile.gettempdir())):
            yield target


def _left(pid: int) -> Iterator[str]:
    """Yields the System V objects and the POSIX shared memory that a process has left behind."""
    for kind in ("shm", "sem", "msg"):
        header, *rows = Path("/proc/sysvipc", kind).read_text().splitlines()
        makers = [name for name in header.split() if name in ("cpid", "lspid")]
        for row in rows:
            fields = dict(zip(header.split(), row.split(), strict=False))
            if any(fields[name] == str(pid) for name in makers):
                yield f"{kind} {row}"
    for name in os.listdir("/dev/shm"):  # noqa: PTH208 - only the names are needed
        if str(pid) in name or "acl" in name:
            yield f"/dev/shm/{name}"
