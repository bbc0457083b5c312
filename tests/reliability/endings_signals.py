"""Ends of a process by a signal: Ctrl-C, once or twice, at any line; and SIGTERM."""

from __future__ import annotations

import signal
from typing import Final

from tests.reliability.endings_child import Case

INT, TERM = signal.SIGINT, signal.SIGTERM

_WAITS = """
async def main():
    async with Copies() as copies:
        say("waiting")
        await copies.ticket
interruptible(main)
"""

_LINES = """
from aioacl._wait.current import current_port
package = os.path.dirname(aioacl.__file__) + os.sep
left, again = int(os.environ["TEST_LINE"]), int(os.environ.get("TEST_LINE_AGAIN", 0))
def finalizing(frame):
    "Whether a finalizer runs. Python prints and ignores every exception of a finalizer, also a KeyboardInterrupt."
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None
def enter(frame, event, argument):
    own = frame.f_code.co_filename.startswith(package)
    return line if own and not finalizing(frame) else None
def line(frame, event, argument):
    global left, again
    left -= event == "line"
    if left == 0:
        again, left = 0, again or -1
        signal.raise_signal(signal.SIGINT)
    return line
async def main():
    current_port()
    sys.settrace(enter)
    async with open_device(0) as device, device.create_stream() as stream, device.allocate(64) as memory:
        async with device.lease():
            stream.copy(memory, b"hello")
            event = stream.record()
        await event
        await device.run(int)
        await stream.upload(memory, bytes(64))
        await stream
    sys.settrace(None)
    say("no line was interrupted; lines left:", left)
def gone():
    stats = simulator.stats()
    return not (stats.streams or stats.device_blocks or stats.host_blocks or simulator.retain_count(0))
try:
    run(main)
except BaseException as error:
    sys.settrace(None)
    if not interrupted(error):
        raise
    say("interrupted")
"""

SIGNALS: Final = (
    Case(
        "Ctrl-C, idle",
        """
async def main():
    async with open_device(0) as device, device.create_stream():
        say("idle")
        await anyio.sleep_forever()
interruptible(main)
""",
        status=130,
        output="idle, interrupted",
        signals=(("idle", INT),),
    ),
    Case("Ctrl-C in a wait", _WAITS, status=130, output="waiting, interrupted", signals=(("waiting", INT),)),
    Case(
        "Ctrl-C in a wait, and in the wait that cleans up",
        """
async def main():
    async with Copies() as copies:
        try:
            say("waiting")
            await copies.ticket
        finally:
            with anyio.CancelScope(shield=True):
                daemon(say_asleep, "still waiting")
                await copies.stream
interruptible(main)
""",
        status=130,
        output="waiting, still waiting, interrupted",
        signals=(("waiting", INT), ("still waiting", INT)),
    ),
    Case(
        "Ctrl-C in a close",
        """
def say_when_closing():
    until_now(lambda: simulator.hung("aclrtResetDevice"))
    say("closing")
async def main():
    try:
        async with open_device(0):
            simulator.hang_call("aclrtResetDevice")
            daemon(say_when_closing)
    finally:
        simulator.release_call("aclrtResetDevice")
interruptible(main)
""",
        status=130,
        output="closing, interrupted",
        signals=(("closing", INT),),
    ),
    Case(
        "Ctrl-C in a wait, and in a close that hangs",
        """
async def main():
    async with Copies() as copies:
        simulator.hang_call("aclrtResetDevice")
        daemon(say_asleep, "closing", lambda: simulator.hung("aclrtResetDevice"))
        say("waiting")
        await copies.ticket
interruptible(main)
""",
        status=130,
        output="waiting, closing, interrupted",
        signals=(("waiting", INT), ("closing", INT)),
        destructors_run=False,
        strict=False,
    ),
    Case(
        "Ctrl-C at some line of aioacl",
        _LINES + "until_now(gone)\nleave(130)",
        status=130,
        output="interrupted",
        strict=False,
    ),
    Case(
        "Ctrl-C at some line of aioacl, and again",
        _LINES + "leave(130)",
        status=130,
        output="interrupted",
        strict=False,
        # If the interrupt comes before a coroutine is awaited, Python correctly warns that it was never awaited.
        environ={"PYTHONWARNINGS": "ignore::RuntimeWarning"},
    ),
    Case(
        "SIGTERM, by default",
        _WAITS,
        status=-TERM,
        output="waiting",
        signals=(("waiting", TERM),),
        destructors_run=False,
    ),
    Case(
        "SIGTERM, handled",
        """
async def leave_on_a_signal(scope):
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        say("waiting")
        async for _ in signals:
            scope.cancel()
            return
async def main():
    async with open_device(0) as device, device.create_stream() as stream, device.allocate(64) as memory:
        simulator.hold(stream)
        async with anyio.create_task_group() as group:
            group.start_soon(leave_on_a_signal, group.cancel_scope)
            await stream.fill(memory, 1)
run(main)
leave(143)
""",
        status=143,
        output="waiting",
        signals=(("waiting", TERM),),
    ),
    Case(
        "SIGTERM handled by sys.exit, in result()",
        """
def end(number, frame):
    leave(143)
use_library("simulator")
signal.signal(signal.SIGTERM, end)
copies = Copies()
async def main():
    await copies.__aenter__()
    say("waiting")
    await copies.ticket
daemon(run, main)
until_now(waits)
forever(copies)
say("waiting here")
copies.ticket.result()
""",
        status=143,
        output="waiting, waiting here",
        signals=(("waiting here", TERM),),
        strict=False,
    ),
    Case(
        "Ctrl-C in result()",
        """
copies = Copies()
async def main():
    await copies.__aenter__()
def last():
    copies.stream.close().result(), copies.memory.close().result(), copies.device.close().result()
run(main)
try:
    say("waiting")
    copies.ticket.result()
except KeyboardInterrupt:
    simulator.release(copies.stream)
    copies.ticket.result()
    last()
    leave(130)
""",
        status=130,
        output="waiting",
        signals=(("waiting", INT),),
    ),
)
