"""The simulated atc: what it writes for models of all kinds, and what it refuses."""

from __future__ import annotations

import os
import random
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from aioacl._base.container import SHAPE_DATA
from aioacl._base.dtypes import FROM_ONNX, size_of, type_name
from aioacl.simulator._atc import Options, convert
from aioacl.simulator._om import BadModel, Description, Model, Tensor, read
from aioacl.simulator._onnx_child import Unanswered

pytest.importorskip("onnx", reason="atc needs the package onnx: pip install 'aioacl[onnx]'")

import onnx
from onnx import TensorProto, helper

from tests.support import onnx_models as made

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FLOAT, INT64 = 0, 9
NCHW, ND = 0, 2
DAMAGED = 300


@pytest.fixture
def converted(tmp_path: Path) -> Callable[..., Model]:
    def convert_and_read(source: onnx.ModelProto | bytes, **options: Any) -> Model:
        path = tmp_path / "m.onnx"
        path.write_bytes(source if isinstance(source, bytes) else source.SerializeToString())
        return read(convert(path, Options(**options), "m"))

    return convert_and_read


@pytest.fixture
def refusal(converted: Callable[..., Model]) -> Callable[..., str]:
    def message(source: onnx.ModelProto | bytes, **options: Any) -> str:
        with pytest.raises(BadModel) as caught:
            converted(source, **options)
        text = str(caught.value)
        assert "expected " in text
        assert ", got" in text
        assert "; " in text
        return text

    return message


def description(model: Model) -> Description:
    assert model.description is not None
    return model.description


class TestShapes:
    def test_static_model_is_described_and_kept_byte_for_byte(self, converted: Callable[..., Model]) -> None:
        source = made.linear(batch=8)
        model = converted(source)
        assert model.onnx == source.SerializeToString()
        assert model.name == "m"
        assert model.description == Description(
            (Tensor("x", FLOAT, ND, (8, 64), 2048),), (Tensor("y", FLOAT, ND, (8, 10), 320),)
        )

    def test_input_shape_gives_symbols_their_values(self, converted: Callable[..., Model]) -> None:
        found = description(converted(made.linear(), input_shape="x:3,64"))
        assert found.inputs == (Tensor("x", FLOAT, ND, (3, 64), 768),)
        assert found.outputs == (Tensor("y", FLOAT, ND, (3, 10), 120),)

    def test_unknown_rank_is_given_by_input_shape(self, converted: Callable[..., Model]) -> None:
        found = description(converted(made.relu(None, None), input_shape="x:2,3"))
        assert found.outputs[0].shape == (2, 3)

    def test_scalar_and_empty_tensors_have_their_sizes(self, converted: Callable[..., Model]) -> None:
        assert description(converted(made.relu([], []))).outputs == (Tensor("y", FLOAT, ND, (), 4),)
        assert description(converted(made.relu([0, 3], [0, 3]))).inputs == (
            Tensor("x", FLOAT, ND, (0, 3), 0),
        )

    @pytest.mark.process
    def test_stated_symbol_replaces_a_dimension_that_is_not_inferred(
        self, converted: Callable[..., Model]
    ) -> None:
        node = helper.make_node("Custom", ["x"], ["y"], domain="com.example")
        source = made.model([node], [made.value("x", ["N", 64])], [made.value("y", ["N", 10])])
        found = description(converted(source, input_shape="x:-1,64", dynamic_batch_size="2,4"))
        assert found.output_shapes == ("0,0,2,10", "1,0,4,10")

    def test_stale_shapes_of_the_model_do_not_hold_for_other_inputs(
        self, converted: Callable[..., Model]
    ) -> None:
        source = made.model(
            [helper.make_node("Relu", ["x"], ["m"]), helper.make_node("Relu", ["m"], ["y"])],
            [made.value("x", ["N"])],
            [made.value("y", [1])],
        )
        source.graph.value_info.append(made.value("m", [1]))
        assert description(converted(source, input_shape="x:7")).outputs[0].shape == (7,)

    def test_shape_that_other_nodes_compute_is_inferred(self, converted: Callable[..., Model]) -> None:
        source = made.model(
            [
                helper.make_node("Shape", ["x"], ["s"], start=0, end=1),
                helper.make_node("Concat", ["s", "rest"], ["t"], axis=0),
                helper.make_node("Reshape", ["x", "t"], ["y"]),
            ],
            [made.value("x", ["N", 8, 8])],
            [made.value("y", None)],
            [onnx.TensorProto(name="rest", dims=[1], data_type=TensorProto.INT64, int64_data=[64])],
        )
        assert description(converted(source, input_shape="x:5,8,8")).outputs[0].shape == (5, 64)

    @pytest.mark.parametrize(
        ("layout", "shape", "number"),
        [
            ("NCHW", [1, 3, 8, 8], 0),
            ("ND", [1, 3, 8, 8], 2),
            ("NCHW", [1, 3], 2),
            ("NCDHW", [1, 3, 8, 8, 8], 30),
        ],
    )
    def test_input_format_is_that_of_inputs_with_its_rank(
        self, converted: Callable[..., Model], layout: str, shape: list[int], number: int
    ) -> None:
        found = description(converted(made.relu(shape, shape), input_format=layout))
        assert (found.inputs[0].format, found.outputs[0].format) == (number, ND)


