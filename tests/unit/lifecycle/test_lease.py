"""Leases: which task or thread holds one, how a drain waits for it, and how it is revoked."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib
from aioacl._handles import stream as _stream
from tests.kit import (
    Engine,
    Raised,
    Waiting,
    draining,
    equipped,
    fill_staging,
    in_thread,
    no_call,
    raises,
    turns,
    until,
    until_now,
)

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Callable, Generator

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio


async def test_renew_that_waits_for_the_end_of_a_drain_raises_device_reset(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.create_stream() as stream,
        anyio.create_task_group() as group,
    ):
        async with device.lease():
            resetting = await draining(group, device)
            renewing = Waiting(group, stream.renew)
            await turns()
            assert not renewing.ended
        assert (await resetting.outcome()).ok
        await raises(aioacl.DeviceReset, renewing.outcome())


class Sweeping(Engine):
    """Calls `act` while a thread searches for staging memory."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def aio_device_ask_streams(self, index: int) -> int:
        self._act()
        return lib.aio_device_ask_streams(index)


async def test_holder_that_searches_staging_memory_when_the_drain_begins_still_holds_its_lease(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    resets: list[Raised] = []

    def reset() -> None:
        resets.append(Raised(lambda: device.force_reset(grace=20).result()))
        assert until_now(lambda: device.state is aioacl.State.DRAINING)
        simulator.release(stream)
        assert until_now(lambda: lib.aio_device_busy(0) == 0)

    async with open_device() as device, device.create_stream() as stream, device.allocate(1 << 20) as memory:
        simulator.hold(stream)
        async with device.lease():
            await fill_staging(device, stream, memory)
            monkeypatch.setattr(_stream, "lib", Sweeping(reset))
            await stream.copy(memory, bytes(1 << 20))
            monkeypatch.undo()
        await until(lambda: not resets[0].running)
        assert resets[0].join().ok


async def test_other_tasks_are_refused_during_a_drain_but_may_wait_query_and_close(
    open_device: OpenDevice,
) -> None:
    async with equipped(open_device) as (device, stream, memory), anyio.create_task_group() as group:
        ticket = stream.fill(memory, 1)
        closing = await device.create_stream()
        leaving = anyio.Event()

        async def holder() -> None:
            async with device.lease():
                await leaving.wait()

        group.start_soon(holder)
        await until(lambda: device.health.leases)
        resetting = await draining(group, device)
        for enqueue in (
            lambda: stream.fill(memory, 1),
            lambda: stream.copy(memory, bytes(64)),
            lambda: stream.copy(bytearray(64), memory),
            stream.record,
        ):
            with pytest.raises(aioacl.DeviceResetting):
                enqueue()
        await ticket
        await stream
        assert stream.query()
        await closing.close()
        making = Waiting(group, device.create_stream)
        await turns()
        assert not making.ended
        assert not resetting.ended
        leaving.set()
        assert (await resetting.outcome()).ok
        made = await making.outcome()
        assert made.generation == device.generation
        await made.close()


async def test_revoked_lease_does_not_delay_a_later_reset(open_device: OpenDevice) -> None:
    async with open_device() as device, device.lease(), anyio.create_task_group() as group:
        assert (await Waiting(group, lambda: device.force_reset(grace=0)).outcome()).ok
        report = await Waiting(group, lambda: device.force_reset(grace=20)).outcome()
        assert report.ok


async def test_a_holder_may_open_the_device_once_more_while_it_drains(open_device: OpenDevice) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        async with device.lease():
            resetting = await draining(group, device)
            async with open_device(wait=False) as again:
                assert again.generation == device.generation
            other = Waiting(group, lambda: open_device(wait=False))
            await raises(aioacl.DeviceResetting, other.outcome())
        assert (await resetting.outcome()).ok


async def test_a_child_task_does_not_inherit_a_lease(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (device, stream, memory), anyio.create_task_group() as group:
        async with device.lease() as lease:

            async def child() -> bool:
                return lease.held

            async def enqueue() -> None:
                stream.fill(memory, 1)

            assert not await Waiting(group, child).outcome()
            resetting = await draining(group, device)
            await raises(aioacl.DeviceResetting, Waiting(group, enqueue).outcome())
            stream.fill(memory, 1)
        assert (await resetting.outcome()).ok


async def test_a_shared_lease_is_held_by_the_other_task_too_until_both_have_left(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        leaving, entered = anyio.Event(), anyio.Event()
        async with anyio.create_task_group() as group:

            async def other(shared: aioacl.SharedLease) -> None:
                with shared as lease:
                    assert lease.held
                    entered.set()
                    await leaving.wait()
                    stream.fill(memory, 1)

            async with device.lease() as lease:
                group.start_soon(other, lease.share())
                await entered.wait()
                assert device.health.leases == 1
            assert not lease.held
            resetting = await draining(group, device)
            await turns()
            assert not resetting.ended
            leaving.set()
            assert (await resetting.outcome()).ok


async def test_a_shared_lease_may_be_entered_asynchronously_too(open_device: OpenDevice) -> None:
    async with open_device() as device, anyio.create_task_group() as group:

        async def other(shared: aioacl.SharedLease) -> bool:
            async with shared as lease:
                return lease.held and len(lease._holders) == 2

        async with device.lease() as lease:
            assert await Waiting(group, lambda: other(lease.share())).outcome()
            assert len(lease._holders) == 1


async def test_lease_entered_with_a_plain_with_in_an_event_loop_raises_error_that_names_async_with(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        where = pytest.raises(RuntimeError, match=r"runs an event loop: enter the lease with `async with`")
        with where, device.lease():
            pass
        assert device.health.leases == 0


async def test_share_that_is_entered_after_its_lease_was_revoked_raises_device_resetting(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.lease() as lease, anyio.create_task_group() as group:
        shared = lease.share()
        assert (await Waiting(group, lambda: device.force_reset(grace=0)).outcome()).ok
        with pytest.raises(aioacl.DeviceResetting, match="revoked"), shared:
            pass


async def test_nested_leases_are_counted(open_device: OpenDevice) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        async with device.lease() as outer:
            async with device.lease():
                assert device.health.leases == 2
            assert device.health.leases == 1
            assert outer.held
            resetting = await draining(group, device)
            async with device.lease(wait=False):  # a holder gets another lease during a drain
                await turns()
                assert not resetting.ended
        assert (await resetting.outcome()).ok


@pytest.mark.parametrize("what", ["lease", "create_stream", "allocate", "pinned", "create_event", "open"])
async def test_call_that_makes_a_handle_waits_for_the_reset_or_is_refused_or_times_out(
    open_device: OpenDevice, what: str
) -> None:
    async with open_device() as device:

        def make(**options: Any) -> Any:
            sized = (64,) if what in ("allocate", "pinned") else ()
            return open_device(**options) if what == "open" else getattr(device, what)(*sized, **options)

        async def enter(**options: Any) -> None:
            async with make(**options):
                pass

        simulator.hang_call("aclrtResetDeviceForce")
        async with anyio.create_task_group() as group:
            resetting = Waiting(group, device.force_reset)
            await until(lambda: simulator.hung("aclrtResetDeviceForce"))
            with no_call():
                error = await raises(aioacl.DeviceResetting, enter(wait=False))
                assert (error.device, error.generation) == (0, device.generation)
                await raises(aioacl.DeviceTimeout, enter(timeout=0.01))
            waiting = Waiting(group, enter)
            await turns()
            assert not waiting.ended
            simulator.release_all()
            await waiting.outcome()
            assert (await resetting.outcome()).ok


async def test_holder_of_a_revoked_lease_can_begin_nothing_until_it_leaves_the_block(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        async with device.lease() as lease:
            assert (await Waiting(group, lambda: device.force_reset(grace=0)).outcome()).ok
            assert not lease.held
            for begin in (
                device.create_stream,
                lambda: device.allocate(64),
                lambda: device.run(int),
                lambda: device.lease().__aenter__(),
            ):
                with pytest.raises(aioacl.DeviceResetting, match=r"revoked.*acquire a new one"):
                    await begin()
        async with device.lease() as lease, device.create_stream():
            assert lease.held


async def test_revoked_shared_lease_refuses_each_holder_until_it_leaves(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        entered, leaving = anyio.Event(), anyio.Event()

        async def other(shared: aioacl.SharedLease) -> None:
            with shared:
                entered.set()
                await leaving.wait()
                with pytest.raises(aioacl.DeviceResetting, match="revoked"):
                    await device.create_stream()
            async with device.create_stream():
                pass

        async with device.lease() as lease:
            sharing = Waiting(group, lambda: other(lease.share()))
            await entered.wait()
            assert (await Waiting(group, lambda: device.force_reset(grace=0)).outcome()).ok
        async with device.create_stream():  # this task has left the lease, so the call is not refused
            leaving.set()
        await sharing.outcome()


async def test_task_or_thread_without_the_lease_cannot_leave_it(open_device: OpenDevice) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        async with device.lease() as lease:
            await Waiting(group, lease.__aexit__).outcome()
            with device._manager.admission.changed:  # a thread without the lease must not need the lock
                in_thread(lease.__exit__)
            assert lease.held
            assert device.health.leases == 1
        assert device.health.leases == 0


async def test_a_plain_thread_holds_a_lease_too(open_device: OpenDevice) -> None:
    entered, leaving = threading.Event(), threading.Event()
    async with open_device() as device, anyio.create_task_group() as group:

        def hold() -> bool:
            with device.lease() as lease:
                entered.set()
                leaving.wait()
                device.create_stream().result().close().result()
                return lease.held

        holding = Raised(hold)
        await until(entered.is_set)
        resetting = await draining(group, device)
        await turns()
        assert not resetting.ended
        leaving.set()
        assert (await resetting.outcome()).ok
        assert holding.join()
        assert device.health.leases == 0


async def test_job_has_the_lease_of_the_task_that_submitted_it(open_device: OpenDevice) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        generation = device.generation

        async def submit() -> concurrent.futures.Future[int]:
            return device.executor.submit(lambda: device.generation)

        async with device.lease():
            resetting = await draining(group, device)
            others: concurrent.futures.Future[int] = await Waiting(group, submit).outcome()
            mine = await submit()
            await until(mine.done)
            assert mine.result() == generation
            assert not others.done()
            assert not resetting.ended
        assert (await resetting.outcome()).ok
        await until(others.done)
        assert others.result() == generation + 1


async def test_job_of_another_device_holds_the_lease_that_it_has_entered(open_device: OpenDevice) -> None:
    async with open_device() as device, open_device(1) as other, anyio.create_task_group() as group:
        entered, go_on = threading.Event(), threading.Event()

        def hold() -> int:
            with other.lease():
                entered.set()
                go_on.wait()
                return other.run(lambda: other.generation).result()

        generation = other.generation
        holding = device.executor.submit(hold)
        await until(entered.is_set)
        resetting = await draining(group, other)
        go_on.set()
        await until(holding.done)
        assert holding.result() == generation
        assert (await resetting.outcome()).ok


def entering(lease: aioacl.Lease | aioacl.SharedLease) -> Generator[bool]:
    with lease:
        yield True


def begun(lease: aioacl.Lease | aioacl.SharedLease) -> Generator[bool]:
    generator = entering(lease)
    next(generator)
    return generator


async def test_generator_closed_after_a_revocation_does_not_hide_the_revocation_from_other_holders(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        lease = device.lease()
        holding = in_thread(lambda: begun(lease))
        with lease.share():
            assert (await Waiting(group, lambda: device.force_reset(grace=0)).outcome()).ok
            in_thread(holding.close)
            assert len(lease._lost) == 1
            # The maintenance thread removes the closed generator's holder before it runs this job.
            in_thread(lambda: device._manager.maintenance.call(int, None))
            with pytest.raises(aioacl.DeviceResetting, match="the lease was revoked"):
                await device.create_stream()
        async with device.create_stream():
            pass


async def test_generator_closed_by_another_thread_leaves_only_its_own_hold_of_the_lease(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:

        def hold() -> bool:
            with device.lease() as lease:
                sharing = in_thread(lambda: begun(lease.share()))
                sharing.close()
                return lease.held and len(lease._holders) == 1

        assert in_thread(hold)
        kept = device.lease()
        holding = in_thread(lambda: begun(kept))
        with kept.share() as lease:
            in_thread(holding.close)
            await until(lambda: len(lease._holders) == 1)
            assert lease.held
        await until(lambda: device.health.leases == 0)


async def test_a_lease_does_not_outlive_the_last_close(open_device: OpenDevice) -> None:
    device = await open_device()
    async with device.lease() as lease:
        await device.close()
        assert not lease.held
        async with open_device() as again:
            assert again.health.leases == 0
            assert (await again.force_reset()).ok
            with pytest.raises(aioacl.DeviceResetting, match=r"lease was revoked.*last close"):
                await again.create_stream()
    async with open_device() as again, again.create_stream() as stream:
        await stream
