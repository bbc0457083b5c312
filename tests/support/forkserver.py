"""Starts Python processes for tests quickly. A server imports the modules once and forks for each request.

Theory of operation
-------------------

`Forked(command)` and `run(command)` behave like `subprocess.Popen` and `subprocess.run`. They take the command line of
a real process: `[sys.executable, *flags, "-c", text, ...]`, or `-m` with a module, or a file.

For each set of flags, a test process has at most two servers: one for `-m pytest`, and one for all other programs. A
server starts with the first request: `python *flags -c BOOT` imports the modules in PRELOADED, then listens on a socket
in a private folder. The server for pytest runs pytest once, on a test that does nothing, so that pytest and its plugins
are imported. A server has one thread and has loaded no ACL library, so a fork starts without any ACL state.

For each request the test process connects and sends the arguments, the environment, the folder and the descriptors of
the child. The server forks and answers with the child's process id and a pidfd, and later with the wait status. The
test process closes the connection and the pidfd when it has received the wait status.

The child replaces its descriptors, `os.environ`, `sys.argv` and `sys.path[0]`. Then `serve()` returns the program as
a code object to BOOT, which executes it as `__main__` on the main thread. The only frame of the server that is left
on the stack is BOOT's own. So the interpreter ends as usual: exit handlers, threads, status and stderr are the same
as in a real process. Only a traceback shows one more frame.

The server freezes its objects (`gc.freeze`), because a collection in a child would copy their pages. Therefore
modules are cleared one at a time when the child ends. With `exact_end` the child collects everything, as a real
process does, and takes about ten times as long to end.

The server ends on request, or when a pidfd reports the end of the test process. It then kills the children that are
left, and deletes its folder. It and its children have a session of their own.

A child inherits from the server everything that the interpreter or the dynamic loader reads when a process starts:
variables such as PYTHONUTF8 and LD_LIBRARY_PATH, the hash seed, `sys.orig_argv`. It also inherits the resource
limits, the umask and the ignored signals. If one of these variables differs, the request is refused, see `serves()`.
A test of imports, of the start of the interpreter, of inherited limits, or of missing modules must use a real process.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import io
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Self, TextIO

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import CodeType, TracebackType

ROOT: Final = Path(__file__).parents[2]
START_SECONDS: Final = 60.0
REQUEST_SECONDS: Final = 10.0  # longest time between a connection and its request
REQUEST_BYTES: Final = 1 << 17
MOST_DESCRIPTORS: Final = 8
FIRST_FREE: Final = 64  # the numbers of a request's descriptors are lower
READY: Final = b"ready\n"
END: Final = b"end"
PLAIN, PYTEST = "plain", "pytest"
PR_SET_PDEATHSIG: Final = 1
# A module that a command line may run must not be in this list, because runpy warns if it is already imported.
PRELOADED: Final = (
    *("asyncio", "anyio", "anyio._backends._asyncio", "anyio._backends._trio", "trio", "runpy"),
    *("aioacl._device", "aioacl.lowlevel", "aioacl.simulator", "aioacl._cli.selftest", "aioacl._cli.demo"),
    *("aioacl._cli.doctor", "aioacl._cli.devices", "aioacl._cli.simulator", "aioacl._selftest._table"),
)
# A test file. It imports the modules that tests often import, and its run makes pytest import the plugins of pytest.
# Plugins must not be imported earlier: pytest warns if it could not rewrite the assertions of a plugin.
WARM_UP: Final = """
import unittest
import aioacl.simulator, aioacl.testing._hooks, anyio._backends._asyncio, anyio._backends._trio, runpy
def test_nothing(): pass
"""
READ_AT_START: Final = ("PYTHON", "LD_", "GLIBC_", "MALLOC_", "LC_", "LANG")

BOOT: Final = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.support import forkserver
del sys.path[0]
exec(forkserver.serve())
"""


# --- the test process -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Server:
    """A server: the address at which it listens, and the variables with which it was started."""

    address: str
    at_start: Mapping[str, str]


_servers: Final[dict[tuple[int, tuple[str, ...], str], Server]] = {}
_lock: Final = threading.Lock()


def _read_at_start(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith(READ_AT_START)}