class TestGears:
    def test_batch_sizes_describe_the_largest_output(self, converted: Callable[..., Model]) -> None:
        found = description(converted(made.linear(), input_shape="x:-1,64", dynamic_batch_size="4,1,8"))
        assert found.inputs == (
            Tensor("x", FLOAT, ND, (-1, 64), 2048),
            Tensor(SHAPE_DATA, INT64, ND, (1,), 8),
        )
        assert found.outputs == (Tensor("y", FLOAT, ND, (8, 10), 320),)
        assert found.batch_sizes == (4, 1, 8)
        assert found.output_shapes == ("0,0,4,10", "1,0,1,10", "2,0,8,10")

    def test_image_sizes_have_two_values(self, converted: Callable[..., Model]) -> None:
        source = made.relu(["N", 3, "H", "W"], None)
        found = description(converted(source, input_shape="x:2,3,-1,-1", dynamic_image_size="4,4;2,16"))
        assert found.image_sizes == ((4, 4), (2, 16))
        assert found.inputs[1] == Tensor(SHAPE_DATA, INT64, ND, (2,), 16)
        assert found.outputs[0] == Tensor("y", FLOAT, ND, (2, 3, 2, 16), 768)

    def test_dims_follow_the_order_of_input_shape(self, converted: Callable[..., Model]) -> None:
        node = helper.make_node("MatMul", ["a", "b"], ["y"])
        source = made.model(
            [node], [made.value("a", ["N", "K"]), made.value("b", ["K", 5])], [made.value("y", None)]
        )
        found = description(converted(source, input_shape="b:-1,5;a:-1,-1", dynamic_dims="2,9,2;3,9,3"))
        assert [each.name for each in found.inputs] == ["a", "b", SHAPE_DATA]
        assert found.order == ("b", "a")
        assert found.inputs[2].shape == (3,)
        assert found.output_shapes == ("0,0,9,5", "1,0,9,5")

    def test_gears_that_the_model_cannot_run_are_refused(self, refusal: Callable[..., str]) -> None:
        node = helper.make_node("MatMul", ["a", "b"], ["y"])
        source = made.model(
            [node], [made.value("a", ["N", "K"]), made.value("b", ["K", 5])], [made.value("y", None)]
        )
        message = refusal(source, input_shape="b:-1,5;a:-1,-1", dynamic_dims="2,9,2;3,9,4")
        assert "a model whose shapes can be inferred" in message


class TestDynamic:
    def test_dimension_without_limit_has_no_size(self, converted: Callable[..., Model]) -> None:
        model = converted(made.linear(), input_shape="x:-1,64")
        assert model.dynamic
        assert model.description == Description(
            (Tensor("x", FLOAT, ND, (-1, 64), 0, ranges=((0, -1), (64, 64))),),
            (Tensor("y", FLOAT, ND, (-1, 10), 0),),
        )

    def test_range_decides_the_largest_size(self, converted: Callable[..., Model]) -> None:
        model = converted(made.linear(), input_shape="x:1~8,64")
        assert model.dynamic
        assert model.description == Description(
            (Tensor("x", FLOAT, ND, (-1, 64), 2048, ranges=((1, 8), (64, 64))),),
            (Tensor("y", FLOAT, ND, (-1, 10), 320),),
        )

    @pytest.mark.process
    def test_output_that_depends_on_the_data_makes_the_model_dynamic(
        self, converted: Callable[..., Model]
    ) -> None:
        node = helper.make_node("NonZero", ["x"], ["y"])
        model = converted(
            made.model([node], [made.value("x", [4])], [made.value("y", None, TensorProto.INT64)])
        )
        assert model.dynamic
        assert description(model).inputs == (Tensor("x", FLOAT, ND, (4,), 16, ranges=((4, 4),)),)
        assert description(model).outputs == (Tensor("y", INT64, ND, (1, -1), 0),)

    def test_model_with_gears_is_not_dynamic(self, converted: Callable[..., Model]) -> None:
        assert not converted(made.linear(), input_shape="x:-1,64", dynamic_batch_size="1,2").dynamic


