"""DLPack tensors of other libraries: asking a producer for a capsule, and what a capsule contains."""

from __future__ import annotations

from math import prod
from typing import Any, Final, NamedTuple, Protocol, TypeGuard

from aioacl._base.errors import ParameterError
from aioacl._base.ffi import dlpack_fields
from aioacl._base.options import repr_of
from aioacl._handles.dlpack import VERSION, pair_of

ADDRESSES: Final = 1 << 64
HOST: Final = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost
READ_ONLY: Final = 1
COPIED: Final = 2  # the producer has copied the tensor for this capsule
PADDED: Final = 4  # each value of less than a byte has a byte of its own


class Producer(Protocol):
    """An object that another library can take as a DLPack tensor."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns a DLPack capsule."""
        ...

    def __dlpack_device__(self) -> tuple[Any, Any]:
        """Returns the device type and the index."""
        ...


class Fields(NamedTuple):
    """What `dlpack_fields` returns."""

    kind: int
    device: int
    data: int
    offset: int
    shape: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    code: int
    bits: int
    lanes: int
    flags: int


def is_producer(thing: object) -> TypeGuard[Producer]:
    """Whether the object has the methods of a DLPack tensor."""
    methods = (getattr(thing, name, None) for name in ("__dlpack__", "__dlpack_device__"))
    return not isinstance(thing, type) and all(map(callable, methods))


def device_of(thing: Producer) -> tuple[int, int]:
    """Returns the device type and the index. Raises ParameterError if the producer returns anything else."""
    answer = thing.__dlpack_device__()
    device = pair_of(answer)
    if device is None:
        raise ParameterError(
            f"expected __dlpack_device__ to return a tuple of two ints, got {repr_of(answer)}",
            hint="Correct the class of the tensor.",
        )
    return device


def request(thing: Producer, options: dict[str, int]) -> object:
    """Requests a capsule. It has a version if the producer supports DLPack 1.0."""
    try:
        return thing.__dlpack__(max_version=VERSION, **options)
    except TypeError:  # the producer is older than DLPack 1.0
        return thing.__dlpack__(**options)


def was_taken(capsule: object) -> ParameterError:
    """Returns the error of an object that is no capsule, or of a capsule that another consumer has taken."""
    return ParameterError(
        f"expected __dlpack__ to return a DLPack capsule that was not taken, got {repr_of(capsule)}",
        hint="Each capsule can be taken once: the producer has to make a new one at each call.",
    )


def fields_of(capsule: object) -> Fields:
    """Reads a capsule, and does not take it. Raises ParameterError if it is not one of DLPack version 1 or older."""
    values = dlpack_fields(capsule)
    if values is None:
        raise was_taken(capsule)
    if len(values) == 2:
        raise ParameterError(
            f"expected a tensor of DLPack version 1, got one of version {values[0]}.{values[1]}",
            hint="The producer must honour max_version=(1, 0): use a version of the library that does.",
        )
    return Fields(*values)


def size_of(fields: Fields) -> int:
    """Returns the size of the tensor in bytes. Raises ParameterError if the bytes are not in one piece, in C order."""
    shape = fields.shape
    if shape is None or min(shape, default=0) < 0:
        found = "no shape, or more dimensions" if shape is None else f"the shape {shape}"
        raise ParameterError(
            f"expected a tensor with at most 64 dimensions of at least 0, got {found}",
            hint="Reshape the tensor.",
        )
    if prod(shape) and not _is_contiguous(shape, fields.strides):
        raise ParameterError(
            f"expected a contiguous tensor in C order, got the shape {shape} with the strides {fields.strides}",
            hint="Pass a contiguous copy, for example tensor.contiguous().",
        )
    if not fields.bits or not fields.lanes:
        raise ParameterError(
            f"expected a tensor of values of at least 1 bit, got {fields.lanes} lanes of {fields.bits} bits",
            hint="Correct the producer: the type of its values has no size.",
        )
    bits = -(-fields.bits // 8) * 8 if fields.flags & PADDED else fields.bits
    total = prod(shape) * bits * fields.lanes
    if total % 8:
        raise ParameterError(
            f"expected a tensor of whole bytes, got {prod(shape)} values of {bits * fields.lanes} bits",
            hint="Pass a tensor whose values fill whole bytes.",
        )
    return total // 8


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> bool:
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides or ()), strict=False):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def address_of(fields: Fields, size: int) -> int:
    """Returns the address of the first byte. Raises ParameterError if no memory can have it."""
    begin = fields.data + fields.offset if fields.data else 0
    place = f"{size} bytes at {fields.data:#x} + {fields.offset}"
    if size and not begin:
        raise ParameterError(
            f"expected a tensor with an address, got {place}", hint="Pass a tensor whose memory is allocated."
        )
    if size and (begin + size > ADDRESSES or size >= 1 << 63):
        raise ParameterError(
            f"expected a tensor of at most 2**63 - 1 bytes that ends at 2**64 or before, got {place}",
            hint="Correct the producer: no memory has these addresses.",
        )
    return begin % ADDRESSES
