"""Ctrl-C, once and twice."""

from __future__ import annotations

import signal

import pytest

from tests.process.child import Child, run

EVERYWHERE = pytest.mark.parametrize("backend", ["asyncio", "trio"])
BOTH_WAYS = pytest.mark.parametrize("waits", ["watch", "thread"])

INTERRUPTED = """
def interrupted(error):
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    return isinstance(error, KeyboardInterrupt)
def run(main):
    try:
        start(main)
    except BaseException as error:
        if not interrupted(error):
            raise
        say("interrupted")
        sys.exit(130)
"""

WAITS = (
    INTERRUPTED
    + """
async def main():
    async with Copies() as copies:
        say("waiting")
        await copies.ticket
run(main)
"""
)

HANGS = (
    INTERRUPTED
    + """
async def main():
    async with Copies() as copies:
        simulator.hang_call("aclrtResetDevice")
        hung = lambda: simulator.hung("aclrtResetDevice")
        threading.Thread(target=say_asleep, args=("closing", hung), daemon=True).start()
        say("waiting")
        await copies.ticket
run(main)
"""
)


@EVERYWHERE
@BOTH_WAYS
def test_ctrl_c_in_a_wait_closes_everything(backend: str, waits: str) -> None:
    with Child(WAITS, backend, waits) as child:
        assert child.line() == "waiting"
        child.send(signal.SIGINT)
        assert child.end() == (130, "interrupted\n", "")


DURING_THE_BEGINNING = (
    INTERRUPTED
    + """
from aioacl._wait.current import current_port
async def main():
    async with Copies() as copies:
        port, begun = current_port(), []
        def start(handle, key):
            port.take_token(key)
            begun.append(key)
            signal.raise_signal(signal.SIGINT)
            say("begun")
            return 0
        try:
            await port.wait(start)
        finally:
            port.post(begun[0], 7)  # a late completion: no task waits for it now
run(main)
"""
)


@EVERYWHERE
def test_ctrl_c_while_a_wait_begins_is_raised_after_the_wait_has_begun(backend: str) -> None:
    assert run(DURING_THE_BEGINNING, backend) == (130, "begun\ninterrupted\n", "")


@EVERYWHERE
def test_second_ctrl_c_ends_a_close_that_hangs(backend: str) -> None:
    with Child(HANGS, backend, strict=False, stuck=True) as child:
        assert child.line() == "waiting"
        child.send(signal.SIGINT)
        assert child.line() == "closing"
        child.send(signal.SIGINT)
        assert child.end() == (130, "interrupted\n", "")


def test_ctrl_c_in_a_plain_thread_raises_and_the_work_can_be_awaited() -> None:
    blocks = """
    use_library("simulator")
    device = open_device(0).result()
    stream = device.create_stream().result()
    memory = device.allocate(64).result()
    simulator.hold(stream)
    ticket = stream.fill(memory, 1)
    try:
        say("waiting")
        ticket.result()
    except KeyboardInterrupt:
        simulator.release(stream)
        ticket.result()
        say("done")
    stream.close().result(), memory.close().result(), device.close().result()
    """
    with Child(blocks, real=True) as child:
        assert child.line() == "waiting"
        child.send(signal.SIGINT)
        assert child.end() == (0, "done\n", "")
