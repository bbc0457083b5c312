"""A library that has no aclrtStreamAbort: a close or reset must not take running work for work that has ended."""

from __future__ import annotations

import pytest

from aioacl import simulator
from tests.process.child import Child

pytestmark = pytest.mark.process

PROGRAM = """
import aioacl.lowlevel, warnings
from aioacl._base.ffi import lib

def in_thread(call):
    thread = threading.Thread(target=lambda: say(call(0)))
    thread.start()
    thread.join()

async def main():
    device = await open_device()
    stream, memory, pinned = await device.create_stream(), await device.allocate(64), await device.pinned(64)
    native = aioacl.lowlevel.handle(stream)
    simulator.hold(stream)
    stream.copy(memory, pinned)
    await pinned.close()
    {steps}

use_library(os.environ["LIBRARY"])
say(*[each.name for each in aioacl.library_info().missing if each.name == "aclrtStreamAbort"])
asyncio.run(main())
"""

CLOSE = """
    in_thread(lib.aio_u_aclrtSetDevice)
    freed = simulator.calls("aclrtFreeHost")
    with warnings.catch_warnings(record=True, action="always") as caught:
        await device.close()
    say(*[str(each.message) for each in caught])
    say(simulator.calls("aclrtFreeHost") - freed)
    simulator.release_all()
    while simulator.pending(native):
        await asyncio.sleep(0)
    async with open_device(): # the open first completes the close
        say(simulator.calls("aclrtFreeHost") > freed)
    in_thread(lib.aio_u_aclrtResetDeviceForce)
"""
RESET = """
    report = await device.force_reset(grace=0)
    say(report.aborted, report.not_aborted)
    await device.close()
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A copy of the simulator that exports aclrtStreamAbort under another name."""
    made = tmp_path_factory.mktemp("old") / "libascendcl.so"
    path = simulator.library_path()
    made.write_bytes(path.read_bytes().replace(b"\0aclrtStreamAbort\0", b"\0aclrtStreamGone_\0"))
    made.with_name("libruntime.so").write_bytes(path.with_name("libruntime.so").read_bytes())
    return str(made)


def test_last_close_frees_no_memory_if_its_reset_frees_nothing(library: str) -> None:
    with Child(PROGRAM.format(steps=CLOSE), real=True, more={"LIBRARY": library}) as child:
        why = "device 0 stays set: other code has set it too, and work still runs"
        advice = "open it again after the work has ended, then close it"
        assert child.end() == (0, f"aclrtStreamAbort\n0\n{why}; {advice}\n0\nTrue\n0\n", "")


def test_force_reset_counts_the_streams_that_it_could_not_abort(library: str) -> None:
    with Child(PROGRAM.format(steps=RESET), real=True, more={"LIBRARY": library}) as child:
        assert child.end() == (0, "aclrtStreamAbort\n0 1\n", "")
