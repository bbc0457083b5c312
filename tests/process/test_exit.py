"""A process that ends while work, a wait or a call is unfinished has the right status and prints nothing on stderr."""

from __future__ import annotations

import pytest

from tests.process.child import run

EVERYWHERE = pytest.mark.parametrize("backend", ["asyncio", "trio"])
BOTH_WAYS = pytest.mark.parametrize("waits", ["watch", "thread"])

# A handle that is not closed emits a ResourceWarning, which Python shows only on request.
LEAVES = """
kept = []
async def main():
    copies = Copies()
    await copies.__aenter__()
    kept.append(copies)
    {act}
start(main)
say("left")
sys.exit(7)
"""


@EVERYWHERE
@BOTH_WAYS
def test_exit_with_an_open_device_and_a_held_stream_is_silent(backend: str, waits: str) -> None:
    assert run(LEAVES.format(act="pass"), backend, waits, strict=False) == (7, "left\n", "")


@EVERYWHERE
@BOTH_WAYS
def test_exit_with_an_unfinished_wait_is_silent(backend: str, waits: str) -> None:
    act = "with anyio.move_on_after(0.05): await copies.ticket"
    assert run(LEAVES.format(act=act), backend, waits, strict=False, stuck=True) == (7, "left\n", "")


@BOTH_WAYS
def test_exit_with_an_unfinished_wait_of_a_plain_thread_is_silent(waits: str) -> None:
    program = """
    use_library("simulator")
    device = open_device(0, os.environ["TEST_WAITS"]).result()
    stream = device.create_stream().result()
    simulator.hold(stream)
    memory = device.allocate(64).result()
    ticket = stream.fill(memory, 1)
    from aioacl._base.ffi import lib
    threading.Thread(target=ticket.result, daemon=True).start()
    while not lib.aio_device_waits(0):
        time.sleep(0.001)
    sys.exit(7)
    """
    assert run(program, waits=waits, strict=False, stuck=True) == (7, "", "")


@EVERYWHERE
def test_exit_with_a_call_that_hangs_in_c_is_silent(backend: str) -> None:
    program = """
    async def main():
        device = await open_device(0)
        simulator.hang_call("aclrtMalloc")
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(allocate, device)
                while not simulator.hung("aclrtMalloc"):
                    await anyio.sleep(0.001)
                say("hangs")
                scope.cancel()
        sys.exit(9)
    async def allocate(device):
        await device.allocate(64)
    start(main)
    """
    assert run(program, backend, strict=False, stuck=backend == "trio") == (9, "hangs\n", "")


def test_exit_with_a_job_that_does_not_end_is_silent() -> None:
    program = """
    use_library("simulator")
    device = open_device(0).result()
    began = threading.Event()
    def job():
        began.set()
        threading.Event().wait()
    device.executor.submit(job)
    began.wait()
    sys.exit(9)
    """
    assert run(program, strict=False) == (9, "", "")


@BOTH_WAYS
def test_sys_exit_in_an_asyncio_task_keeps_its_status(waits: str) -> None:
    program = """
    async def wait(ticket):
        try:
            await ticket
        except DeviceReset:  # the last close ended the wait
            pass
    async def leave():
        say("leaving")
        sys.exit(5)
    async def main():
        use_library("simulator")
        async with Copies() as copies:
            waiting = asyncio.create_task(wait(copies.ticket))
            await asyncio.create_task(leave())
    asyncio.run(main())
    """
    assert run(program, waits=waits) == (5, "leaving\n", "")


@BOTH_WAYS
def test_sys_exit_in_a_trio_task_keeps_its_status(waits: str) -> None:
    program = """
    async def leave():
        say("leaving")
        sys.exit(5)
    async def main():
        async with Copies() as copies, anyio.create_task_group() as group:
            group.start_soon(leave)
            await copies.ticket
    try:
        start(main)
    except BaseExceptionGroup as group:
        (end,) = group.exceptions
        raise end from None
    """
    assert run(program, "trio", waits) == (5, "leaving\n", "")


@BOTH_WAYS
def test_cancelled_asyncio_run_raises_cancelled_error(waits: str) -> None:
    program = """
    async def main():
        use_library("simulator")
        async with Copies() as copies:
            asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)
            await copies.ticket
    try:
        asyncio.run(main())
    except asyncio.CancelledError:
        say("cancelled", aioacl.library_info().backend)
    """
    assert run(program, waits=waits) == (0, "cancelled simulator\n", "")


def test_os_exit_keeps_its_status() -> None:
    assert run(LEAVES.format(act="os._exit(4)")) == (4, "", "")


def test_failing_main_shows_only_its_own_error() -> None:
    status, out, errors = run(LEAVES.format(act='raise ValueError("mine")'), strict=False, real=True)
    assert (status, out) == (1, "")
    assert errors.startswith("Traceback")
    assert errors.endswith("ValueError: mine\n")


def test_exit_after_a_closed_device_emits_no_warning() -> None:
    program = """
    async def main():
        async with Copies() as copies:
            simulator.release(copies.stream)
            await copies.ticket
            say("done")
    start(main)
    """
    assert run(program) == (0, "done\n", "")


def test_import_loads_no_library_and_starts_no_thread() -> None:
    program = """
    with open("/proc/self/maps") as file:
        maps = file.read()
    assert "libascendcl" not in maps and "libacl_rt" not in maps and "_acl." in maps, maps
    say(len(os.listdir("/proc/self/task")))
    """
    assert run(program, real=True) == (0, "1\n", "")


NO_DESCRIPTORS = """
import resource
kept = []
async def main():
    async with open_device(0):
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        try:
            while True:
                kept.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
    for descriptor in kept:
        os.close(descriptor)
    say("closed", simulator.retain_count(0))
use_library("simulator")
if os.environ["TEST_BACKEND"] == "trio":
    import trio
    trio.run(main)
else:
    asyncio.run(main())
"""


@EVERYWHERE
def test_device_closes_without_a_free_descriptor_for_imports(backend: str) -> None:
    assert run(NO_DESCRIPTORS, backend, real=True) == (0, "closed 0\n", "")
