"""Calls of `acl` beside aioacl in one process: sets, resets, streams, memory and models of both."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.late import late
from tests.kit import until, works
from tests.unit.pyacl.digits import DEVICE_TO_HOST, DIGITS, Digits

if TYPE_CHECKING:
    from collections.abc import Iterator

    import aioacl.pyacl as acl
    from tests.kit import OpenDevice
else:
    acl = late("aioacl.pyacl")

pytestmark = pytest.mark.anyio
RESETS = ("reset_device", "reset_device_force")


@pytest.fixture
def bound(device: aioacl.Device) -> Iterator[aioacl.Device]:
    """An open device, which `acl` has set on this thread too."""
    assert acl.rt.set_device(0) == 0
    yield device
    assert acl.rt.reset_device(0) == 0


async def test_86_set_and_reset_by_acl_leave_the_handles_of_aioacl_alone(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream:
        generation = device.generation
        assert acl.rt.set_device(0) == 0
        assert acl.rt.reset_device(0) == 0
        await stream.record()
        assert device.generation == generation


@pytest.mark.parametrize("reset", RESETS)
async def test_86_last_reset_by_acl_is_noticed_as_a_foreign_reset(
    reset: str, open_device: OpenDevice
) -> None:
    async with open_device() as device:
        generation, stream = device.generation, await device.create_stream()
        # The count of aioacl is the only one, so both resets release the device.
        code = _on_thread(getattr(acl.rt, reset), 0)
        assert code == 0
        with pytest.raises(aioacl.AclError) as caught:
            await stream.record()
        assert isinstance(caught.value, aioacl.StaleHandleError | aioacl.DeviceReset | aioacl.DeviceResetting)
        await until(lambda: device.generation > generation and device.state is aioacl.State.OPEN)
        await works(device)


def _on_thread(function: object, *arguments: object) -> object:
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(function(*arguments)))  # type: ignore[operator]
    thread.start()
    thread.join()
    return results[0]


def test_87_stream_of_acl_is_taken_by_from_handle_and_awaits_its_work(bound: aioacl.Device) -> None:
    native, code = acl.rt.create_stream()
    assert code == 0
    stream = aioacl.Stream.from_handle(native, bound)
    pointer, code = acl.rt.malloc(8, 0)
    assert code == acl.rt.memset_async(pointer, 8, 7, 8, native) == 0
    stream.synchronize().result()
    host, code = acl.rt.malloc_host(8)
    assert code == acl.rt.memcpy(host, 8, pointer, 8, DEVICE_TO_HOST) == 0
    assert acl.util.ptr_to_bytes(host, 8) == b"\7" * 8
    stream.close().result()
    assert acl.rt.free_host(host) == acl.rt.free(pointer) == acl.rt.destroy_stream(native) == 0


def test_87_memory_of_acl_is_wrapped_and_copied_by_aioacl(bound: aioacl.Device) -> None:
    pointer, code = acl.rt.malloc(8, 0)
    assert code == acl.rt.memset(pointer, 8, 5, 8) == 0
    target = bytearray(8)
    memory = bound.wrap_memory(pointer, 8)
    with bound.create_stream() as stream:
        stream.copy(target, memory).result()
    memory.close().result()
    assert target == b"\5" * 8
    assert acl.rt.free(pointer) == 0


def test_87_models_of_both_give_the_same_outputs(bound: aioacl.Device) -> None:
    x = np.linspace(0, 1, 64, dtype=np.float32).reshape(1, 64)
    by_hand = Digits()
    with bound.load_model(DIGITS) as model:
        ours = model(x).result()
        assert [float(each) for each in ours.ravel()] == by_hand.run(x)
    by_hand.close()


async def test_force_reset_of_aioacl_makes_the_handles_of_acl_invalid_with_codes(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        pointer = _on_thread(_allocated)
        assert isinstance(pointer, int)
        report = await device.force_reset(foreign=True)
        assert report.ok
        assert _on_thread(_freed, pointer) != 0
    simulator.forget()  # the use of freed memory is the test


def _allocated() -> int:
    assert acl.rt.set_device(0) == 0
    pointer, code = acl.rt.malloc(8, 0)
    assert code == acl.rt.reset_device(0) == 0
    return int(pointer)


def _freed(pointer: int) -> int:
    assert acl.rt.set_device(0) == 0
    code = acl.rt.free(pointer)
    assert acl.rt.reset_device(0) == 0
    return int(code)
