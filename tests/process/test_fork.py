"""The use of aioacl in forked children and in spawned children."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.process.child import run
from tests.simulator import modelfiles

if TYPE_CHECKING:
    from pathlib import Path

# Python warns about a fork with several threads. These tests need the threads, so they ignore the warning.
BEGIN = """
import asyncio, contextlib, gc, warnings
warnings.simplefilter("ignore", DeprecationWarning)
use_library("simulator")
def refused(use):
    try:
        use()
    except ForkedProcessError:
        return True
    say("not refused", use)
    return False
"""
FORKS = """
device = open_device(0, os.environ["TEST_WAITS"]).result()
stream = device.create_stream().result()
memory = device.allocate(64).result()
event = stream.record()
stream.result()
simulator.hold(stream)
ticket = stream.fill(memory, 1)
def child():
    uses = [
        lambda: open_device(1).result(),
        lambda: device.create_stream().result(),
        lambda: device.allocate(64).result(),
        lambda: device.synchronize().result(),
        lambda: device.force_reset().result(),
        lambda: stream.fill(memory, 1),
        lambda: stream.record(),
        lambda: stream.query(),
        lambda: stream.result(),
        lambda: ticket.result(),
        lambda: event.result(),
        lambda: device.executor.submit(print),
    ]
    say("refused", sum(refused(use) for use in uses), "of", len(uses))
def parent(pid):
    _, status = os.waitpid(pid, 0)
    say("child", os.waitstatus_to_exitcode(status))
    simulator.release(stream)
    ticket.result()
    stream.close().result(), memory.close().result(), device.close().result()
    say("closed", simulator.violations())
pid = os.fork()
"""


@pytest.mark.parametrize("waits", ["watch", "thread"])
def test_use_in_a_forked_child_raises_and_the_child_ends_cleanly(waits: str) -> None:
    ends = """
if pid == 0:
    child()
    del device, stream, memory, event, ticket
    gc.collect()
    sys.exit(0)
parent(pid)
"""
    assert run(BEGIN + FORKS + ends, waits=waits) == (0, "refused 12 of 12\nchild 0\nclosed []\n", "")


def test_child_that_does_nothing_ends_cleanly() -> None:
    ends = """
if pid != 0:
    parent(pid)
"""
    assert run(BEGIN + FORKS + ends) == (0, "child 0\nclosed []\n", "")


def test_child_keeps_its_own_status() -> None:
    ends = """
if pid == 0:
    sys.exit(11)
parent(pid)
"""
    assert run(BEGIN + FORKS + ends, real=True) == (0, "child 11\nclosed []\n", "")


def test_child_that_leaves_async_blocks_of_its_parent_keeps_its_own_status() -> None:
    program = """
async def main():
    try:
        await use()
    except SystemExit as leaving:
        if sys.version_info >= (3, 14):  # asyncio of 3.14 does not end the loop of a forked child
            os._exit(leaving.code)
        raise
async def use():
    async with open_device(0, os.environ["TEST_WAITS"]) as device, device.create_stream() as stream, device.lease():
        await stream
        pid = os.fork()
        if pid == 0:
            sys.exit(7)
        _, status = os.waitpid(pid, 0)
        say("child", os.waitstatus_to_exitcode(status))
    say("closed", simulator.violations())
asyncio.run(main())
"""
    assert run(BEGIN + program) == (0, "child 7\nclosed []\n", "")


def test_child_that_leaves_with_blocks_of_its_parent_keeps_its_own_status() -> None:
    program = """
with open_device(0, os.environ["TEST_WAITS"]) as device, device.create_stream() as stream, device.lease():
    pid = os.fork()
    if pid == 0:
        sys.exit(7)
    _, status = os.waitpid(pid, 0)
    say("child", os.waitstatus_to_exitcode(status))
say("closed", simulator.violations())
"""
    assert run(BEGIN + program) == (0, "child 7\nclosed []\n", "")


def test_model_of_the_parent_is_refused_in_a_forked_child_and_works_on_in_the_parent() -> None:
    program = f"""
