"""The modules that aioacl imports, and the threads on which it imports them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.command import finished

# `import trio` comes last, because a program may import it after aioacl.
PROGRAM = """
import sys, threading

import aioacl
import {backend}

class Finder:
    def find_spec(self, name, path=None, target=None):
        if threading.get_ident() == loop:
            found.append(name)

async def main():
    global loop
    loop = threading.get_ident()
    async with (
        aioacl.open_device() as device,
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


CONCURRENT_IMPORTS = """
import importlib, threading

names = ["aioacl", "aioacl.simulator", "aioacl.testing", "aioacl.lowlevel"] * 2
start, failed = threading.Barrier(len(names)), []

def load(name):
    start.wait()
    try:
        importlib.import_module(name)
    except BaseException as error:
        failed.append((name, repr(error)))

threads = [threading.Thread(target=load, args=(name,)) for name in names]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(failed)
"""


def test_first_imports_of_public_modules_by_concurrent_threads_succeed() -> None:
    for _ in range(3):
        ran = finished([sys.executable, "-c", CONCURRENT_IMPORTS], timeout=60)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "[]\n", "")


def test_import_on_a_free_threaded_python_raises_import_error_with_the_build_and_the_reason() -> None:
    program = "import sys; sys.abiflags = 't'; import aioacl"
    ran = finished([sys.executable, "-W", "error", "-c", program], timeout=60)
    assert ran.returncode == 1
    error = ran.stderr.splitlines()[-1]
    assert error.startswith("ImportError: aioacl needs a Python with the GIL, got the free-threaded build")
    assert "; without the GIL, threads could change the lists of aioacl's C code" in error
