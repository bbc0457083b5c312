"""Compares the simulator with onnxruntime, one model at a time.

A model is left out, with the reason, if onnxruntime does not open or run it, if its results are random, or if ACL
cannot represent an input or output. Every other model must be converted, and must give the same bits.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from aioacl.simulator._atc import Options, convert
from aioacl.simulator._om import BadModel, Description, read
from tests.models import reference
from tests.models.corpus import Case, Value, is_random, random_value, value_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import onnx

    from tests.models.execution import Simulator

Status = Literal["equal", "converted", "left out", "wrong"]
STATUSES: Final[tuple[Status, ...]] = ("equal", "converted", "left out", "wrong")

NOT_IN_ACL: Final = {
    "expected a tensor as": "an input or output is not a tensor",
    "expected a data type of ACL": "an input or output has a data type that ACL lacks",
}


@dataclass(frozen=True)
class Verdict:
    """The result for one model."""

    kind: str
    name: str
    status: Status
    reason: str = ""


class _LeftOut(Exception):
    """The model is not compared; the text is the reason."""


class _Wrong(Exception):
    """The simulator differs from onnxruntime; the text states how."""


@dataclass
class Tally:
    """The results for all models."""

    verdicts: list[Verdict] = field(default_factory=list)

    def count(self, status: Status, kind: str | None = None) -> int:
        """Returns the number of models with that status."""
        return sum(each.status == status and kind in (None, each.kind) for each in self.verdicts)

    def reasons(self) -> Counter[str]:
        """Returns how many models were left out for each reason."""
        return Counter(each.reason for each in self.verdicts if each.status == "left out")


def check(cases: Iterable[Case], simulator: Simulator | None) -> Tally:
    """Checks all cases. Without a simulator the models are only converted."""
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="aioacl-models-") as folder:
        for case in cases:
            tally.verdicts.append(judge(case, simulator, Path(folder, "model.onnx")))
    return tally


def judge(case: Case, simulator: Simulator | None, scratch: Path) -> Verdict:
    """Returns the result for one model."""
    try:
        _compare(case, simulator, scratch)
    except _LeftOut as error:
        return Verdict(case.kind, case.name, "left out", str(error))
    except _Wrong as error:
        return Verdict(case.kind, case.name, "wrong", str(error))
    return Verdict(case.kind, case.name, "converted" if simulator is None else "equal")


def _compare(case: Case, simulator: Simulator | None, scratch: Path) -> None:
    if is_random(case.model):
        raise _LeftOut("its results are random")
    try:
        session = reference.opened(case.content)
    except Exception as error:  # onnxruntime's exceptions have no common base
        raise _LeftOut(f"onnxruntime does not open it: {type(error).__name__}") from error
    ports = _inputs(case.model)
    try:
        inputs = _values(case, ports)
    except ValueError as error:
        raise _LeftOut(f"the test has no usable inputs: {error}") from error
    content, description = _converted(case, ports, inputs, scratch)
    try:
        outputs = reference.run(session, list(zip(ports, inputs, strict=True)))
    except Exception as error:
        raise _LeftOut(f"onnxruntime does not run it: {type(error).__name__}") from error
    _check_description(description, outputs)
    if simulator is not None:
        _check_outputs(simulator, content, description, inputs, outputs)


def _inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    weights = {each.name for each in model.graph.initializer}
    weights |= {each.values.name for each in model.graph.sparse_initializer}
    return [each for each in model.graph.input if each.name not in weights]


def _values(case: Case, ports: list[onnx.ValueInfoProto]) -> list[Value]:
    if any(port.type.WhichOneof("value") != "tensor_type" for port in ports):
        raise _LeftOut(NOT_IN_ACL["expected a tensor as"])
    tensors = [port.type.tensor_type for port in ports]
    if case.kind == "light":
        return [
            random_value(case.name, tuple(dim.dim_value for dim in tensor.shape.dim)) for tensor in tensors
        ]
    if any(tensor.elem_type == 8 for tensor in tensors):  # strings
        raise _LeftOut(NOT_IN_ACL["expected a data type of ACL"])
    return [value_of(stored, tensor.elem_type) for stored, tensor in zip(case.inputs, tensors, strict=True)]


def _converted(
    case: Case, ports: list[onnx.ValueInfoProto], inputs: list[Value], scratch: Path
) -> tuple[bytes, Description]:
    """Converts the model. `--input_shape` has the shapes that the model does not fix."""
    path = case.path
    if path is None:
        path = scratch
        path.write_bytes(case.content)
    shapes = ";".join(
        f"{port.name}:{','.join(map(str, value.shape))}"
        for port, value in zip(ports, inputs, strict=True)
        if not _is_fixed(port)
    )
    try:
        content = convert(path, Options(input_shape=shapes), case.name)
    except BadModel as error:
        reason = next((reason for text, reason in NOT_IN_ACL.items() if str(error).startswith(text)), None)
        raise (_Wrong(f"atc refuses it: {error}") if reason is None else _LeftOut(reason)) from error
    description = read(content).description
    assert description is not None
    return content, description


def _is_fixed(port: onnx.ValueInfoProto) -> bool:
    tensor = port.type.tensor_type
    return tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim)


def _check_description(description: Description, outputs: list[Value]) -> None:
    for tensor, value in zip(description.outputs, outputs, strict=True):
        fits = len(tensor.shape) == len(value.shape) and all(
            dim in (-1, actual) for dim, actual in zip(tensor.shape, value.shape, strict=True)
        )
        if not fits:
            raise _Wrong(
                f"expected the shape {value.shape} of output {tensor.name!r}, atc states {tensor.shape}"
            )
        if -1 not in tensor.shape and tensor.nbytes != len(value.content):
            raise _Wrong(
                f"expected {len(value.content)} bytes for output {tensor.name!r}, atc states {tensor.nbytes}"
            )


def _check_outputs(
    simulator: Simulator,
    content: bytes,
    description: Description,
    inputs: list[Value],
    outputs: list[Value],
) -> None:
    try:
        found = simulator.run(content, description, inputs, outputs)
    except Exception as error:
        raise _Wrong(f"the simulator does not run it: {error}") from error
    for tensor, expected, got in zip(description.outputs, outputs, found, strict=True):
        if expected.shape != got.shape:
            raise _Wrong(f"expected the shape {expected.shape} of output {tensor.name!r}, got {got.shape}")
        if expected.content != got.content:
            differ = sum(one != other for one, other in zip(expected.content, got.content, strict=True))
            raise _Wrong(f"output {tensor.name!r}: {differ} of {len(expected.content)} bytes differ")
