"""device.from_dlpack of tensors of torch_npu. The classes here have the attributes of torch's classes."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from aioacl import lowlevel, simulator
from aioacl._base.ffi import pointer
from tests.support.dlpack import EXTENSION, Producer

if TYPE_CHECKING:
    from collections.abc import Generator

SIZE = 64


class Tensor(Producer):
    """A tensor on a device of torch_npu: torch raises for its device, and ignores `stream`."""

    def __init__(self, address: int, *, kind: str = "npu", index: int = 0) -> None:
        super().__init__(address, (SIZE,), device=(EXTENSION, index))
        self.device = SimpleNamespace(type=kind, index=index)

    def __dlpack_device__(self) -> Any:
        raise ValueError(f"Unknown device type {self.device.type} for Dlpack")


class Torch:
    """The modules torch and torch_npu. A record stays in a queue on the host until `npu_stream` is read."""

    def __init__(self, device: aioacl.Device) -> None:
        self.functions = lowlevel.on(device)
        self.stream = device.create_stream().result()
        self.queue: list[Any] = []
        self.events: list[Any] = []
        self.asked: list[int] = []

    def current_stream(self, index: int) -> Torch:
        self.asked.append(index)
        return self

    @property
    def npu_stream(self) -> int:
        while self.queue:
            self.queue.pop(0)()
        return pointer(self.stream._live().native)

    def modules(self) -> dict[str, Any]:
        torch = self

        class Event:
            def __init__(self) -> None:
                self._made = lowlevel.ffi.new("aclrtEvent *")
                torch.functions.aclrtCreateEventExWithFlag(self._made, lowlevel.constants.ACL_EVENT_SYNC)
                torch.events.append(self._made[0])

            def record(self, stream: Torch) -> None:
                native = lowlevel.ffi.cast("aclrtStream", pointer(stream.stream._live().native))
                torch.queue.append(lambda: torch.functions.aclrtRecordEvent(self._made[0], native))

            @property
            def npu_event(self) -> int:
                return int(lowlevel.ffi.cast("uintptr_t", self._made[0]))

        npu = SimpleNamespace(current_stream=self.current_stream, Event=Event)
        return {"torch": SimpleNamespace(Tensor=Tensor), "torch_npu": SimpleNamespace(npu=npu)}

    def close(self) -> None:
        self.stream.close().result()
        for event in self.events:
            self.functions.aclrtDestroyEvent(event)


@pytest.fixture
def torch(device: aioacl.Device, monkeypatch: pytest.MonkeyPatch) -> Generator[Torch]:
    """torch and torch_npu, as if the program had imported them."""
    made = Torch(device)
    for name, module in made.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    yield made
    made.close()


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("kind", ["npu", "privateuseone"])
def test_tensor_of_torch_npu_is_taken_and_kept_until_the_close(
    device: aioacl.Device, stream: aioacl.Stream, memory: aioacl.DeviceBuffer, kind: str
) -> None:
    tensor = Tensor(memory.address, kind=kind)
    buffer = device.from_dlpack(tensor)
    assert (buffer.address, buffer.nbytes) == (memory.address, SIZE)
    stream.fill(buffer, 7).result()
    gc.collect()
    assert tensor.deletes == []
    buffer.close().result()
    gc.collect()
    assert len(tensor.deletes) == 1


@pytest.mark.parametrize("given", ["stream", "address"])
def test_stream_waits_for_the_unfinished_work_of_torch(
    torch: Torch,
    device: aioacl.Device,
    stream: aioacl.Stream,
    memory: aioacl.DeviceBuffer,
    given: str,
) -> None:
    back = bytearray(SIZE)
    stream.fill(memory, 0).result()
    with simulator.held(torch.stream):
        torch.stream.fill(memory, 9)
        wanted: Any = stream if given == "stream" else pointer(stream._live().native)
        buffer = device.from_dlpack(Tensor(memory.address), stream=wanted)
        ticket = stream.copy(back, buffer)
        assert not ticket.done
    ticket.result()
    assert back == b"\x09" * SIZE
    assert torch.asked == [device.index]
    buffer.close().result()


def test_stream_of_torch_itself_does_not_wait(
    torch: Torch, device: aioacl.Device, memory: aioacl.DeviceBuffer
) -> None:
    before = simulator.calls("aclrtStreamWaitEvent")
    buffer = device.from_dlpack(Tensor(memory.address), stream=torch.npu_stream)
    assert simulator.calls("aclrtStreamWaitEvent") == before
    buffer.close().result()


@pytest.mark.parametrize("stream", [None, -1])
def test_tensor_without_a_stream_is_not_ordered(
    torch: Torch, device: aioacl.Device, memory: aioacl.DeviceBuffer, stream: int | None
) -> None:
    buffer = device.from_dlpack(Tensor(memory.address), stream=stream)
    assert (torch.asked, torch.events) == ([], [])
    buffer.close().result()


def test_tensor_of_another_extension_with_a_stream_is_refused(
    torch: Torch,
    device: aioacl.Device,
    stream: aioacl.Stream,
    memory: aioacl.DeviceBuffer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "torch_npu")
    tensor = Tensor(memory.address, kind="privateuseone")
    with pytest.raises(aioacl.ParameterError, match="got one on a device of the type 'privateuseone'"):
        device.from_dlpack(tensor, stream=stream)
    gc.collect()
    assert torch.events == []


@pytest.mark.usefixtures("torch")
def test_tensor_of_another_device_of_torch_npu_is_refused(device: aioacl.Device) -> None:
    with pytest.raises(aioacl.ParameterError, match="on the DLPack device"):
        device.from_dlpack(Tensor(16, index=1))


def test_wait_that_fails_raises_the_error_and_drops_the_tensor(
    torch: Torch, device: aioacl.Device, stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    tensor = Tensor(memory.address)
    simulator.fail_call("aclrtStreamWaitEvent", 107003)
    with pytest.raises(aioacl.AclError, match="aclrtStreamWaitEvent"):
        device.from_dlpack(tensor, stream=stream)
    gc.collect()
    assert (len(torch.events), len(tensor.deletes)) == (1, 1)


@pytest.mark.usefixtures("torch")
def test_tensor_of_torch_npu_is_no_end_of_a_copy(stream: aioacl.Stream, memory: aioacl.DeviceBuffer) -> None:
    tensor: Any = Tensor(memory.address, index=1)
    with pytest.raises(aioacl.ParameterError) as caught:
        stream.copy(memory, tensor)
    assert caught.value.message == "expected a tensor in host memory, got one on the DLPack device (12, 1)"
    assert "`device.from_dlpack(tensor)`" in caught.value.hint
    assert tensor.requests == []
