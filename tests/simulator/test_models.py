"""Offline models without onnxruntime: descriptions, loads, gears and codes of genuine files, and damaged files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aioacl import simulator
from aioacl._base.ffi import ffi
from aioacl._library import runtime
from tests.simulator import modelfiles
from tests.simulator.modelcalls import data, described, error_text, load_code, loaded, new, value, words
from tests.simulator.modelfiles import GEAR_INPUT, INT64, Tensor
from tests.simulator.rawacl import DEVICE, device, good, made, new_memory, rc

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NULL, NO_CONTEXT, NO_FILE, NO_MODEL, DAMAGED = 100000, 107002, 145002, 145003, 145006
WRONG, NO_GEAR, ENDED, UNSUPPORTED = 145000, 145013, 107017, 207000
LONG = "n" * 200
UNKNOWN_GEAR_ADDRESS, GEAR_TOO_SHORT = 145011, 145012
ANY = (1 << 64) - 1


pytestmark = pytest.mark.usefixtures("models")


def batched() -> bytes:
    inputs = modelfiles.tensors(Tensor("x", (-1, 3), size=48), Tensor(GEAR_INPUT, (1,), INT64))
    outputs = modelfiles.tensors(Tensor("y", (-1, 3), size=48))
    description = modelfiles.description(
        {0: inputs, 1: outputs, 2: modelfiles.batches(1, 2, 4), 5: modelfiles.texts("0,0,1,3", "2,0,4,3")}
    )
    return modelfiles.container({modelfiles.DESCRIPTION: description})


def geared(kind: int, dims: tuple[int, ...], *gears: tuple[int, ...]) -> bytes:
    """A model with one input and gears of images (3) or of dimensions (4)."""
    inputs = modelfiles.tensors(Tensor("x", dims, size=400), Tensor(GEAR_INPUT, (len(gears[0]),), INT64))
    parts = {0: inputs, 1: modelfiles.tensors(Tensor("y", dims, size=400)), kind: modelfiles.gears(*gears)}
    return modelfiles.container({modelfiles.DESCRIPTION: modelfiles.description(parts)})


def dims_of(function: str, desc: Any, index: int) -> tuple[str, list[int]]:
    dims = new("aclmdlIODims *")
    good(function, desc, index, dims)
    return ffi.string(dims.name).decode(), list(dims.dims[0 : dims.dimCount])


@pytest.mark.parametrize("wide", [True, False])
def test_description_of_a_genuine_file_has_its_tensors(wide: bool) -> None:
    runtime.load()
    with described(modelfiles.genuine(wide=wide)) as desc:
        assert value("aclmdlGetNumInputs", desc) == value("aclmdlGetNumOutputs", desc) == 1
        assert (
            value("aclmdlGetInputSizeByIndex", desc, 0) == value("aclmdlGetOutputSizeByIndex", desc, 0) == 24
        )
        assert ffi.string(value("aclmdlGetInputNameByIndex", desc, 0)) == b"x"
        assert ffi.string(value("aclmdlGetOutputNameByIndex", desc, 0)) == b"y"
        assert dims_of("aclmdlGetInputDims", desc, 0) == ("x", [2, 3])
        assert dims_of("aclmdlGetOutputDims", desc, 0) == ("y", [2, 3])
        assert dims_of("aclmdlGetCurOutputDims", desc, 0) == ("y", [2, 3])
        assert value("aclmdlGetInputDataType", desc, 0) == value("aclmdlGetOutputDataType", desc, 0) == 0
        assert value("aclmdlGetInputFormat", desc, 0) == value("aclmdlGetOutputFormat", desc, 0) == 2
        place = new("size_t *", 7)
        good("aclmdlGetInputIndexByName", desc, b"x", place)
        assert place[0] == 0
        assert rc("aclmdlGetOutputIndexByName", desc, b"x", place) == NULL


def test_description_out_of_bounds_returns_empty_values() -> None:
    runtime.load()
    with described(modelfiles.genuine()) as desc:
        dims = new("aclmdlIODims *")
        assert value("aclmdlGetInputSizeByIndex", desc, 1) == 0
        assert ffi.string(value("aclmdlGetInputNameByIndex", desc, 1)) == b""
        assert value("aclmdlGetOutputDataType", desc, 1) == value("aclmdlGetOutputFormat", desc, 1) == -1
        assert rc("aclmdlGetInputDims", desc, 1, dims) == NULL
    empty = value("aclmdlCreateDesc")
    assert value("aclmdlGetNumInputs", empty) == 0
    assert rc("aclmdlGetInputDims", empty, 0, dims) == NULL
    good("aclmdlDestroyDesc", empty)
    assert rc("aclmdlDestroyDesc", ffi.NULL) == NULL
    assert simulator.violations() == []
    assert value("aclmdlGetNumInputs", empty) == 0
    (violation,) = simulator.violations()
    assert "expected a live handle of kind model description" in violation
    simulator.forget()


def test_second_dimensions_ranges_and_long_names_are_read() -> None:
    tensor = Tensor(LONG, (-1, 4), second_dims=(8, 4), ranges=((1, 9), (4, 4)))
    parts = {0: modelfiles.tensors(tensor, Tensor("b", (-1, 5))), 1: modelfiles.tensors(Tensor("y", ()))}
    file = modelfiles.container({modelfiles.DESCRIPTION: modelfiles.description(parts)}, dynamic=True)
    runtime.load()
    with described(file) as desc:
        alias = "acl_modelId_0_input_0"
        assert dims_of("aclmdlGetInputDimsV2", desc, 0) == (alias, [8, 4])
        assert dims_of("aclmdlGetInputDimsV2", desc, 1) == ("b", [-1, 5])
        assert ffi.string(value("aclmdlGetTensorRealName", desc, alias.encode())).decode() == LONG
        assert ffi.string(value("aclmdlGetTensorRealName", desc, b"b")) == b"b"
        assert value("aclmdlGetTensorRealName", desc, b"c") == ffi.NULL
        ranges = new("aclmdlIODimsRange *")
        good("aclmdlGetInputDimsRange", desc, 0, ranges)
        assert [list(pair) for pair in ranges.range[0 : ranges.rangeCount]] == [[1, 9], [4, 4]]
        good("aclmdlGetInputDimsRange", desc, 1, ranges)
        assert [list(pair) for pair in ranges.range[0 : ranges.rangeCount]] == [[0, -1], [5, 5]]
        dims = new("aclmdlIODims *")
        assert rc("aclmdlGetCurOutputDims", desc, 0, dims) == 200001
        assert ffi.string(value("aclmdlGetOpAttr", desc, b"op", b"_datadump_original_op_names")) == b""
        assert value("aclmdlGetOpAttr", desc, b"op", b"other") == ffi.NULL


def test_sizes_of_a_file_are_its_weights_and_its_tensors(tmp_path: Path) -> None:
    path = tmp_path / "model.om"
    path.write_bytes(modelfiles.genuine())
    work, weights = new("size_t *"), new("size_t *")
    runtime.load()
    good("aclmdlQuerySize", bytes(path), work, weights)
    assert (work[0], weights[0]) == (1024, 100)
    file = modelfiles.genuine()
    good("aclmdlQuerySizeFromMem", file, len(file), work, weights)
    assert (work[0], weights[0]) == (1024, 100)
    assert rc("aclmdlQuerySize", ffi.NULL, work, weights) == NULL
    assert rc("aclmdlQuerySizeFromMem", file, 0, work, weights) == NULL


def test_load_takes_memory_and_unload_returns_it() -> None:
    with device():
        before = simulator.stats().device_bytes
        with loaded(modelfiles.genuine()) as model, described(model) as desc:
            assert simulator.stats().device_bytes == before + 1124
            assert simulator.stats().offline_models == 1
            assert dims_of("aclmdlGetInputDims", desc, 0) == ("x", [2, 3])
        assert simulator.stats().device_bytes == before
        assert rc("aclmdlUnload", model) == NO_MODEL
        assert str(model) in error_text()


def test_load_uses_the_memory_of_the_client() -> None:
    file, place = modelfiles.genuine(), new("uint32_t *")
    with device():
        work, weights = new_memory(1024), new_memory(100)
        before = simulator.stats().device_bytes
        good("aclmdlLoadFromMemWithMem", file, len(file), place, work, 1024, weights, 100)
        assert simulator.stats().device_bytes == before
        good("aclmdlUnload", place[0])
        assert rc("aclmdlLoadFromMemWithMem", file, len(file), place, work, 1023, weights, 100) == WRONG
        assert rc("aclmdlLoadFromMemWithMem", file, len(file), place, work, 1024, weights, 99) == WRONG
        assert rc("aclmdlLoadFromMemWithMem", file, len(file), place, file, 1024, ffi.NULL, 0) == 145007
        good("aclrtFree", work)
        good("aclrtFree", weights)


def test_load_without_memory_fails_and_leaves_nothing() -> None:
    with device():
        before = simulator.stats()
        simulator.set_limits("mem=1000")
        try:
            assert load_code(modelfiles.genuine())[0] == 245000
        finally:
            simulator.set_limits()
        assert simulator.stats().offline_models == 0
        assert simulator.stats().device_bytes == before.device_bytes


def test_load_with_a_configuration_takes_its_options(tmp_path: Path) -> None:
    path = tmp_path / "model.om"
    path.write_bytes(modelfiles.genuine())
    place = new("uint32_t *")
    with device():
        config = value("aclmdlCreateConfigHandle")
        text = new("char[]", bytes(path))

        def set_option(attribute: int, kind: str, what: Any, size: int = 8) -> int:
            return rc("aclmdlSetConfigOpt", config, attribute, new(f"{kind} *", what), size)

        assert rc("aclmdlLoadWithConfig", config, place) == NULL
        assert set_option(1, "size_t", 1) == 0
        assert rc("aclmdlLoadWithConfig", config, place) == NULL
        assert set_option(2, "char *", text, 4) == NULL
        assert set_option(2, "char *", text) == 0
        good("aclmdlLoadWithConfig", config, place)
        good("aclmdlUnload", place[0])
        assert set_option(1, "size_t", 7) == NULL
        good("aclmdlLoadWithConfig", config, place)
        good("aclmdlUnload", place[0])
        queues = new("uint32_t[2]")
        assert set_option(1, "size_t", 5) == 0
        for number, address in ((9, 10), (11, 12)):
            assert rc("aclmdlLoadWithConfig", config, place) == NULL
            assert set_option(number, "size_t", 2) == 0
            assert set_option(address, "uint32_t *", queues) == 0
        assert rc("aclmdlLoadWithConfig", config, place) == UNSUPPORTED
        assert set_option(60000, "size_t", 7) == NULL
        good("aclmdlDestroyConfigHandle", config)


def test_attributes_and_aipp_of_a_loaded_model() -> None:
    with device(), loaded(modelfiles.genuine()) as model:
        attribute = new("aclmdlAttrValue_t *", {"mdlPriority": 3})
        good("aclmdlSetAttribute", model, 0, attribute)
        attribute.mdlPriority = 0
        good("aclmdlGetAttribute", model, 0, attribute)
        assert attribute.mdlPriority == 3
        attribute.mdlPriority = 8
        assert rc("aclmdlSetAttribute", model, 0, attribute) == NULL
        kind, attached = new("aclmdlInputAippType *"), new("size_t *")
        good("aclmdlGetAippType", model, 0, kind, attached)
        assert (kind[0], attached[0]) == (0, 0xFFFFFFFF)
        assert rc("aclmdlGetAippType", model, 1, kind, attached) == WRONG
        assert rc("aclmdlGetFirstAippInfo", model, 0, new("aclAippInfo *")) == 100038


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda file: b"XXXX" + file[4:], "header of a model"),
        (lambda file: file[:-1], "truncated"),
        (lambda file: file + b"x", "truncated"),
        (lambda file: file[:100], "header of a model"),
        (lambda file: file[:4] + b"\xff" + file[5:], "header of a model"),
        (lambda file: file[:156] + b"\xff" + file[157:], "the file has more"),
        (lambda file: file[:187] + b"\xff" + file[188:], "truncated"),
        (lambda file: file[:256] + b"\xff" * 4 + file[260:], "partition table"),
        (lambda file: file[:272] + b"\xff" * 8 + file[280:], "partition ends outside"),
    ],
)
def test_load_of_a_damaged_file_is_refused_with_a_reason(
    change: Callable[[bytes], bytes], part: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.om"
    path.write_bytes(change(modelfiles.genuine()))
    with device():
        assert load_code(path) == (DAMAGED, 0)
        assert part in error_text()
        assert load_code(change(modelfiles.genuine()))[0] == DAMAGED
        assert simulator.violations() == []


def test_load_of_a_simulated_model_with_a_wrong_digest_is_refused() -> None:
    parts = {0: modelfiles.tensors(), 1: modelfiles.tensors()}
    file = modelfiles.simulated(b"onnx", parts)
    with device():
        assert load_code(file[:-1] + b"X")[0] == DAMAGED
        assert "SHA-256" in error_text()
        assert load_code(modelfiles.container({modelfiles.DESCRIPTION: b""}, simulated=True))[0] == DAMAGED
        assert "needs a description and an ONNX model" in error_text()


def test_load_refuses_missing_files_and_arguments(tmp_path: Path) -> None:
    place, file = new("uint32_t *"), modelfiles.genuine()
    runtime.load()
    assert load_code(file)[0] == NO_CONTEXT
    with device():
        assert load_code(tmp_path / "missing.om")[0] == NO_FILE
        assert load_code(tmp_path)[0] == NO_FILE
        (tmp_path / "empty.om").touch()
        assert load_code(tmp_path / "empty.om")[0] == DAMAGED
        assert rc("aclmdlLoadFromFile", ffi.NULL, place) == NULL
        assert rc("aclmdlLoadFromMem", ffi.NULL, 1, place) == NULL
        assert rc("aclmdlLoadFromMem", file, 0, place) == NULL
        assert rc("aclmdlLoadFromMem", file, len(file), ffi.NULL) == NULL
        assert rc("aclmdlGetDesc", ffi.NULL, 1) == NULL
        with described(file) as desc:
            assert rc("aclmdlGetDesc", desc, 12345) == NO_MODEL


def test_file_without_a_description_loads_and_is_not_described() -> None:
    file = modelfiles.container({1: b"weights"})
    with device(), loaded(file) as model:
        desc = value("aclmdlCreateDesc")
        assert rc("aclmdlGetDesc", desc, model) == 500002
        assert "no description" in error_text()
        good("aclmdlDestroyDesc", desc)


def test_execution_of_a_genuine_model_reports_that_it_has_no_onnx_model() -> None:
    with device(), loaded(modelfiles.genuine()) as model, data(24) as inputs, data(24) as outputs:
        assert rc("aclmdlExecute", model, inputs.dataset, outputs.dataset) == UNSUPPORTED
        assert "simulator atc" in error_text()


def test_dataset_holds_buffers_and_copies_of_descriptions() -> None:
    runtime.load()
    before = simulator.stats().descriptions
    dataset = value("aclmdlCreateDataset")
    buffers = [value("aclCreateDataBuffer", ffi.NULL, 0) for _ in range(9)]
    for buffer in buffers:
        good("aclmdlAddDatasetBuffer", dataset, buffer)
    assert value("aclmdlGetDatasetNumBuffers", dataset) == 9
    assert value("aclmdlGetDatasetBuffer", dataset, 8) == buffers[8]
    assert value("aclmdlGetDatasetBuffer", dataset, 9) == ffi.NULL
    desc = value("aclCreateTensorDesc", 0, 2, [4, 5], 2)
    value("aclSetTensorDescName", desc, b"name")
    good("aclmdlSetDatasetTensorDesc", dataset, desc, 3)
    assert rc("aclmdlSetDatasetTensorDesc", dataset, desc, 9) == NULL
    value("aclDestroyTensorDesc", desc)
    copy = value("aclmdlGetDatasetTensorDesc", dataset, 3)
    assert ffi.string(value("aclGetTensorDescName", copy)) == b"name"
    assert value("aclGetTensorDescElementCount", copy) == 20
    good("aclmdlSetDatasetTensorDesc", dataset, ffi.NULL, 3)
    assert value("aclmdlGetDatasetTensorDesc", dataset, 3) == ffi.NULL
    good("aclmdlDestroyDataset", dataset)
    for buffer in buffers:
        good("aclDestroyDataBuffer", buffer)
    assert simulator.stats().descriptions == before
    assert rc("aclmdlAddDatasetBuffer", ffi.NULL, ffi.NULL) == NULL
    assert value("aclmdlGetDatasetNumBuffers", ffi.NULL) == 0


def test_batch_gears_are_listed_and_written_at_once() -> None:
    gears = new("aclmdlBatch *")
    with device(), loaded(batched()) as model, described(model) as desc, data(48, 8) as inputs:
        good("aclmdlGetDynamicBatch", desc, gears)
        assert list(gears.batch[0 : gears.batchCount]) == [1, 2, 4]
        assert dims_of("aclmdlGetCurOutputDims", desc, 0)[1] == [-1, 3]
        good("aclmdlSetDynamicBatchSize", model, inputs.dataset, 1, 4)
        assert bytes(ffi.buffer(inputs.memory[1], 8)) == (4).to_bytes(8, "little")
        assert dims_of("aclmdlGetCurOutputDims", desc, 0)[1] == [4, 3]
        assert rc("aclmdlSetDynamicBatchSize", model, inputs.dataset, 1, 3) == NO_GEAR
        assert rc("aclmdlSetDynamicBatchSize", model, inputs.dataset, 1, 0) == NULL
        assert rc("aclmdlSetDynamicBatchSize", model, inputs.dataset, 0, 4) == NULL
        assert rc("aclmdlSetDynamicBatchSize", model + 1, inputs.dataset, 1, 4) == NO_MODEL
        assert rc("aclmdlSetDynamicHWSize", model, inputs.dataset, 1, 4, 4) == NO_GEAR
        good("aclmdlGetDynamicHW", desc, ANY, new("aclmdlHW *"))


def test_gear_needs_a_live_buffer_that_is_large_enough() -> None:
    with device(), loaded(batched()) as model, data(48, 4) as narrow, data(48, 0) as absent:
        good("aclmdlSetDynamicBatchSize", model, narrow.dataset, 1, 2)
        assert bytes(ffi.buffer(narrow.memory[1], 4)) == (2).to_bytes(4, "little")
        assert rc("aclmdlSetDynamicBatchSize", model, absent.dataset, 1, 2) == UNKNOWN_GEAR_ADDRESS
        good("aclUpdateDataBuffer", narrow.buffers[1], narrow.memory[1], 3)
        assert rc("aclmdlSetDynamicBatchSize", model, narrow.dataset, 1, 2) == GEAR_TOO_SHORT
    with device(), loaded(modelfiles.genuine()) as model, data(24, 8) as inputs:
        assert rc("aclmdlSetDynamicBatchSize", model, inputs.dataset, 1, 2) == NO_GEAR
        assert "has no gears" in error_text()


def test_image_gears_are_listed_and_written_at_once() -> None:
    sizes = new("aclmdlHW *")
    file = geared(3, (1, -1, -1, 3), (4, 5), (6, 7))
    with device(), loaded(file) as model, described(model) as desc, data(400, 16) as inputs:
        good("aclmdlGetDynamicHW", desc, 0, sizes)
        assert [list(size) for size in sizes.hw[0 : sizes.hwCount]] == [[4, 5], [6, 7]]
        good("aclmdlSetDynamicHWSize", model, inputs.dataset, 1, 6, 7)
        assert words(inputs.memory[1], 2) == (6, 7)
        assert rc("aclmdlSetDynamicHWSize", model, inputs.dataset, 1, 7, 6) == NO_GEAR


def test_gears_of_dimensions_are_listed_with_all_dimensions() -> None:
    count, dims = new("size_t *"), new("aclmdlIODims[2]")
    file = geared(4, (-1, 3, -1), (1, 5), (2, 7))
    with device(), loaded(file) as model, described(model) as desc, data(400, 16) as inputs:
        good("aclmdlGetInputDynamicGearCount", desc, ANY, count)
        assert count[0] == 2
        assert rc("aclmdlGetInputDynamicGearCount", desc, 0, count) == NULL
        assert rc("aclmdlGetInputDynamicDims", desc, ANY, dims, 1) == NULL
        good("aclmdlGetInputDynamicDims", desc, ANY, dims, 2)
        assert [list(one.dims[0 : one.dimCount]) for one in dims] == [[1, 3, 5], [2, 3, 7]]
        good("aclmdlSetInputDynamicDims", model, inputs.dataset, 1, dims + 1)
        assert words(inputs.memory[1], 2) == (2, 7)
        dims[0].dims[1] = 4
        assert rc("aclmdlSetInputDynamicDims", model, inputs.dataset, 1, dims) == NO_GEAR
        dims[0].dimCount = 2
        assert rc("aclmdlSetInputDynamicDims", model, inputs.dataset, 1, dims) == WRONG


def test_unload_in_another_context_is_noted() -> None:
    with device():
        _, model = load_code(modelfiles.genuine())
        context = made("aclrtCreateContext", "aclrtContext", DEVICE)
        good("aclmdlUnload", model)
        (violation,) = simulator.violations()
        assert f"uses model {model} in context" in violation
        good("aclrtDestroyContext", context)
    simulator.forget()
