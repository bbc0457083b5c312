"""A producer and a consumer of DLPack tensors that are not those of aioacl, with the structures of dlpack.h."""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Final

import pytest

from aioacl import simulator

EXTENSION: Final = 12
ASCEND: Final = 21
READ_ONLY: Final = 1
BOTH = pytest.mark.parametrize("version", [None, (1, 0)], ids=["legacy", "versioned"])


def device_blocks() -> int:
    return simulator.stats().device_blocks


def host_blocks() -> int:
    return simulator.stats().host_blocks


class Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_index", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Legacy(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


DELETER: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # its calls are made without the GIL
DESTRUCTOR: Final = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
NAMES: Final = {Legacy: b"dltensor", Versioned: b"dltensor_versioned"}


def _function(name: str, result: Any, *arguments: Any) -> Any:
    prototype = ctypes.PYFUNCTYPE(result, *arguments)
    return prototype((name, ctypes.pythonapi))


_new = _function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, DESTRUCTOR)
_is_valid = _function("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_is_valid_at = _function("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_pointer = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_keep_for_ever = _function("Py_IncRef", None, ctypes.py_object)
_set_name = _function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)


class Consumer:
    """Takes a capsule over, as another library does. `end()` calls the deleter, without the GIL."""

    _used: Final = {kind: b"used_" + name for kind, name in NAMES.items()}  # the capsules refer to the names

    def __init__(self, capsule: object) -> None:
        kind: Any = next(kind for kind, name in NAMES.items() if _is_valid(capsule, name))
        self.managed = kind.from_address(_pointer(capsule, NAMES[kind]))
        assert _set_name(capsule, self._used[kind]) == 0

    @property
    def tensor(self) -> Tensor:
        tensor: Tensor = self.managed.tensor
        return tensor

    @property
    def shown(self) -> tuple[object, ...]:
        """The device type and index, the shape, the strides, and the type of the values."""
        tensor = self.tensor
        shape, strides = tensor.shape[: tensor.ndim], tensor.strides[: tensor.ndim]
        return (
            (tensor.device_type, tensor.device_index),
            shape,
            strides,
            (tensor.code, tensor.bits, tensor.lanes),
        )

    def end(self) -> None:
        """Calls the deleter."""
        DELETER(self.managed.deleter)(ctypes.addressof(self.managed))


class Producer:
    """A tensor of another library. `deletes` has the thread of each call of its deleter."""

    def __init__(
        self,
        address: int | None,
        shape: tuple[int, ...],
        *,
        device: Any = (EXTENSION, 0),
        strides: tuple[int, ...] | None = None,
        dtype: tuple[int, int, int] = (1, 8, 1),
        offset: int = 0,
        flags: int = 0,
        version: tuple[int, int] | None = (1, 0),
        inside: tuple[int, int] | None = None,  # the device in the structure
        refuses: str = "",
        ndim: int | None = None,  # the number of dimensions in the structure
        has_deleter: bool = True,
    ) -> None:
        self.device = device
        inside = inside or (device if isinstance(device, tuple) else (EXTENSION, 0))
        self.deletes: list[int] = []
        self.requests: list[dict[str, Any]] = []
        self.version = version
        self._refuses = refuses
        size = len(shape)
        self._shape = (ctypes.c_int64 * max(size, 1))(*shape)
        self._strides = None if strides is None else (ctypes.c_int64 * max(size, 1))(*strides)
        dimensions = size if ndim is None else ndim
        self._values = (address, *inside, dimensions, *dtype, self._shape, self._strides, offset)
        self._has_deleter = has_deleter
        self._flags = flags

    def __dlpack_device__(self) -> Any:
        return self.device

    def __dlpack__(self, **options: Any) -> object:
        if self._refuses in options:
            raise TypeError(f"unexpected keyword argument {self._refuses!r}")
        self.requests.append(options)
        return self.capsule()

    def capsule(self) -> object:
        """Returns a new capsule."""
        deletes = self.deletes  # the deleter must not refer to the producer, which may refer to the capsule

        def delete(_: int) -> None:
            deletes.append(threading.get_native_id())

        deleter = DELETER(delete)
        kind = Legacy if self.version is None else Versioned
        managed: Any = kind()
        (
            managed.tensor.data,
            managed.tensor.device_type,
            managed.tensor.device_index,
            managed.tensor.ndim,
            managed.tensor.code,
            managed.tensor.bits,
            managed.tensor.lanes,
            shape,
            strides,
            managed.tensor.byte_offset,
        ) = self._values
        managed.tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
        if strides is not None:
            managed.tensor.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
        managed.deleter = ctypes.cast(deleter, ctypes.c_void_p) if self._has_deleter else None
        if self.version is not None:
            managed.major, managed.minor = self.version
            managed.flags = self._flags
        name = NAMES[kind]

        def destroy(capsule: int) -> None:
            if _is_valid_at(capsule, name):
                delete(0)

        destructor = DESTRUCTOR(destroy)
        for used in (managed, deleter, destructor):
            _keep_for_ever(used)  # capsules and consumers use it by its address
        return _new(ctypes.addressof(managed), name, destructor)
