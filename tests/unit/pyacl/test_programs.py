"""Programs with the sequences of calls of CANN's samples. Their outputs equal those of onnxruntime."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime  # pyright: ignore[reportMissingTypeStubs]
import pytest
from onnx import TensorProto, helper, numpy_helper

from aioacl._base.late import late
from tests.support.offline import converted
from tests.support.onnx_models import model, value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import onnx
    from numpy.typing import NDArray

    import aioacl.pyacl as acl
else:
    acl = late("aioacl.pyacl")

HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = range(4)
NORMAL_ONLY = 2  # ACL_MEM_MALLOC_NORMAL_ONLY
BLOCKING = 1
UNSUPPORTED = 200006
NO_BUNDLES, UNKNOWN_BUNDLE = 207000, 148053
CHANNELS, CLASSES = 3, 10
GEAR = "ascend_mbatch_shape_data"


def classifier(batch: int | str = 1, height: int | str = 16, width: int | str = 16) -> onnx.ModelProto:
    """A convolution, an average of the whole image and a matrix, with random weights: images to ten classes."""
    numbers = np.random.default_rng(7)
    weights = {
        "kernel": numbers.normal(size=(8, CHANNELS, 3, 3)),
        "matrix": numbers.normal(size=(8, CLASSES)),
        "bias": numbers.normal(size=(CLASSES,)),
    }
    return model(
        [
            helper.make_node("Conv", ["x", "kernel"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["r"]),
            helper.make_node("GlobalAveragePool", ["r"], ["g"]),
            helper.make_node("Flatten", ["g"], ["f"]),
            helper.make_node("Gemm", ["f", "matrix", "bias"], ["y"]),
        ],
        [value("x", [batch, CHANNELS, height, width])],
        [value("y", [batch, CLASSES])],
        [numpy_helper.from_array(each.astype(np.float32), name) for name, each in weights.items()],
    )


def images(count: int = 1, height: int = 16, width: int = 16, seed: int = 1) -> NDArray[np.float32]:
    numbers = np.random.default_rng(seed)
    return numbers.normal(size=(count, CHANNELS, height, width)).astype(np.float32)


def references(source: onnx.ModelProto, **inputs: NDArray[np.float32]) -> Any:
    """The outputs of onnxruntime."""
    session = onnxruntime.InferenceSession(source.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def reference(source: onnx.ModelProto, x: NDArray[np.float32]) -> Any:
    """The only output of onnxruntime."""
    [y] = references(source, x=x)
    return y


def check(code: int) -> None:
    assert code == 0, acl.get_recent_err_msg()


def made(result: tuple[Any, int]) -> Any:
    check(result[1])
    return result[0]


class Net:
    """A loaded model, with the memory and datasets of one execution."""

    def __init__(self, model_id: int) -> None:
        self.model = model_id
        self.desc = acl.mdl.create_desc()
        check(acl.mdl.get_desc(self.desc, self.model))
        sizes = acl.mdl.get_input_size_by_index, acl.mdl.get_output_size_by_index
        counts = acl.mdl.get_num_inputs(self.desc), acl.mdl.get_num_outputs(self.desc)
        self.inputs, self.outputs = (
            self.dataset([size(self.desc, index) for index in range(count)])
            for size, count in zip(sizes, counts, strict=True)
        )

    @staticmethod
    def dataset(sizes: list[int]) -> int:
        dataset = acl.mdl.create_dataset()
        for size in sizes:
            buffer = acl.create_data_buffer(made(acl.rt.malloc(size, NORMAL_ONLY)), size)
            assert acl.mdl.add_dataset_buffer(dataset, buffer) == (dataset, 0)
        return dataset

    def upload(self, x: NDArray[np.float32]) -> None:
        data = x.tobytes()
        address = acl.get_data_buffer_addr(acl.mdl.get_dataset_buffer(self.inputs, 0))
        check(acl.rt.memcpy(address, len(data), acl.util.bytes_to_ptr(data), len(data), HOST_TO_DEVICE))

    def result(self) -> NDArray[np.float32]:
        dims, code = acl.mdl.get_cur_output_dims(self.desc, 0)
        check(code)
        buffer = acl.mdl.get_dataset_buffer(self.outputs, 0)
        size = int(np.prod(dims["dims"])) * 4
        assert size <= acl.get_data_buffer_size_v2(buffer)
        host = made(acl.rt.malloc_host(size))
        check(acl.rt.memcpy(host, size, acl.get_data_buffer_addr(buffer), size, DEVICE_TO_HOST))
        data = acl.util.ptr_to_bytes(host, size)
        check(acl.rt.free_host(host))
        return np.frombuffer(data, np.float32).reshape(dims["dims"])

    def close(self) -> None:
        for dataset in (self.inputs, self.outputs):
            for index in range(acl.mdl.get_dataset_num_buffers(dataset)):
                buffer = acl.mdl.get_dataset_buffer(dataset, index)
                check(acl.rt.free(acl.get_data_buffer_addr(buffer)))
                check(acl.destroy_data_buffer(buffer))
            check(acl.mdl.destroy_dataset(dataset))
        check(acl.mdl.unload(self.model))
        check(acl.mdl.destroy_desc(self.desc))


@pytest.fixture(autouse=True)
def context() -> Iterator[int]:
    """A context that the program has made, as in the samples."""
    check(acl.rt.set_device(0))
    context = made(acl.rt.create_context(0))
    yield context
    check(acl.rt.destroy_context(context))
    check(acl.rt.reset_device(0))


def load(tmp_path: Path, data: bytes) -> Net:
    path = tmp_path / "model.om"
    path.write_bytes(data)
    return Net(made(acl.mdl.load_from_file(str(path))))


def test_copies_between_host_and_device() -> None:
    size = 1024
    free, total, code = acl.rt.get_mem_info(acl.ACL_HBM_MEM)
    check(code)
    assert 0 < free <= total
    host, device = made(acl.rt.malloc_host(size)), made(acl.rt.malloc(size, NORMAL_ONLY))
    check(acl.rt.memset(device, size, 1, size))
    data = bytes(range(256)) * 4
    check(acl.rt.memcpy(device, size, acl.util.bytes_to_ptr(data), size, HOST_TO_DEVICE))
    check(acl.rt.memcpy(host, size, device, size, DEVICE_TO_HOST))
    assert acl.util.ptr_to_bytes(host, size) == data
    with pytest.warns(Warning, match="ptr_to_numpy will be deprecated"):
        array = acl.util.ptr_to_numpy(host, (4, 256), np.dtype(np.uint8).num)
    assert (array == np.arange(256)).all()
    with pytest.warns(Warning, match="numpy_to_ptr will be deprecated"):
        assert acl.util.numpy_to_ptr(array) == host
    check(acl.rt.free(device))
    check(acl.rt.free_host(host))


def test_asynchronous_copies_with_memory_of_the_image_unit() -> None:
    size, stream = 1024, made(acl.rt.create_stream())
    host, back = made(acl.rt.malloc_host(size)), made(acl.rt.malloc_host(size))
    device = made(acl.media.dvpp_malloc(size))
    check(acl.rt.memset_async(host, size, 7, size, stream))  # host memory: the sample of CANN does so
    check(acl.rt.synchronize_stream(stream))
    check(acl.rt.memcpy_async(device, size, host, size, HOST_TO_DEVICE, stream))
    check(acl.rt.memcpy_async(back, size, device, size, DEVICE_TO_HOST, stream))
    check(acl.rt.synchronize_stream(stream))
    for address, kind in ((host, HOST_TO_HOST), (host, DEVICE_TO_HOST), (back, HOST_TO_HOST)):
        data = bytes(size)
        check(acl.rt.memcpy(acl.util.bytes_to_ptr(data), size, address, size, kind))
        assert data == bytes([7]) * size
    check(acl.media.dvpp_free(device))
    for each in (host, back):
        check(acl.rt.free_host(each))
    check(acl.rt.destroy_stream(stream))


def test_synchronous_classification(tmp_path: Path) -> None:
    source, x = classifier(), images()
    net = load(tmp_path, converted(source))
    assert acl.mdl.get_input_dims(net.desc, 0) == ({"name": "x", "dimCount": 4, "dims": [1, 3, 16, 16]}, 0)
    assert acl.mdl.get_output_data_type(net.desc, 0) == acl.ACL_FLOAT
    net.upload(x)
    check(acl.mdl.execute(net.model, net.inputs, net.outputs))
    np.testing.assert_allclose(net.result(), reference(source, x), rtol=1e-5, atol=1e-5)
    net.close()


def test_classification_that_leaves_its_stream_and_memory_to_the_reset(tmp_path: Path) -> None:
    source = classifier()
    made(acl.rt.create_stream())
    net = load(tmp_path, converted(source))
    size = acl.get_data_buffer_size(acl.mdl.get_dataset_buffer(net.inputs, 0))
    assert size == images().nbytes
    for seed in range(2):  # one set of memory for all images
        x = images(seed=seed)
        net.upload(x)
        check(acl.mdl.execute(net.model, net.inputs, net.outputs))
        np.testing.assert_allclose(net.result(), reference(source, x), rtol=1e-5, atol=1e-5)
    for dataset in (net.inputs, net.outputs):
        check(acl.destroy_data_buffer(acl.mdl.get_dataset_buffer(dataset, 0)))
        check(acl.mdl.destroy_dataset(dataset))
    check(acl.mdl.unload(net.model))
    check(acl.mdl.destroy_desc(net.desc))


def several_types() -> onnx.ModelProto:
    """Two inputs, and an output of each of four types."""
    return model(
        [
            helper.make_node("Add", ["x", "z"], ["sum"]),
            helper.make_node("ArgMax", ["x"], ["place"], axis=1, keepdims=0),
            helper.make_node("Cast", ["x"], ["half"], to=TensorProto.FLOAT16),
            helper.make_node("Greater", ["x", "z"], ["more"]),
        ],
        [value("x", [2, 8]), value("z", [2, 8])],
        [
            value("sum", [2, 8]),
            value("place", [2], TensorProto.INT64),
            value("half", [2, 8], TensorProto.FLOAT16),
            value("more", [2, 8], TensorProto.BOOL),
        ],
    )


@pytest.mark.parametrize(
    ("upload", "download"),
    [
        pytest.param(HOST_TO_DEVICE, DEVICE_TO_HOST, id="host"),
        pytest.param(DEVICE_TO_DEVICE, DEVICE_TO_DEVICE, id="written-for-a-board-without-host"),
    ],
)
def test_outputs_of_several_types(tmp_path: Path, upload: int, download: int) -> None:
    source, numbers = several_types(), np.random.default_rng(5)
    given = {name: numbers.normal(size=(2, 8)).astype(np.float32) for name in ("x", "z")}
    net = load(tmp_path, converted(source))
    for index, x in enumerate(given.values()):
        data = x.tobytes()
        address = acl.get_data_buffer_addr(acl.mdl.get_dataset_buffer(net.inputs, index))
        check(acl.rt.memcpy(address, len(data), acl.util.bytes_to_ptr(data), len(data), upload))
    check(acl.mdl.execute(net.model, net.inputs, net.outputs))
    kinds = [acl.ACL_FLOAT, acl.ACL_INT64, acl.ACL_FLOAT16, acl.ACL_BOOL]
    for index, (kind, wanted) in enumerate(zip(kinds, references(source, **given), strict=True)):
        assert acl.mdl.get_output_data_type(net.desc, index) == kind
        dims = made(acl.mdl.get_output_dims(net.desc, index))["dims"]
        buffer = acl.mdl.get_dataset_buffer(net.outputs, index)
        size, data = acl.get_data_buffer_size(buffer), bytes(wanted.nbytes)
        address = acl.get_data_buffer_addr(buffer)
        check(acl.rt.memcpy(acl.util.bytes_to_ptr(data), len(data), address, size, download))
        np.testing.assert_array_equal(np.frombuffer(data, wanted.dtype).reshape(dims), wanted)
    net.close()


def test_asynchronous_classification_with_callbacks(tmp_path: Path, context: int) -> None:
    source, xs = classifier(), [images(seed=seed) for seed in range(4)]
    stream = made(acl.rt.create_stream())
    net, ends = load(tmp_path, converted(source)), threading.Event()
    inputs = [net.inputs, *(net.dataset([images().nbytes]) for _ in xs[1:])]
    results: list[NDArray[np.float32]] = []

    def process(arguments: Any) -> None:
        given, timeout = arguments
        acl.rt.set_context(given)
        while not ends.is_set():
            acl.rt.process_report(timeout)

    thread = made(acl.util.start_thread(process, [context, 50]))
    check(acl.rt.subscribe_report(thread, stream))
    for dataset, x in zip(inputs, xs, strict=True):
        net.inputs = dataset
        net.upload(x)
        check(acl.mdl.execute_async(net.model, dataset, net.outputs, stream))
        check(acl.rt.launch_callback(lambda kept: kept.append(net.result()), results, BLOCKING, stream))
    check(acl.rt.synchronize_stream(stream))
    check(acl.rt.unsubscribe_report(thread, stream))
    ends.set()
    check(acl.util.stop_thread(thread))
    for x, y in zip(xs, results, strict=True):
        np.testing.assert_allclose(y, reference(source, x), rtol=1e-5, atol=1e-5)
    for dataset in inputs[:-1]:
        buffer = acl.mdl.get_dataset_buffer(dataset, 0)
        check(acl.rt.free(acl.get_data_buffer_addr(buffer)))
        check(acl.destroy_data_buffer(buffer))
        check(acl.mdl.destroy_dataset(dataset))
    net.close()
    check(acl.rt.destroy_stream(stream))


def test_gears_of_image_sizes(tmp_path: Path) -> None:
    source = classifier(1, "H", "W")
    sizes = [[16, 16], [32, 24]]
    net = load(
        tmp_path,
        converted(source, input_format="NCHW", input_shape="x:1,3,-1,-1", dynamic_image_size="16,16;32,24"),
    )
    index = made(acl.mdl.get_input_index_by_name(net.desc, GEAR))
    assert acl.mdl.get_dynamic_hw(net.desc, index) == ({"hwCount": 2, "hw": sizes}, 0)
    for height, width in sizes:
        x = images(1, height, width)
        net.upload(x)
        check(acl.mdl.set_dynamic_hw_size(net.model, net.inputs, index, height, width))
        check(acl.mdl.execute(net.model, net.inputs, net.outputs))
        np.testing.assert_allclose(net.result(), reference(source, x), rtol=1e-5, atol=1e-5)
    assert acl.mdl.set_dynamic_hw_size(net.model, net.inputs, index, 7, 7) != 0
    net.close()


def test_gears_of_batches_of_a_model_in_memory() -> None:
    source = classifier("N")
    data = converted(source, input_shape="x:-1,3,16,16", dynamic_batch_size="1,4")
    net = Net(made(acl.mdl.load_from_mem(acl.util.bytes_to_ptr(data), len(data))))
    index = made(acl.mdl.get_input_index_by_name(net.desc, GEAR))
    assert acl.mdl.get_dynamic_batch(net.desc) == ({"batchCount": 2, "batch": [1, 4]}, 0)
    for batch in (1, 4):
        x = images(batch)
        net.upload(x)
        check(acl.mdl.set_dynamic_batch_size(net.model, net.inputs, index, batch))
        check(acl.mdl.execute(net.model, net.inputs, net.outputs))
        np.testing.assert_allclose(net.result(), reference(source, x), rtol=1e-5, atol=1e-5)
    net.close()


def test_gears_of_dims(tmp_path: Path) -> None:
    source = classifier("N", "H", "W")
    net = load(
        tmp_path,
        converted(source, input_format="ND", input_shape="x:-1,3,-1,-1", dynamic_dims="1,8,8;2,16,8"),
    )
    index = made(acl.mdl.get_input_index_by_name(net.desc, GEAR))
    every = (1 << 64) - 1  # the index that CANN requires for the gears of all inputs
    count = made(acl.mdl.get_input_dynamic_gear_count(net.desc, every))
    gears, code = acl.mdl.get_input_dynamic_dims(net.desc, every, count)
    check(code)
    assert gears is not None
    assert [each["dims"][:4] for each in gears] == [[1, 3, 8, 8], [2, 3, 16, 8]]
    assert list(acl.mdl.get_input_dynamic_dims(net.desc, every, 5000)) == [None, 100000]
    for gear in gears:
        batch, _, height, width = gear["dims"][:4]
        x = images(batch, height, width)
        net.upload(x)
        check(acl.mdl.set_input_dynamic_dims(net.model, net.inputs, index, gear))
        check(acl.mdl.execute(net.model, net.inputs, net.outputs))
        np.testing.assert_allclose(net.result(), reference(source, x), rtol=1e-5, atol=1e-5)
    net.close()


@pytest.mark.filterwarnings("ignore::aioacl.AclWarning")
def test_single_operator_ends_with_unsupported() -> None:
    assert acl.op.set_model_dir("op_models") == UNSUPPORTED
    desc = acl.create_tensor_desc(acl.ACL_FLOAT, [8, 16], acl.ACL_FORMAT_ND)
    size = acl.get_tensor_desc_size(desc)
    assert size == 8 * 16 * 4
    memory = made(acl.rt.malloc(size, NORMAL_ONLY))
    buffer = acl.create_data_buffer(memory, size)
    attribute = acl.op.create_attr()
    code = acl.op.execute_v2("Add", [desc, desc], [buffer, buffer], [desc], [buffer], attribute, 0)
    assert code == UNSUPPORTED
    acl.op.destroy_attr(attribute)
    check(acl.destroy_data_buffer(buffer))
    check(acl.rt.free(memory))
    acl.destroy_tensor_desc(desc)


@pytest.mark.filterwarnings("ignore::aioacl.AclWarning")
def test_single_operator_with_a_handle_ends_with_unsupported_although_no_code_is_checked() -> None:
    attribute = acl.op.create_attr()
    desc = acl.create_tensor_desc(acl.ACL_FLOAT16, [600, 30], acl.ACL_FORMAT_ND)
    handle, code = acl.op.create_handle("Slice", [desc], [desc], attribute)
    assert code == UNSUPPORTED
    assert acl.op.execute_with_handle(handle, [0], [0], 0) == UNSUPPORTED
    check(acl.rt.synchronize_stream(0))
    acl.op.destroy_handle(handle)
    acl.op.destroy_attr(attribute)
    acl.destroy_tensor_desc(desc)


def test_bundle_ends_with_unsupported(tmp_path: Path) -> None:
    path = tmp_path / "bundle.om"
    path.write_bytes(converted(classifier()))
    bundle, code = acl.mdl.bundle_load_from_file(str(path))
    assert code == NO_BUNDLES
    assert acl.mdl.bundle_unload(bundle) == UNKNOWN_BUNDLE