with open_device(0, os.environ["TEST_WAITS"]) as device:
    with device.load_model({modelfiles.genuine()!r}) as model:
        pid = os.fork()
        if pid == 0:
            uses = [
                lambda: model(bytes(24)),
                lambda: model.map([]),
                lambda: model.enqueue(1, 2),
                lambda: model.stream,
                lambda: device.load_model("m.om").result(),
            ]
            say("refused", sum(bool(refused(use)) for use in uses), "of", len(uses))
            say("of the parent process" in repr(model), model.close().result())
            del model
            gc.collect()
            os._exit(0)
        say("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        say("loaded", len(simulator.models()), model.stream.query())
say("closed", simulator.models(), simulator.violations())
"""
    expected = "refused 5 of 5\nTrue None\nchild 0\nloaded 1 True\nclosed () []\n"
    assert run(BEGIN + program) == (0, expected, "")


def test_drop_of_a_dataset_in_a_forked_child_calls_no_acl_function() -> None:
    program = """
from aioacl._base.ffi import Dataset
with open_device(0, os.environ["TEST_WAITS"]) as device, device.allocate(64) as memory:
    dataset = Dataset(((memory.address, memory.size),))
    pid = os.fork()
    if pid == 0:
        before = len(simulator.journal())
        del dataset
        say([entry["call"] for entry in simulator.journal()[before:]])
        os._exit(0)
    say("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    del dataset
say("closed", simulator.violations())
"""
    assert run(BEGIN + program) == (0, "[]\nchild 0\nclosed []\n", "")


def test_repr_in_a_forked_child_names_the_fork_and_does_not_raise() -> None:
    ends = """
if pid == 0:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        things = device, stream, memory, ticket, event, device.create_stream(), stream.synchronize()
        say(sum("of the parent process" in repr(thing) for thing in things), "of", len(things))
        del things
    sys.exit(0)
parent(pid)
"""
    assert run(BEGIN + FORKS + ends) == (0, "7 of 7\nchild 0\nclosed []\n", "")


def test_opening_of_the_parent_is_refused_in_a_forked_child_each_time() -> None:
    ends = """
if pid == 0:
    opening = device.create_stream()
    for _ in range(2):
        try:
            opening.result()
        except ForkedProcessError:
            say("refused")
    sys.exit(0)
parent(pid)
"""
    assert run(BEGIN + FORKS + ends) == (0, "refused\nrefused\nchild 0\nclosed []\n", "")


# The thread that forks has no port of its own, because everything was created on another thread or in an event loop.
CLOSES = """
async def make(stack):
    device = await stack.enter_async_context(open_device(0, os.environ["TEST_WAITS"]))
    things = [device.create_stream(), device.allocate(64), device.pinned(64), device.create_event()]
    things = [await stack.enter_async_context(thing) for thing in things]
    await things[0].fill(things[1], 1)
    await things[3].record(things[0])
    await device.run(int)
    await stack.enter_async_context(device.lease())
    return [*reversed(things), device]
def close(things):
    simulator.forget()
    for _ in range(2):
        for thing in things:
            thing.close().result()
    say("closed in the child", len(things), simulator.violations())
"""


@pytest.mark.parametrize("waits", ["watch", "thread"])
@pytest.mark.parametrize("how", ["result", "await", "block"])
def test_close_of_a_handle_in_a_forked_child_does_nothing(waits: str, how: str) -> None:
    ends = """
async def main():
    stack = contextlib.AsyncExitStack()
    things = await make(stack)
    executor = things[-1].executor
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        HOW
        executor.shutdown()
        os._exit(5)
    say("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    await stack.aclose()
    say("closed", simulator.violations())
asyncio.run(main())
"""
    hows = {
        "result": "thread = threading.Thread(target=close, args=(things,)); thread.start(); thread.join()",
        "await": "[await thing.close() for thing in things * 2]; say('closed in the child', 5, [])",
        "block": "await stack.aclose(); say('closed in the child', 5, [])",
    }
    expected = "closed in the child 5 []\nchild 5\nclosed []\n"
    assert run(BEGIN + CLOSES + ends.replace("HOW", hows[how]), waits=waits) == (0, expected, "")


def test_child_may_run_another_program() -> None:
    ends = """
if pid == 0:
    os.execv("/bin/true", ["true"])
parent(pid)
"""
    assert run(BEGIN + FORKS + ends) == (0, "child 0\nclosed []\n", "")


WORK = """
import multiprocessing, warnings
warnings.simplefilter("ignore", DeprecationWarning)
def work():
    with open_device(0) as device, device.create_stream() as stream, device.allocate(4) as memory:
        answer = bytearray(4)
        stream.fill(memory, 7)
        stream.copy(answer, memory).result()
        simulator.fail_next(stream, 507015)
        try:
            stream.fill(memory, 8).result()
        except aioacl.DeviceFault as error:
            say(answer.hex(), error.code, aioacl.library_info().failure_detection, simulator.violations())
def child():
    try:
        work()
    except ForkedProcessError:
        say("refused")
    sys.exit(5)
"""
CHILDREN = {
    "fork": """
pid = os.fork()
if pid == 0:
    child()
say("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""",
    "multiprocessing": """
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
say("child", process.exitcode)
""",
}
# Each of these makes the process load the library. The last ones use it too.
ONLY_LOADED = {
    "use_library": "use_library('simulator')",
    "library_info": "os.environ['AIOACL_LIBRARY'] = 'simulator'; aioacl.library_info()",
    "a control of the simulator": "use_library('simulator'); simulator.forget()",
    "a fork of a fork": "use_library('simulator'); os.fork() and os._exit(os.waitstatus_to_exitcode(os.wait()[1]))",
}
USED = {
    "failure_detection": "use_library('simulator').failure_detection",
    "list_devices": "use_library('simulator'); aioacl.list_devices()",
    "a call of lowlevel": "from aioacl import lowlevel; use_library('simulator'); lowlevel.functions.aclrtGetSocName()",
    "a closed device": "use_library('simulator'); open_device(0).result().close().result()",
}


@pytest.mark.parametrize("child", CHILDREN)
@pytest.mark.parametrize("before", ONLY_LOADED)
def test_child_of_a_process_that_only_loaded_the_library_uses_the_device(before: str, child: str) -> None:
    program = f"{WORK}{ONLY_LOADED[before]}\n{CHILDREN[child]}work()\n"
    worked = "07070707 507015 exact []\n"
    assert run(program) == (0, f"{worked}child 5\n{worked}", "")


@pytest.mark.parametrize("child", CHILDREN)
@pytest.mark.parametrize("before", USED)
def test_child_of_a_process_that_used_the_library_is_refused(before: str, child: str) -> None:
    program = f"{WORK}{USED[before]}\n{CHILDREN[child]}work()\n"
    assert run(program) == (0, "refused\nchild 5\n07070707 507015 exact []\n", "")


# The state when the parent forks: a held lease, a listener for events and a finished wait. In addition, threads hold
# all locks of the library. The child does not have these threads.
LOCKED = """
import gc, types
from aioacl._base import sync as _sync
from aioacl._wait import port as _port
class Recording(_sync.Threads):
    made = []
    def lock(self):
        self.made.append(super().lock())
        return self.made[-1]
    def condition(self):
        self.made.append(super().condition())
        return self.made[-1]
_sync.backend = Recording()
use_library("simulator")
device = open_device(0, os.environ["TEST_WAITS"]).result()
stream = device.create_stream().result()
memory = device.allocate(64).result()
over = stream.fill(memory, 1)
stream.result()
device.run(int).result()
executor = device.executor
listener, lease = device.events(), device.lease()
lease.__enter__()
kinds = (type(threading.Lock()), threading.Condition)
modules = [module for name, module in sys.modules.items() if name.startswith("aioacl.")]
locks = [thing for module in modules for thing in vars(module).values() if isinstance(thing, kinds)]
locks += Recording.made
hold, holding = threading.Event(), threading.Semaphore(0)
def keep(lock):
    with lock:
        holding.release()
        hold.wait()
for lock in locks:
    threading.Thread(target=keep, args=(lock,), daemon=True).start()
for lock in locks:
    holding.acquire()
"""


@pytest.mark.parametrize("waits", ["watch", "thread"])
def test_use_in_a_child_raises_while_all_locks_are_held(waits: str) -> None:
    program = """
say("locks", len(locks) > 10)
async def following():
    return await anext(listener)
async def waiting():
    return await over
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    uses = {
        "open": lambda: open_device(1).result(),
        "make": lambda: device.allocate(64).result(),
        "enqueue": lambda: stream.fill(memory, 1),
        "over": lambda: over.result(),
        "awaited": lambda: asyncio.run(waiting()),
        "listener": lambda: following().send(None),
        "events": lambda: device.events(),
        "lease": lambda: device.lease(),
        "entered again": lambda: lease.__enter__(),
        "shared": lambda: lease.share().__enter__(),
        "health": lambda: device.health,
        "executor": lambda: device.executor,
        "job": lambda: executor.submit(int),
    }
    for name, use in uses.items():
        try:
            say("not refused", name, use())
        except ForkedProcessError as error:
            if "Use the spawn start method" not in str(error):
                say("unclear", name, error)
    lease.__exit__(GeneratorExit)
    if device._manager.deferred.notes:
        say("deferred work for a thread that this process does not have")
    lease.__exit__()
    executor.shutdown()
    for thing in (stream, memory, device):
        thing.close().result()
    del device, stream, memory, over, listener, lease
    gc.collect()
    sys.exit(3)
say("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
hold.set()
lease.__exit__()
stream.close().result(), memory.close().result(), device.close().result()
say("closed", simulator.violations())
"""
    assert run(LOCKED + program, waits=waits) == (0, "locks True\nchild 3\nclosed []\n", "")


SPAWNED = """
import asyncio
from aioacl import open_device, use_library

async def work():
    async with open_device(0) as device, device.create_stream() as stream:
        memory = await device.allocate(4)
        target = bytearray(4)
        stream.fill(memory, 7)
        await stream.copy(target, memory)
        await memory.close()
    return target.hex()

def main(_):
    use_library("simulator")
    return asyncio.run(work())
"""


def test_spawned_children_open_their_own_devices(tmp_path: Path) -> None:
    (tmp_path / "spawned.py").write_text(SPAWNED)
    program = f"""
    import multiprocessing
    sys.path.insert(0, {str(tmp_path)!r})
    import spawned
    async def here():
        async with open_device(0):
            with multiprocessing.get_context("spawn").Pool(2) as pool:
                say(*pool.map(spawned.main, range(2)))
                pool.close()
                pool.join()
    start(here)
    """
    assert run(program, real=True) == (0, "07070707 07070707\n", "")
