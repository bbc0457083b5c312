"""A process of the fork server behaves like one that Python starts."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import until_now
from tests.support import forkserver

PROGRAMS = {
    "its state": """
import os, sys, threading, gc
print(sys.argv, sys.path, sys.warnoptions, sys.flags, sorted(vars()), __name__)
print(sorted(os.environ.items()), os.getcwd(), os.listdir("/proc/self/fd"), len(os.listdir("/proc/self/task")))
print(threading.current_thread().name, threading.main_thread().native_id == os.getpid())
print(threading.main_thread().ident == threading.get_ident())
print(sys.stdin.readline(), sys.stdin, sys.stdout, sys.stderr, sys.stdout.line_buffering)
""",
    "its end": """
import atexit, sys, threading, weakref
class Last:
    def __del__(self):
        print("deleted", file=sys.stderr)
kept, go = Last(), threading.Event()
atexit.register(print, "at exit")
threading.Thread(target=lambda: (go.wait(), print("a thread"))).start()
go.set()
sys.exit(7)
""",
    "its warnings": """
import warnings
try:
    warnings.warn("an error")
except UserWarning as error:
    print(repr(error))
open("/dev/null")
""",
    "a message": "import sys; sys.exit('no')",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "a crash": "import os; print('lost'); os.abort()",
    "an interrupt": "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", *arguments]


def without_frames(text: str) -> str:
    """Returns the text without frames, because a traceback of a forked process has one more frame."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("  File"))


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_forked_process_behaves_like_a_real_one(program: str, tmp_path: Path) -> None:
    environ = {**os.environ, "SOMETHING": "else"}
    arguments = command("-c", program, "an argument")
    real = subprocess.run(
        arguments, env=environ, cwd=tmp_path, input="", capture_output=True, text=True, check=False
    )
    with forkserver.Forked(
        arguments, env=environ, cwd=tmp_path, stdin=-1, stdout=-1, stderr=-1, exact_end=True
    ) as child:
        out, errors = child.communicate(60)
    assert (child.returncode, out) == (real.returncode, real.stdout)
    assert without_frames(errors) == without_frames(real.stderr)


@pytest.mark.parametrize("arguments", [("-m", "json.tool", "--help"), ("FILE", "x")])
def test_forked_module_or_file_runs_as_main(arguments: tuple[str, ...], tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys; print(__name__, __file__, sys.argv, sys.path)")
    arguments = tuple(argument.replace("FILE", str(program)) for argument in arguments)
    real = subprocess.run(command(*arguments), capture_output=True, text=True, check=False)
    forked = forkserver.run(command(*arguments))
    assert (forked.returncode, forked.stdout, forked.stderr) == (real.returncode, real.stdout, real.stderr)


def test_signal_ends_forked_process_with_its_number() -> None:
    program = "import threading; print('waits', flush=True); threading.Event().wait()"
    with forkserver.Forked(command("-c", program), stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "waits\n"
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.01)
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == -signal.SIGTERM
        child.kill()


def test_run_that_takes_too_long_raises_timeout_and_kills_the_process() -> None:
    program = "import threading; threading.Event().wait()"
    with pytest.raises(subprocess.TimeoutExpired):
        forkserver.run(command("-c", program), timeout=0.05)


def test_variable_that_is_read_at_the_start_needs_a_real_process() -> None:
    environ = {**os.environ, "PYTHONUTF8": "0"}
    assert not forkserver.serves(environ)
    with pytest.raises(ValueError, match="use a real process"):
        forkserver.run(command("-c", ""), env=environ)


def test_forked_process_has_loaded_no_acl_library() -> None:
    program = "print('libascendcl' in open('/proc/self/maps').read())"
    assert forkserver.run(command("-W", "ignore", "-c", program)).stdout == "False\n"


ENDS = """
import os, subprocess, sys
from tests.support import forkserver
program = "import threading; print('waits', flush=True); threading.Event().wait()"
child = forkserver.Forked([sys.executable, "-c", program], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, forkserver.server((), forkserver.PLAIN).address, flush=True)
sys.stdin.readline()
if "abruptly" in sys.argv:
    os._exit(3)
"""


@pytest.mark.parametrize(("how", "status"), [("abruptly", 3), ("as usual", 0), ("killed with its group", -9)])
def test_server_and_its_children_end_with_the_test_process(how: str, status: int) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", ENDS, how],
        stdin=pipe,
        stdout=pipe,
        text=True,
        cwd=forkserver.ROOT,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        pid, address = process.stdout.readline().split()
        child = os.pidfd_open(int(pid))
        if how.startswith("killed"):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate("go on\n", 60)
    assert process.returncode == status
    ended, _, _ = select.select([child], [], [], 60)
    os.close(child)
    assert ended
    assert until_now(lambda: not Path(address).parent.exists())


def test_request_with_too_many_descriptors_is_refused() -> None:
    with pytest.raises(ValueError, match="expected at most 5 descriptors to pass, got 6"):
        forkserver.Forked(command("-c", ""), pass_fds=range(6))


def test_request_with_too_large_an_environment_is_refused() -> None:
    with pytest.raises(ValueError, match="expected at most 131072 bytes of arguments and variables"):
        forkserver.run(command("-c", ""), env={**os.environ, "AIOACL_TEST": "x" * forkserver.REQUEST_BYTES})
