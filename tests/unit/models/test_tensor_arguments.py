"""Tensors of other libraries as arguments and results of models: taken through DLPack, without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import pytest
from onnx import TensorProto

import aioacl
from aioacl import simulator
from aioacl._handles.capsule import COPIED
from tests.kit import Waiting, no_call, until, until_now
from tests.support import offline
from tests.support.dlpack import BOTH, READ_ONLY, Producer
from tests.support.offline import WEIGHTS, rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice

FLOAT, BFLOAT, BOOL = (2, 32, 1), (4, 16, 1), (6, 8, 1)


def tensor_of(array: np.ndarray[Any, Any], dtype: tuple[int, int, int] = FLOAT, **options: Any) -> Producer:
    """A tensor on the CPU with the memory of an array, which the caller keeps."""
    settings: dict[str, Any] = {"device": (1, 0), "dtype": dtype, **options}
    return Producer(array.ctypes.data, array.shape, **settings)


@BOTH
def test_call_takes_tensors_as_argument_and_out(model: aioacl.Model, version: tuple[int, int] | None) -> None:
    x, y = rows(3), np.zeros((2, 4), np.float32)
    argument, out = tensor_of(x, version=version), tensor_of(y, version=version)
    assert model(argument, out=out).result() is out
    assert np.array_equal(y, x @ WEIGHTS)
    assert until_now(lambda: (len(argument.deletes), len(out.deletes)) == (1, 1))


def test_tensors_may_be_in_a_list_or_a_dict(device: aioacl.Device) -> None:
    a, b = rows(1), rows(2)
    with device.load_model(offline.sums()) as model:
        for x in ([tensor_of(a), b], {"a": a, "b": tensor_of(b)}):
            assert np.array_equal(model(x).result()["plus"], a + b)


def test_batch_of_a_tensor_selects_the_gear(device: aioacl.Device) -> None:
    x = rows(1, 3)
    with device.load_model(offline.product("2,4")) as model:
        assert np.array_equal(model(tensor_of(x)).result(), x @ WEIGHTS)


@pytest.mark.parametrize(
    ("onnx", "dtype", "carrier", "node"),
    [
        (TensorProto.BFLOAT16, BFLOAT, np.uint16, "Identity"),
        (TensorProto.BOOL, BOOL, np.bool_, "Identity"),
        (TensorProto.FLOAT16, (2, 16, 1), np.float16, "Identity"),
        (TensorProto.INT64, (0, 64, 1), np.int64, "Identity"),
        (TensorProto.UINT32, (1, 32, 1), np.uint32, "Identity"),
        (TensorProto.UINT16, (1, 16, 1), np.uint16, "Identity"),
    ],
)
def test_tensor_of_each_type_is_taken(
    device: aioacl.Device, onnx: int, dtype: tuple[int, int, int], carrier: Any, node: str
) -> None:
    x, y = np.array([1, 0, 1, 1], carrier), np.zeros(4, carrier)
    with device.load_model(offline.identity(onnx, node=node)) as model:
        model(tensor_of(x, dtype), out=tensor_of(y, dtype)).result()
    assert np.array_equal(x, y)


def test_bfloat16_is_not_taken_for_uint16(device: aioacl.Device) -> None:
    x = np.zeros(4, np.uint16)
    with device.load_model(offline.identity(TensorProto.UINT16)) as model:
        with pytest.raises(aioacl.ParameterError) as caught:
            model(tensor_of(x, BFLOAT))
        assert caught.value.message == "input 'x': expected uint16 [4], got bfloat16 [4]"


X, Y = rows(), np.zeros((2, 4), np.float32)
IN: dict[str, tuple[Callable[[], Producer], str]] = {
    "shape": (
        lambda: tensor_of(rows(0, 3)),
        "input 'x': expected the shape [2, 3], got [3, 3]",
    ),
    "type": (
        lambda: tensor_of(X, (0, 32, 1)),
        "input 'x': expected float32 [2, 3], got int32 [2, 3]",
    ),
    "lanes": (
        lambda: Producer(X.ctypes.data, (2, 1), device=(1, 0), dtype=(2, 32, 3)),
        "input 'x': expected float32 [2, 3], got items of format '12s' [2, 1]",
    ),
    "steps": (
        lambda: tensor_of(X, strides=(1, 2)),
        "input 'x': expected a contiguous tensor in C order, got the shape (2, 3) with the strides (1, 2)",
    ),
    "device": (
        lambda: tensor_of(X, device=(2, 0)),
        "input 'x': expected a tensor in host memory, got one on the DLPack device (2, 0)",
    ),
}
OUT: dict[str, tuple[Callable[[], Producer], str]] = {
    "shape": (
        lambda: tensor_of(X),
        "output 'y': expected the shape [2, 4], got [2, 3]",
    ),
    "read-only": (
        lambda: tensor_of(Y, flags=READ_ONLY),
        "output 'y': expected a writable array, got a read-only one",
    ),
    "copied": (
        lambda: tensor_of(Y, flags=COPIED),
        "output 'y': expected a tensor whose memory can be shared, got Producer, which exports a copy",
    ),
}


@pytest.mark.parametrize(("make", "message"), IN.values(), ids=IN)
def test_unsuitable_tensor_is_refused_as_an_argument(
    model: aioacl.Model, make: Callable[[], Producer], message: str
) -> None:
    tensor = make()
    with no_call(), pytest.raises(aioacl.ParameterError) as caught:
        model(tensor)
    assert caught.value.message == message
    del caught
    assert len(tensor.deletes) == len(tensor.requests)


@pytest.mark.parametrize(("make", "message"), OUT.values(), ids=OUT)
def test_unsuitable_tensor_is_refused_as_out(
    model: aioacl.Model, make: Callable[[], Producer], message: str
) -> None:
    tensor = make()
    with no_call(), pytest.raises(aioacl.ParameterError) as caught:
        model(rows(), out=tensor)
    assert caught.value.message == message
    del caught
    assert len(tensor.deletes) == len(tensor.requests)


def test_device_buffer_is_refused_as_an_argument(model: aioacl.Model, device: aioacl.Device) -> None:
    with device.allocate(24) as memory, pytest.raises(aioacl.ParameterError) as caught:
        model(memory)
    assert caught.value.message == "input 'x': expected an array in host memory, got a DeviceBuffer"
    assert caught.value.hint == (
        "Pass device memory to `model.enqueue(inputs, outputs)`, or download it to an array first."
    )


@pytest.mark.anyio
@pytest.mark.parametrize("ends_by", ["cancellation", "timeout"])
async def test_tensor_of_a_call_that_ended_early_is_given_back_when_the_work_is_done(
    open_device: OpenDevice, ends_by: str
) -> None:
    x, y = rows(), np.zeros((2, 4), np.float32)
    argument, out = tensor_of(x), tensor_of(y)
    async with open_device() as device, device.load_model(offline.product(), slots=1) as model:
        offline.hold(model)
        async with anyio.create_task_group() as group:
            if ends_by == "cancellation":
                call = Waiting(group, lambda: model(argument, out=out))
                await until(offline.enqueued)
                await call.cancel_and_wait()
                assert call.cancelled
            else:
                for limit in offline.short_limits():
                    with pytest.raises(aioacl.DeviceTimeout):
                        await model(argument, out=out, timeout=limit)
            offline.release(model)
            await until(lambda: offline.all_free(model))
    assert not y.any()
    assert until_now(lambda: len(argument.deletes) == len(argument.requests))
    assert until_now(lambda: len(out.deletes) == len(out.requests))
    assert simulator.violations() == []
