"""One child process of the part `endings`: how it is run, and how its end is checked.

Besides status, stdout and stderr, two sources are checked. `witness.c` runs when a runtime's destructors would run, and
reports how many calls are in progress. The simulator's trace has each call that was made: no call may come from a
forked child or follow the finalization of ACL.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioacl._library.runtime import EXIT_GRACE_SECONDS
from aioacl.simulator import include_dir
from tests.process.child import Child

if TYPE_CHECKING:
    from collections.abc import Mapping

RUNTIME_SECONDS: Final = 1.0  # time that the runtime itself may take to end
REACHED: Final = "destructors: 0 inside, 0 called, 0 violations"
FORKED: Final = 507000  # the simulator's code for a call from a forked child; no other call here returns it
REPEATED: Final = 100002  # the code of aclInit if ACL is already initialised

PRELUDE = """
import atexit, ctypes, gc, queue
from concurrent.futures import Future
from aioacl import lowlevel
from aioacl._base.ffi import lib
ctypes.CDLL(os.environ["TEST_WITNESS"])
os.environ["TEST_LIBRARY"] = str(simulator.library_path())  # for the witness

BACKEND = os.environ["TEST_BACKEND"]
if BACKEND == "trio":
    import trio

def leaving():
    say("leaving", time.monotonic())

def leave(status):
    leaving()
    sys.exit(status)

def forever(thing):
    "Keeps a reference that is never dropped, not even at the end of the interpreter. Returns the thing."
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing

async def until(condition):
    while not condition():
        await anyio.sleep(0.001)

def until_now(condition):
    while not condition():
        time.sleep(0.001)

def pump(turns, done):
    "Runs the turns of trio in guest mode, as a host's loop does."
    while not done():
        try:
            turn = turns.get(timeout=0.001)
        except queue.Empty:
            continue
        turn()

def waits():
    return lib.aio_device_waits(0)

async def wait(thing):
    await thing

async def abandon(thing, begun):
    "Awaits the thing in a task, and cancels the task once the condition is true."
    async with anyio.create_task_group() as group:
        group.start_soon(wait, thing)
        await until(begun)
        group.cancel_scope.cancel()

async def wait_until_closed(thing):
    "Waits; the last close may end the wait."
    try:
        await thing
    except DeviceReset:
        pass

def new_loop():
    "A loop that does not report slow callbacks, because on a loaded machine all callbacks are slow."
    loop = asyncio.new_event_loop()
    loop.slow_callback_duration = 3600
    return loop

async def warmed(main):
    "Uses anyio first, because its first use imports modules, and an interrupted import prints a message."
    with anyio.CancelScope():
        await anyio.sleep(0)
    if BACKEND != "trio" and threading.current_thread() is threading.main_thread():
        # if a signal comes just before asyncio sleeps, only a signal handler wakes asyncio
        asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, int)
    return await main()

def run(main):
    use_library("simulator")
    if BACKEND == "trio":
        return trio.run(warmed, main)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(warmed(main))

def interrupted(error):
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    return isinstance(error, KeyboardInterrupt)

def interruptible(main):
    try:
        run(main)
    except BaseException as error:
        if not interrupted(error):
            raise
        say("interrupted")
        sys.exit(130)

def daemon(body, *arguments):
    "Runs the body on a thread, once the thread is started: a signal that the body causes must not interrupt the start."
    started = queue.SimpleQueue()
    def run_when_started():
        started.get()
        body(*arguments)
    thread = threading.Thread(target=run_when_started, daemon=True)
    thread.start()
    started.put(None)
    return thread

async def verified(device):
    async with device.create_stream() as stream, device.allocate(5) as memory:
        answer = bytearray(5)
        stream.copy(memory, b"hello")
        await stream.copy(answer, memory)
    say("verified" if answer == b"hello" else f"wrong: {answer}")