@pytest.mark.process
class TestFolding:
    """Shapes that onnx's inference does not find, because it does not compute what the shapes are made of."""

    def test_fixed_inputs_decide_a_shape_that_nodes_compute(self, converted: Callable[..., Model]) -> None:
        model = converted(made.computed_shape(), input_shape="x:2,12")
        assert not model.dynamic
        assert description(model).outputs == (Tensor("y", FLOAT, ND, (6, 4), 96),)

    def test_each_gear_decides_a_shape_that_nodes_compute(self, converted: Callable[..., Model]) -> None:
        found = description(converted(made.computed_shape(), input_shape="x:-1,12", dynamic_batch_size="2,4"))
        assert found.output_shapes == ("0,0,6,4", "1,0,12,4")
        assert found.outputs[0].nbytes == 192

    def test_end_of_a_range_decides_the_size(self, converted: Callable[..., Model]) -> None:
        found = description(converted(made.computed_shape(), input_shape="x:1~4,12"))
        assert found.outputs == (Tensor("y", FLOAT, ND, (-1, -1), 192),)

    def test_wrong_statement_of_the_model_is_replaced(self, converted: Callable[..., Model]) -> None:
        source = made.computed_shape()
        source.graph.output[0].CopyFrom(made.value("y", [1, "n", 7]))
        model = converted(source, input_shape="x:2,12")
        assert description(model).outputs[0].shape == (6, 4)
        assert model.onnx is not None
        kept = onnx.ModelProto.FromString(model.onnx)
        assert not kept.graph.output[0].type.tensor_type.HasField(
            "shape"
        )  # onnxruntime would refuse the memory
        kept.graph.output[0].CopyFrom(source.graph.output[0])
        assert kept == source

    def test_reason_is_noted_if_onnxruntime_refuses_the_model(self, tmp_path: Path) -> None:
        node = helper.make_node("Custom", ["x"], ["y"], domain="com.example")
        path = tmp_path / "m.onnx"
        path.write_bytes(
            made.model([node], [made.value("x", [4])], [made.value("y", ["n"])]).SerializeToString()
        )
        notes: list[str] = []
        assert read(convert(path, Options(), "m", notes.append)).dynamic
        assert len(notes) == 1
        assert "com.example" in notes[0]


