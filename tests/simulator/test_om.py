"""The container of offline models: what is written is read again, and no wrong bytes are accepted."""

from __future__ import annotations

import hashlib
import random
import struct

import pytest

from aioacl._base.container import HEADER_BYTES, MARKER, MARKER_AT, SHAPE_DATA
from aioacl.simulator._om import DESCRIPTION, ONNX, BadModel, Description, Model, Tensor, read, write

X = Tensor("x", 0, 2, (-1, 64), 2048)
SELECTOR = Tensor(SHAPE_DATA, 9, 2, (1,), 8)
Y = Tensor("y", 1, 0, (8, 10), 160, unscaled=(8, 20), ranges=((1, 8), (10, 10)))
BATCHES = Description(
    (X, SELECTOR), (Y,), batch_sizes=(1, 8), output_shapes=("0,0,1,10", "1,0,8,10"), order=("x",)
)
FLIPS = 2000


def genuine(*partitions: tuple[int, bytes], wide: bool = True, marker: bytes = b"") -> bytes:
    """A file as CANN writes it."""
    header = bytearray(HEADER_BYTES)
    table = struct.pack("<II" if wide else "<I", len(partitions), *([0] if wide else []))
    offset = 0
    for kind, content in partitions:
        table += (
            struct.pack("<IIQQ", kind, 0, offset, len(content))
            if wide
            else struct.pack("<III", kind, offset, len(content))
        )
        offset += len(content)
    struct.pack_into("<III", header, 0, 0x444F4D49, HEADER_BYTES, 0x10000000)
    struct.pack_into("<I", header, 76, len(table) + offset)
    struct.pack_into("<Q", header, 184, len(table) + offset if wide else 0)
    header[84:90] = b"resnet"
    header[MARKER_AT : MARKER_AT + len(marker)] = marker
    return bytes(header) + table + b"".join(content for _, content in partitions)


def changed(content: bytes, at: int, new: bytes) -> bytes:
    return content[:at] + new + content[at + len(new) :]


class TestWritten:
    @pytest.mark.parametrize(
        "description",
        [
            Description(),
            Description(outputs=(Tensor("", 11, 2, (), 8),)),
            Description((Tensor("输入", 3, 2, (0, 5), 0),), (Y,)),
            BATCHES,
            Description((X,), (Y,), image_sizes=((224, 224), (448, 224))),
            Description((X,), (Y,), dims=((1, 20, 3), (2, 40, 6)), order=("b", "a")),
        ],
    )
    def test_description_is_read_unchanged(self, description: Description) -> None:
        model = read(write("digits", description, b"an ONNX model"))
        assert model == Model("digits", description, b"an ONNX model", model.sha256)
        assert model.simulated

    @pytest.mark.parametrize("dynamic", [True, False])
    def test_header_states_whether_the_model_is_dynamic(self, dynamic: bool) -> None:
        assert read(write("m", BATCHES, b"", dynamic=dynamic)).dynamic == dynamic

    def test_sha256_covers_version_length_and_model(self) -> None:
        content = write("digits", BATCHES, b"model")
        rest = struct.pack("<IIQ", 1, 0, 5) + b"model"
        assert content.endswith(hashlib.sha256(rest).digest() + rest)
        assert read(content).sha256 == hashlib.sha256(rest).hexdigest()

    def test_tensor_has_the_layout_of_cann(self) -> None:
        content = write("", Description(outputs=(Tensor("xy", 1, 2, (3,), 6),)), b"")
        described = struct.pack("<III", 0, 4, 0)  # no inputs
        tensor = struct.pack("<QiiIIII", 6, 2, 1, 2, 8, 0, 0) + b"xy" + struct.pack("<q", 3)
        described += struct.pack("<III", 1, 4 + len(tensor), 1) + tensor
        assert content[HEADER_BYTES + 56 :].startswith(described)
        assert struct.unpack_from("<IIIIQQIIQQ", content, HEADER_BYTES)[:6] == (
            2,
            0,
            DESCRIPTION,
            0,
            0,
            len(described),
        )

    def test_long_name_is_cut_between_characters(self) -> None:
        assert read(write("模型" * 10, Description(), b"")).name == "模型" * 5

    def test_header_has_both_lengths_and_the_marker(self) -> None:
        content = write("m", BATCHES, b"")
        after = len(content) - HEADER_BYTES
        assert struct.unpack_from("<I", content, 76) == (after,)
        assert struct.unpack_from("<Q", content, 184) == (after,)
        assert content[MARKER_AT : MARKER_AT + 16] == MARKER


