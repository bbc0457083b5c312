"""Tensors of torch, in a build for the CPU: torch takes pinned memory, and its tensors are copied as host memory."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.paths import DATA
from tests.kit import Raised, until_now
from tests.support.dlpack import host_blocks

pytestmark = [pytest.mark.torch, pytest.mark.uncached]
SIZE = 8


@pytest.fixture
def torch() -> Any:
    """The module, if it is installed: no extra of aioacl installs it."""
    return pytest.importorskip("torch")


def test_torch_takes_a_pinned_buffer_without_a_copy(
    torch: Any, device: aioacl.Device, stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    with device.pinned(SIZE) as pinned:
        tensor = torch.from_dlpack(pinned)
        assert (tensor.dtype, tuple(tensor.shape), tensor.data_ptr()) == (
            torch.uint8,
            (SIZE,),
            pinned.address,
        )
        tensor[:] = torch.arange(SIZE)
        stream.copy(memory, pinned).result()
        stream.fill(pinned, 0).result()
        assert tensor.tolist() == [0] * SIZE
        stream.copy(pinned, memory[:SIZE]).result()
        assert tensor.tolist() == list(range(SIZE))
        del tensor


@pytest.mark.parametrize("part", [slice(None), slice(2, 6), slice(3, 3)])
def test_pinned_memory_is_kept_until_the_tensor_of_torch_is_gone(
    torch: Any, device: aioacl.Device, part: slice
) -> None:
    before = host_blocks()
    pinned = device.pinned(SIZE).result()
    pinned.view[:] = bytes(range(SIZE))
    tensor = torch.from_dlpack(pinned[part])
    pinned.close().result()
    assert host_blocks() == before + 1
    assert tensor.tolist() == list(range(SIZE))[part]
    del tensor
    gc.collect()
    assert until_now(lambda: host_blocks() == before)


def test_tensor_of_torch_is_copied_to_pinned_and_device_memory_and_back(
    torch: Any, device: aioacl.Device, stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    source = torch.arange(SIZE, dtype=torch.float32)
    back = torch.zeros_like(source)
    size = source.nbytes
    with device.pinned(size) as pinned:
        torch.from_dlpack(pinned).view(torch.float32).copy_(source)
        stream.copy(memory, pinned).result()
        stream.download(back.numpy(), memory[:size]).result()
        assert torch.equal(back, source)
        stream.upload(memory, (source + 1).numpy()).result()
        stream.copy(pinned, memory[:size]).result()
        assert torch.equal(torch.from_dlpack(pinned).view(torch.float32), source + 1)
        array = np.from_dlpack(source)  # from one producer to the other consumer
        stream.copy(memory, array).result()
        stream.copy(back.numpy(), memory[:size]).result()
        assert torch.equal(back, source)


def test_tensor_of_torch_in_host_memory_is_an_end_of_copies(
    torch: Any, stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    source = torch.arange(SIZE, dtype=torch.float32)
    size = source.nbytes
    for dtype in (torch.float32, torch.bfloat16, torch.bool, torch.complex64, torch.int64):
        values = source[: SIZE // 2].to(dtype)
        back = torch.zeros_like(values)
        stream.copy(memory, values).result()
        stream.download(back, memory[: values.nbytes]).result()
        assert torch.equal(back, values)
    part, whole = torch.zeros(2, SIZE), torch.zeros(SIZE, 2)
    stream.upload(memory, source).result()
    stream.copy(part[1], memory[:size]).result()
    assert torch.equal(part, torch.stack([torch.zeros(SIZE), source]))
    with pytest.raises(aioacl.ParameterError, match="expected a contiguous tensor"):
        stream.copy(whole[:, 0], memory[:size])
    assert not whole.any()


def test_tensor_of_torch_that_cannot_be_exported_is_refused_with_the_remedy(
    torch: Any, device: aioacl.Device, stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    with pytest.raises(aioacl.ParameterError, match=r"pass tensor\.detach\(\)"):
        stream.copy(memory, torch.zeros(SIZE, requires_grad=True))
    with pytest.raises(aioacl.ParameterError, match="Pass the tensor itself to copy"):
        device.from_dlpack(torch.zeros(SIZE))


def test_model_takes_tensors_of_torch(torch: Any, device: aioacl.Device) -> None:
    def negate(execution: simulator.Execution) -> None:
        values = np.frombuffer(execution.inputs[0].memory, np.float32)[:10]
        np.frombuffer(execution.outputs[0].memory, np.float32)[:] = -values

    x, y = torch.arange(64, dtype=torch.float32).reshape(1, 64), torch.zeros(1, 10)
    with simulator.register_model("digits", negate), device.load_model(DATA / "digits.om") as model:
        assert model(x, out=y).result() is y
        assert torch.equal(y, -x[:, :10])
        assert np.array_equal(model(x).result(), -x[:, :10].numpy())
        with pytest.raises(aioacl.ParameterError, match="input 'x': expected float32"):
            model(x.to(torch.bfloat16))


def test_capsule_is_taken_by_torch_only_once(torch: Any, device: aioacl.Device) -> None:
    before = host_blocks()
    pinned = device.pinned(SIZE).result()
    capsule = pinned.__dlpack__()
    tensor = torch.utils.dlpack.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match="once"):
        torch.utils.dlpack.from_dlpack(capsule)
    pinned.close().result()
    del capsule
    assert host_blocks() == before + 1
    del tensor
    gc.collect()
    assert until_now(lambda: host_blocks() == before)


def test_device_memory_that_torch_refuses_is_freed_by_its_close(torch: Any, device: aioacl.Device) -> None:
    before = simulator.stats().device_blocks
    with device.allocate(SIZE) as memory:
        with pytest.raises((ImportError, RuntimeError)):  # a build for the CPU has no such device
            torch.from_dlpack(memory)
        gc.collect()
    assert until_now(lambda: simulator.stats().device_blocks == before)


def test_tensors_of_torch_on_eight_threads_free_pinned_memory_once(torch: Any, device: aioacl.Device) -> None:
    before = host_blocks()
    pinned = device.pinned(SIZE).result()

    def work() -> int:
        return sum(int(torch.from_dlpack(pinned[i % SIZE :]).numel() > 0) for i in range(100))

    pinned.view[:] = bytes(SIZE)
    threads = [Raised(work) for _ in range(8)]
    assert [thread.join() for thread in threads] == [100] * 8
    pinned.close().result()
    gc.collect()
    assert until_now(lambda: host_blocks() == before)