def verified_here(device):
    stream, memory = device.create_stream().result(), device.allocate(5).result()
    answer = bytearray(5)
    stream.copy(memory, b"hello")
    stream.copy(answer, memory).result()
    stream.close().result(), memory.close().result()
    say("verified" if answer == b"hello" else f"wrong: {answer}")
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A program and its expected end."""

    name: str
    program: str
    trio: str = ""  # the program on trio, if it differs
    status: int = 0
    # The lines of output, separated by commas, without the lines of `leaving` and of the witness.
    output: str = ""
    stderr: str = ""  # the end of stderr, after the traceback
    # Python reports the tasks that are left, in words that depend on its version. A thread may be in a call, or not
    # yet, so the destructors may run or not.
    any_end: bool = False
    destructors_run: bool = True  # the runtime's destructors run: no thread is stuck in a call
    strict: bool = True  # warnings are errors: the program closes everything
    waits: str = "watch"
    signals: tuple[
        tuple[str, signal.Signals], ...
    ] = ()  # lines of output, and the signal that is sent after each
    environ: Mapping[str, str] = field(default_factory=dict)
    # Seconds from `leaving`, or from the last signal, to the end of the process.
    limit: float = EXIT_GRACE_SECONDS + RUNTIME_SECONDS


@dataclass(frozen=True, slots=True)
class Ending:
    """How a child ended."""

    status: int
    output: tuple[str, ...]
    stderr: str
    seconds: float
    calls: tuple[dict[str, Any], ...]


@functools.cache
def witness() -> tempfile.TemporaryDirectory[str]:
    """The folder with the compiled witness, deleted when this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="endings-")
    source = Path(__file__).with_name("witness.c")
    command = [compiler(), "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    command += [f"-I{include_dir()}", str(source), "-o", str(Path(folder.name, "witness.so")), "-ldl"]
    subprocess.run(command, check=True)
    return folder


def compiler() -> str:
    """The path of the C compiler; empty if there is none."""
    return os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or ""


def end_of(case: Case, backend: str, *, debug: bool = False, more: Mapping[str, str] | None = None) -> Ending:
    """Runs a child to its end."""
    with tempfile.TemporaryDirectory(prefix="ending-") as folder:
        trace = Path(folder, "trace")
        environ = {
            "AIOACL_SIM_TRACE": str(trace),
            "TEST_WITNESS": str(Path(witness().name, "witness.so")),
            "PYTHONSAFEPATH": "1",  # imports the installed package, not the one in the current folder
            "TEST_FOLDER": folder,
            "PYTHONFAULTHANDLER": "1",
            **({"PYTHONASYNCIODEBUG": "1"} if debug else {}),
            **case.environ,
            **(more or {}),
        }
        program = case.trio if case.trio and backend == "trio" else case.program
        with Child(PRELUDE + program, backend, case.waits, strict=case.strict, more=environ) as child:
            lines, last = _signalled(child, case)
            status, rest, stderr = _ended(child)
            ended = time.monotonic()
        calls = [json.loads(line) for line in trace.read_text().splitlines()] if trace.exists() else []
    lines += rest.splitlines()
    left = [float(line.split()[1]) for line in lines if line.startswith("leaving ")]
    output = tuple(line for line in lines if not line.startswith("leaving "))
    return Ending(status, output, stderr, ended - max([last, *left]), tuple(calls))


def _ended(child: Child) -> tuple[int, str, str]:
    """Waits for the child to end. If it does not end in time, a signal makes it print its stacks and end."""
    try:
        return child.end()
    except subprocess.TimeoutExpired:
        child.send(signal.SIGABRT)
        return child.end()


def _signalled(child: Child, case: Case) -> tuple[list[str], float]:
    """Sends the signals of the case. Returns the output before the last signal, and the time of that signal."""
    lines: list[str] = []
    last = 0.0
    for awaited, number in case.signals:
        while not lines or lines[-1] != awaited:
            if not (line := child.line()):
                return lines, last  # the child ended early; the check of its status finds that
            lines.append(line)
        last = time.monotonic()
        child.send(number)
        lines.append("")
    return [line for line in lines if line], last


# --- the checks ---------------------------------------------------------------------------------------------------


def faults(case: Case, ending: Ending) -> list[str]:
    """Returns the differences from the expected end, except for its time."""
    want = tuple(case.output.split(", ")) if case.output else ()
    want += (REACHED,) if case.destructors_run else ()
    found: list[str] = []
    if ending.status != case.status:
        found.append(f"expected status {case.status}, got {ending.status}: {ending.stderr}")
    seen = tuple(line for line in ending.output if not (case.any_end and line == REACHED))
    if seen != want:
        found.append(f"expected the output {want}, got {ending.output}")
    if not case.any_end and not _stderr_is_expected(ending.stderr, case.stderr):
        found.append(f"expected stderr to end in {case.stderr!r}, got {ending.stderr}")
    return found + list(dict.fromkeys(_bad_calls(ending.calls)))


def _stderr_is_expected(seen: str, want: str) -> bool:
    """Whether stderr is as expected: empty, or one traceback with the expected end."""
    if not want:
        return not seen
    return seen.startswith("Traceback") and seen.endswith(want + "\n") and seen.count("Traceback") == 1


def _bad_calls(calls: tuple[dict[str, Any], ...]) -> list[str]:
    """Returns the calls of forked children, and the calls after ACL was finalized."""
    bad: list[str] = []
    references, finalized = 0, False
    for call in (call for call in calls if "rc" in call):  # other lines are injected faults that fired
        name, code = call["call"], call["rc"]
        if code == FORKED:
            bad.append(f"expected no call in a forked child, got {name}")
        elif name == "aclInit" and code in (0, REPEATED):
            references, finalized = references + 1, False
        elif name in ("aclFinalize", "aclFinalizeReference"):
            references = 0 if name == "aclFinalize" else references - (code == 0)
            finalized = references == 0
        elif finalized:
            bad.append(f"expected no call after ACL was finalized, got {name}")
    return bad