class TestGenuine:
    @pytest.mark.parametrize("wide", [True, False])
    def test_file_of_cann_has_its_description_and_no_onnx_model(self, wide: bool) -> None:
        described = write("", BATCHES, b"")
        start = HEADER_BYTES + 56
        block = described[start : -(32 + 16)]
        model = read(genuine((0, b"graph"), (DESCRIPTION, block), (1, b"weights"), wide=wide))
        assert model == Model("resnet", BATCHES, None, None)
        assert not model.simulated

    def test_file_without_description_is_read(self) -> None:
        assert read(genuine((0, b"graph"))).description is None

    def test_unknown_block_of_the_description_is_skipped(self) -> None:
        model = read(genuine((DESCRIPTION, struct.pack("<II3s", 99, 3, b"abc"))))
        assert model.description == Description()

    def test_name_that_is_not_utf8_is_read(self) -> None:
        tensor = struct.pack("<IQiiIIII", 1, 4, 2, 0, 1, 0, 0, 0) + b"\xff"
        model = read(genuine((DESCRIPTION, struct.pack("<II", 1, len(tensor)) + tensor)))
        assert model.description is not None
        assert model.description.outputs[0].name == "\udcff"

    def test_dynamic_shapes_are_reported(self) -> None:
        assert read(changed(genuine(), 193, b"\1")).dynamic


def u32(number: int) -> bytes:
    return struct.pack("<I", number)


WRITTEN = write("digits", BATCHES, b"an ONNX model")


class TestRefused:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "expected 256 bytes of the header of a .om file, got 0"),
            (b"\x08\x08" + bytes(300), "expected a .om file, which begins with b'IMOD'"),
            (changed(WRITTEN, 4, u32(255)), "expected a header of 256 bytes, got 255"),
            (changed(WRITTEN, 80, b"\1"), "not encrypted"),
            (changed(WRITTEN, 156, u32(2)), "expected one model in the file, got 2"),
            (WRITTEN + b"\0", "after the header"),
            (WRITTEN[:-1], "after the header"),
            (changed(WRITTEN, HEADER_BYTES, u32(2**32 - 1)), "the table of partitions"),
            (changed(WRITTEN, HEADER_BYTES + 16, b"\xff" * 8), "expected partition 8 inside"),
            (changed(WRITTEN, HEADER_BYTES + 24, b"\xff" * 8), "expected partition 8 inside"),
            (
                changed(WRITTEN, HEADER_BYTES + 32, u32(7)),
                "the partition of the ONNX model in a simulated .om file",
            ),
            (changed(WRITTEN, len(WRITTEN) - 1, b"?"), "expected an ONNX model with the SHA-256"),
            (changed(WRITTEN, HEADER_BYTES + 56, u32(4)), "expected"),
            (changed(WRITTEN, HEADER_BYTES + 60, u32(2**31)), "block 0 of the description"),
            (changed(WRITTEN, HEADER_BYTES + 64, u32(2**31)), "an input"),
            (genuine(marker=MARKER), "the partition of the ONNX model in a simulated .om file, got none"),
            (genuine((ONNX, b"short"), marker=MARKER), "the partition of the ONNX model, got 5"),
        ],
    )
    def test_wrong_bytes_are_refused_with_a_remedy(self, content: bytes, message: str) -> None:
        with pytest.raises(BadModel) as caught:
            read(content)
        text = str(caught.value)
        assert message in text
        assert text.startswith("expected ")
        assert ", got " in text
        assert "; " in text

    @pytest.mark.parametrize(
        ("rest", "message"),
        [
            (struct.pack("<IIQ", 2, 0, 0), "expected version 1 of the simulator's partition, got 2"),
            (struct.pack("<IIQ", 1, 0, 9) + b"model", "expected an ONNX model of 9 bytes, got 5"),
        ],
    )
    def test_other_version_or_length_of_the_model_is_refused(self, rest: bytes, message: str) -> None:
        partition = hashlib.sha256(rest).digest() + rest
        with pytest.raises(BadModel, match=message):
            read(genuine((ONNX, partition), marker=MARKER))

    @pytest.mark.parametrize(
        ("lengths", "message"),
        [((0, 7, 0, 0), "expected 64-bit numbers"), ((0, 0, 0, 8), "that are pairs of numbers")],
    )
    def test_shape_of_a_wrong_length_is_refused(self, lengths: tuple[int, ...], message: str) -> None:
        tensor = struct.pack("<IQiiIIII", 1, 4, 2, 0, *lengths) + bytes(16)
        with pytest.raises(BadModel, match=message):
            read(genuine((DESCRIPTION, struct.pack("<II", 0, len(tensor)) + tensor)))

    @pytest.mark.parametrize("size", range(0, len(WRITTEN), 7))
    def test_truncated_file_is_refused(self, size: int) -> None:
        with pytest.raises(BadModel):
            read(WRITTEN[:size])

    def test_truncated_description_is_refused_at_each_byte(self) -> None:
        start = HEADER_BYTES + 56
        block = WRITTEN[start : -(32 + 16 + len(b"an ONNX model"))]
        whole = read(genuine((DESCRIPTION, block))).description
        for size in range(len(block)):
            try:
                partial = read(genuine((DESCRIPTION, block[:size]))).description
            except BadModel:
                continue
            assert partial != whole  # the cut is between two blocks

    def test_flipped_bits_raise_only_bad_model(self) -> None:
        chance = random.Random(7)
        for _ in range(FLIPS):
            content = bytearray(WRITTEN)
            for _ in range(chance.randint(1, 4)):
                content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            try:
                read(bytes(content))
            except BadModel as error:
                assert str(error).startswith("expected ")  # noqa: PT017 - most of the changed files are refused
