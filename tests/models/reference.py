"""What onnxruntime's Python API computes: with one thread, and the same optimisations as the simulator."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import onnxruntime  # pyright: ignore[reportMissingTypeStubs] - it has no types

from tests.models.corpus import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

FATAL = 4  # the level of the log: the reasons are in the exceptions


def opened(content: bytes) -> onnxruntime.InferenceSession:
    """Opens the model. Raises an exception of onnxruntime if it cannot run it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = FATAL
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def run(session: Any, inputs: Sequence[tuple[onnx.ValueInfoProto, Value]]) -> list[Value]:
    """Runs the model on the bytes of the inputs. NumPy lacks some of the data types, so no array is made."""
    binding = session.io_binding()
    kept = []
    for info, value in inputs:
        memory = ctypes.create_string_buffer(value.content, max(1, len(value.content)))
        kept.append(memory)
        dtype = info.type.tensor_type.elem_type
        binding.bind_input(info.name, "cpu", 0, dtype, list(value.shape), ctypes.addressof(memory))
    for each in session.get_outputs():
        binding.bind_output(each.name)
    session.run_with_iobinding(binding)
    return [_copied(each) for each in binding.get_outputs()]


def _copied(value: Any) -> Value:
    size = value.tensor_size_in_bytes()
    return Value(tuple(value.shape()), ctypes.string_at(value.data_ptr(), size) if size else b"")
