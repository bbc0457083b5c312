"""aioacl.torch with an unmodified torch_npu on the simulator: waits, order, tensors, failures and resets.

Each test runs a program in a new process. The programs skip the end of the interpreter: torch's destructors abort in a
context that was stopped or reset.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

import pytest

from scripts.pages import one
from tests.contract import test_torch_npu
from tests.contract.test_torch_npu import FOLDERS, TAIL
from tests.support.command import finished

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.torch
python, folder = test_torch_npu.python, test_torch_npu.folder  # fixtures
CASES: Final = [(context, queue) for context in ("primary", "own") for queue in ("1", "0")]

RUN_SECONDS: Final = 1800  # 5,008 rounds on a busy machine

PRELUDE: Final = f"""
import os
import sys
import torch
import torch_npu

sys.path += {FOLDERS!r}
import asyncio
import json
import aioacl
import aioacl.torch
from aioacl import lowlevel, simulator

CONTEXT, ROUNDS, FAULT = sys.argv[1], int(sys.argv[2]), 507015
aioacl.use_library("simulator")
npu = torch.npu
npu.set_device(0)
SIZE = 1 << 12
source = torch.arange(SIZE // 4, dtype=torch.int32).pin_memory()
back = torch.zeros_like(source).pin_memory()
theirs = npu.Stream()
npu.synchronize()

def end(found):
    print(json.dumps(found), flush=True)
    os._exit(0)
"""

ROUNDS: Final = """
from contextlib import contextmanager

EVERY = 16  # the last of so many rounds has a failure: of torch and of aioacl in turn
other = npu.Stream()
tensors = {}

@contextmanager
def torch_enqueues(stream):
    '''On a stream of torch, or in a launch block on a stream of aioacl. Yields what has the end of the work.'''
    if not isinstance(stream, aioacl.Stream):
        with npu.stream(stream):
            yield
        return
    with stream.launch() as work:
        external = npu.ExternalStream(work.handle)
        with npu.stream(external):
            yield
        external.npu_stream  # empties torch's queue: the block must not end before its thread has enqueued

def order(stream, behind):
    if isinstance(stream, aioacl.Stream) and isinstance(behind, aioacl.Stream | aioacl.Event):
        stream.wait_event(behind if isinstance(behind, aioacl.Event) else behind.record())
    elif isinstance(behind, aioacl.Event) or isinstance(stream, aioacl.Stream) != isinstance(behind, aioacl.Stream):
        aioacl.torch.wait(stream, behind)

def turn(number, torch_on, aioacl_on, pinned, buffer):
    '''Enqueues: torch writes, aioacl reads and writes, torch reads. Both streams are parameters.

    Returns the ends of the work of aioacl and of torch.
    '''
    with torch_enqueues(torch_on):
        tensors["there"].copy_(source, non_blocking=True)
    order(aioacl_on, torch_on)
    aioacl_on.copy(pinned, buffer)
    ticket = aioacl_on.fill(buffer, number % 251)
    order(torch_on, aioacl_on.record() if number % 2 else aioacl_on)
    with torch_enqueues(torch_on):
        back.copy_(tensors["there"], non_blocking=True)
    if isinstance(torch_on, aioacl.Stream):
        return ticket, torch_on.record()
    event = npu.Event()
    event.record(torch_on)
    torch_on.npu_stream  # empties torch's queue: a call that fails would end the thread of the queue
    return ticket, event

def wait(work):
    return aioacl.torch.synchronize(work) if isinstance(work, npu.Event) else work

async def raises(operation, *errors):
    try:
        await operation
    except errors:
        return True
    return False

async def main():
    found = dict.fromkeys(("wrong", "missed", "failures", "resets", "counts"), 0)
    async with aioacl.open_device(context=CONTEXT) as device:
        aioacl.torch.attach(device, drop=tensors.clear)
        for first in range(0, ROUNDS, EVERY):
            of_torch, last = first // EVERY % 2, first + EVERY - 1
            borrows = first // EVERY // 2 % 2  # aioacl enqueues on a stream of torch
            lends = CONTEXT == "primary" and first // EVERY // 4 % 2  # torch enqueues on a stream of aioacl
            shared = CONTEXT == "primary" or borrows  # both enqueue in the primary context, so a failure stops both
            tensors["there"] = torch.empty(source.shape, dtype=source.dtype, device="npu")
            async with device.create_stream() as ours, device.create_stream() as lent, device.pinned(SIZE) as pinned:
                buffer = device.from_dlpack(tensors["there"])
                torch_on = lent if lends else theirs
                aioacl_on = aioacl.Stream.from_handle(other.npu_stream, device) if borrows else ours
                for number in range(first, last):
                    source.fill_(number)
                    for work in turn(number, torch_on, aioacl_on, pinned, buffer):
                        await wait(work)
                    found["wrong"] += bytes(pinned.view) != source.numpy().tobytes()
                    found["wrong"] += bytes(back.numpy()) != bytes([number % 251]) * SIZE
                if of_torch:
                    failing = lent if lends else theirs.npu_stream
                else:
                    failing = other.npu_stream if borrows else ours
                with simulator.held(failing):
                    simulator.fail_next(failing, FAULT)
                    ticket, event = turn(last, torch_on, aioacl_on, pinned, buffer)
                found["missed"] += await raises(wait(event), RuntimeError, aioacl.DeviceFault) != (
                    of_torch or shared
                )
                if of_torch and CONTEXT == "own":  # torch's stream has stopped before the event for which aioacl waits
                    found["missed"] += ticket.done
                    await device.force_reset(grace=0)
                    expected = aioacl.DeviceReset
                else:
                    expected = aioacl.DeviceFault
                found["missed"] += not await raises(ticket, expected)
                found["failures"] += 1
                await buffer.close()
            if of_torch or shared:
                sets = simulator.retain_count(0)
                report = await device.force_reset(grace=0, scope="device")
                found["resets"] += report.ok and not report.hook_errors
                found["counts"] += simulator.retain_count(0) == sets
    end(found | {"queue": npu.get_task_queue_enable(), "violations": simulator.violations()})

asyncio.run(main())
"""

TENSORS: Final = """
async def main():
    found = []
    async with aioacl.open_device(context=CONTEXT) as device, device.create_stream() as ours:
        memory = await device.allocate(SIZE)
        with npu.stream(theirs), simulator.held(ours):
            ours.fill(memory, 3)
            tensor = aioacl.torch.tensor(memory, torch.int32, (32, 32))
            found += [list(tensor.shape), str(tensor.device), tensor.data_ptr() == memory.address]
            back.view(32, 32).copy_(tensor, non_blocking=True)
            found.append(theirs.query())
        await memory.close()  # the tensor keeps the memory
        await aioacl.torch.synchronize(theirs)
        found.append(bytes(back.numpy()) == b"\\x03" * SIZE)
        del tensor
        for wrong in (lambda: aioacl.torch.tensor(source), lambda: aioacl.torch.wait(ours, ours),
                      lambda: aioacl.torch.synchronize(ours), lambda: aioacl.torch.attach(ours)):
            try:
                wrong()
            except aioacl.ParameterError as error:
                found.append(str(error).split(",")[0])
    end(found)

asyncio.run(main())
"""

SYNCHRONIZE: Final = """
async def main():
    found = []
    there = torch.empty(source.shape, dtype=source.dtype, device="npu")
    async def wait(thing):
        await aioacl.torch.synchronize(thing)
    async def turns():
        for _ in range(20):
            await asyncio.sleep(0)
    async with aioacl.open_device(context=CONTEXT) as device:
        event = npu.Event()
        with simulator.held(theirs.npu_stream):
            with npu.stream(theirs):
                there.copy_(source, non_blocking=True)
                event.record()
            for thing in theirs, event:
                try:
                    await aioacl.torch.synchronize(thing, 0.02)
                except aioacl.DeviceTimeout:
                    found.append("timeout")
                task = asyncio.create_task(wait(thing))
                await turns()
                task.cancel()
                found.append((await asyncio.gather(task, return_exceptions=True))[0].__class__.__name__)
            waiting = [asyncio.create_task(wait(thing)) for thing in (theirs, event)]
            await turns()
            found.append([task.done() for task in waiting])
        await asyncio.gather(*waiting)
        await asyncio.to_thread(lambda: aioacl.torch.synchronize(theirs).result())
        found.append("done")
        simulator.fail_next(theirs.npu_stream, FAULT)
        with npu.stream(theirs):
            there.copy_(source, non_blocking=True)
        for thing in theirs, theirs:
            try:
                await aioacl.torch.synchronize(thing, 60)
            except RuntimeError as error:
                found.append(str(FAULT) in str(error))
    end(found)

asyncio.run(main())
"""

USE: Final = """
tensors = {}

def begin(stream):
    tensors["there"] = there = torch.empty(source.shape, dtype=source.dtype, device="npu")
    back.zero_()
    with npu.stream(stream):
        there.copy_(source, non_blocking=True)
        back.copy_(there, non_blocking=True)
        event = npu.Event()
        event.record()
    return stream, event

def end_of(begun):
    stream, event = begun
    stream.synchronize()
    return event.query() and bool((back == source).all())

def use(stream):
    return end_of(begin(stream))

def fails():
    try:
        simulator.fail_next(theirs.npu_stream, FAULT)
        return not use(theirs)
    except RuntimeError:
        return True

"""

RESETS: Final = (
    USE
    + """
async def copies(device, code=0):
    async with device.create_stream() as stream, device.allocate(64) as memory:
        answer = bytearray(64)
        if code:
            simulator.fail_next(stream, code)
        try:
            await stream.upload(memory, bytes(range(64)))
            await stream.download(answer, memory)
        except aioacl.DeviceFault:
            return None
        return bytes(answer) == bytes(range(64))

async def main():
    found = dict.fromkeys(("failures", "resets", "torch", "aioacl", "counts", "sets", "errors"), 0)
    async with aioacl.open_device(context=CONTEXT) as device:
        aioacl.torch.attach(device, drop=tensors.clear)
        use(theirs)
        await device.force_reset(scope="device")  # torch sets the device on the thread of the hooks
        for number in range(ROUNDS):
            found["failures"] += await copies(device, FAULT) is None if number % 2 else fails()
            if CONTEXT == "own" and number % 2:
                found["torch"] += use(theirs)
            before = simulator.retain_count(0)
            report = await device.force_reset(grace=0, scope="device")
            found["counts"] += simulator.retain_count(0) == before
            found["sets"] += report.foreign_sets == before - (CONTEXT == "primary")
            found["resets"] += report.ok
            found["errors"] += len(report.hook_errors)
            found["torch"] += use(theirs) and use(npu.Stream())
            found["aioacl"] += await copies(device)
    found["violations"] = simulator.violations()
    end(found)

asyncio.run(main())
"""
)


QUEUE_ENDED: Final = (
    USE
    + """
async def main():
    found = []
    async with aioacl.open_device(context=CONTEXT) as device:
        aioacl.torch.attach(device, drop=tensors.clear)
        for _ in range(3):
            found.append([fails(), fails(), fails()])  # the thread of the queue meets the first failure
            report = await device.force_reset(grace=0, scope="device")
            found.append([use(theirs), use(npu.Stream()), *report.hook_errors])
        found.append(npu.get_task_queue_enable())
    end(found)

asyncio.run(main())
"""
)

APART: Final = (
    USE
    + """
import ctypes

RECOVERY = sys.argv[3]
acl = ctypes.CDLL("libascendcl.so")

def recover():
    '''Resets the device, and makes the sets of before again, as a program without aioacl can do.'''
    sets = simulator.retain_count(0)
    try:
        npu.synchronize()
    except RuntimeError:
        tensors.clear()
    codes = [acl.aclrtResetDeviceForce(0), *(acl.aclrtSetDevice(0) for _ in range(sets))]
    npu.restart_device(0, rebuild_all_resources=True)
    npu.empty_cache()
    return not any(codes)

async def main():
    names = ("failures", "unnoticed", "recoveries", "counts", "torch", "resets", "apart", "aioacl")
    found = dict.fromkeys(names, 0)
    async with aioacl.open_device(context="own") as device:
        if RECOVERY == "attach":
            aioacl.torch.attach(device, drop=tensors.clear)
            await device.force_reset(scope="device")
        for number in range(ROUNDS):
            async with device.create_stream() as ours, device.allocate(SIZE) as memory:
                answer, before = bytearray(SIZE), (device.generation, device.health.failed_tasks)
                with simulator.held(ours):
                    ours.fill(memory, number % 251)
                    ticket = ours.copy(answer, memory)
                    found["failures"] += fails()
                    sets = simulator.retain_count(0)
                    if RECOVERY == "other":
                        found["recoveries"] += recover()
                await ticket
                found["aioacl"] += answer == bytes([number % 251]) * SIZE
                after = device.generation, device.health.failed_tasks
                found["unnoticed"] += after == before and device.health.ready and not device.health.foreign_stop
            if RECOVERY == "attach":
                report = await device.force_reset(grace=0, scope="device")
                found["recoveries"] += report.ok and not report.hook_errors
            found["counts"] += simulator.retain_count(0) == sets
            found["torch"] += use(theirs) and use(npu.Stream())
            if number % 3:
                continue
            stream, memory = await device.create_stream(), await device.allocate(SIZE)
            with simulator.held(theirs.npu_stream):
                begun = begin(theirs)
                simulator.hold(stream)
                stream.fill(memory, 1)
                report = await device.force_reset(grace=0)
            found["resets"] += report.ok and report.scope == "context" and not report.hook_errors
            found["apart"] += end_of(begun)
    found["violations"] = simulator.violations()
    end(found)

asyncio.run(main())
"""
)

STOPPED: Final = """
async def main():
    found = []
    async with aioacl.open_device(context=CONTEXT) as device, device.create_stream() as ours:
        async with device.allocate(SIZE) as memory:
            with simulator.held(ours):
                ticket = ours.fill(memory, 1)
                npu.stop_device(0)
                try:
                    await ticket
                except aioacl.StreamAborted:
                    found.append("aborted")
            found.append(device.health.device_aborts)
            answer = bytearray(SIZE)
            ours.fill(memory, 2)
            await ours.copy(answer, memory)
            found.append(bytes(answer) == bytes([2]) * SIZE)
            try:
                aioacl.torch.wait(ours, theirs)
            except RuntimeError as error:
                found.append("FORCE STOP" in str(error))
            npu.restart_device(0)
            found.append(bool((source.to("npu").cpu() == source).all()))
    end(found)

asyncio.run(main())
"""

# What follows the functions of the page.
OF_THE_PAGE: Final = {
    "async def main": "",
    "async def run": """
async def main():
    made, target = torch.arange(8).to("npu"), torch.zeros(8, dtype=torch.int64).to("npu")
    async with aioacl.open_device() as device, device.create_stream() as stream:
        await run(stream, target, made)
        found = target.cpu().tolist()
        del made, target
        npu.synchronize()
        npu.empty_cache()
        end(found)

asyncio.run(main())
""",
    "async def reset": """
async def main():
    tensors = {"weights": source.to("npu")}
    async with aioacl.open_device(context="own") as device:
        await reset(device, tensors)
        end(tensors["weights"].cpu().tolist())

asyncio.run(main())
""",
}


@pytest.fixture
def run(python: Path, folder: str, tmp_path: Path) -> Callable[..., Any]:
    """Runs a program in a new process that finds the simulator only by LD_LIBRARY_PATH. Returns what it has found."""

    def run(
        program: str, context: str = "primary", queue: str = "1", rounds: int = 0, recovery: str = "attach"
    ) -> Any:
        ours = ("AIOACL", "ASCEND", "PYTHON", "TORCH", "TASK_QUEUE")
        environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        environ |= {"LD_LIBRARY_PATH": folder, "TASK_QUEUE_ENABLE": queue}
        command: list[str | Path] = [python, "-c", PRELUDE + program, context, str(rounds), recovery]
        ran = finished(command, cwd=tmp_path, env=environ, timeout=RUN_SECONDS)
        assert ran.returncode == 0, ran.stdout[-TAIL:] + ran.stderr[-TAIL:]
        return json.loads(ran.stdout.splitlines()[-1])

    return run


def _rounds(run: Callable[..., Any], context: str, queue: str, rounds: int) -> None:
    failures = rounds // 16
    apart = (failures + 3) // 4  # in an own context, failures of aioacl on its own streams
    resets = failures if context == "primary" else failures - apart
    assert run(ROUNDS, context, queue, rounds) == {
        "wrong": 0,
        "missed": 0,
        "failures": failures,
        "resets": resets,
        "counts": resets,
        "queue": int(queue),
        "violations": [],
    }


@pytest.mark.parametrize(("context", "queue"), CASES)
def test_rounds_of_torch_and_aioacl_in_turn_have_no_wrong_byte_and_no_missed_failure(
    run: Callable[..., Any], context: str, queue: str
) -> None:
    _rounds(run, context, queue, 160)


@pytest.mark.slow
@pytest.mark.parametrize(("context", "queue"), CASES)
def test_5008_rounds_of_torch_and_aioacl_in_turn_have_no_wrong_byte_and_no_missed_failure(
    run: Callable[..., Any], context: str, queue: str
) -> None:
    _rounds(run, context, queue, 5008)


@pytest.mark.parametrize("context", ["primary", "own"])
def test_tensor_of_a_buffer_waits_for_aioacl_and_keeps_the_memory(
    run: Callable[..., Any], context: str
) -> None:
    assert run(TENSORS, context) == [
        [32, 32],
        "npu:0",
        True,
        False,
        True,
        "expected a DeviceBuffer",
        "expected a stream of one library and an event or a stream of the other one",
        "expected a torch.npu.Stream or a torch.npu.Event",
        "expected a Device",
    ]


@pytest.mark.parametrize(("context", "queue"), CASES)
def test_synchronize_ends_by_success_time_limit_cancellation_or_failure(
    run: Callable[..., Any], context: str, queue: str
) -> None:
    ended = ["timeout", "CancelledError"] * 2
    assert run(SYNCHRONIZE, context, queue) == [*ended, [False, False], "done", True, True]


def _resets(run: Callable[..., Any], context: str, queue: str, rounds: int) -> None:
    beside = rounds // 2 if context == "own" else 0
    assert run(RESETS, context, queue, rounds) == {
        "failures": rounds,
        "resets": rounds,
        "torch": rounds + beside,
        "aioacl": rounds,
        "counts": rounds,
        "sets": rounds,
        "errors": 0,
        "violations": [],
    }


@pytest.mark.parametrize(("context", "queue"), CASES)
def test_torch_works_after_failures_and_resets_of_the_device(
    run: Callable[..., Any], context: str, queue: str
) -> None:
    _resets(run, context, queue, 12)


@pytest.mark.slow
@pytest.mark.parametrize(("context", "queue"), CASES)
def test_torch_works_after_300_failures_and_resets_of_the_device(
    run: Callable[..., Any], context: str, queue: str
) -> None:
    _resets(run, context, queue, 300)


@pytest.mark.parametrize("context", ["primary", "own"])
def test_torch_works_after_a_reset_when_the_thread_of_its_queue_has_ended(
    run: Callable[..., Any], context: str
) -> None:
    assert run(QUEUE_ENDED, context) == [[True] * 3, [True] * 2] * 3 + [0]


def _apart(run: Callable[..., Any], queue: str, recovery: str, rounds: int) -> None:
    names = ("failures", "unnoticed", "recoveries", "counts", "torch", "aioacl")
    resets = dict.fromkeys(("resets", "apart"), rounds // 3)
    found = run(APART, "own", queue, rounds, recovery)
    assert found == dict.fromkeys(names, rounds) | resets | {"violations": []}


RECOVERIES: Final = [(queue, recovery) for queue in ("1", "0") for recovery in ("attach", "other")]


@pytest.mark.parametrize(("queue", "recovery"), RECOVERIES)
def test_own_context_and_torch_notice_no_failure_and_no_reset_of_each_other(
    run: Callable[..., Any], queue: str, recovery: str
) -> None:
    _apart(run, queue, recovery, 12)


@pytest.mark.slow
@pytest.mark.parametrize(("queue", "recovery"), RECOVERIES)
def test_own_context_and_torch_notice_none_of_300_failures_and_100_resets_of_each_other(
    run: Callable[..., Any], queue: str, recovery: str
) -> None:
    _apart(run, queue, recovery, 300)


@pytest.mark.parametrize("context", ["primary", "own"])
def test_stop_device_of_torch_is_noticed(run: Callable[..., Any], context: str) -> None:
    assert run(STOPPED, context) == ["aborted", 1, True, True, True]


@pytest.mark.parametrize(
    ("begin", "found"),
    [
        ("async def main", [9, 9, 3, 4]),
        ("async def run", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("async def reset", [1.0] * 8),
    ],
)
def test_programs_of_the_page_work(run: Callable[..., Any], begin: str, found: list[float]) -> None:
    block = one("docs/torch.md", "tests/contract/test_torch.py", lambda text: begin in text)
    assert run(block.text + OF_THE_PAGE[begin]) == found
