"""Tensors of other libraries in host memory: the ends of copies, taken through DLPack without a copy."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import dlpack_take
from aioacl._handles.capsule import COPIED
from aioacl._handles.host_tensor import host_tensor
from tests.kit import until_now
from tests.support.dlpack import BOTH, READ_ONLY, Producer

if TYPE_CHECKING:
    from collections.abc import Callable

CPU = (1, 0)
SIZE = 24


class Memory:
    """Some bytes with an address."""

    def __init__(self, content: bytes) -> None:
        self._bytes = (ctypes.c_ubyte * max(len(content), 1)).from_buffer_copy(content or b"\0")
        self.address = ctypes.addressof(self._bytes)
        self._size = len(content)

    @property
    def content(self) -> bytes:
        return bytes(self._bytes)[: self._size]


@pytest.fixture
def host() -> Memory:
    return Memory(bytes(range(SIZE)))


def view_of(tensor: object) -> memoryview:
    """The buffer of a tensor."""
    taken = host_tensor(tensor)
    assert taken is not None
    return memoryview(taken)


def tensor_of(host: Memory, shape: tuple[int, ...] = (SIZE,), **options: Any) -> Any:
    settings: dict[str, Any] = {"device": CPU, **options}
    return Producer(host.address, shape, **settings)


@BOTH
def test_tensor_is_copied_to_the_device_and_back(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer, host: Memory, version: tuple[int, int] | None
) -> None:
    other = Memory(bytes(SIZE))
    source = tensor_of(host, (2, 3), dtype=(2, 32, 1), version=version)
    target = tensor_of(other, (2, 3), dtype=(2, 32, 1), version=version)
    stream.copy(memory, source).result()
    stream.copy(target, memory[:SIZE]).result()
    assert other.content == bytes(range(SIZE))
    assert until_now(lambda: (len(source.deletes), len(target.deletes)) == (1, 1))


@pytest.mark.parametrize("kind", [1, 3, 11], ids=["CPU", "CUDA host", "ROCm host"])
def test_tensor_is_uploaded_and_downloaded(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer, host: Memory, kind: int
) -> None:
    other = Memory(bytes(SIZE))
    stream.upload(memory, tensor_of(host, device=(kind, 0))).result()
    stream.download(tensor_of(other, device=(kind, 0)), memory[:SIZE]).result()
    assert other.content == bytes(range(SIZE))


def test_offset_of_a_tensor_is_added_to_its_address(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer, host: Memory
) -> None:
    stream.copy(memory, tensor_of(host, (8,), offset=5)).result()
    back = bytearray(8)
    stream.copy(back, memory[:8]).result()
    assert back == bytes(range(5, 13))


def test_memory_of_a_tensor_is_kept_until_its_copy_is_done(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer, host: Memory
) -> None:
    target = tensor_of(host)
    deletes = target.deletes
    simulator.hold(stream)
    ticket = stream.copy(target, memory[:SIZE])
    del target
    assert deletes == []
    simulator.release(stream)
    ticket.result()
    assert until_now(lambda: len(deletes) == 1)


def test_memory_of_a_tensor_whose_copy_is_refused_is_given_back(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer, host: Memory
) -> None:
    source = tensor_of(host)
    with pytest.raises(aioacl.ParameterError, match="the target 4"):
        stream.copy(memory[:4], source)
    assert len(source.deletes) == len(source.requests) == 1


def test_object_with_a_buffer_is_not_asked_for_a_capsule(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    class Array(np.ndarray[Any, Any]):
        def __dlpack__(self, **_: Any) -> Any:
            raise AssertionError("the buffer is enough")

    array = np.arange(SIZE, dtype=np.uint8).view(Array)
    stream.copy(memory, array).result()


def test_read_only_tensor_is_a_source_but_not_a_target(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer, host: Memory
) -> None:
    tensor = tensor_of(host, flags=READ_ONLY)
    stream.copy(memory, tensor).result()
    with pytest.raises(
        aioacl.ParameterError, match=r"expected memory that can be written to, got Producer: "
    ):
        stream.copy(tensor, memory[:SIZE])
    assert until_now(lambda: len(tensor.deletes) == 2)


def test_copy_that_the_producer_has_made_is_a_source_but_not_a_target(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer, host: Memory
) -> None:
    tensor = tensor_of(host, flags=COPIED)
    stream.copy(memory, tensor).result()
    with pytest.raises(aioacl.ParameterError) as caught:
        stream.copy(tensor, memory[:SIZE])
    assert caught.value.message == (
        "expected a tensor whose memory can be shared, got Producer, which exports a copy"
    )
    assert caught.value.hint == "Pass a contiguous tensor in memory of the CPU, or an array of NumPy."


class Failing(Producer):
    """A producer one of whose methods raises an error."""

    def __init__(self, address: int, error: Exception, *, in_device: bool = False) -> None:
        super().__init__(address, (SIZE,), device=CPU)
        self._error = error
        self._in_device = in_device

    def __dlpack_device__(self) -> Any:
        if self._in_device:
            raise self._error
        return super().__dlpack_device__()

    def __dlpack__(self, **_: Any) -> Any:
        raise self._error


class Giving(Producer):
    """A producer that returns another object in place of a capsule."""

    def __dlpack__(self, **_: Any) -> Any:
        return "a capsule"


TO_HOST = (
    "Copy it to the host first, for example with tensor.cpu(); `device.from_dlpack(tensor)` makes a DeviceBuffer of "
    "memory of its device."
)
FAILS = "expected a tensor that can be exported, got Failing, whose __dlpack__ or __dlpack_device__ raises"
REFUSED: dict[str, tuple[Callable[[Memory], Any], str, str]] = {
    "steps": (
        lambda host: tensor_of(host, (2, 3), strides=(6, 2)),
        "expected a contiguous tensor in C order, got the shape (2, 3) with the strides (6, 2)",
        "Pass a contiguous copy, for example tensor.contiguous().",
    ),
    "transposed": (
        lambda host: tensor_of(host, (3, 2), strides=(1, 3)),
        "expected a contiguous tensor in C order, got the shape (3, 2) with the strides (1, 3)",
        "Pass a contiguous copy, for example tensor.contiguous().",
    ),
    "another device": (
        lambda host: tensor_of(host, device=(2, 1)),
        "expected a tensor in host memory, got one on the DLPack device (2, 1)",
        TO_HOST,
    ),
    "another device inside": (
        lambda host: tensor_of(host, inside=(12, 0)),
        "expected a tensor in host memory, got one on the DLPack device (12, 0)",
        TO_HOST,
    ),
    "no device": (
        lambda host: tensor_of(host, device="cpu"),
        "expected __dlpack_device__ to return a tuple of two ints, got 'cpu'",
        "Correct the class of the tensor.",
    ),
    "another version": (
        lambda host: tensor_of(host, version=(2, 0)),
        "expected a tensor of DLPack version 1, got one of version 2.0",
        "The producer must honour max_version=(1, 0): use a version of the library that does.",
    ),
    "no address": (
        lambda _: Producer(None, (SIZE,), device=CPU),
        f"expected a tensor with an address, got {SIZE} bytes at 0x0 + 0",
        "Pass a tensor whose memory is allocated.",
    ),
    "half a byte": (
        lambda host: tensor_of(host, (3,), dtype=(1, 4, 1)),
        "expected a tensor of whole bytes, got 3 values of 4 bits",
        "Pass a tensor whose values fill whole bytes.",
    ),
    "no capsule": (
        lambda host: Giving(host.address, (SIZE,), device=CPU),
        "expected __dlpack__ to return a DLPack capsule that was not taken, got 'a capsule'",
        "Each capsule can be taken once: the producer has to make a new one at each call.",
    ),
    "gradients": (
        lambda host: Failing(host.address, BufferError("it requires gradients")),
        f"{FAILS} BufferError: it requires gradients",
        "For a tensor of torch that requires gradients, pass tensor.detach().",
    ),
    "an unknown device": (
        lambda host: Failing(host.address, ValueError("unknown"), in_device=True),
        f"{FAILS} ValueError: unknown",
        "For a tensor of torch that requires gradients, pass tensor.detach().",
    ),
}


@pytest.mark.parametrize("as_target", [False, True], ids=["source", "target"])
@pytest.mark.parametrize(("make", "message", "hint"), REFUSED.values(), ids=REFUSED)
def test_tensor_that_is_not_contiguous_host_memory_is_refused_with_the_remedy(
    stream: aioacl.Stream,
    memory: aioacl.DeviceBuffer,
    host: Memory,
    make: Callable[[Memory], Any],
    message: str,
    hint: str,
    as_target: bool,
) -> None:
    tensor = make(host)
    with pytest.raises(aioacl.ParameterError) as caught:
        stream.copy(*((tensor, memory[:SIZE]) if as_target else (memory, tensor)))
    assert (caught.value.message, caught.value.hint) == (message, hint)
    del caught
    assert len(tensor.deletes) == len(tensor.requests)


@pytest.mark.parametrize(
    ("dtype", "form", "itemsize"),
    [
        ((0, 8, 1), "b", 1),
        ((0, 16, 1), "h", 2),
        ((0, 32, 1), "i", 4),
        ((0, 64, 1), "q", 8),
        ((1, 8, 1), "B", 1),
        ((1, 16, 1), "H", 2),
        ((1, 32, 1), "I", 4),
        ((1, 64, 1), "Q", 8),
        ((2, 16, 1), "e", 2),
        ((2, 32, 1), "f", 4),
        ((2, 64, 1), "d", 8),
        ((4, 16, 1), "E", 2),
        ((5, 64, 1), "Zf", 8),
        ((5, 128, 1), "Zd", 16),
        ((6, 8, 1), "?", 1),
        ((2, 32, 4), "16s", 16),  # four lanes
        ((10, 8, 1), "1s", 1),  # an 8-bit float
        ((1, 3, 1), "1s", 1),  # with the flag of padded values
    ],
)
def test_buffer_of_a_tensor_has_its_shape_and_type(
    dtype: tuple[int, int, int], form: str, itemsize: int
) -> None:
    host = Memory(bytes(range(6 * 16)))
    view = view_of(tensor_of(host, (2, 3), dtype=dtype, flags=4))
    assert (view.format, view.itemsize, view.shape) == (form, itemsize, (2, 3))
    assert view.strides == (3 * itemsize, itemsize)
    assert view.c_contiguous
    assert view.tobytes() == host.content[: 6 * itemsize]


def test_buffer_of_values_of_half_a_byte_is_a_list_of_bytes() -> None:
    host = Memory(b"abc")
    view = view_of(tensor_of(host, (2, 3), dtype=(1, 4, 1)))
    assert (view.format, view.shape, view.tobytes()) == ("1s", (3,), b"abc")


@pytest.mark.parametrize("shape", [(0,), (0, 1 << 62, 1 << 62), (3, 0)])
def test_tensor_without_values_has_an_empty_buffer(shape: tuple[int, ...]) -> None:
    view = view_of(Producer(None, shape, device=CPU))
    assert (view.nbytes, view.shape) == (0, shape)


def test_scalar_tensor_has_a_buffer_without_dimensions(host: Memory) -> None:
    view = view_of(tensor_of(host, (), dtype=(2, 32, 1)))
    assert (view.ndim, view.nbytes, view.shape) == (0, 4, ())


def test_array_of_numpy_over_a_tensor_keeps_the_memory(host: Memory) -> None:
    tensor = tensor_of(host, (2, 3), dtype=(2, 32, 1))
    array = np.asarray(view_of(tensor))
    assert (array.shape, array.dtype.name, array.flags.writeable) == ((2, 3), "float32", True)
    assert array.ctypes.data == host.address
    assert tensor.deletes == []
    del array
    assert len(tensor.deletes) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda host: Producer(host.address, (SIZE,), device=(12, 0)),
        lambda host: tensor_of(host, (2, 3), strides=(6, 2)),
        lambda _: Producer(None, (SIZE,), device=CPU),
        lambda host: tensor_of(host, (3,), dtype=(1, 4, 1)),
        lambda host: tensor_of(host, (-1,)),
        lambda host: tensor_of(host, (1 << 62, 4)),
        lambda host: tensor_of(host, ndim=65),
        lambda host: tensor_of(host, dtype=(1, 8, 0)),
    ],
    ids=["device", "steps", "no address", "half a byte", "negative", "too large", "dimensions", "no lanes"],
)
def test_taken_tensor_that_is_not_contiguous_host_memory_has_no_buffer(
    host: Memory, make: Callable[[Memory], Producer]
) -> None:
    taken = dlpack_take(make(host).capsule())
    assert taken is not None
    with pytest.raises(BufferError, match="expected a"):
        memoryview(taken)
