"""Events between two lines of the first load: an exception, a signal handler, another thread, a fork."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from aioacl.simulator import library_path
from tests.support import forkserver
from tests.support.command import finished
from tests.support.libraries import compiled

if TYPE_CHECKING:
    from pathlib import Path

PRELUDE = """
import json, os, signal, sys, threading, warnings
import aioacl
from aioacl import library_info, use_library
from aioacl._library import load, locate

# Python 3.12 and later warn of each fork of a process with threads. These programs fork such processes.
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
LOADER = {load.__file__, locate.__file__}

def between_lines(number, act):
    "Calls `act` before a line of the loader, like a signal. `number` counts lines in the order of their first run."
    seen = set()
    def line(frame, event, argument):
        place = frame.f_code, frame.f_lineno
        if event == "line" and place not in seen:
            seen.add(place)
            if len(seen) == number:
                act()
        return line
    return lambda frame, event, argument: line if frame.f_code.co_filename in LOADER else None

def in_child(body):
    "Runs the body in a child process, and returns the result of the body. A child that hangs is killed."
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os.write(writer, json.dumps(body()).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as file:
        results = file.read()
    os.waitpid(child, 0)
    return json.loads(results or '"hangs"')

def facts(info):
    return [info.path, info.backend, info.origin, sorted(info.extra_paths)]
"""

# For each line of the loader, raises an exception at this line during a load. Prints the results of later calls.
INTERRUPTED = """
class Interrupted(Exception):
    pass

def interrupt():
    raise Interrupted

def body():
    sys.settrace(between_lines(number, interrupt))
    try:
        use_library(CHOICE)
        interrupted = False
    except Interrupted:
        interrupted = True
    sys.settrace(None)
    return [interrupted, facts(use_library(CHOICE)), facts(library_info())]

results, number = [], 0
while not results or results[-1][0] is True:
    number += 1
    results.append(in_child(body))
print(json.dumps(results))
"""

NESTED = """
def nested():
    try:
        inner.append(facts(library_info() if OTHER is None else use_library(OTHER)))
    except aioacl.AclError as error:
        inner.append(type(error).__name__)

def body():
    sys.settrace(between_lines(number, nested))
    try:
        outer = facts(use_library(CHOICE))
    except aioacl.AclError as error:
        outer = type(error).__name__
    sys.settrace(None)
    return [outer, inner, facts(library_info())]

results, number, inner = [], 0, []
while not results or results[-1] == "hangs" or results[-1][1]:
    number += 1
    results.append(in_child(body))
print(json.dumps(results))
"""

# A library whose constructor reports that it runs, and waits for a reply.
SLOW = """
#include <fcntl.h>
#include <unistd.h>

int aclInit(const char *path);
int aclInit(const char *path) { return path ? 1 : 0; }

__attribute__((constructor)) static void slow(void) {
    char go;
    if (write(open(ENTERED, O_WRONLY), "x", 1) != 1 || read(open(GO, O_RDONLY), &go, 1) != 1)
        _exit(1);
}
"""


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A library that is not the simulator and lacks aclrtSetDevice. Its folder has a library with aclrtSetDevice."""
    compiled("int aclrtSetDevice(int device) { return device; }", tmp_path / "libacl_rt.so")
    return compiled("int aclInit(const char *path) { return !path; }", tmp_path / "libascendcl.so")


def outcome(program: str, **names: object) -> Any:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AIOACL_", "ASCEND_"))}
    settings = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    done = forkserver.run([sys.executable, "-c", PRELUDE + settings + program], env=clean)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_load_that_an_exception_interrupts_is_resumed_by_the_next_call() -> None:
    *interrupted, whole = outcome(INTERRUPTED, CHOICE="simulator")
    assert len(interrupted) > 50
    expected = [str(library_path()), "simulator", "argument", []]
    assert [each for each in interrupted if each != [True, expected, expected]] == []
    assert whole == [False, expected, expected]


def test_load_that_an_exception_interrupts_keeps_the_companions(real: Path) -> None:
    *interrupted, whole = outcome(INTERRUPTED, CHOICE=str(real))
    expected = [str(real), "ascend", "argument", [str(real.with_name("libacl_rt.so"))]]
    assert len(interrupted) > 50
    assert [each for each in interrupted if each != [True, expected, expected]] == []
    assert whole == [False, expected, expected]


def test_signal_handler_that_loads_the_same_library_during_a_load_gets_that_library() -> None:
    *interrupted, _ = outcome(NESTED, CHOICE="simulator", OTHER="simulator")
    expected = [str(library_path()), "simulator", "argument", []]
    assert len(interrupted) > 50
    assert [each for each in interrupted if each != [expected, [expected], expected]] == []


def test_signal_handler_that_names_no_library_gets_the_one_that_is_being_loaded() -> None:
    *interrupted, _ = outcome(NESTED, CHOICE="simulator", OTHER=None)
    expected = [str(library_path()), "simulator", "argument", []]
    joined = [expected, [expected], expected]
    too_early = [expected, ["LibraryNotFound"], expected]  # the loader has not stored the choice yet
    first = interrupted.index(joined)
    assert first < 12
    assert interrupted == [too_early] * first + [joined] * (len(interrupted) - first)


def test_first_load_imports_nothing() -> None:
    """If a process forks while another thread imports a module, the child hangs when it imports the same module."""
    program = """
import sys
from aioacl import use_library
before = set(sys.modules)
print(use_library("simulator").backend, *set(sys.modules) - before)
"""
    done = finished([sys.executable, "-c", program], timeout=60, check=True)
    assert done.stdout.split() == ["simulator"]


def test_later_call_does_not_repeat_a_choice_that_failed() -> None:
    program = """
for choose in (lambda: use_library(CHOICE), library_info):
    try:
        choose()
    except aioacl.LibraryNotFound as error:
        failed = [path for path, _ in error.candidates]
print(json.dumps(failed))
"""
    assert "/nowhere.so" not in outcome(program, CHOICE="/nowhere.so")


def test_signal_handler_that_loads_another_library_gets_that_library_or_a_conflict(real: Path) -> None:
    *interrupted, _ = outcome(NESTED, CHOICE="simulator", OTHER=str(real))
    simulator = [str(library_path()), "simulator", "argument", []]
    other = [str(real), "ascend", "argument", [str(real.with_name("libacl_rt.so"))]]
    handler_first = ["LibraryConflict", [other], other]
    handler_late = [simulator, ["LibraryConflict"], simulator]
    assert [each for each in interrupted if each not in (handler_first, handler_late)] == []
    assert handler_first in interrupted
    assert handler_late in interrupted


def test_child_can_load_a_library_if_another_thread_searched_during_the_fork() -> None:
    program = """
searching, go_on = threading.Event(), threading.Event()

def wait():
    searching.set()
    go_on.wait()

def search():
    sys.settrace(between_lines(5, wait))
    use_library("simulator")

thread = threading.Thread(target=search)
thread.start()
searching.wait()
results = in_child(lambda: facts(use_library("simulator")))
go_on.set()
thread.join()
print(json.dumps([results, facts(library_info())]))
"""
    expected = [str(library_path()), "simulator", "argument", []]
    assert outcome(program) == [expected, expected]


@pytest.fixture
def slow(tmp_path: Path) -> dict[str, str]:
    """A library whose constructor writes to one pipe, and waits for input from the other pipe."""
    names = {"ENTERED": str(tmp_path / "entered"), "GO": str(tmp_path / "go")}
    for each in names.values():
        os.mkfifo(each)
    options = [f'-D{name}="{value}"' for name, value in names.items()]
    return {"CHOICE": str(compiled(SLOW, tmp_path / "libascendcl.so", *options)), **names}


def test_signal_ends_a_wait_for_constructors_that_another_thread_runs(slow: dict[str, str]) -> None:
    program = """
class Ended(Exception):
    pass

ended = threading.Event()

def handler(number, frame):
    if frame.f_code.co_filename in LOADER and frame.f_code.co_name == "present":
        raise Ended

def signals():
    while not ended.wait(0.01):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

signal.signal(signal.SIGUSR1, handler)
signal.alarm(20)
loader = threading.Thread(target=use_library, args=(CHOICE,))
loader.start()
with open(ENTERED) as file:
    file.read(1)
sender = threading.Thread(target=signals)
sender.start()
try:
    library_info()
except Ended:
    ended.set()
sender.join()
with open(GO, "w") as file:
    file.write("x")
loader.join()
print(json.dumps(facts(library_info())))
"""
    assert outcome(program, **slow) == [slow["CHOICE"], "ascend", "argument", []]


def test_fork_waits_for_constructors_that_another_thread_runs(slow: dict[str, str]) -> None:
    program = """
forks = threading.Event()

def let_go():
    forks.wait()
    with open(GO, "w") as file:
        file.write("x")

threads = [threading.Thread(target=use_library, args=(CHOICE,)), threading.Thread(target=let_go)]
for thread in threads:
    thread.start()
with open(ENTERED) as file:
    file.read(1)
os.register_at_fork(before=forks.set)  # runs before the hook that aioacl registered
results = in_child(lambda: facts(library_info()))
for thread in threads:
    thread.join()
print(json.dumps([results, facts(library_info())]))
"""
    expected = [slow["CHOICE"], "ascend", "argument", []]
    assert outcome(program, **slow) == [expected, expected]


def test_fork_hook_can_load_the_library() -> None:
    program = """
import os
os.register_at_fork(before=lambda: print(aioacl.use_library("simulator").backend, flush=True))
import aioacl
child = os.fork()
if child == 0:
    os._exit(aioacl.library_info().backend != "simulator")
print(os.waitpid(child, 0)[1], flush=True)
"""
    done = finished([sys.executable, "-c", program], timeout=60, check=True)
    assert done.stdout.split() == ["simulator", "0"]
