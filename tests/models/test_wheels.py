"""Models of packages on PyPI, converted by the simulated atc, give the bits of onnxruntime. With the network only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

pytest.importorskip("onnx", reason="models need the package onnx: pip install 'aioacl[onnx]'")
pytest.importorskip("onnxruntime", reason="models need the package onnxruntime: pip install 'aioacl[onnx]'")

import numpy as np
import onnx
from onnx import helper

from aioacl._cli._model_notes import notes
from aioacl.simulator._atc import Options, convert
from aioacl.simulator._om import read
from tests.models import reference
from tests.models.wheels import model_of

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from numpy.typing import NDArray

    import aioacl
    from tests.kit import OpenDevice

pytestmark = pytest.mark.slow

DDDDOCR: Final = ("ddddocr==1.6.1", "ddddocr")
RAPIDOCR: Final = ("rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models")
SILERO: Final = ("silero-vad==6.2.3", "silero_vad/data")
MAGIKA: Final = ("magika==1.0.3", "magika/models/standard_v3_3")
NUDENET: Final = ("nudenet==3.4.2", "nudenet")

RATE: Final = {"sr": 16000}
"""The values of inputs that may not be random."""

CASES: Final[dict[str, tuple[tuple[str, str], str, dict[str, str]]]] = {
    "ddddocr": (DDDDOCR, "common.onnx", {"input_shape": "input1:1,1,64,128"}),
    "ddddocr, old": (DDDDOCR, "common_old.onnx", {"input_shape": "input1:1,1,64,128"}),
    "ddddocr, detection": (DDDDOCR, "common_det.onnx", {}),
    "PP-OCR, detection": (RAPIDOCR, "ch_PP-OCRv4_det_infer.onnx", {"input_shape": "x:1,3,160,160"}),
    "PP-OCR, detection, sizes": (
        RAPIDOCR,
        "ch_PP-OCRv4_det_infer.onnx",
        {"input_shape": "x:1,3,-1,-1", "dynamic_image_size": "160,160;96,128"},
    ),
    "PP-OCR, recognition": (RAPIDOCR, "ch_PP-OCRv4_rec_infer.onnx", {"input_shape": "x:1,3,48,160"}),
    "PP-OCR, recognition, batches": (
        RAPIDOCR,
        "ch_PP-OCRv4_rec_infer.onnx",
        {"input_shape": "x:-1,3,48,160", "dynamic_batch_size": "1,3"},
    ),
    "PP-OCR, recognition, dims": (
        RAPIDOCR,
        "ch_PP-OCRv4_rec_infer.onnx",
        {"input_shape": "x:1,3,48,-1", "dynamic_dims": "80;160"},
    ),
    "PP-OCR, direction": (
        RAPIDOCR,
        "ch_ppocr_mobile_v2.0_cls_infer.onnx",
        {"input_shape": "x:-1,3,48,192", "dynamic_batch_size": "1,6"},
    ),
    "silero, opset 15": (
        SILERO,
        "silero_vad_16k_op15.onnx",
        {"input_shape": "input:1,576;state:2,1,128;sr:"},
    ),
    "silero, half": (SILERO, "silero_vad_half.onnx", {"input_shape": "input:1,576;state:2,1,128"}),
    "silero, without If": (
        SILERO,
        "silero_vad_op18_ifless.onnx",
        {"input_shape": "input:1,576;state:2,1,128;sr:"},
    ),
    "silero, fixed": (SILERO, "silero_vad_openvino_16k.onnx", {}),
    "silero, sequence": (SILERO, "silero_vad_16k_sequence.onnx", {"input_shape": "input:8,576"}),
    "silero, sequence, dims": (
        SILERO,
        "silero_vad_16k_sequence.onnx",
        {"input_shape": "input:-1,576", "dynamic_dims": "4;8"},
    ),
    "magika": (
        MAGIKA,
        "model.onnx",
        {"input_shape": "bytes:-1,2048", "dynamic_batch_size": "1,4"},
    ),
    "NudeNet": (
        NUDENET,
        "320n.onnx",
        {"input_shape": "images:-1,3,320,320", "dynamic_batch_size": "1,2"},
    ),
}


@pytest.fixture
def device(open_device: OpenDevice) -> Generator[aioacl.Device]:
    opened = open_device().result()
    yield opened
    opened.close().result()


@pytest.mark.parametrize("name", CASES)
def test_model_of_a_wheel_gives_the_bits_of_onnxruntime(device: aioacl.Device, name: str) -> None:
    wheel, file, options = CASES[name]
    path = _path(wheel, file)
    content = convert(path, Options(**options), "m")  # type: ignore[arg-type] # the options are texts
    assert list(notes(read(content))) == []
    _compare(device, content, path.read_bytes())


def test_shape_that_a_branch_hides_can_be_stated_in_the_model(device: aioacl.Device, tmp_path: Path) -> None:
    """The branch for 8 kHz cannot run with 576 samples, so the model has no fixed shapes."""
    path, options = _path(SILERO, "silero_vad.onnx"), Options("input:1,576;state:2,1,128;sr:")
    (refusal,) = notes(read(convert(path, options, "m")))
    assert "got outputs 'output' of shape [?,1], 'stateN' of shape " in refusal
    assert "state the shapes in the outputs of the ONNX model" in refusal
    model = onnx.load(path)
    for output, shape in zip(model.graph.output, ([1, 1], [2, 1, 128]), strict=True):
        kind = output.type.tensor_type.elem_type
        output.CopyFrom(helper.make_tensor_value_info(output.name, kind, shape))
    stated = tmp_path / "stated.onnx"
    onnx.save(model, stated)
    _compare(device, convert(stated, options, "m"), path.read_bytes())


def test_batches_of_a_sequence_are_noted(device: aioacl.Device) -> None:
    """The first dimension is time, so the rows that pad a batch change the state of the network."""
    path = _path(SILERO, "silero_vad_16k_sequence.onnx")
    content = convert(path, Options("input:-1,576", dynamic_batch_size="4,8"), "m")
    assert [text.split(" depends on")[0] for text in notes(read(content))] == ["output 'hn'", "output 'cn'"]
    _compare(device, content, path.read_bytes())  # full gears are right


def _path(wheel: tuple[str, str], file: str) -> Path:
    requirement, folder = wheel
    return model_of(requirement, f"{folder}/{file}")


def _compare(device: aioacl.Device, content: bytes, source: bytes) -> None:
    """Runs the model with each gear, and with onnxruntime: the shapes and the bits must be the same."""
    session: Any = reference.opened(source)
    with device.load_model(content) as model:
        names = [each.name for each in model.outputs]
        for shapes in model._described.gears:
            x = _inputs(model, shapes.inputs)
            found = model(x).result()
            arrays = found if isinstance(found, dict) else {names[0]: found}
            for name, expected in zip(names, session.run(names, x), strict=True):
                assert arrays[name].shape == expected.shape, name
                assert arrays[name].tobytes() == expected.tobytes(), name


def _inputs(model: aioacl.Model, shapes: tuple[tuple[int, ...], ...]) -> dict[str, NDArray[Any]]:
    draw = np.random.default_rng(1)
    made: dict[str, NDArray[Any]] = {}
    for each, shape in zip(model.inputs, shapes, strict=True):
        values = (
            draw.normal(0, 0.3, shape) if each.dtype.startswith("float") else draw.integers(0, 256, shape)
        )
        made[each.name] = np.asarray(RATE.get(each.name, values)).astype(each.dtype)
    return made
