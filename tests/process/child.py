"""A child process that runs a program of a test. The test reads the output of the process, sends signals to the
process, and waits for its end.

The process is forked from a server that has already imported the modules that PRELUDE imports. If the test requests a
real process, or sets variables that Python reads at its start, a new Python is started instead.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Self

from tests.support import forkserver

if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping
    from types import TracebackType

PATIENCE_SECONDS = 60

PRELUDE = """
import aioacl, anyio, asyncio, os, signal, sys, threading, time
from aioacl import DeviceReset, ForkedProcessError, open_device, simulator, use_library

signal.signal(signal.SIGINT, signal.default_int_handler)  # SIGINT is ignored in background jobs of a shell

def say(*words):
    "Prints in one write. print() makes two writes, and output of a thread or signal handler may come between them."
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

async def awake(main):
    "Adds a signal handler on asyncio. Without a handler, a signal just before the loop sleeps does not wake the loop."
    if os.environ["TEST_BACKEND"] == "asyncio":
        asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, int)
    await main()

def start(main):
    use_library("simulator")
    anyio.run(awake, main, backend=os.environ["TEST_BACKEND"])

def say_asleep(text, condition=lambda: True):
    "Prints the text once the condition holds and the loop sleeps. The test then sends the second Ctrl-C."
    # A second Ctrl-C raises at once. If it raises inside asyncio, a callback that asyncio has taken from its queue can
    # be lost. The task of that callback then never ends. trio protects its own code.
    loop_thread = threading.main_thread().ident
    def asleep():
        return sys._current_frames()[loop_thread].f_code.co_name == "select"
    while not (condition() and (asleep() or os.environ["TEST_BACKEND"] == "trio")):
        time.sleep(0.001)
    say(text)

class Copies:
    "An open device and a held stream with a copy in it."
    async def __aenter__(self):
        self.opening = open_device(0, os.environ["TEST_WAITS"])
        self.device = await self.opening.__aenter__()
        self.stream = await self.device.create_stream()
        self.memory = await self.device.allocate(64)
        simulator.hold(self.stream)
        self.ticket = self.stream.fill(self.memory, 1)
        return self
    async def __aexit__(self, *raised):
        simulator.release(self.stream)
        await self.stream.close()
        await self.memory.close()
        await self.opening.__aexit__(*raised)
"""

SHORT_GRACE = "aioacl._library.runtime.EXIT_GRACE_SECONDS = 0.2\n"


class Child:
    """The process. If it still runs when the block is left, it is killed."""

    def __init__(
        self,
        program: str,
        backend: str = "asyncio",
        waits: str = "watch",
        *,
        strict: bool = True,
        real: bool = False,
        stuck: bool = False,
        more: Mapping[str, str] | None = None,
    ) -> None:
        """Starts the process.

        `strict` turns warnings of the process into errors. `real` starts a new Python. `stuck` is for programs with a
        thread that never leaves C. With `stuck`, the process waits only a short time for this thread when it ends. The
        variables in `more` are added to the environment.
        """
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIOACL_")}
        environ = {**inherited, "TEST_BACKEND": backend, "TEST_WAITS": waits, **(more or {})}
        text = PRELUDE + (SHORT_GRACE if stuck else "") + textwrap.dedent(program)
        command = [sys.executable, *(["-W", "error"] if strict else []), "-c", text]
        pipe = subprocess.PIPE
        self._process: subprocess.Popen[str] | forkserver.Forked
        if real or not forkserver.serves(environ):
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environ
            )
        else:
            self._process = forkserver.Forked(
                command, stdin=pipe, stdout=pipe, stderr=pipe, env=environ, exact_end=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def line(self) -> str:
        """Returns the next line of output, or an empty text if the process has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def tell(self, line: str) -> None:
        """Sends a line to the process."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the process."""
        self._process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        """Waits for the end of the process. Returns the status, the rest of stdout, and stderr."""
        out, errors = self._process.communicate(timeout=PATIENCE_SECONDS)
        return self._process.wait(), out, errors


def run(
    program: str,
    backend: str = "asyncio",
    waits: str = "watch",
    *,
    strict: bool = True,
    real: bool = False,
    stuck: bool = False,
) -> tuple[int, str, str]:
    """Runs a program until it ends. `Child` explains the parameters."""
    with Child(program, backend, waits, strict=strict, real=real, stuck=stuck) as child:
        return child.end()
