"""device.before_reset and device.after_reset: the user's functions that run before and after each force reset."""

from __future__ import annotations

import functools
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

import aioacl
import aioacl.torch
from aioacl import State, simulator
from aioacl._lifecycle.manager import manager_of
from tests.kit import Raised, Waiting, reset_by_other_code, until, wait_for, works

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from aioacl._base.records import Scope

pytestmark = pytest.mark.anyio

SHORT = 0.05


@pytest.fixture(params=["primary", "own"])
async def device(request: pytest.FixtureRequest) -> AsyncGenerator[aioacl.Device]:
    async with aioacl.open_device(0, context=request.param) as device:
        yield device


async def test_53_hooks_run_in_nested_order_and_get_the_scope_and_the_report(device: aioacl.Device) -> None:
    ran: list[tuple[str, Any]] = []

    def plain(name: str, argument: object) -> None:
        ran.append((name, argument))

    async def asynchronous(name: str, argument: object) -> None:
        await anyio.lowlevel.checkpoint()
        ran.append((name, argument))

    for kind, hook in ("plain", plain), ("async", asynchronous):
        device.before_reset(functools.partial(hook, kind))
        device.after_reset(functools.partial(hook, kind))
    report = await device.force_reset()
    assert [name for name, _ in ran] == ["async", "plain", "plain", "async"]
    assert [argument for _, argument in ran] == [report.scope] * 2 + [report] * 2
    assert (report.ok, report.hook_errors) == (True, ())
    assert next(iter(report.stages)) == "before_reset"
    assert list(report.stages)[-1] == "after_reset"


async def test_hook_runs_on_the_loop_or_on_a_thread_of_its_own(device: aioacl.Device) -> None:
    threads: list[threading.Thread] = []

    async def asynchronous(_: Scope) -> None:
        threads.append(threading.current_thread())

    device.before_reset(asynchronous)
    device.before_reset(lambda _: threads.append(threading.current_thread()))
    await device.force_reset()
    assert threads[0].name == "aioacl-hook-0"
    assert threads[1] is threading.current_thread()


async def test_hooks_use_the_device_before_the_reset_and_after_it(device: aioacl.Device) -> None:
    stream, memory = await device.create_stream(), await device.allocate(4)
    saved, made = bytearray(4), list[aioacl.Stream]()
    await stream.upload(memory, b"kept")

    async def save(_: Scope) -> None:
        await stream.copy(saved, memory)

    def make(report: aioacl.ResetReport) -> None:
        assert (device.state, device.generation) == (State.OPEN, report.generation)
        made.append(device.create_stream().result())

    device.before_reset(save)
    device.after_reset(make)
    assert (await device.force_reset()).hook_errors == ()
    assert saved == b"kept"
    await made[0].synchronize()
    await made[0].close()
    await stream.close()
    await memory.close()