def serves(environ: Mapping[str, str]) -> bool:
    """Whether a process with these variables can be forked.

    The variables that a process reads at its start must have the same values as in this process.
    """
    return _read_at_start(environ) == _read_at_start(os.environ)


def server(flags: Sequence[str], kind: str) -> Server:
    """The server of this process for these flags and this kind. The first call starts the server."""
    with _lock:
        key = (os.getpid(), tuple(flags), kind)
        if key not in _servers:
            _servers[key] = _start_server(flags, kind)
        return _servers[key]


def use(flags: Sequence[str], kind: str, address: str) -> None:
    """Makes this process send its requests for these flags to a server that another process has started."""
    _servers[os.getpid(), tuple(flags), kind] = Server(address, _read_at_start(os.environ))


def _start_server(flags: Sequence[str], kind: str) -> Server:
    folder = tempfile.mkdtemp(prefix="aioacl-forks-")
    address = os.path.join(folder, "server")  # noqa: PTH118 - a socket needs a str
    arguments = [str(ROOT), kind, address, str(os.getpid())]
    process = subprocess.Popen(
        [sys.executable, *flags, "-c", BOOT, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,  # a signal that ends all processes of a run must not keep it from deleting its folder
    )
    atexit.register(_end_server, os.getpid(), process, address)
    assert process.stdout is not None
    with process.stdout as answers:
        readable, _, _ = select.select([answers], [], [], START_SECONDS)
        answer = answers.readline() if readable else b""
    if answer != READY:
        process.kill()
        raise RuntimeError(
            f"expected the fork server for {[*flags]} to start, it did not; stderr has the reason"
        )
    return Server(address, _read_at_start(os.environ))


def _end_server(owner: int, process: subprocess.Popen[bytes], address: str) -> None:
    if os.getpid() != owner:
        process.returncode = 0  # the server is not a child of this process, so Popen must not warn about it
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(address)
        connection.send(END)
    process.wait(START_SECONDS)
    shutil.rmtree(Path(address).parent, ignore_errors=True)  # a killed server leaves its folder


def _split(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """The interpreter's flags, and the program with its arguments."""
    if command[0] != sys.executable:
        raise ValueError(f"expected a command of {sys.executable}, got {command[0]}")
    place = 1
    while command[place] in ("-P", "-W", "-X"):
        place += 1 if command[place] == "-P" else 2
    return [*command[1:place]], [*command[place:]]


class Forked:
    """A process that is forked from a server, used like `subprocess.Popen`. A `with` block waits for its end."""

    stdin: TextIO | None
    stdout: TextIO | None
    stderr: TextIO | None

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdin: int | IO[bytes] | None = None,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        pass_fds: Sequence[int] = (),
        exact_end: bool = False,
    ) -> None:
        self.args = command
        self.returncode: int | None = None
        self._texts: dict[str, str] = {}
        self._readers: list[threading.Thread] = []
        flags, arguments = _split(command)
        environ = dict(os.environ if env is None else env)
        found = server(flags, PYTEST if arguments[:2] == ["-m", "pytest"] else PLAIN)
        if _read_at_start(environ) != found.at_start:
            raise ValueError(
                "expected the server's values of the variables that Python reads at its start, got others; "
                "use a real process"
            )
        if len(pass_fds) > MOST_DESCRIPTORS - 3:
            raise ValueError(
                f"expected at most {MOST_DESCRIPTORS - 3} descriptors to pass, got {len(pass_fds)}"
            )
        request = {
            "arguments": arguments,
            "environ": environ,
            "folder": str(Path(cwd or ".").resolve()),
            "descriptors": [0, 1, 2, *pass_fds],
            "exact_end": exact_end,
        }
        text = json.dumps(request).encode()
        if len(text) > REQUEST_BYTES:
            raise ValueError(
                f"expected at most {REQUEST_BYTES} bytes of arguments and variables, got {len(text)}"
            )
        theirs: list[int] = []  # closed here after they are sent
        try:
            given = [self._open(name, end, theirs) for name, end in enumerate((stdin, stdout, stderr))]
            self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._connection.connect(found.address)
            socket.send_fds(self._connection, [text], [*given, *pass_fds])
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        answer, descriptors, _, _ = socket.recv_fds(self._connection, REQUEST_BYTES, 1)
        if not descriptors:
            raise RuntimeError("the fork server has ended, stderr has the reason")
        self.pid, self._pidfd = int(answer), descriptors[0]

    def _open(self, number: int, end: int | IO[bytes] | None, theirs: list[int]) -> int:
        """Returns the child's descriptor. If it is an end of a new pipe, this process keeps the other end as a file."""
        name = ("stdin", "stdout", "stderr")[number]
        setattr(self, name, None)
        if end == subprocess.PIPE:
            reading, writing = os.pipe()
            given, kept = (reading, writing) if number == 0 else (writing, reading)
            setattr(self, name, os.fdopen(kept, "w" if number == 0 else "r"))
            theirs.append(given)
            return given
        if end == subprocess.DEVNULL:
            theirs.append(os.open(os.devnull, os.O_RDWR))
            return theirs[-1]
        if end is None:
            return number
        return end if isinstance(end, int) else end.fileno()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in (self.stdin, self.stdout, self.stderr):
            if file is not None:
                with suppress(BrokenPipeError):
                    file.close()
        self.wait()

    def send_signal(self, number: int) -> None:
        """Sends the signal to the process, unless it has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        """Kills the process."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end; returns the exit status, or minus the number of the signal that ended the process."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                answer = self._connection.recv(REQUEST_BYTES)
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self._connection.close()
            os.close(self._pidfd)
            if not answer:
                raise RuntimeError("the fork server has ended, stderr has the reason")
            self.returncode = os.waitstatus_to_exitcode(int(answer))
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Waits for the end of the process; returns its stdout and stderr."""
        end = None if timeout is None else time.monotonic() + timeout
        if self.stdin is not None and not self._readers:
            with suppress(BrokenPipeError):
                self.stdin.close()
        if not self._readers:
            self._readers = [
                threading.Thread(target=self._read, args=(name,)) for name in ("stdout", "stderr")
            ]
            for reader in self._readers:
                reader.start()
        for reader in self._readers:
            reader.join(None if end is None else max(0.0, end - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(None if end is None else max(0.001, end - time.monotonic()))
        return self._texts["stdout"], self._texts["stderr"]

    def _read(self, name: str) -> None:
        file: TextIO | None = getattr(self, name)
        if file is None:
            self._texts[name] = ""
            return
        with file:
            self._texts[name] = file.read()


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end and captures what it writes, like `subprocess.run`."""
    with Forked(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=cwd) as child:
        try:
            out, complaints = child.communicate(timeout)
        except BaseException:
            child.kill()
            raise
        return subprocess.CompletedProcess(command, child.wait(), out, complaints)


# --- the server -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Request:
    """The program of a child and its environment."""

    arguments: list[str]
    environ: dict[str, str]
    folder: str
    descriptors: list[int]  # the numbers that the descriptors must have in the child
    exact_end: bool
    sent: list[int]  # the numbers of the same descriptors in this process


def serve() -> CodeType:
    """Serves until the test process has ended. In each child, returns the program to execute."""
    _, kind, address, owner = sys.argv[1:]
    if kind == PYTEST:
        _warm_up()
    else:
        for name in PRELOADED:
            importlib.import_module(name)
    threads = os.listdir("/proc/self/task")  # noqa: PTH208
    maps = Path("/proc/self/maps").read_text()
    assert len(threads) == 1, f"expected a server with one thread, got {len(threads)}"
    assert "libascendcl" not in maps, "expected a server without an ACL library, got one with libascendcl"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen()
    children = _Children(listener)
    gc.collect()
    gc.freeze()
    try:
        request = children.serve(int(owner))
    except (KeyboardInterrupt, _Ended):
        children.kill()
        shutil.rmtree(Path(address).parent)
        return compile("", "<nothing>", "exec")
    return _become(request)


class _Ended(Exception):
    """The test process has ended, or has requested the server's end."""


def _warm_up() -> None:
    """Runs pytest once, so that its modules are imported. The test that starts the server may have set variables."""
    import pytest

    for name in [name for name in os.environ if name.startswith(("PYTEST", "AIOACL_"))]:
        del os.environ[name]
    path = [*sys.path]
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()) as output:
        test = Path(folder, "test_nothing.py")
        test.write_text(WARM_UP)
        status = pytest.main(["-c", os.devnull, f"--rootdir={folder}", "-p", "no:cacheprovider", str(test)])
    assert status == 0, output.getvalue()
    sys.path[:] = path
    del sys.modules["test_nothing"]


