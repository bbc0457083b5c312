"""Gears of batches, images and dims, and models with several tensors or with unusual types and shapes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import aioacl
from aioacl import simulator
from tests.kit import Raised
from tests.simulator import modelfiles
from tests.support import offline
from tests.support.offline import WEIGHTS, rows
from tests.support.onnx_models import model as onnx_model
from tests.support.onnx_models import value

if TYPE_CHECKING:
    from collections.abc import Callable

WRITTEN_ON_THE_LOOP = 256 * 1024  # larger results are written by the instance's thread


def expected(x: Any) -> Any:
    return x @ WEIGHTS


class TestBatches:
    @pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8])
    def test_batch_is_padded_to_a_gear_and_the_padding_is_not_returned(
        self, device: aioacl.Device, count: int
    ) -> None:
        with device.load_model(offline.product("2,4,8")) as model:
            x = rows(3, count)
            y = model(x).result()
            assert y.shape == (count, 4)
            assert np.array_equal(y, expected(x))

    def test_smallest_gear_that_fits_is_chosen(self, device: aioacl.Device) -> None:
        with device.load_model(offline.product("8,2,4")) as model:
            assert model.gears == (8, 2, 4)
            for count, gear in ((1, 2), (2, 2), (3, 4), (5, 8)):
                model(rows(0, count)).result()
                calls = [e for e in simulator.journal() if e["call"] == "aclmdlSetDynamicBatchSize"]
                assert f"{gear}" in str(calls[-1]["args"]), calls[-1]

    def test_padding_is_zero_even_if_the_slot_was_used_before(self, device: aioacl.Device) -> None:
        with device.load_model(offline.totals(), slots=1) as model:
            model(np.full((4, 3), 100, np.float32)).result()
            x = rows(1, 3)
            assert np.array_equal(model(x).result(), x.sum(axis=0))

    def test_output_without_a_batch_is_returned_whole(self, device: aioacl.Device) -> None:
        with device.load_model(offline.totals()) as model:
            x = rows(1, 1)
            y = model(x).result()
            assert y.shape == (3,)
            assert np.array_equal(y, x[0])

    def test_out_has_the_rows_of_the_argument(self, device: aioacl.Device) -> None:
        with device.load_model(offline.product("4,8")) as model:
            whole = np.full((5, 4), -1, np.float32)
            x = rows(2, 3)
            model(x, out=whole[1:4]).result()
            assert np.array_equal(whole[1:4], expected(x))
            assert np.all(whole[[0, 4]] == -1)

    def test_calls_in_different_gears_at_the_same_time_keep_their_shapes(self, device: aioacl.Device) -> None:
        with device.load_model(offline.product("1,2,4,8"), slots=3) as model:
            arguments = [rows(number, 1 + number % 8) for number in range(40)]
            running = [Raised(lambda x=x: model(x).result()) for x in arguments]  # type: ignore[misc]
            for x, call in zip(arguments, running, strict=True):
                assert np.array_equal(call.join(), expected(x))
            assert simulator.violations() == []

    def test_description_has_none_for_the_batch_and_no_selector(self, device: aioacl.Device) -> None:
        with device.load_model(offline.product("2,4")) as model:
            assert model.inputs == (aioacl.TensorInfo("x", (None, 3), "float32", "ND", 48, batch_axis=0),)
            assert model.outputs == (aioacl.TensorInfo("y", (None, 4), "float32", "ND", 64, batch_axis=0),)
            assert model.gears == (2, 4)

    def test_output_without_the_batch_has_no_batch_axis(self, device: aioacl.Device) -> None:
        with device.load_model(offline.totals()) as model:
            assert model.inputs[0].batch_axis == 0
            assert (model.outputs[0].shape, model.outputs[0].batch_axis) == ((3,), None)

    def test_output_whose_first_dimension_is_a_multiple_of_the_batch_has_no_batch_axis(
        self, device: aioacl.Device
    ) -> None:
        shape = helper.make_node("Reshape", ["x", "flat"], ["y"])
        source = onnx_model(
            [shape],
            [value("x", ["N", 3])],
            [value("y", [None])],
            [numpy_helper.from_array(np.array([-1], np.int64), "flat")],
        )
        gears = {"input_shape": "x:-1,3", "dynamic_batch_size": "2,4"}
        with device.load_model(offline.converted(source, **gears)) as model:
            assert (model.outputs[0].shape, model.outputs[0].batch_axis) == ((None,), None)
            assert model.outputs[0].nbytes == 48

    def test_several_inputs_are_padded_together(self, device: aioacl.Device) -> None:
        with device.load_model(offline.sums("4,8")) as model:
            a, b = rows(1, 3), rows(10, 3)
            found = model({"a": a, "b": b}).result()
            assert np.array_equal(found["plus"], a + b)
            assert np.array_equal(found["minus"], a - b)


class TestImagesAndDims:
    @pytest.mark.parametrize("shape", [(1, 2, 2, 4), (1, 2, 4, 2)])
    def test_image_of_each_size_is_computed(self, device: aioacl.Device, shape: tuple[int, ...]) -> None:
        with device.load_model(offline.negated_image()) as model:
            assert model.gears == ((2, 4), (4, 2))
            assert model.inputs[0].shape == (1, 2, None, None)
            assert model.outputs[0].shape == (1, 2, None, None)
            assert model.inputs[0].batch_axis is model.outputs[0].batch_axis is None
            assert model.inputs[0].format == "NCHW"
            x = np.arange(16, dtype=np.float32).reshape(shape)
            y = model(x).result()
            assert y.shape == shape
            assert np.array_equal(y, -x)

    @pytest.mark.parametrize("shape", [(2, 3), (4, 5)])
    def test_dims_of_each_gear_are_computed(self, device: aioacl.Device, shape: tuple[int, ...]) -> None:
        with device.load_model(offline.dims()) as model:
            assert model.gears == ((2, 3), (4, 5))
            assert model.outputs[0].shape == (None, None)
            assert model.inputs[0].batch_axis is model.outputs[0].batch_axis is None
            x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
            assert np.array_equal(model(x).result(), -x)


class TestTensors:
    @pytest.mark.parametrize(
        "pack",
        [lambda a, b: [a, b], lambda a, b: (a, b), lambda a, b: {"b": b, "a": a}],
        ids=["list", "tuple", "dict"],
    )
    def test_several_inputs_give_a_dict_of_outputs(
        self, device: aioacl.Device, pack: Callable[[Any, Any], Any]
    ) -> None:
        with device.load_model(offline.sums()) as model:
            a, b = rows(1), rows(5) * 3
            found = model(pack(a, b)).result()
            assert list(found) == ["plus", "minus"]
            assert np.array_equal(found["plus"], a + b)
            assert np.array_equal(found["minus"], a - b)

    @pytest.mark.parametrize("by_name", [True, False])
    def test_several_outputs_are_written_to_out(self, device: aioacl.Device, by_name: bool) -> None:
        with device.load_model(offline.sums()) as model:
            a, b = rows(1), rows(5) * 3
            plus, minus = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
            out: Any = {"minus": minus, "plus": plus} if by_name else [plus, minus]
            assert model([a, b], out=out).result() is out
            assert np.array_equal(plus, a + b)
            assert np.array_equal(minus, a - b)

    @pytest.mark.parametrize(
        ("dtype", "array"),
        [
            (TensorProto.INT64, np.array([1, -2, 2**62, -(2**63)], np.int64)),
            (TensorProto.INT32, np.array([1, -2, 3, 4], np.int32)),
            (TensorProto.UINT8, np.array([0, 1, 128, 255], np.uint8)),
            (TensorProto.FLOAT16, np.array([0, 1, -2.5, 65504], np.float16)),
            (TensorProto.DOUBLE, np.array([0, 1e300, -2.5, 4], np.float64)),
            (TensorProto.BFLOAT16, np.array([0, 0x3F80, 0xBF80, 0x7F7F], np.uint16)),
        ],
    )
    def test_values_of_each_type_are_passed_unchanged(
        self, device: aioacl.Device, dtype: int, array: Any
    ) -> None:
        with device.load_model(offline.identity(dtype)) as model:
            y = model(array).result()
            assert y.dtype == array.dtype
            assert np.array_equal(y, array)

    def test_bools_are_computed(self, device: aioacl.Device) -> None:
        with device.load_model(offline.identity(TensorProto.BOOL, (4,), "Not")) as model:
            x = np.array([True, False, False, True])
            y = model(x).result()
            assert y.dtype == np.bool_
            assert np.array_equal(y, ~x)

    def test_scalar_is_passed_and_returned_as_an_array_without_dimensions(
        self, device: aioacl.Device
    ) -> None:
        with device.load_model(offline.identity(TensorProto.FLOAT, (), "Neg")) as model:
            y = model(np.float32(2.5)).result()
            assert (y.shape, y.dtype, y.item()) == ((), np.float32, -2.5)

    def test_model_without_inputs_is_called_with_an_empty_list(self, device: aioacl.Device) -> None:
        constant = helper.make_node(
            "Constant", [], ["y"], value=helper.make_tensor("v", TensorProto.FLOAT, [2], [1.0, 2.0])
        )
        with device.load_model(offline.converted(onnx_model([constant], [], [value("y", [2])]))) as model:
            forms: list[Any] = [[], (), {}]
            for nothing in forms:
                assert np.array_equal(model(nothing).result(), np.array([1, 2], np.float32))

    def test_large_result_is_copied_whole(self, device: aioacl.Device) -> None:
        with device.load_model(offline.identity(TensorProto.FLOAT, (offline.LARGE,))) as model:
            x = np.arange(offline.LARGE, dtype=np.float32)
            assert x.nbytes > WRITTEN_ON_THE_LOOP
            assert np.array_equal(model(x).result(), x)
            out = np.zeros_like(x)
            model(x, out=out).result()
            assert np.array_equal(out, x)

    @pytest.mark.parametrize(("number", "name"), [(35, "float8_e5m2"), (29, "int4"), (99, "99")])
    def test_type_that_no_array_can_hold_is_refused_by_the_load(
        self, device: aioacl.Device, number: int, name: str
    ) -> None:
        parts = {
            0: modelfiles.tensors(modelfiles.Tensor("x", (4,), number, size=4)),
            1: modelfiles.tensors(modelfiles.Tensor("y", (4,), number, size=4)),
        }
        file = modelfiles.container({1: b"w", modelfiles.DESCRIPTION: modelfiles.description(parts)})
        with pytest.raises(aioacl.NotSupported) as caught:
            device.load_model(file).result()
        assert caught.value.message == f"expected tensors of types that an array can hold, got 'x' of {name}"

    def test_input_that_is_known_only_when_the_model_runs_is_named(self, device: aioacl.Device) -> None:
        source = onnx_model(
            [helper.make_node("Neg", ["x"], ["y"])], [value("x", ["N", 3])], [value("y", ["N", 3])]
        )
        with pytest.raises(aioacl.NotSupported) as caught:
            device.load_model(offline.converted(source, input_shape="x:-1,3")).result()
        assert caught.value.message == (
            "expected a model with fixed shapes or with gears, got input 'x' of shape [?,3], "
            "which is known only when the model runs"
        )
        assert "--dynamic_batch_size" in caught.value.hint

    def test_output_that_is_known_only_when_the_model_runs_is_named(self, device: aioacl.Device) -> None:
        parts = {
            0: modelfiles.tensors(modelfiles.Tensor("x", (2, 3))),
            1: modelfiles.tensors(modelfiles.Tensor("z", (2, 3)), modelfiles.Tensor("y", (2, -1), size=0)),
        }
        source = modelfiles.onnx_model(
            [("Add", ["x", "x"], ["y"]), ("Relu", ["x"], ["z"])], {"x": [2, 3]}, {"z": [2, 3], "y": [2, "n"]}
        )
        with pytest.raises(aioacl.NotSupported, match=r"got output 'y' of shape \[2,\?\]") as caught:
            device.load_model(modelfiles.simulated(source, parts, dynamic=True)).result()
        assert "state the shapes in the outputs of the ONNX model" in caught.value.hint
        assert "--input_shape" not in caught.value.hint  # the inputs are fixed already

    def test_all_outputs_that_are_known_only_when_the_model_runs_are_named(
        self, device: aioacl.Device
    ) -> None:
        outputs = [modelfiles.Tensor("y", (2, -1), size=0), modelfiles.Tensor("z", (-1, 3), size=0)]
        parts = {
            0: modelfiles.tensors(modelfiles.Tensor("x", (2, 3))),
            1: modelfiles.tensors(*outputs),
        }
        source = modelfiles.onnx_model(
            [("Add", ["x", "x"], ["y"]), ("Relu", ["x"], ["z"])],
            {"x": [2, 3]},
            {"y": [2, "n"], "z": ["m", 3]},
        )
        with pytest.raises(aioacl.NotSupported) as caught:
            device.load_model(modelfiles.simulated(source, parts, dynamic=True)).result()
        assert caught.value.message == (
            "expected a model with fixed shapes or with gears, got outputs 'y' of shape [2,?], 'z' of shape [?,3], "
            "which are known only when the model runs"
        )


def test_result_without_numpy_names_it_and_out_works(
    device: aioacl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    with device.load_model(offline.product()) as model:
        x, y = memoryview(rows(2).tobytes()).cast("f", (2, 3)), bytearray(32)
        monkeypatch.setitem(sys.modules, "numpy", None)
        with pytest.raises(aioacl.NotSupported, match="expected NumPy for the results of a model"):
            model(x).result()
        model(x, out=memoryview(y).cast("f", (2, 4))).result()
        monkeypatch.undo()
    assert np.array_equal(np.frombuffer(y, np.float32).reshape(2, 4), rows(2) @ WEIGHTS)