class Textless(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


async def test_53_error_of_a_hook_is_in_the_report_and_the_others_run(device: aioacl.Device) -> None:
    ran: list[str] = []

    def fail(_: object) -> None:
        raise ValueError("no")

    async def fail_too(_: object) -> None:
        raise KeyError

    def leave(_: object) -> None:
        raise SystemExit

    async def leave_too(_: object) -> None:
        raise SystemExit

    def fail_without_text(_: object) -> None:
        raise Textless

    async def fail_without_text_too(_: object) -> None:
        raise Textless

    device.before_reset(lambda _: ran.append("before"))
    device.before_reset(fail)
    device.before_reset(functools.partial(lambda made, _: made(_), fail_too))  # it returns a coroutine
    device.after_reset(fail_too)
    for fn in (leave, leave_too, fail_without_text, fail_without_text_too):
        device.after_reset(fn)
    device.after_reset(lambda report: ran.append(f"after {len(report.hook_errors)} errors"))
    events = device.events()
    report = await device.force_reset()
    here = "test_53_error_of_a_hook_is_in_the_report_and_the_others_run.<locals>"
    assert report.ok
    assert "ParameterError: expected a function that is not async" in report.hook_errors[0]
    assert report.hook_errors[1:] == (
        f"before_reset {here}.fail: ValueError: no",
        f"after_reset {here}.fail_too: KeyError",
        f"after_reset {here}.leave: SystemExit",
        f"after_reset {here}.leave_too: SystemExit",
        f"after_reset {here}.fail_without_text: Textless",
        f"after_reset {here}.fail_without_text_too: Textless",
    )
    assert str(report).splitlines()[0].endswith(f"; hook errors: {'; '.join(report.hook_errors)}")
    assert ran == ["before", "after 2 errors"]
    assert manager_of(0).admission.report is report
    received = [await anext(events) for _ in range(3)]
    assert received[-1].report is not None
    assert received[-1].report.hook_errors == report.hook_errors[:2]


async def test_async_hook_is_cancelled_at_its_time_limit(device: aioacl.Device) -> None:
    ended = anyio.Event()

    async def hang(_: object) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    device.before_reset(hang, timeout=SHORT)
    report = await device.force_reset()
    await wait_for(ended.wait())
    assert report.ok
    assert report.hook_errors[0].endswith("hang: it did not return within 0.05 s")


async def test_54_plain_hook_that_blocks_does_not_stop_the_reset(device: aioacl.Device) -> None:
    go_on, ended = threading.Event(), threading.Event()

    def block(_: object) -> None:
        go_on.wait()
        ended.set()
        raise ValueError("too late for the report")

    device.after_reset(block, timeout=SHORT)
    report = await device.force_reset()
    go_on.set()
    await until(ended.is_set)
    assert report.ok
    assert [error.partition(": ")[2] for error in report.hook_errors] == ["it did not return within 0.05 s"]


async def test_time_of_hooks_is_not_taken_from_the_reset(device: aioacl.Device) -> None:
    device.before_reset(lambda _: threading.Event().wait(4 * SHORT))
    assert (await device.force_reset(grace=0, timeout=2 * SHORT)).hook_errors == ()


@pytest.mark.parametrize("when", ["before_reset", "after_reset"])
async def test_54_hook_that_resets_the_device_is_refused(device: aioacl.Device, when: str) -> None:
    refused: list[str] = []

    async def reset(_: object) -> None:
        try:
            await device.force_reset()
        except aioacl.LeaseHeldError as error:
            refused.append(str(error))

    def reset_too(_: object) -> None:
        try:
            device.force_reset().result()
        except aioacl.LeaseHeldError as error:
            refused.append(str(error))

    getattr(device, when)(reset)
    getattr(device, when)(reset_too)
    report = await device.force_reset()
    assert (report.ok, report.hook_errors, len(refused)) == (True, (), 2)
    assert all("outside the hooks of a reset" in text for text in refused)
    assert device.generation == report.generation


async def test_removed_hook_does_not_run_not_even_from_a_running_reset(device: aioacl.Device) -> None:
    ran: list[str] = []
    removes = [device.after_reset(lambda _, name=name: ran.append(name)) for name in ("a", "b")]  # type: ignore[misc]
    device.before_reset(lambda _: removes[1]())
    removes[0]()
    removes[0]()
    assert (await device.force_reset()).hook_errors == ()
    assert ran == []


async def test_close_of_a_device_removes_its_hooks_only(device: aioacl.Device) -> None:
    ran: list[str] = []
    device.before_reset(lambda _: ran.append("stays"))
    async with aioacl.open_device(0, context=manager_of(0).context) as other:
        other.before_reset(lambda _: ran.append("goes"))
    await device.force_reset()
    assert ran == ["stays"]


async def test_cancelled_reset_still_runs_all_hooks(device: aioacl.Device) -> None:
    go_on, ran = threading.Event(), list[bool]()
    device.before_reset(lambda _: go_on.wait())
    device.after_reset(lambda report: ran.append(report.ok))
    before = device.generation
    async with anyio.create_task_group() as group:
        waiting = Waiting(group, device.force_reset)
        await until(lambda: manager_of(0).hooks._running is not None)
        await waiting.cancel_and_wait()
    go_on.set()
    await until(lambda: ran)
    assert ran == [True]
    assert device.generation == before + 1
    assert await works(device)


async def test_reset_during_a_hook_before_it_joins_and_one_during_a_hook_after_it_is_another(
    device: aioacl.Device,
) -> None:
    gates = threading.Event(), threading.Event()
    device.before_reset(lambda _: gates[0].wait())
    device.after_reset(lambda _: gates[1].wait())
    async with anyio.create_task_group() as group:
        first = Waiting(group, lambda: device.force_reset(reason="first"))
        await until(lambda: manager_of(0).hooks._running is not None)
        joined = Waiting(group, lambda: device.force_reset(reason="joined"))
        procedure: Any = manager_of(0).procedure
        await until(lambda: procedure.joined == 2)
        gates[0].set()
        await until(lambda: procedure.finished and manager_of(0).hooks._running is not None)
        another = Waiting(group, lambda: device.force_reset(reason="another"))
        gates[1].set()
        reasons = [(await each.outcome()).reason for each in (first, joined, another)]
        assert reasons == ["first", "first", "another"]


async def test_hooks_run_around_a_reset_that_fails(device: aioacl.Device) -> None:
    reports: list[aioacl.ResetReport] = []
    device.after_reset(reports.append)
    for call in "aclrtCreateContext", "aclrtSetDevice":
        simulator.fail_call(call, 507000, 10)
    report = await device.force_reset()
    simulator.clear()
    assert (report.ok, reports[0].ok, reports[0].problem) == (False, False, report.problem)
    assert (await device.force_reset()).ok


async def test_hook_of_a_loop_that_has_ended_is_in_the_report(device: aioacl.Device) -> None:
    async def hook(_: object) -> None:
        pytest.fail("it runs")

    async def register() -> None:
        device.before_reset(hook)

    def in_another_loop() -> None:
        anyio.run(register, backend="asyncio")
        anyio.run(register, backend="trio")

    await anyio.to_thread.run_sync(in_another_loop)
    report = await device.force_reset()
    assert report.ok
    assert len(report.hook_errors) == 2
    assert all("hook: it could not be started: " in error for error in report.hook_errors)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_hook_in_a_loop_that_ends_does_not_hold_up_the_reset(
    device: aioacl.Device, backend: str
) -> None:
    registered, begun = threading.Event(), threading.Event()

    async def hang(_: object) -> None:
        begun.set()
        await anyio.sleep_forever()

    async def register() -> None:
        device.before_reset(hang, timeout=60)
        registered.set()
        await until(begun.is_set)

    ending = Raised(lambda: anyio.run(register, backend=backend))
    await until(registered.is_set)
    report = await device.force_reset()
    ending.join()
    assert report.ok
    (error,) = report.hook_errors
    assert "cancelled" in error.lower()


async def test_foreign_reset_runs_no_hook() -> None:
    ran: list[object] = []
    async with aioacl.open_device(0) as device:
        device.before_reset(ran.append)
        device.after_reset(ran.append)
        reset_by_other_code()
        assert await works(device)
    assert ran == []


async def test_close_during_a_hook_waits_for_its_end(device: aioacl.Device) -> None:
    go_on = threading.Event()
    async with anyio.create_task_group() as group:
        async with aioacl.open_device(0, context=manager_of(0).context) as other:
            device.before_reset(lambda _: go_on.wait())
            resetting = Waiting(group, other.force_reset)
            await until(lambda: manager_of(0).hooks._running is not None)
        go_on.set()
        assert (await resetting.outcome()).ok


@pytest.mark.parametrize(
    ("fn", "timeout", "found"),
    [(None, 5, "expected a function, got None"), (print, "5", "timeout must be a finite number")],
)
async def test_wrong_arguments_are_refused(device: aioacl.Device, fn: Any, timeout: Any, found: str) -> None:
    with pytest.raises(aioacl.ParameterError, match=found):
        device.before_reset(fn, timeout=timeout)


async def test_async_hook_on_a_thread_without_a_loop_is_refused(device: aioacl.Device) -> None:
    async def hook(_: object) -> None: ...

    def register() -> None:
        with pytest.raises(aioacl.ParameterError, match="without a running event loop"):
            device.after_reset(hook)

    await anyio.to_thread.run_sync(register)


async def test_hook_of_an_open_that_has_just_ended_is_refused(device: aioacl.Device) -> None:
    """The close came after the check of the Device, and has removed the other hooks of this open."""
    async with aioacl.open_device(0, context=manager_of(0).context) as other:
        user = other._user
    with pytest.raises(aioacl.ParameterError, match="closed"):
        manager_of(0).hooks.add("before_reset", user, print, 1.0)
    assert not manager_of(0).hooks.any("before_reset")
    assert device.state is aioacl.State.OPEN


async def test_hook_on_a_closed_device_is_refused() -> None:
    async with aioacl.open_device(0) as device:
        pass
    with pytest.raises(aioacl.ParameterError, match="the device is closed"):
        device.before_reset(print)


async def test_attach_of_torch_to_a_closed_device_calls_nothing_of_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch_npu", SimpleNamespace())  # each access raises AttributeError
    async with aioacl.open_device(0) as device:
        pass
    with pytest.raises(aioacl.ParameterError, match="the device is closed"):
        aioacl.torch.attach(device)
