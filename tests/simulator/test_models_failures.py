"""Offline models that onnxruntime executes: failures, misuse, costs, and the library that is used."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from aioacl import ParameterError, simulator
from aioacl._base.ffi import ffi
from tests.kit import until_now
from tests.simulator import modelfiles
from tests.simulator.modelcalls import data, error_text, execute, execute_on, load_code, loaded
from tests.simulator.modelfiles import INT64, Tensor
from tests.simulator.rawacl import device, good, new_stream, rc
from tests.support import forkserver

pytestmark = [modelfiles.needs_onnxruntime, pytest.mark.usefixtures("models")]

FAILED, WRONG, CANNOT_LOAD = 507011, 145000, 545001
NUMBERS = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
TWICE = [2 * number for number in NUMBERS]
BYTES = 24


def test_execute_checks_the_datasets() -> None:
    with device(), loaded(modelfiles.doubling()) as model, data(BYTES) as inputs, data(BYTES) as outputs:
        arguments = (inputs.dataset, outputs.dataset)
        assert rc("aclmdlExecute", model, ffi.NULL, outputs.dataset) == 100000
        assert rc("aclmdlExecute", model + 1, *arguments) == 145003
        with data(BYTES, BYTES) as more:
            assert execute(model, more, outputs) == WRONG
            assert execute(model, inputs, more) == WRONG
        inputs.write(0, NUMBERS)
        good("aclUpdateDataBuffer", outputs.buffers[0], outputs.memory[0], 8)  # at most 64 bytes too small
        assert execute(model, inputs, outputs) == FAILED
        assert "needs 24 bytes, but its buffer has 8" in error_text()


def test_execute_async_refuses_an_output_without_memory() -> None:
    with device(), loaded(modelfiles.doubling()) as model, data(BYTES) as inputs, data(0) as outputs:
        stream = new_stream()
        assert execute_on(stream, model, inputs, outputs) == 100000
        assert "is NULL or has no bytes" in error_text()
        good("aclrtDestroyStream", stream)


def test_execute_refuses_a_buffer_that_is_much_too_small() -> None:
    parts = {0: modelfiles.tensors(Tensor("x", (2, 30))), 1: modelfiles.tensors(Tensor("y", (2, 30)))}
    onnx = modelfiles.onnx_model([("Add", ["x", "x"], ["y"])], {"x": [2, 30]}, {"y": [2, 30]})
    with device(), loaded(modelfiles.simulated(onnx, parts)) as model, data(240) as whole, data(175) as short:
        assert execute(model, short, whole) == WRONG
        assert "has 240 bytes, but its buffer has 175" in error_text()
        assert execute(model, whole, short) == WRONG


def test_execute_of_memory_that_is_not_on_a_device_fails() -> None:
    with device(), loaded(modelfiles.doubling()) as model, data(BYTES) as inputs, data(BYTES) as outputs:
        memory, outside = inputs.memory[0], ffi.new("float[6]")
        good("aclUpdateDataBuffer", inputs.buffers[0], outside, BYTES)
        assert execute(model, inputs, outputs) == FAILED
        assert "not in live memory" in error_text()
        good("aclUpdateDataBuffer", inputs.buffers[0], memory, BYTES)
    simulator.forget()


def test_failed_operator_puts_its_message_into_the_error_text() -> None:
    onnx = modelfiles.onnx_model([("Reshape", ["x", "s"], ["y"])], {"x": [2, 3], "s": [2]}, {"y": ["a", "b"]})
    onnx = with_int_input(onnx)
    parts = {
        0: modelfiles.tensors(Tensor("x", (2, 3)), Tensor("s", (2,), INT64)),
        1: modelfiles.tensors(Tensor("y", (2, 3))),
    }
    file = modelfiles.simulated(onnx, parts)
    with device(), loaded(file) as model, data(BYTES, 16) as inputs, data(BYTES) as outputs:
        stream = new_stream()
        inputs.write(0, NUMBERS)
        inputs.write(1, [0.0] * 4)
        ffi.cast("int64_t *", inputs.memory[1])[0] = 5
        assert execute_on(stream, model, inputs, outputs) == 0
        assert rc("aclrtSynchronizeStream", stream) == FAILED
        assert "onnxruntime" in error_text()
        good("aclrtDestroyStream", stream)


def with_int_input(onnx: bytes) -> bytes:
    """Makes the second input a tensor of int64."""
    from onnx import ModelProto, TensorProto  # onnx is optional

    model = ModelProto.FromString(onnx)
    model.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    return bytes(model.SerializeToString())


def test_execution_on_a_captured_stream_is_refused() -> None:
    with device(), loaded(modelfiles.doubling()) as model, data(BYTES) as inputs, data(BYTES) as outputs:
        stream, graph = new_stream(), ffi.new("aclmdlRI *")
        good("aclmdlRICaptureBegin", stream, 0)
        assert execute_on(stream, model, inputs, outputs) == 207000
        assert "does not capture executions of models" in error_text()
        good("aclmdlRICaptureEnd", stream, graph)
        good("aclmdlRIDestroy", graph[0])
        good("aclrtDestroyStream", stream)


def test_execution_of_a_queue_begins_when_the_execution_before_it_ends() -> None:
    with device(), loaded(modelfiles.doubling()) as model, data(BYTES) as inputs, data(BYTES) as outputs:
        stream = new_stream()
        simulator.set_virtual_clock(True)
        simulator.set_model_cost(base=1)
        inputs.write(0, NUMBERS)
        try:
            assert [execute_on(stream, model, inputs, outputs) for _ in range(3)] == [0, 0, 0]
            assert until_now(lambda: outputs.read(0) == TWICE)  # the first one has begun
            simulator.advance_clock(2)
            assert until_now(lambda: simulator.pending(stream) == 1)
            simulator.advance_clock(1)
            good("aclrtSynchronizeStream", stream)
        finally:
            simulator.set_model_cost()
            simulator.set_virtual_clock(False)
        good("aclrtDestroyStream", stream)


def test_cost_that_is_not_a_time_is_refused() -> None:
    for wrong in (-1, float("nan"), float("inf"), 1e30, "1"):
        with pytest.raises(ParameterError):
            simulator.set_model_cost(base=wrong)  # type: ignore[arg-type]  # the value of a wrong type is the test


def test_path_of_onnxruntime_must_be_absolute() -> None:
    for wrong in ("libonnxruntime.so", "", "/a\0b"):
        with pytest.raises(ParameterError):
            simulator.set_onnxruntime(wrong)


def test_load_of_an_onnx_model_that_onnxruntime_refuses_reports_the_reason() -> None:
    parts = {0: modelfiles.tensors(Tensor("x", (2, 3))), 1: modelfiles.tensors(Tensor("y", (2, 3)))}
    with device():
        assert load_code(modelfiles.simulated(b"nonsense", parts))[0] == CANNOT_LOAD
        assert "onnxruntime" in error_text()
        assert load_code(
            modelfiles.simulated(modelfiles.doubling_onnx(), {**parts, 0: modelfiles.tensors()})
        )[0] == (CANNOT_LOAD)
        assert "the description has 0 inputs" in error_text()
        assert load_code(b"\x08nonsense")[0] == CANNOT_LOAD


@pytest.mark.process
@pytest.mark.parametrize("path", ["/nonexistent/libonnxruntime.so", "relative.so"])
def test_load_without_onnxruntime_fails_and_names_the_remedy(path: str) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.simulator.modelcalls import error_text, load_code
from tests.simulator.rawacl import device
from tests.simulator.modelfiles import doubling
with device():
    print(load_code(doubling())[0], error_text())
"""
    variables = {"AIOACL_LIBRARY": "simulator", "AIOACL_SIM_ONNXRUNTIME": path}
    done = forkserver.run([sys.executable, "-c", code], env={**os.environ, **variables})
    assert done.stdout.startswith(f"{CANNOT_LOAD} "), done
    assert "AIOACL_SIM_ONNXRUNTIME" in done.stdout


def test_onnxruntime_can_be_set_again_after_it_was_loaded() -> None:
    simulator.set_onnxruntime()
    try:
        with device():
            with loaded(modelfiles.doubling()):
                simulator.set_onnxruntime("/nonexistent/libonnxruntime.so")  # no effect
            with loaded(modelfiles.doubling()):
                pass
    finally:
        simulator.set_onnxruntime()


@pytest.mark.process
def test_onnxruntime_collects_no_data_and_keeps_no_file_open(tmp_path: Path) -> None:
    code = f"""
import os
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.simulator.modelcalls import loaded
from tests.simulator.modelfiles import doubling
from tests.simulator.rawacl import device
with device():
    before = len(os.listdir("/proc/self/fd"))
    with loaded(doubling()):
        print(len(os.listdir("/proc/self/fd")) - before, os.environ.get("ORT_DISABLE_TELEMETRY"))
"""
    variables = {"AIOACL_LIBRARY": "simulator", "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    done = forkserver.run([sys.executable, "-c", code], env={**os.environ, **variables})
    assert done.stdout == "0 None\n", done
    assert list(tmp_path.iterdir()) == []
