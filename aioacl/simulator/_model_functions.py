"""Models in Python: functions that executions call in place of onnxruntime.

The function runs on the thread of the model, in the order of the stream. The thread holds the GIL during the call, so
the function must not wait with the GIL held for a thread that needs the GIL. The thread holds no lock of the simulator.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Final

from aioacl._base.errors import ParameterError
from aioacl._base.ffi import ffi
from aioacl._base.options import repr_of
from aioacl._base.unique import record
from aioacl.simulator._registration import Registration

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import SupportsIndex

    from aioacl._base.ffi import CData

FAILED: Final = 507011
NAME_BYTES: Final = 32
TENSOR: Final = struct.Struct("@PNixxxxPN")  # aclsim_tensor_t
EXECUTION: Final = struct.Struct("@PIiPPNPNP")  # aclsim_execution_t


@record
class ModelTensor:
    """One input or output of an execution.

    Attributes:
        memory: the bytes of the tensor in the memory of the device. They are valid while the function runs. An output
            is writable. An output without memory has no bytes.
        dtype: ACL's number of the data type.
        shape: the dimensions, or None if the shape of an output is not known.
    """

    memory: memoryview
    dtype: int
    shape: tuple[int, ...] | None


@record
class Execution:
    """One execution of a model, for a function that is registered in place of the model.

    Attributes:
        name: the name of the model.
        model: the id of the loaded model.
        device: the index of the device.
        stream: the raw handle of the stream.
        inputs: the inputs, without the input that selects the gear.
        outputs: the outputs.
    """

    name: str
    model: int
    device: int
    stream: int
    inputs: tuple[ModelTensor, ...]
    outputs: tuple[ModelTensor, ...]


class ModelFunction(Registration[Execution]):
    """A registration of a function in place of a model. It ends with `close()`, or at the end of its `with` block.

    Attributes:
        name: the name of the model.
        errors: the exceptions that executions of the function have raised, oldest first.
    """

    __slots__ = ()
    _noun = "model"
    _failed = FAILED
    _control = "aclsim_register_model"
    _registered: ClassVar = {}

    def close(self) -> None:
        """Ends the registration. Executions that are still queued use the model's ONNX model, or fail if it has none.

        A second close does nothing. If a newer registration has replaced this one, the close does nothing either.
        """
        self._end()


def register_model(name: str, function: Callable[[Execution], SupportsIndex | None]) -> ModelFunction:
    """Registers a Python function in place of the models with that name: each execution calls the function.

    If the function is registered before a model is loaded, the load needs no onnxruntime.

    Args:
        name: the name in the header of the model's file, which atc takes from its option `--output`; at most 32 bytes.
            An earlier function of that name is replaced.
        function: called once per execution, with an `Execution`. It returns None or 0 for success, or the error code
            with which the execution fails. If it raises an exception or returns something else, the execution fails
            with 507011, and the exception is added to `errors` of the registration.

    Returns:
        The registration: close it, or use it in a `with` block.

    Raises:
        ParameterError: `name` is empty, too long or contains a null character, or `function` is a coroutine function.
    """
    c_name = ModelFunction._c_name(name, function)
    made = ModelFunction(name, function)
    if not made._begin(c_name, _trampoline()):
        raise ParameterError(
            f"expected a name of 1 to {NAME_BYTES} bytes, got {repr_of(name)}",
            hint="Pass the name in the header of the model's file.",
        )
    return made


@cache
def _trampoline() -> CData:
    """The C function of all registrations. It is never freed."""
    return ffi.callback("int(void *)", _executed, error=FAILED)


def _bytes_at(address: int, size: int) -> memoryview:
    """A view of memory; the address 0 has no bytes."""
    return memoryview(ffi.buffer(ffi.cast("char *", address), size)) if address and size else memoryview(b"")


def _tensors(address: int, count: int, *, writable: bool) -> tuple[ModelTensor, ...]:
    made: list[ModelTensor] = []
    for data, size, dtype, dims, dim_count in TENSOR.iter_unpack(_bytes_at(address, count * TENSOR.size)):
        memory = _bytes_at(data, size)
        shape = struct.unpack(f"{dim_count}q", _bytes_at(dims, dim_count * 8)) if dims else None
        made.append(ModelTensor(memory if writable else memory.toreadonly(), dtype, shape))
    return tuple(made)


def _executed(info: CData) -> int:
    fields = EXECUTION.unpack(bytes(ffi.buffer(ffi.cast("char *", info), EXECUTION.size)))
    name, model, device, stream, inputs, input_count, outputs, output_count, key = fields
    function = ModelFunction._registered.get(key)
    if function is None:
        return FAILED
    execution = Execution(
        name=ffi.string(ffi.cast("char *", name)).decode("utf-8", "replace"),
        model=model,
        device=device,
        stream=stream,
        inputs=_tensors(inputs, input_count, writable=False),
        outputs=_tensors(outputs, output_count, writable=True),
    )
    return function._run(execution)
