"""Ends of a process while a call or a job does not return, and while a device is reset."""

from __future__ import annotations

from typing import Final

from tests.reliability.endings_child import Case


def _stuck(name: str, program: str, *, status: int = 9, waits: str = "watch") -> Case:
    """A process that ends while a thread is stuck: it leaves handles open, and the destructors do not run."""
    return Case(name, program, status=status, waits=waits, destructors_run=False, strict=False)


STUCK: Final = (
    _stuck(
        "a call hung in aclrtMalloc",
        """
async def main():
    device = forever(await open_device(0))
    simulator.hang_call("aclrtMalloc")
    await abandon(device.allocate(64), lambda: simulator.hung("aclrtMalloc"))
run(main)
leave(9)
""",
    ),
    _stuck(
        "a thread in aclrtSynchronizeEventWithTimeout",
        """
async def main():
    copies = forever(await Copies().__aenter__())
    simulator.hang_call("aclrtSynchronizeEventWithTimeout")
    await abandon(copies.stream, lambda: simulator.hung("aclrtSynchronizeEventWithTimeout"))
run(main)
leave(9)
""",
        waits="thread",
    ),
    _stuck(
        "a job that does not end",
        """
began = threading.Event()
def job():
    began.set()
    threading.Event().wait()
async def main():
    device = forever(await open_device(0))
    await abandon(device.run(job), began.is_set)
run(main)
leave(9)
""",
    ),
    _stuck(
        "a reset hung in C",
        """
async def main():
    device = forever(await open_device(0))
    simulator.hang_call("aclrtResetDeviceForce")
    await abandon(device.force_reset(grace=0), lambda: simulator.hung("aclrtResetDeviceForce"))
run(main)
leave(9)
""",
    ),
    _stuck(
        "an open hung in aclrtSetDevice",
        """
async def main():
    simulator.hang_call("aclrtSetDevice")
    await abandon(open_device(0), lambda: simulator.hung("aclrtSetDevice"))
run(main)
leave(9)
""",
    ),
    Case(
        "a reset that drains",
        """
async def main():
    copies = forever(await Copies().__aenter__())
    await abandon(copies.device.force_reset(grace=60), lambda: copies.device.state is aioacl.State.DRAINING)
run(main)
leave(7)
""",
        status=7,
        strict=False,
    ),
    _stuck(
        "a foreign reset, beside a job",
        """
began, other = threading.Event(), ctypes.CDLL(os.environ["TEST_LIBRARY"])
def job():
    began.set()
    threading.Event().wait()
async def main():
    device = forever(await open_device(0))
    device.executor.submit(job)
    await until(began.is_set)
    generation = device.generation
    daemon(other.aclrtResetDeviceForce, 0)
    await until(lambda: device.generation != generation)
run(main)
leave(7)
""",
        status=7,
    ),
    _stuck(
        "a foreign reset, and a set after it that hangs",
        """
other = ctypes.CDLL(os.environ["TEST_LIBRARY"])
async def main():
    device = forever(await open_device(0))
    simulator.hang_call("aclrtSetDevice")
    daemon(other.aclrtResetDeviceForce, 0)
    await until(lambda: simulator.hung("aclrtSetDevice"))
run(main)
leave(7)
""",
        status=7,
    ),
)
