"""The data types and formats of tensors in models: ACL's numbers, their names, and the numbers of ONNX."""

from __future__ import annotations

from typing import Final

from aioacl._base.options import repr_of

INT64: Final = 9

_TYPES: Final = {
    0: ("float32", 32),
    1: ("float16", 16),
    2: ("int8", 8),
    3: ("int32", 32),
    4: ("uint8", 8),
    6: ("int16", 16),
    7: ("uint16", 16),
    8: ("uint32", 32),
    INT64: ("int64", 64),
    10: ("uint64", 64),
    11: ("float64", 64),
    12: ("bool", 8),
    16: ("complex64", 64),
    17: ("complex128", 128),
    27: ("bfloat16", 16),
    29: ("int4", 4),
    35: ("float8_e5m2", 8),
    36: ("float8_e4m3fn", 8),
    37: ("float8_e8m0", 8),
    40: ("float4_e2m1", 4),
}
"""The name and the bits of each data type that a model of the simulator may have."""

# fmt: off
FROM_ONNX: Final = {
    1: 0, 2: 4, 3: 2, 4: 7, 5: 6, 6: 3, 7: INT64, 9: 12, 10: 1, 11: 11, 12: 8, 13: 10, 14: 16, 15: 17, 16: 27,
    17: 36, 19: 35, 22: 29, 23: 40, 24: 37,
}
# fmt: on
"""ACL's number of each data type of ONNX that ACL has, except strings, which are not memory."""

_ITEMS: Final = {
    "float32": "f",
    "float16": "e",
    "int8": "b",
    "int32": "i",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "uint32": "IL",
    "int64": "lq",
    "uint64": "LQ",
    "float64": "d",
    "bool": "?",
    "complex64": "Zf",
    "complex128": "Zd",
    "bfloat16": "EH",
}
"""The formats of the buffer protocol that hold each data type.

NumPy has no bfloat16, so it travels as uint16. "E" is the format that aioacl gives to bfloat16 of DLPack tensors.
"""

_SIZES: Final = {name: bits // 8 for name, bits in _TYPES.values() if bits % 8 == 0}

NCHW, ND, NCDHW = 0, 2, 30
FORMATS: Final = {
    NCHW: "NCHW",
    1: "NHWC",
    ND: "ND",
    3: "NC1HWC0",
    27: "NDHWC",
    29: "FRACTAL_NZ",
    NCDHW: "NCDHW",
}


def type_name(dtype: int) -> str:
    """Returns the name of a data type; the number itself if a genuine file has a type that is not in the table."""
    return _TYPES[dtype][0] if dtype in _TYPES else str(dtype)


def holds(item: str, itemsize: int, dtype: str) -> bool:
    """Whether items of a buffer, with a native format of the buffer protocol, have the data type of that name."""
    return item in item_formats(dtype) and itemsize == itemsize_of(dtype)


def item_formats(dtype: str) -> tuple[str, ...]:
    """Returns the formats of the buffer protocol that hold the data type, if the size of an item is right."""
    formats = _ITEMS.get(dtype, "")
    return (formats,) if formats.startswith("Z") else tuple(formats)


def item_name(item: str, itemsize: int) -> str:
    """Returns the name of the data type of a buffer's items, for messages; the format itself if it has none."""
    return next((name for name in _ITEMS if holds(item, itemsize, name)), f"items of format {repr_of(item)}")


def array_dtype(dtype: str) -> str | None:
    """Returns NumPy's name of the type that holds a data type; None if it has none."""
    return {"bfloat16": "uint16"}.get(dtype, dtype if dtype in _ITEMS else None)


def itemsize_of(dtype: str) -> int:
    """Returns the bytes of one element; 0 if an element is not a whole number of bytes."""
    return _SIZES.get(dtype, 0)


def format_name(number: int) -> str:
    """Returns the name of a format, or its number."""
    return FORMATS.get(number, str(number))


def size_of(dtype: int, elements: int) -> int:
    """Returns the bytes of a tensor; elements of 4 bits are packed in pairs."""
    return (elements * _TYPES[dtype][1] + 7) // 8
