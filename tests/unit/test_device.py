"""The device: opens and closes, health, repr, and warnings about unclosed devices and unawaited operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aioacl
from aioacl import simulator, testing
from aioacl._base.ffi import lib
from aioacl._lifecycle.manager import manager_of
from tests.kit import FAULT, Waiting, hanging, hung_in, no_call, no_call_of_mine, raises, turns, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio


async def test_first_open_sets_the_device_and_the_last_close_resets_it(open_device: OpenDevice) -> None:
    assert simulator.retain_count() == 0
    async with open_device() as first:
        async with open_device() as second:
            assert first is not second
            assert (simulator.retain_count(), simulator.calls("aclrtSetDevice")) == (1, 1)
            assert first.generation == second.generation
        assert simulator.retain_count() == 1
        assert first.health.state is aioacl.State.OPEN
        with pytest.raises(aioacl.ParameterError, match="open_device"):
            await second.memory_info()
        await first.memory_info()
    assert (simulator.retain_count(), simulator.calls("aclrtResetDevice")) == (0, 1)
    assert first.state is aioacl.State.CLOSED
    assert (str(first.state), f"{first.state:>7}", int(first.state)) == ("CLOSED", " CLOSED", 0)


async def test_open_during_the_last_close_waits_and_sets_the_device_again(open_device: OpenDevice) -> None:
    device = await open_device()
    generation = device.generation
    async with anyio.create_task_group() as group:
        closing = await hung_in("aclrtResetDevice", group, device.close)
        opening = Waiting(group, open_device)
        await turns()
        assert not opening.ended
        simulator.release_all()
        await closing.outcome()
        again: aioacl.Device = await opening.outcome()
        assert again.generation == generation + 1
        await again.close()


async def test_open_whose_caller_was_cancelled_is_closed_again(open_device: OpenDevice) -> None:
    async with anyio.create_task_group() as group:
        opening = await hung_in("aclrtSetDevice", group, open_device)
        await opening.cancel_and_wait()
    simulator.release_all()
    await until(lambda: simulator.calls("aclrtResetDevice") == 1)
    assert simulator.retain_count() == 0


async def test_failed_open_leaves_the_device_unset_and_the_next_open_works(open_device: OpenDevice) -> None:
    simulator.fail_call("aclrtSetDevice", 507033)
    error = await raises(aioacl.AclError, open_device())
    assert (error.code, error.call, error.device) == (507033, "aclrtSetDevice", 0)
    assert error.generation == manager_of(0).generation
    assert simulator.retain_count() == 0
    async with open_device() as device:
        assert device.health.status == "ok"


async def test_failed_init_is_raised_and_tried_again_by_the_next_open(open_device: OpenDevice) -> None:
    simulator.fail_call("aclInit", 500000)
    error = await raises(aioacl.AclError, open_device())
    assert error.call == "aclInit"
    async with open_device():
        pass


@pytest.mark.parametrize("call", ["aclrtSetDevice", "aclrtGetCurrentContext"])
async def test_open_that_fails_releases_everything(open_device: OpenDevice, call: str) -> None:
    async with open_device():  # creates the port of the loop
        pass
    before = testing.snapshot()
    simulator.forget()
    simulator.fail_call(call, FAULT)
    await raises(aioacl.DeviceFault, open_device())
    assert simulator.retain_count() == 0
    assert (simulator.calls("aclInit"), simulator.calls("aclFinalizeReference")) == (1, 1)
    await until(lambda: not testing.snapshot().more_than(before))


@pytest.mark.parametrize("code", [0, 100002])
async def test_acl_is_finalized_only_if_aioacl_initialised_it(open_device: OpenDevice, code: int) -> None:
    if code:
        simulator.fail_call("aclInit", code)
    async with open_device(), open_device(1):
        assert simulator.calls("aclInit") == 1
    assert simulator.calls("aclFinalizeReference") == (0 if code else 1)
    assert simulator.calls("aclFinalize") == 0


async def test_failed_finalize_is_repeated_by_the_next_last_close(open_device: OpenDevice) -> None:
    async def codes_of_init() -> list[int]:
        simulator.forget()
        async with open_device():
            pass
        return [entry["rc"] for entry in simulator.journal() if entry["call"] == "aclInit"]

    simulator.fail_call("aclFinalizeReference", 507000)
    with pytest.warns(aioacl.AclWarning, match="aclFinalizeReference returned 507000"):
        assert await codes_of_init() == [0]
    assert await codes_of_init() == [100002]
    assert await codes_of_init() == [0]


@pytest.mark.parametrize("viewed", [False, True])
async def test_acl_is_finalized_after_the_last_pinned_memory_is_freed(
    open_device: OpenDevice, viewed: bool
) -> None:
    async with open_device() as device:
        pinned = await device.pinned(64)
    view = pinned.view if viewed else None
    async with open_device():
        pass
    await pinned.close()
    if viewed:
        assert view is not None
        assert simulator.stats().host_blocks == 1
        view.release()
        del view
        await until(lambda: simulator.stats().host_blocks == 0)
        async with open_device():
            pass
    ends = ("aclInit", "aclrtFreeHost", "aclFinalizeReference")
    calls = [entry["call"] for entry in simulator.journal() if entry["call"] in ends]
    assert (calls[0], calls.count("aclInit"), calls.count("aclFinalizeReference")) == ("aclInit", 1, 1)
    assert calls[-2:] == ["aclrtFreeHost", "aclFinalizeReference"]


async def test_open_of_a_device_that_does_not_exist_is_refused_by_the_runtime(
    open_device: OpenDevice,
) -> None:
    error = await raises(aioacl.ParameterError, open_device(len(aioacl.list_devices())))
    assert error.code == 107001
    assert error.message.startswith(
        "expected a device index from 0 to 1, got 2: the process sees 2 devices. The runtime reports: EE1003"
    )


async def test_open_of_a_hidden_device_names_the_variable_that_hides_it(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "4,5")  # the simulator has read its environment before
    error = await raises(aioacl.ParameterError, open_device(7))
    assert "got 7: the process sees 2 devices, because ASCEND_RT_VISIBLE_DEVICES is '4,5'. " in str(error)
    assert error.hint == (
        "Use an index from list_devices(); ASCEND_RT_VISIBLE_DEVICES hides devices, and renumbers the rest."
    )


async def test_attribute_of_an_object_that_is_not_made_yet_is_explained(open_device: OpenDevice) -> None:
    async with open_device() as device:
        opening = device.create_stream()
        with pytest.raises(AttributeError) as caught:
            opening.copy  # type: ignore[attr-defined]  # noqa: B018  # what a user writes by mistake
        assert str(caught.value) == (
            "create_stream() returned an Opening, which has no attribute 'copy': await it first, or enter it with "
            "`async with`"
        )
        synchronize = device.synchronize()
        with pytest.raises(
            AttributeError, match=r"synchronize\(\) returned an Operation, .* or call its result"
        ):
            synchronize.done  # type: ignore[attr-defined]  # noqa: B018  # as above
        assert not hasattr(opening, "_private")
        await synchronize
        await (await opening).close()


async def test_strategy_of_an_open_that_timed_out_does_not_bind_a_later_open(
    open_device: OpenDevice, waits: str
) -> None:
    other: Any = "thread" if waits == "watch" else "watch"
    simulator.hang_call("aclrtSetDevice")
    await raises(aioacl.DeviceTimeout, open_device(timeout=0))
    await until(hanging("aclrtSetDevice"))
    async with anyio.create_task_group() as group:
        opening = Waiting(group, lambda: aioacl.open_device(0, other))
        await turns()
        simulator.release_call("aclrtSetDevice")
        device = await opening.outcome()
        assert manager_of(0).strategy == other
        await device.close()


async def test_open_with_another_strategy_than_the_first_open_is_refused(
    open_device: OpenDevice, waits: str
) -> None:
    other: Any = "thread" if waits == "watch" else "watch"
    async with open_device():
        with (
            no_call(),
            pytest.raises(aioacl.ParameterError, match=r"expected waits=.*Pass the same value"),
        ):
            await aioacl.open_device(0, other)
    async with aioacl.open_device(0, other) as device, device.create_stream() as stream:
        await stream.record()


async def test_health_counts_waits_and_jobs_and_calls_no_acl_function(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        with simulator.held(stream):
            ticket = stream.fill(memory, 1)
            async with anyio.create_task_group() as group:
                waiting = [Waiting(group, stream.synchronize) for _ in range(3)]
                await until(lambda: device.health.in_flight >= 3)
                simulator.release(stream)
                for one in waiting:
                    await one.outcome()
        await ticket
        await until(lambda: device.health.in_flight == 0)
        with no_call_of_mine():  # a round of the watcher may count as in flight
            assert device.health.in_flight <= 1


async def test_unclosed_device_warns_and_is_closed(open_device: OpenDevice) -> None:
    device = await open_device()
    with pytest.warns(ResourceWarning, match="close it, or use `async with open_device"):
        del device
    await until(lambda: simulator.retain_count() == 0)


OPENINGS: dict[str, Callable[[OpenDevice, aioacl.Device], object]] = {
    "open_device": lambda open_device, _: open_device(),
    "create_stream": lambda _, device: device.create_stream(),
    "allocate": lambda _, device: device.allocate(64),
    "pinned": lambda _, device: device.pinned(64),
    "create_event": lambda _, device: device.create_event(),
}


@pytest.mark.parametrize(("what", "forget"), OPENINGS.items(), ids=OPENINGS)
async def test_opening_that_was_never_awaited_warns_and_makes_nothing(
    open_device: OpenDevice, what: str, forget: Callable[[OpenDevice, aioacl.Device], object]
) -> None:
    async with open_device() as device:
        with (
            no_call(),
            pytest.warns(RuntimeWarning, match=rf"{what}.* was never awaited, so nothing was made"),
        ):
            forget(open_device, device)


async def test_operation_that_was_never_awaited_warns(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream:
        for forget in (
            device.synchronize,
            device.memory_info,
            stream.synchronize,
            stream.ready,
            stream.abort,
        ):
            with no_call(), pytest.warns(RuntimeWarning, match="was never awaited"):
                forget()


def test_list_devices_makes_no_context() -> None:
    devices = aioacl.list_devices()
    assert [device.index for device in devices] == list(range(len(devices)))
    assert all(device.soc for device in devices)
    assert simulator.calls("aclrtSetDevice") == simulator.calls("aclrtCreateContext") == 0


@pytest.mark.parametrize(
    ("cls", "factory"),
    [
        (aioacl.Device, "open_device"),
        (aioacl.Stream, "device.create_stream"),
        (aioacl.Event, "stream.record"),
        (aioacl.DeviceBuffer, "device.allocate"),
        (aioacl.PinnedBuffer, "device.pinned"),
    ],
)
def test_constructor_of_a_handle_class_raises_and_names_the_factory(cls: Any, factory: str) -> None:
    with pytest.raises(TypeError, match=factory):
        cls()
    with pytest.raises(TypeError, match=factory):
        cls(1, index=2)


async def test_synchronize_of_a_device_without_own_work_waits_in_acl_for_other_code(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        before = simulator.calls("aclrtSynchronizeDeviceWithTimeout")
        await device.synchronize()
        assert simulator.calls("aclrtSynchronizeDeviceWithTimeout") == before + 1
        assert simulator.calls("aclrtSynchronizeDevice") == 0
        assert lib.aio_device_waits(0) == 0


async def test_last_close_whose_warning_is_an_error_raises_it_and_closes_the_device(
    open_device: OpenDevice,
) -> None:
    device = await open_device()
    with simulator.fault("aclrtResetDevice", rc=507000), pytest.raises(aioacl.AclWarning, match="507000"):
        await device.close()
    assert device.state is aioacl.State.CLOSED
    async with open_device():
        assert simulator.retain_count() > 0


async def test_last_close_with_a_cleanup_that_fails_raises_and_closes_the_device(
    open_device: OpenDevice,
) -> None:
    device = await open_device()
    device._manager.deferred.leftovers.append(lambda: 1 / 0)
    await raises(ZeroDivisionError, device.close())
    assert (device.state, simulator.retain_count()) == (aioacl.State.CLOSED, 0)
    async with open_device() as again, again.create_stream() as stream:
        await stream


@pytest.mark.parametrize("failures", [1, 2])
async def test_failed_reset_of_a_close_is_repeated_by_a_later_close(
    open_device: OpenDevice, failures: int
) -> None:
    simulator.fail_call("aclrtResetDevice", 507000, failures)
    for _ in range(failures):
        with pytest.warns(aioacl.AclWarning, match="aclrtResetDevice returned 507000"):
            async with open_device():
                pass
    assert simulator.retain_count() == failures
    async with open_device():
        assert simulator.retain_count() == failures + 1
    assert simulator.retain_count() == 0


async def test_failed_reset_of_a_close_is_not_repeated_after_a_force_reset(open_device: OpenDevice) -> None:
    simulator.fail_call("aclrtResetDevice", 507000)
    with pytest.warns(aioacl.AclWarning, match="aclrtResetDevice returned 507000"):
        async with open_device():
            pass
    async with open_device() as device:
        assert (await device.force_reset()).ok
        assert simulator.retain_count() == 1
    assert (simulator.retain_count(), simulator.calls("aclrtResetDevice")) == (0, 2)


async def test_force_reset_that_fails_leaves_the_count_of_sets(open_device: OpenDevice) -> None:
    async with open_device() as device:
        simulator.fail_call("aclrtResetDeviceForce", 507000, -1)
        assert not (await device.force_reset()).ok
        assert simulator.retain_count() == 1
        simulator.clear()
    assert simulator.retain_count() == 0
