"""DLPack tensors of other libraries in host memory, for example of torch, as objects with a buffer.

They are the ends of copies, and arguments and results of models. The memory is not copied. A tensor keeps its memory,
so the memory exists as long as a view of the buffer does.
"""

from __future__ import annotations

from typing import Any

from aioacl._base.errors import AclError, ParameterError
from aioacl._base.ffi import DlpackTensor, dlpack_take
from aioacl._base.options import repr_of
from aioacl._handles.capsule import (
    COPIED,
    HOST,
    Producer,
    address_of,
    device_of,
    fields_of,
    is_producer,
    request,
    size_of,
    was_taken,
)
from aioacl._handles.dlpack import EXTENSION
from aioacl._handles.npu_tensor import is_npu_tensor


def host_tensor(thing: object, *, writable: bool = False) -> DlpackTensor | None:
    """Takes the tensor of an object without a buffer. Returns an object with a buffer; None if it is no tensor.

    Raises:
        ParameterError: the tensor is not in host memory or not contiguous; its producer cannot export it; or it is to
            be written to, and the producer has exported a copy. The buffer itself refuses a write to a read-only
            tensor.
    """
    # A weakref.proxy has only the methods of its object, not its class. It keeps nothing alive, so it is refused.
    if not hasattr(type(thing), "__dlpack__") or not is_producer(thing):
        return None
    if is_npu_tensor(thing):  # torch cannot return the device of such a tensor
        npu: Any = thing
        _must_be_on_host(EXTENSION, npu.device.index)
    capsule = _asked(thing)
    fields = fields_of(capsule)
    _must_be_on_host(fields.kind, fields.device)
    address_of(fields, size_of(fields))
    if writable and fields.flags & COPIED:
        raise ParameterError(
            f"expected a tensor whose memory can be shared, got {type(thing).__name__}, which exports a copy",
            hint="Pass a contiguous tensor in memory of the CPU, or an array of NumPy.",
        )
    tensor = dlpack_take(capsule)
    if tensor is None:
        raise was_taken(capsule)
    return tensor


def _asked(thing: Producer) -> object:
    """Asks for the device and a capsule. An error of the producer becomes a ParameterError."""
    try:
        _must_be_on_host(*device_of(thing))
        return request(thing, {})
    except AclError:
        raise
    except Exception as error:
        raise ParameterError(
            f"expected a tensor that can be exported, got {type(thing).__name__}, whose __dlpack__ or "
            f"__dlpack_device__ raises {type(error).__name__}: {error}",
            hint="For a tensor of torch that requires gradients, pass tensor.detach().",
        ) from error


def _must_be_on_host(kind: int, index: int) -> None:
    if kind in HOST:
        return
    raise ParameterError(
        f"expected a tensor in host memory, got one on the DLPack device ({repr_of(kind)}, {repr_of(index)})",
        hint="Copy it to the host first, for example with tensor.cpu(); `device.from_dlpack(tensor)` makes a "
        "DeviceBuffer of memory of its device.",
    )
