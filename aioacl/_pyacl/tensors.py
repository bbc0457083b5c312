"""The functions of `acl` for tensor descriptions that take lists, which are written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioacl._base.ffi import ffi, lib, pointer

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import CData

INVALID_PARAM: Final = 100000  # ACL_ERROR_INVALID_PARAM
MOST: Final = 4096  # the entries that pyACL asks for at most
_INT64: Final = range(-(1 << 63), 1 << 63)


def _integers(values: list[Any], what: str) -> list[int]:
    wrong = [each for each in values if not isinstance(each, int)]
    if wrong:
        raise TypeError(f"expected {what} to be a list of ints, got {wrong[0]!r} in it")
    outside = [each for each in values if each not in _INT64]
    if outside:
        raise ValueError(f"expected {what} to be a list of 64-bit ints, got {outside[0]}")
    return values


def _desc(desc: int) -> CData:
    return ffi.cast("aclTensorDesc *", desc)


def create_tensor_desc(data_type: int, dims: list[Any], layout: int) -> int:
    """Returns a new description of a tensor."""
    values = _integers(dims, "dims")
    return pointer(
        lib.aio_u_aclCreateTensorDesc(data_type, len(values), ffi.new("int64_t[]", values), layout)
    )


def _shape_setter(native: Callable[..., int]) -> Callable[[int, list[Any]], int]:
    def set_shape(desc: int, dims: list[Any]) -> int:
        values = _integers(dims, "dims")
        return native(_desc(desc), len(values), ffi.new("int64_t[]", values))

    return set_shape


set_tensor_shape: Final = _shape_setter(lib.aio_u_aclSetTensorShape)
set_tensor_storage_shape: Final = _shape_setter(lib.aio_u_aclSetTensorStorageShape)
set_tensor_origin_shape: Final = _shape_setter(lib.aio_u_aclSetTensorOriginShape)


def _range_setter(native: Callable[..., int]) -> Callable[[int, list[Any]], int]:
    def set_range(desc: int, ranges: list[Any]) -> int:
        if not all(issubclass(type(each), list) and len(each) == 2 for each in ranges):
            raise TypeError("expected a list of lists of two ints, the least and the most value")
        pairs = [_integers(each, "each range") for each in ranges]
        return native(_desc(desc), len(pairs), ffi.new("int64_t[][2]", pairs))

    return set_range


set_tensor_shape_range: Final = _range_setter(lib.aio_u_aclSetTensorShapeRange)
set_tensor_value_range: Final = _range_setter(lib.aio_u_aclSetTensorValueRange)


def get_tensor_desc_dim_range(desc: int, index: int, number: int) -> tuple[list[int] | None, int]:
    """Returns the range of a dimension, and the code."""
    if number > MOST:
        return None, INVALID_PARAM
    found = ffi.new("int64_t[]", number + 2)  # C writes two numbers, the least and the most value
    code = lib.aio_u_aclGetTensorDescDimRange(_desc(desc), index, number, found)
    return (None if code else [found[each] for each in range(number)]), code


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "create_tensor_desc": create_tensor_desc,
    "get_tensor_desc_dim_range": get_tensor_desc_dim_range,
    "set_tensor_origin_shape": set_tensor_origin_shape,
    "set_tensor_shape": set_tensor_shape,
    "set_tensor_shape_range": set_tensor_shape_range,
    "set_tensor_storage_shape": set_tensor_storage_shape,
    "set_tensor_value_range": set_tensor_value_range,
}
"""The functions of the table that are written here."""
