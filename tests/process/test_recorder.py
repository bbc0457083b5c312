"""AIOACL_RECORDER: the file of the flight recorder, after a crash, beside a fork, and if it cannot be made."""

from __future__ import annotations

import os
import signal
import stat
from typing import TYPE_CHECKING

from aioacl._base import flight_ring
from tests.process.child import Child

if TYPE_CHECKING:
    from pathlib import Path

WORKS = """
use_library("simulator")
device = open_device(0, os.environ["TEST_WAITS"]).result()
stream = device.create_stream().result()
memory = device.allocate(64).result()
stream.fill(memory, 1).result()
"""
CRASH = """
import ctypes
ctypes.string_at(0)
"""
CLOSES = "stream.close().result(), memory.close().result(), device.close().result()\n"


def variable(path: Path) -> dict[str, str]:
    return {"AIOACL_RECORDER": str(path)}


def said(program: str, path: Path) -> list[str]:
    """Returns the lines that a program prints whose recorder has that file."""
    with Child(program, more=variable(path)) as child:
        status, output, errors = child.end()
    assert (status, errors) == (0, "")
    return output.splitlines()


def test_77_recorder_of_a_process_that_a_sigsegv_killed_is_readable(tmp_path: Path) -> None:
    path = tmp_path / "flight-{pid}"
    with Child(WORKS + CRASH, more=variable(path)) as child:
        status, _, _ = child.end()
        made = tmp_path / f"flight-{child.pid}"
    assert status == -signal.SIGSEGV
    ring = flight_ring.of_file(made)
    kinds = [each.kind for each in ring.records()]
    assert (ring.missing, ring.process) == (0, int(made.name.rpartition("-")[2]))
    assert {"enqueue", "state"} < set(kinds)
    assert {"wait ends", "no wait"} & set(kinds)
    assert stat.S_IMODE(made.stat().st_mode) == 0o600


def test_forked_child_leaves_the_file_of_its_parent_alone(tmp_path: Path) -> None:
    path = tmp_path / "flight"
    program = (
        "import warnings\nwarnings.simplefilter('ignore', DeprecationWarning)\n"
        + WORKS
        + """
from aioacl._base import flight, flight_ring
before = flight_ring.of_file(os.environ["AIOACL_RECORDER"]).written
pid = os.fork()
if pid == 0:
    for number in range(10):
        flight.flight_note(14, 5, number, 0, 0)
    say("child", len(flight.recent(5)))
    os._exit(0)
os.waitpid(pid, 0)
children = [each for each in flight_ring.of_file(os.environ["AIOACL_RECORDER"]).records() if each.device == 5]
say("parent", before > 0, children)
"""
        + CLOSES
    )
    assert said(program, path) == ["child 10", "parent True []"]


def test_file_that_exists_is_kept_and_a_warning_names_it(tmp_path: Path) -> None:
    path = tmp_path / "flight"
    path.write_text("evidence")
    program = """
import warnings
from aioacl._base import flight
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    use_library("simulator")
[warning] = caught
say(warning.category.__name__, "File exists" in str(warning.message), "{pid}" in str(warning.message))
flight.flight_note(14, 5, 1, 0, 0)
say(len(flight.recent(5)))
"""
    assert said(program, path) == ["AclWarning True True", "1"]
    assert path.read_text() == "evidence"


def test_link_is_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    program = "import warnings\nwarnings.simplefilter('ignore')\nuse_library('simulator')\nsay('loaded')\n"
    assert said(program, link) == ["loaded"]
    assert not os.path.lexists(target)
