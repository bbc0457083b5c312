"""Forks of a process that has devices open: where they happen, how the child ends, and multiprocessing.

In each case the child tries every operation on a device, and all are refused. Then the child ends in one of several
ways. The parent forks during a wait, a reset or other work. It continues, and a copy on its device is still correct.
"""

from __future__ import annotations

import signal
from typing import Final

from tests.reliability.endings_child import Case

_COMMON: Final = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of a fork with threads; intended here

class Things:
    "The objects that a process may have when it forks."
    def __init__(self, held=False):
        "With `held`, the last fill is not done."
        self.device = device = open_device(0, os.environ["TEST_WAITS"]).result()
        self.stream, self.memory = device.create_stream().result(), device.allocate(64).result()
        self.pinned, self.event = device.pinned(64).result(), device.create_event().result()
        self.event.record(self.stream)
        self.over = self.stream.fill(self.memory, 1)
        self.stream.result()
        self.ticket = self.stream.fill(self.memory, 2)
        self.listener, self.lease, self.low = device.events(), device.lease(), lowlevel.on(device)
        self.opening = device.create_stream()
        self.ticket.result()
        if held:
            simulator.hold(self.stream)
            self.ticket = self.stream.fill(self.memory, 3)
    def awaitable(self):
        device, stream = self.device, self.stream
        return {
            "open": lambda: open_device(1), "stream": device.create_stream, "made before": lambda: self.opening,
            "allocate": lambda: device.allocate(64), "pinned": lambda: device.pinned(64),
            "event": device.create_event, "synchronize": device.synchronize, "reset": device.force_reset,
            "run": lambda: device.run(int), "info": device.memory_info, "ready": stream.ready, "abort": stream.abort,
            "upload": lambda: stream.upload(self.memory, bytes(64)),
            "download": lambda: stream.download(bytearray(64), self.memory),
            "of stream": lambda: stream, "of event": lambda: self.event, "of ticket": lambda: self.ticket,
            "of one that is over": lambda: self.over, "of listener": lambda: anext(self.listener),
            "enter lease": self.lease.__aenter__,
        }
    def plain(self):
        device, stream = self.device, self.stream
        return {
            "fill": lambda: stream.fill(self.memory, 1), "copy": lambda: stream.copy(self.memory, self.pinned),
            "record": stream.record, "wait for event": lambda: stream.wait_event(self.event), "query": stream.query,
            "query event": self.event.query, "view": lambda: self.pinned.view, "health": lambda: device.health,
            "events": device.events, "lease": device.lease, "executor": lambda: device.executor,
            "share": lambda: self.lease.share().__enter__(), "list": aioacl.list_devices,
            "by hand": lambda: self.low.aclrtSynchronizeStream(stream), "set": lambda: lowlevel.set_device(1),
            "unguarded": lambda: lowlevel.functions.aclrtGetDeviceCount(lowlevel.ffi.new("uint32_t *")),
        }
    def tries(self):
        for name, make in self.awaitable().items():
            yield name, lambda make=make: wait_for(make).send(None)
        yield from self.plain().items()
    def closes(self):
        "A child may close objects. A close calls no ACL function, because the objects belong to the parent."
        for thing in (self.stream, self.memory, self.pinned, self.event, self.device):
            try:
                wait(thing.close()).send(None)
            except StopIteration:
                pass

async def wait_for(make):
    await make()

def child(things):
    signal.alarm(30)
    refused = 0
    for name, use in things.tries():
        try:
            use()
        except ForkedProcessError as error:
            refused += "spawn" in str(error) or say("unclear", name, error) or 0
        except StopIteration:
            say("not refused", name)
        except BaseException as error:
            say("raised", name, repr(error))
        else:
            say("not refused", name)
    say("refused", refused)

