"""Offline models that onnxruntime executes: results, shapes, gears, failures, and the library that is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioacl import simulator
from aioacl._base.ffi import ffi
from tests.simulator import modelfiles
from tests.simulator.modelcalls import data, described, error_text, execute, execute_on, loaded, value
from tests.simulator.modelfiles import GEAR_INPUT, INT64, Tensor
from tests.simulator.rawacl import device, good, new_stream, rc

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [modelfiles.needs_onnxruntime, pytest.mark.usefixtures("models")]

FAILED, BAD_SHAPE = 507011, 145021
HOUR_MS = 3_600_000
NUMBERS = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
TWICE = [2 * number for number in NUMBERS]
BYTES = 24


def dynamic(rows: str = "n") -> bytes:
    """A simulated model whose number of rows is not known."""
    parts = {
        0: modelfiles.tensors(Tensor("x", (-1, 3), size=0)),
        1: modelfiles.tensors(Tensor("y", (-1, 3), size=0)),
    }
    return modelfiles.simulated(modelfiles.doubling_onnx(rows), parts, dynamic=True)


def test_execute_computes_the_model() -> None:
    with device(), loaded(modelfiles.doubling()) as model, data(BYTES) as inputs, data(BYTES) as outputs:
        inputs.write(0, NUMBERS)
        assert execute(model, inputs, outputs) == 0
        assert outputs.read(0) == TWICE


def test_execute_with_options_waits_on_the_given_stream() -> None:
    with device(), loaded(modelfiles.doubling()) as model, data(BYTES) as inputs, data(BYTES) as outputs:
        stream, config = new_stream(), value("aclmdlCreateExecConfigHandle")
        inputs.write(0, NUMBERS)
        arguments = (model, inputs.dataset, outputs.dataset, stream)
        assert rc("aclmdlExecuteV2", *arguments, ffi.NULL) == 100000
        good("aclmdlSetExecConfigOpt", config, 0, ffi.new("int32_t *", HOUR_MS), 4)
        assert rc("aclmdlSetExecConfigOpt", config, 0, ffi.new("int32_t *", HOUR_MS), 8) == 100000
        good("aclmdlExecuteV2", *arguments, config)
        assert outputs.read(0) == TWICE
        simulator.hold(stream)
        good("aclmdlSetExecConfigOpt", config, 0, ffi.new("int32_t *", 50), 4)
        assert rc("aclmdlExecuteV2", *arguments, config) == 507046
        simulator.release(stream)
        good("aclrtSynchronizeStream", stream)
        good("aclmdlDestroyExecConfigHandle", config)
        good("aclrtDestroyStream", stream)


def test_dynamic_model_takes_shapes_from_the_dataset_and_reports_them() -> None:
    with device(), loaded(dynamic()) as model, data(60) as inputs, data(60) as outputs:
        inputs.write(0, NUMBERS)
        assert execute(model, inputs, outputs) == BAD_SHAPE
        assert "aclmdlSetDatasetTensorDesc" in error_text()
        inputs.describe(0, [2, 4])
        assert execute(model, inputs, outputs) == BAD_SHAPE
        assert (
            "the shape [2,4] in the dataset does not fit the shape [-1,3] of the tensor 0 (x)" in error_text()
        )
        inputs.describe(0, [2, 3])
        assert execute(model, inputs, outputs) == 0
        assert outputs.read(0)[:6] == TWICE
        assert outputs.shape(0) == [2, 3]
        inputs.describe(0, [0, 3])
        assert execute(model, inputs, outputs) == 0
        assert outputs.shape(0) == [0, 3]


def test_dynamic_model_refuses_a_shape_outside_of_its_ranges() -> None:
    parts = {
        0: modelfiles.tensors(Tensor("x", (-1, 3), size=24, ranges=((1, 2), (3, 3)))),
        1: modelfiles.tensors(Tensor("y", (-1, 3), size=24)),
    }
    ranged = modelfiles.simulated(modelfiles.doubling_onnx("n"), parts, dynamic=True)
    with device(), loaded(ranged) as model, data(36) as inputs, data(36) as outputs:
        inputs.describe(0, [3, 3])
        assert execute(model, inputs, outputs) == 100000
        assert "the shape [3,3] in the dataset is outside of the ranges of the tensor 0 (x)" in error_text()


def test_current_dims_of_a_dynamic_model_are_refused_with_a_reason() -> None:
    with device(), described(dynamic()) as desc:
        assert rc("aclmdlGetCurOutputDims", desc, 0, ffi.new("aclmdlIODims *")) == 200001
        assert "the model is dynamic; read the shapes from the output dataset" in error_text()


def test_dynamic_model_allocates_an_output_without_memory() -> None:
    with device(), loaded(dynamic()) as model, data(BYTES) as inputs, data(0) as outputs:
        inputs.write(0, NUMBERS)
        inputs.describe(0, [2, 3])
        assert execute(model, inputs, outputs) == 0
        assert outputs.read(0) == TWICE


def test_static_model_allocates_an_output_without_memory() -> None:
    with device(), loaded(modelfiles.doubling()) as model, data(BYTES) as inputs, data(0) as outputs:
        inputs.write(0, NUMBERS)
        assert execute(model, inputs, outputs) == 0
        assert outputs.read(0) == TWICE


@pytest.mark.parametrize(("names", "code"), [("zy", 0), ("yz", FAILED)])
def test_output_fits_into_the_memory_that_another_output_with_its_buffer_got(names: str, code: int) -> None:
    nodes = [("Add", ["x", "x"], ["y"]), ("Transpose", ["x"], ["t"]), ("MatMul", ["t", "x"], ["z"])]
    rows: dict[str, int | str] = {"y": "n", "z": 3}
    onnx = modelfiles.onnx_model(nodes, {"x": ["n", 3]}, {name: [rows[name], 3] for name in names})
    parts = {
        0: modelfiles.tensors(Tensor("x", (-1, 3), size=0)),
        1: modelfiles.tensors(*(Tensor(name, (-1, 3), size=0) for name in names)),
    }
    source = modelfiles.simulated(onnx, parts, dynamic=True)
    with device(), loaded(source) as model, data(BYTES) as inputs, data(0) as outputs:
        good("aclmdlAddDatasetBuffer", outputs.dataset, outputs.buffers[0])
        inputs.write(0, NUMBERS)
        inputs.describe(0, [2, 3])
        assert execute(model, inputs, outputs) == code
        assert len(outputs.read(0)) == (9 if names == "zy" else 6)
        if code:
            assert "output 1 has 36 bytes, but its buffer has 24" in error_text()


def test_dynamic_model_fails_if_an_output_does_not_fit() -> None:
    with device(), loaded(dynamic()) as model, data(BYTES) as inputs, data(12) as outputs:
        inputs.describe(0, [2, 3])
        inputs.write(0, NUMBERS)
        assert execute(model, inputs, outputs) == FAILED
        assert "output 0 has 24 bytes, but its buffer has 12" in error_text()


def batched() -> bytes:
    parts = {
        0: modelfiles.tensors(Tensor("x", (-1, 3), size=48), Tensor(GEAR_INPUT, (1,), INT64)),
        1: modelfiles.tensors(Tensor("y", (-1, 3), size=48)),
        2: modelfiles.batches(1, 2, 4),
    }
    return modelfiles.simulated(modelfiles.doubling_onnx("n"), parts)


def test_gear_selects_the_rows_that_are_computed() -> None:
    with device(), loaded(batched()) as model, data(48, 8) as inputs, data(48) as outputs:
        inputs.write(0, [float(number) for number in range(12)])
        for batch in (1, 4, 2):
            good("aclrtMemset", outputs.memory[0], 48, 0, 48)
            good("aclmdlSetDynamicBatchSize", model, inputs.dataset, 1, batch)
            assert execute(model, inputs, outputs) == 0
            expected = [2.0 * number if number < batch * 3 else 0.0 for number in range(12)]
            assert outputs.read(0) == expected


def test_execution_fails_if_an_output_has_another_shape_than_its_gear_states() -> None:
    parts = {
        0: modelfiles.tensors(Tensor("x", (-1, 3), size=48), Tensor(GEAR_INPUT, (1,), INT64)),
        1: modelfiles.tensors(Tensor("y", (4, 3), size=48)),
        2: modelfiles.batches(2, 4),
        5: modelfiles.texts("0,0,3,3", "1,0,4,3"),
    }
    wrong = modelfiles.simulated(modelfiles.doubling_onnx("n"), parts)
    with device(), loaded(wrong) as model, data(48, 8) as inputs, data(48) as outputs:
        good("aclmdlSetDynamicBatchSize", model, inputs.dataset, 1, 2)
        assert execute(model, inputs, outputs) == FAILED
        assert "output 0 has the shape [2,3], but the model states [3,3] for this gear" in error_text()
        good("aclmdlSetDynamicBatchSize", model, inputs.dataset, 1, 4)
        assert execute(model, inputs, outputs) == 0


def test_execution_without_a_gear_fails_with_a_reason() -> None:
    with device(), loaded(batched()) as model, data(48, 8) as inputs, data(48) as outputs:
        good("aclrtMemset", inputs.memory[0], 48, 0, 48)
        good("aclrtMemset", inputs.memory[1], 8, 0, 8)
        assert execute(model, inputs, outputs) == FAILED
        assert "does not contain a gear" in error_text()


def test_two_slots_keep_their_own_gears() -> None:
    with device(), loaded(batched()) as model, data(48, 8) as first, data(48, 8) as second:
        stream = new_stream()
        with data(48) as outputs, data(48) as others:
            for slot, batch in ((first, 1), (second, 2)):
                slot.write(0, [1.0] * 12)
                good("aclmdlSetDynamicBatchSize", model, slot.dataset, 1, batch)
            for into in (outputs, others):
                good("aclrtMemset", into.memory[0], 48, 0, 48)
            simulator.hold(stream)
            assert execute_on(stream, model, first, outputs) == 0
            assert execute_on(stream, model, second, others) == 0
            simulator.release(stream)
            good("aclrtSynchronizeStream", stream)
            assert (sum(outputs.read(0)), sum(others.read(0))) == (6.0, 12.0)
        good("aclrtDestroyStream", stream)


@pytest.mark.parametrize("kind", [3, 4])
def test_gears_of_images_and_dimensions_set_the_shape(kind: int) -> None:
    onnx = modelfiles.onnx_model([("Add", ["x", "x"], ["y"])], {"x": [1, "h", "w"]}, {"y": [1, "h", "w"]})
    parts = {
        0: modelfiles.tensors(Tensor("x", (1, -1, -1), size=80), Tensor(GEAR_INPUT, (2,), INT64)),
        1: modelfiles.tensors(Tensor("y", (1, -1, -1), size=80)),
        kind: modelfiles.gears((2, 3), (4, 5)),
    }
    with (
        device(),
        loaded(modelfiles.simulated(onnx, parts)) as model,
        data(80, 16) as inputs,
        data(80) as outputs,
    ):
        inputs.write(0, [1.0] * 20)
        good("aclrtMemset", outputs.memory[0], 80, 0, 80)
        if kind == 3:
            good("aclmdlSetDynamicHWSize", model, inputs.dataset, 1, 2, 3)
        else:
            dims = ffi.new("aclmdlIODims *", {"dimCount": 3, "dims": [1, 2, 3]})
            good("aclmdlSetInputDynamicDims", model, inputs.dataset, 1, dims)
        assert execute(model, inputs, outputs) == 0
        assert sum(outputs.read(0)) == 12.0


def test_plain_onnx_file_is_described_by_its_graph_and_runs(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(modelfiles.doubling_onnx())
    with device(), loaded(path) as model, described(model) as desc:
        assert value("aclmdlGetInputSizeByIndex", desc, 0) == BYTES
        assert ffi.string(value("aclmdlGetOutputNameByIndex", desc, 0)) == b"y"
        with data(BYTES) as inputs, data(BYTES) as outputs:
            inputs.write(0, NUMBERS)
            assert execute(model, inputs, outputs) == 0
            assert outputs.read(0) == TWICE
    with (
        device(),
        loaded(modelfiles.doubling_onnx("n")) as model,
        data(BYTES) as inputs,
        data(BYTES) as outputs,
    ):
        inputs.write(0, NUMBERS)
        inputs.describe(0, [2, 3])
        assert execute(model, inputs, outputs) == 0
        assert outputs.read(0) == TWICE


def test_genuine_file_runs_with_the_onnx_model_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "model.om"
    path.write_bytes(modelfiles.genuine())
    (tmp_path / "model.onnx").write_bytes(modelfiles.doubling_onnx())
    with device(), loaded(path) as model, data(BYTES) as inputs, data(BYTES) as outputs:
        inputs.write(0, NUMBERS)
        assert execute(model, inputs, outputs) == 0
        assert outputs.read(0) == TWICE


def test_outputs_with_other_names_are_found_by_their_order() -> None:
    parts = {0: modelfiles.tensors(Tensor("x", (2, 3))), 1: modelfiles.tensors(Tensor("Add_0:0:y", (2, 3)))}
    file = modelfiles.simulated(modelfiles.doubling_onnx(), parts)
    with device(), loaded(file) as model, data(BYTES) as inputs, data(BYTES) as outputs:
        inputs.write(0, NUMBERS)
        assert execute(model, inputs, outputs) == 0
        assert outputs.read(0) == TWICE


def test_inputs_are_found_by_their_names() -> None:
    onnx = modelfiles.onnx_model([("Sub", ["a", "b"], ["y"])], {"a": [3], "b": [3]}, {"y": [3]})
    parts = {
        0: modelfiles.tensors(Tensor("b", (3,)), Tensor("a", (3,))),
        1: modelfiles.tensors(Tensor("y", (3,))),
    }
    with (
        device(),
        loaded(modelfiles.simulated(onnx, parts)) as model,
        data(12, 12) as inputs,
        data(12) as outputs,
    ):
        inputs.write(0, [1.0, 1.0, 1.0])
        inputs.write(1, [5.0, 6.0, 7.0])
        assert execute(model, inputs, outputs) == 0
        assert outputs.read(0) == [4.0, 5.0, 6.0]