class TestPorts:
    def test_weights_that_are_listed_as_inputs_are_not_inputs(self, converted: Callable[..., Model]) -> None:
        source = made.linear(batch=1)
        source.ir_version = 3
        source.graph.input.append(made.value("w", [64, 10]))
        assert [each.name for each in description(converted(source)).inputs] == ["x"]

    def test_large_weights_do_not_become_inputs(self, converted: Callable[..., Model]) -> None:
        found = description(converted(made.linear(batch=1, inputs=2000, outputs=3)))
        assert [each.name for each in found.inputs] == ["x"]
        assert found.outputs[0].shape == (1, 3)

    def test_unicode_names_are_kept(self, converted: Callable[..., Model]) -> None:
        node = helper.make_node("Relu", ["输入"], ["é"])
        source = made.model([node], [made.value("输入", ["N"])], [made.value("é", ["N"])])
        found = description(converted(source, input_shape="输入:4"))
        assert (found.inputs[0].name, found.outputs[0].name) == ("输入", "é")

    def test_model_without_inputs_is_accepted(self, converted: Callable[..., Model]) -> None:
        node = helper.make_node("Constant", [], ["y"], value=made.weight("", [3]))
        assert description(converted(made.model([node], [], [made.value("y", [3])]))).inputs == ()

    def test_output_without_a_type_gets_the_inferred_type(self, converted: Callable[..., Model]) -> None:
        source = made.relu([2], None, TensorProto.DOUBLE)
        source.graph.output[0].ClearField("type")
        assert description(converted(source)).outputs == (Tensor("y", 11, ND, (2,), 16),)

    @pytest.mark.parametrize("number", sorted(FROM_ONNX))
    def test_data_type_of_onnx_has_the_same_bits_in_acl(self, number: int) -> None:
        name = TensorProto.DataType.Name(number).lower()
        dtype = helper.tensor_dtype_to_np_dtype(number)
        packed = name in ("int4", "float4e2m1")
        assert size_of(FROM_ONNX[number], 2) == (1 if packed else 2 * dtype.itemsize)
        assert type_name(FROM_ONNX[number]).replace("_", "") == {"float": "float32", "double": "float64"}.get(
            name, name
        )

    def test_size_of_packed_elements_is_rounded_up(self) -> None:
        assert size_of(FROM_ONNX[TensorProto.INT4], 3) == 2

    @pytest.mark.parametrize("number", [TensorProto.STRING, TensorProto.UINT4, TensorProto.FLOAT8E4M3FNUZ])
    def test_data_type_that_acl_lacks_is_refused(self, refusal: Callable[..., str], number: int) -> None:
        message = refusal(made.relu([1], [1], number))
        assert f"for input 'x', got {TensorProto.DataType.Name(number)}" in message

    @pytest.mark.parametrize(
        ("kind", "got"),
        [
            (helper.make_optional_type_proto(helper.make_tensor_type_proto(1, [1])), "optional"),
            (helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [1])), "sequence"),
        ],
    )
    def test_input_that_is_not_a_tensor_is_refused(
        self, refusal: Callable[..., str], kind: onnx.TypeProto, got: str
    ) -> None:
        source = made.relu([1], [1])
        source.graph.input[0].type.CopyFrom(kind)
        assert f"expected a tensor as input 'x', got {got}" in refusal(source)

    def test_output_that_is_not_a_tensor_is_refused(self, refusal: Callable[..., str]) -> None:
        source = made.relu([1], [1])
        source.graph.output[0].type.CopyFrom(
            helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [1]))
        )
        assert "expected a tensor as output 'y', got sequence" in refusal(source)