def parent(pid):
    say("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

def close(things):
    things.opening.result().close().result()
    for thing in (things.stream, things.memory, things.pinned, things.event):
        thing.close().result()
    verified_here(things.device)
    things.device.close().result()
    say("closed", simulator.retain_count(0), simulator.violations())
    leaving()

use_library("simulator")
"""

# The ends of a child after all operations were refused: program and status. `quit` ends the process.
_ENDS: Final[dict[str, tuple[str, int]]] = {
    "quits at once": ("quit(11)", 11),
    "closes and quits": ("things.closes(); things.__dict__.clear(); gc.collect(); quit(12)", 12),
    "drops everything": ("things.__dict__.clear(); gc.collect(); quit(13)", 13),
    "runs another program": ('os.execv("/bin/true", ["true"])', 0),
    "is terminated": ("os.kill(os.getpid(), signal.SIGTERM); signal.pause()", -signal.SIGTERM),
    "forks again": ("if not (pid := os.fork()): child(things); quit(14)\n    parent(pid); quit(15)", 15),
}

_BRANCH: Final = """
def branch(things, quit=sys.exit):
    if pid := os.fork():
        return pid
    child(things)
    {end}
"""

# The places of a fork: what the parent does when it forks.
_PLACES: Final[dict[str, str]] = {
    "of an idle process": """
things = Things()
parent(branch(things))
close(things)
""",
    "during a copy": """
things = Things(held=True)
parent(branch(things))
simulator.release(things.stream)
things.ticket.result()
close(things)
""",
    "beside a thread in a wait": """
things = Things(held=True)
thread = threading.Thread(target=things.ticket.result)
thread.start()
until_now(waits)
parent(branch(things))
simulator.release(things.stream)
thread.join()
close(things)
""",
    "beside a thread that has the device's lock": """
things = Things()
locked, done = threading.Event(), threading.Event()
def holds():
    with things.device._manager.admission.changed, things.device._manager.streams._lock:
        locked.set()
        done.wait()
thread = threading.Thread(target=holds)
thread.start()
locked.wait()
parent(branch(things))
done.set()
thread.join()
close(things)
""",
    "in a job": """
things = Things()
parent(things.device.run(branch, things, os._exit).result())
close(things)
""",
    "while a reset drains": """
things = Things(held=True)
thread = threading.Thread(target=lambda: things.device.force_reset(grace=60).result())
thread.start()
until_now(lambda: things.device.state is aioacl.State.DRAINING)
parent(branch(things))
simulator.release(things.stream)
thread.join()
close(things)
""",
    "while a reset is in C": """
things = Things()
simulator.hang_call("aclrtResetDeviceForce")
thread = threading.Thread(target=lambda: things.device.force_reset(grace=0).result())
thread.start()
until_now(lambda: simulator.hung("aclrtResetDeviceForce"))
parent(branch(things))
simulator.release_call("aclrtResetDeviceForce")
thread.join()
close(things)
""",
    "when everything is closed": """
things = Things()
for thing in (things.opening.result(), things.stream, things.memory, things.pinned, things.event, things.device):
    thing.close().result()
parent(branch(things))
things = Things()
close(things)
""",
    "under load": """
things, stop = Things(), threading.Event()
def load():
    while not stop.is_set():
        try:
            stream, memory = things.device.create_stream().result(), things.device.allocate(1 << 16).result()
            for _ in range(20):
                stream.copy(memory, bytes(1 << 16)).result()
            stream.close().result(), memory.close().result()
        except aioacl.ResetError:
            pass
def resets():
    while not stop.is_set():
        assert things.device.force_reset(grace=0.01).result().ok
threads = [threading.Thread(target=target) for target in (load, load, resets)]
for thread in threads:
    thread.start()
time.sleep(float(os.environ["TEST_MOMENT"]))
pid = branch(things)
parent(pid)
stop.set()
for thread in threads:
    thread.join()
close(things)
""",
    "in a task of a loop": """
async def main():
    async with anyio.create_task_group() as group:
        group.start_soon(wait, things.ticket)
        group.start_soon(wait, things.stream)
        await until(lambda: waits() == 2)
        parent(branch(things, os._exit))  # os._exit, because the loop that a child inherits is not tested here
        simulator.release(things.stream)
things = Things(held=True)
run(main)
close(things)
""",
}
REFUSED: Final = 36  # the number of operations that a child tries


def _case(place: str, name: str) -> Case:
    end, status = _ENDS[name]
    again = f"refused {REFUSED}, child 14, " if name == "forks again" else ""
    return Case(
        f"a fork {place}; the child {name}",
        _COMMON + _BRANCH.format(end=end) + _PLACES[place],
        output=f"refused {REFUSED}, {again}child {status}, verified, closed 0 []",
        strict=False,  # a child may leave objects open
    )


PLACES: Final = tuple(_PLACES)
ENDS: Final = tuple(_ENDS)
FORKS: Final = {(place, end): _case(place, end) for place in PLACES for end in ENDS}

# --- multiprocessing ----------------------------------------------------------------------------------------------

_WORK: Final = """
import multiprocessing, pathlib
from concurrent.futures import ProcessPoolExecutor
sys.path.insert(0, os.environ["TEST_FOLDER"])
pathlib.Path(os.environ["TEST_FOLDER"], "work.py").write_text('''
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
import aioacl
aioacl.use_library("simulator")
def work(byte):
    device = aioacl.open_device(0).result()
    stream, memory, target = device.create_stream().result(), device.allocate(4).result(), bytearray(4)
    stream.fill(memory, byte)
    stream.copy(target, memory).result()
    stream.close().result(), memory.close().result(), device.close().result()
    return target.hex()
''')
import work
"""

_POOL: Final = """
if __name__ == "__main__":
    device = open_device(0).result()
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("{method}")) as pool:
        for future in [pool.submit(work.work, byte) for byte in (7, 9)]:
            try:
                say(future.result())
            except ForkedProcessError as error:
                say("refused", "Use the spawn start method" in str(error))
    verified_here(device)
    device.close().result()
    leaving()
"""

METHODS: Final = (
    Case(
        "multiprocessing, spawn", _WORK + _POOL.format(method="spawn"), output="07070707, 09090909, verified"
    ),
    Case(
        "multiprocessing, forkserver",
        _WORK + _POOL.format(method="forkserver"),
        output="07070707, 09090909, verified",
    ),
    Case(
        "multiprocessing, fork",
        _WORK + _POOL.format(method="fork"),
        output="refused True, refused True, verified",
        strict=False,
    ),
)
