"""The modules that aioacl imports, and the threads on which it imports them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.command import finished

# `import trio` comes after `import aioacl`, because a program may import it later. `open_device` is looked up before
# the loop begins: its first use imports the code for devices.
PROGRAM = """
import sys, threading

import aioacl
import {backend}
from aioacl import open_device

class Finder:
    def find_spec(self, name, path=None, target=None):
        if threading.get_ident() == loop:
            found.append(name)

async def main():
    global loop
    loop = threading.get_ident()
    async with (
        open_device() as device,
        device.lease(),
        device.create_stream() as stream,
        device.allocate(8) as memory,
        device.pinned(8) as pinned,
        device.create_event() as event,
    ):
        await stream.upload(memory, b"one try!")
        stream.copy(pinned, memory)
        stream.record(event)
        await event
        await stream.synchronize(timeout=10)
        await device.run(bytes, pinned.view)
        await device.synchronize()
    loop = None

found, loop = [], None
sys.meta_path.insert(0, Finder())
{backend}.run({argument})
print(found)
"""


@pytest.mark.parametrize(("backend", "argument"), [("asyncio", "main()"), ("trio", "main")])
def test_program_imports_nothing_on_the_thread_of_the_loop(backend: str, argument: str) -> None:
    program = PROGRAM.format(backend=backend, argument=argument)
    ran = finished(
        [sys.executable, "-W", "error", "-c", program],
        env=os.environ | {"AIOACL_LIBRARY": "simulator"},
        timeout=60,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "[]\n", "")


def test_import_of_aioacl_imports_neither_anyio_nor_trio() -> None:
    program = "import sys, aioacl; print(sorted({'anyio', 'sniffio', 'trio', 'outcome'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("[]\n", "")


CONCURRENTLY = """
import importlib, threading
{prepare}
names = {names} * 2
start, failed = threading.Barrier(len(names)), []

def load(name):
    start.wait()
    try:
        {use}
    except BaseException as error:
        failed.append((name, repr(error)))

threads = [threading.Thread(target=load, args=(name,)) for name in names]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(failed)
"""


def use_concurrently(prepare: str, names: str, use: str) -> None:
    """Uses each name on two threads at once, in a new process. No use may fail."""
    program = CONCURRENTLY.format(prepare=prepare, names=names, use=use)
    ran = finished([sys.executable, "-c", program], timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "[]\n", "")


def test_first_imports_of_public_modules_by_concurrent_threads_succeed() -> None:
    names = '["aioacl", "aioacl.simulator", "aioacl.testing", "aioacl.lowlevel"]'
    for _ in range(3):
        use_concurrently("", names, "importlib.import_module(name)")


def test_first_uses_of_public_names_by_concurrent_threads_succeed() -> None:
    use_concurrently("import aioacl", "aioacl.__all__", "getattr(aioacl, name)")


# A thread is inside the import of {module} when the process forks.
FORK = """
import os, sys, threading, warnings
import aioacl

warnings.simplefilter("ignore", DeprecationWarning)  # of the fork
reached, go = threading.Event(), threading.Event()

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            reached.set()
            go.wait()

sys.meta_path.insert(0, Finder())
thread = threading.Thread(target=lambda: {use})
thread.start()
reached.wait()
os.register_at_fork(before=go.set)
pid = os.fork()
if pid == 0:
    try:
        with aioacl.open_device():
            print("opened")
    except aioacl.ForkedProcessError:  # the parent has used the library by then
        print("refused")
    sys.exit(0)
print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
thread.join()
"""


@pytest.mark.parametrize(
    ("module", "use", "may"),
    [
        ("aioacl._handles.stream", "aioacl.open_device", {"opened"}),
        ("aioacl._library.locate", "aioacl.library_info", {"opened"}),
        ("aioacl._library.locate", "aioacl.list_devices()", {"opened", "refused"}),
        ("aioacl._library.load", "aioacl.open_device().result().close().result()", {"refused"}),
    ],
)
def test_child_that_is_forked_during_an_import_ends(module: str, use: str, may: set[str]) -> None:
    ran = finished(
        [sys.executable, "-W", "error", "-c", FORK.format(module=module, use=use)],
        env=os.environ | {"AIOACL_LIBRARY": "simulator"},
        timeout=60,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    child, parent = ran.stdout.splitlines()
    assert child in may
    assert parent == "child 0"


MODULES = """
import sys, aioacl
before = set(sys.modules)
aioacl.{name}
print(*sorted(name for name in set(sys.modules) - before if name.startswith("aioacl.")))
"""
# In a child for each module, Ctrl-C ends the import of the module at its first or after its last step.
INTERRUPTS = """
import os, sys, aioacl

def interrupted(module, event):
    def trace(frame, happened, argument):
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == module:
            if happened == event:
                raise KeyboardInterrupt
            return trace
    sys.settrace(trace)
    try:
        aioacl.{name}
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False

def works():
    aioacl.{name}
    with aioacl.open_device() as device, device.create_stream() as stream, device.allocate(4) as memory:
        answer = bytearray(4)
        stream.fill(memory, 7)
        stream.copy(answer, memory).result()
        return answer == bytes([7]) * 4 and stream.record().synchronize().result() is None

for module in sys.argv[1:]:
    for event in ("call", "return"):
        pid = os.fork()
        if pid == 0:
            done = interrupted(module, event) and works()
            os._exit(0 if done else 3)
        if os.waitpid(pid, 0)[1]:
            print(module, event)
print("end")
"""


@pytest.mark.parametrize("name", ["open_device", "Model"])
def test_use_after_an_interrupted_import_works(name: str) -> None:
    python = [sys.executable, "-W", "error", "-c"]
    listed = finished([*python, MODULES.format(name=name)], timeout=60)
    modules = listed.stdout.split()
    assert len(modules) > 50
    ran = finished(
        [*python, INTERRUPTS.format(name=name), *modules],
        env=os.environ | {"AIOACL_LIBRARY": "simulator"},
        timeout=120,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "end\n", "")


END = """
import atexit, os, sys, warnings
import aioacl

warnings.simplefilter("ignore", ResourceWarning)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if ending and name.startswith("aioacl"):
            os.write(2, (name + "\\n").encode())

ending = []
sys.meta_path.insert(0, Finder())
device = aioacl.open_device().result()
left = [device.create_stream().result(), device.allocate(8).result(), device.pinned(8).result()]
left += [left[0].record(), left[0].fill(left[1], 1), device.executor, device.events(), device.lease()]
left.append(left)  # the collector finalizes them
atexit.register(ending.append, True)
print("end")
"""


def test_end_of_a_program_with_open_objects_imports_nothing() -> None:
    ran = finished([sys.executable, "-c", END], env=os.environ | {"AIOACL_LIBRARY": "simulator"}, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "end\n", "")


def test_import_on_a_free_threaded_python_raises_import_error_with_the_build_and_the_reason() -> None:
    program = "import sys; sys.abiflags = 't'; import aioacl"
    ran = finished([sys.executable, "-W", "error", "-c", program], timeout=60)
    assert ran.returncode == 1
    error = ran.stderr.splitlines()[-1]
    assert error.startswith("ImportError: aioacl needs a Python with the GIL, got the free-threaded build")
    assert "; without the GIL, threads could change the lists of aioacl's C code" in error