class _Children:
    """The running children, by pidfd."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._connections: dict[int, tuple[int, socket.socket]] = {}

    def serve(self, owner: int) -> _Request:
        """Forks for each request, and returns the request in the child. `owner` is the id of the test process."""
        try:
            test_process = os.pidfd_open(owner)
            os.write(1, READY)
        except (ProcessLookupError, BrokenPipeError) as error:
            raise _Ended from error
        while True:
            waited_for = [self._listener.fileno(), test_process, *self._connections]
            ready, _, _ = select.select(waited_for, [], [])
            for descriptor in ready:
                if descriptor in self._connections:
                    self._report(descriptor)
            if test_process in ready:
                raise _Ended
            if self._listener.fileno() in ready and (request := self._fork()) is not None:
                return request

    def _fork(self) -> _Request | None:
        connection, _ = self._listener.accept()
        connection.settimeout(REQUEST_SECONDS)
        try:
            text, sent, _, _ = socket.recv_fds(connection, REQUEST_BYTES, MOST_DESCRIPTORS)
        except TimeoutError:
            text, sent = b"", []
        connection.settimeout(None)
        if text == END:
            raise _Ended
        if not text:  # the test process has closed the connection
            connection.close()
            return None
        process = os.fork()
        if process == 0:
            # The child is killed if the server is killed.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            for each in (self._listener, connection, *(other for _, other in self._connections.values())):
                each.detach()  # the child closes all descriptors by their numbers
            self._connections.clear()
            return _Request(**json.loads(text), sent=sent)
        for descriptor in sent:
            os.close(descriptor)
        pidfd = os.pidfd_open(process)
        self._connections[pidfd] = (process, connection)
        with suppress(OSError):  # the test process has closed the connection
            socket.send_fds(connection, [str(process).encode()], [pidfd])
        return None

    def _report(self, pidfd: int) -> None:
        process, connection = self._connections.pop(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(process, 0)
        with connection, suppress(OSError):
            connection.send(str(status).encode())

    def kill(self) -> None:
        """Kills the children that are left."""
        for process, _ in self._connections.values():
            os.kill(process, signal.SIGKILL)


def _become(request: _Request) -> CodeType:
    """Turns this process into the requested process."""
    if request.exact_end:
        gc.unfreeze()
    _take(request.sent, request.descriptors)
    # In Python 3.11, the main thread of a forked process still has the id of the server's main thread.
    vars(threading.main_thread())["_native_id"] = threading.get_native_id()
    os.environ.clear()
    os.environ.update(request.environ)
    os.chdir(request.folder)
    for name in ("sys", "forkserver"):  # names that BOOT has defined
        del vars(sys.modules["__main__"])[name]
    return _program(*request.arguments)


def _take(sent: list[int], wanted: list[int]) -> None:
    """Gives the descriptors the requested numbers, and closes all others."""
    above = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, FIRST_FREE) for descriptor in sent]
    for descriptor, number in zip(above, wanted, strict=True):
        os.dup2(descriptor, number)
    others = [number for number in range(max(wanted)) if number not in wanted]
    for number in others:
        with suppress(OSError):  # the descriptor is not open
            os.close(number)
    os.closerange(max(wanted) + 1, os.sysconf("SC_OPEN_MAX"))


def _program(*arguments: str) -> CodeType:
    """Returns the program of a command line, and sets `sys.argv` and `sys.path` for it."""
    kind, *rest = arguments
    if kind == "-c":
        text, *rest = rest
        sys.argv[:] = ["-c", *rest]
        return compile(text, "<string>", "exec")
    if kind == "-m":
        module, *rest = rest
        sys.argv[:] = ["-m", *rest]
        _put_first(Path.cwd())
        # The interpreter itself calls this function for -m.
        return compile(f"__import__('runpy')._run_module_as_main({module!r})", "<string>", "exec")
    sys.argv[:] = [kind, *rest]
    _put_first(Path(kind).resolve().parent)
    vars(sys.modules["__main__"])["__file__"] = kind
    return compile(Path(kind).read_bytes(), kind, "exec")


def _put_first(folder: Path) -> None:
    if not sys.flags.safe_path:
        sys.path[0] = str(folder)