class TestRefused:
    def test_symbol_without_input_shape_is_refused(self, refusal: Callable[..., str]) -> None:
        message = refusal(made.linear())
        assert "shape of input 'x', which is [N,64] in the model" in message
        assert '--input_shape "x:..."' in message

    @pytest.mark.parametrize("text", ["x:3,63", "x:3", "x:3,64,1", "x:3,-1"])
    def test_shape_that_does_not_fit_the_model_is_refused(
        self, refusal: Callable[..., str], text: str
    ) -> None:
        assert "expected a shape that fits [N,64] of input 'x'" in refusal(made.linear(), input_shape=text)

    def test_unknown_input_is_refused(self, refusal: Callable[..., str]) -> None:
        assert "expected an input of the model (x), got 'z'" in refusal(made.linear(1), input_shape="z:1")

    @pytest.mark.process
    def test_output_whose_shape_depends_on_the_data_is_refused_with_gears(
        self, refusal: Callable[..., str]
    ) -> None:
        node = helper.make_node("NonZero", ["x"], ["y"])
        source = made.model([node], [made.value("x", ["N"])], [made.value("y", None, TensorProto.INT64)])
        message = refusal(source, input_shape="x:-1", dynamic_batch_size="1,2")
        assert "expected a shape of output 'y' that each gear decides, got [1,-1]" in message

    def test_shape_that_an_operator_does_not_take_is_refused(self, refusal: Callable[..., str]) -> None:
        source = made.linear()
        source.graph.input[0].ClearField("type")
        source.graph.input[0].CopyFrom(made.value("x", None))
        assert "a model whose shapes can be inferred" in refusal(source, input_shape="x:1,63")

    @pytest.mark.process
    def test_output_of_an_unknown_operator_is_refused(self, refusal: Callable[..., str]) -> None:
        node = helper.make_node("Custom", ["x"], ["y"], domain="com.example")
        source = made.model([node], [made.value("x", [4])], [made.value("y", None)])
        message = refusal(source)
        assert "the number of dimensions of output 'y', got an operator without" in message
        assert "onnxruntime does not fold the shapes: " in message
        assert "com.example" in message

    def test_tensor_above_the_address_space_is_refused(self, refusal: Callable[..., str]) -> None:
        shape = [2**31 - 1, 2**31 - 1, 2**31 - 1]
        assert "expected at most 9223372036854775807 bytes for 'x'" in refusal(made.relu(shape, shape))

    @pytest.mark.parametrize("content", [b"", b"IMOD", b"not a model", b"\x00" * 64, b"\x08\x08"])
    def test_bytes_that_are_no_model_are_refused(self, refusal: Callable[..., str], content: bytes) -> None:
        assert "expected an ONNX model" in refusal(content)

    def test_name_that_is_not_utf8_is_refused(self, refusal: Callable[..., str]) -> None:
        content = made.linear(1).SerializeToString().replace(b"MatMul", b"MatM\xffl")
        assert "expected UTF-8 in the field op_type, got b'MatM\\xffl'" in refusal(content)

    def test_damaged_model_raises_only_bad_model(
        self, converted: Callable[..., Model], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def unanswered(*_: object) -> None:
            raise Unanswered("it is not asked")

        # A process for each of dozens of models takes a minute, and only processes of their own run onnxruntime.
        monkeypatch.setattr("aioacl.simulator._onnx.fold", unanswered)
        chance = random.Random(7)
        whole = made.linear(inputs=4, outputs=3).SerializeToString()
        for _ in range(DAMAGED):
            content = bytearray(whole)
            for _ in range(chance.randint(1, 3)):
                content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            with suppress(BadModel):
                converted(bytes(content), input_shape="x:-1,4", dynamic_batch_size="1,2")

    def test_truncated_model_is_refused(self, refusal: Callable[..., str]) -> None:
        assert "expected an ONNX model" in refusal(made.linear(1).SerializeToString()[:-100])

    def test_model_of_two_gigabytes_is_refused_unread(self, tmp_path: Path) -> None:
        path = tmp_path / "m.onnx"
        path.touch()
        os.truncate(path, 2**31)
        with pytest.raises(
            BadModel, match=r"expected an ONNX model of less than 2 GiB .* got 2147483648 bytes"
        ):
            convert(path, Options(), "m")

    def test_missing_file_raises_oserror(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            convert(tmp_path / "m.onnx", Options(), "m")


class TestExternalData:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "m.onnx"
        onnx.save(made.linear(1), path, save_as_external_data=True, location="m.bin", size_threshold=0)
        return path

    def test_external_data_is_put_into_the_file(self, path: Path) -> None:
        model = read(convert(path, Options(), "m"))
        assert model.onnx is not None
        inside = onnx.ModelProto.FromString(model.onnx)
        assert inside.graph.initializer[0].raw_data == bytes(64 * 10 * 4)
        assert not inside.graph.initializer[0].external_data

    def test_missing_external_data_is_refused(self, path: Path) -> None:
        path.with_name("m.bin").unlink()
        with pytest.raises(BadModel, match=r"expected the external data .*m\.bin"):
            convert(path, Options(), "m")

    def test_external_data_outside_the_folder_is_refused(self, path: Path) -> None:
        source = onnx.load(path, load_external_data=False)
        source.graph.initializer[0].external_data[0].value = "../m.bin"
        path.write_bytes(source.SerializeToString())
        with pytest.raises(BadModel, match="expected the external data"):
            convert(path, Options(), "m")

    def test_external_data_of_two_gigabytes_is_refused_unread(self, path: Path) -> None:
        source = onnx.load(path, load_external_data=False)
        entries = source.graph.initializer[0].external_data
        next(each for each in entries if each.key == "length").value = str(2**31)
        path.write_bytes(source.SerializeToString())
        with pytest.raises(BadModel, match="less than 2 GiB with its external data"):
            convert(path, Options(), "m")


def test_missing_package_is_reported_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "aioacl.simulator._onnx", raising=False)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(BadModel, match=r"expected the package onnx, .*`pip install 'aioacl\[onnx\]'"):
        convert(tmp_path / "m.onnx", Options(), "m")
