"""ACL's structures as the dicts of pyACL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioacl._base.ffi import CData, ffi, pointer

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_DIMS: Final = 128
_UUID_SIZE_BYTES: Final = 16
# The arrays of which only the first entries count, with the field that has their number.
_COUNTED: Final = {
    "dims": "dimCount",
    "batch": "batchCount",
    "hw": "hwCount",
    "range": "rangeCount",
    "outDims": "shapeCount",
}
_UTILIZATION: Final = {
    "cube_utilization": "cubeUtilization",
    "vector_utilization": "vectorUtilization",
    "aicpu_utilization": "aicpuUtilization",
    "memory_utilization": "memoryUtilization",
}
_VERSION: Final = {
    "version": "version",
    "major_version": "majorVersion",
    "minor_version": "minorVersion",
    "release_version": "releaseVersion",
    "patch_version": "patchVersion",
    "reserved": "reserved",
}


def text(chars: CData) -> str:
    """Returns an array of chars as text."""
    return ffi.string(chars).decode("utf-8", "replace")


def _plain(value: Any, most: int | None = None) -> Any:
    """Returns a C value as numbers, texts, lists and dicts. `most` is the number of entries of an array that count."""
    if not isinstance(value, CData):
        return value
    c_type = ffi.typeof(value)
    if c_type.kind == "pointer":
        return pointer(value)
    if c_type.kind == "array":
        if c_type.item.cname == "char":
            return text(value)
        return [
            _plain(value[index]) for index in range(len(value) if most is None else min(most, len(value)))
        ]
    return fields(value)


def fields(structure: Any) -> dict[str, Any]:
    """Returns the fields of a structure by their C names."""
    found: dict[str, Any] = {}
    for name, _ in ffi.typeof(structure).fields:
        most = getattr(structure, _COUNTED[name]) if name in _COUNTED else None
        found[name] = _plain(getattr(structure, name), most)
    return found


def _renamed(structure: Any, names: Mapping[str, str]) -> dict[str, Any]:
    return {name: _plain(getattr(structure, field)) for name, field in names.items()}


def read(kind: str, structure: Any, code: int) -> Any:
    """Returns the dict that pyACL makes from a structure after a call that has returned this code."""
    if kind == "aipp":
        return None if code else fields(structure)
    if kind in ("dims", "batch", "hw"):
        return {} if code else fields(structure)
    if kind == "uuid":
        return {"bytes": [structure.bytes[index][0] for index in range(_UUID_SIZE_BYTES)]}
    if kind == "utilization":
        return {
            **_renamed(structure, _UTILIZATION),
            "utilization_extend": pointer(structure.utilizationExtend),
        }
    if kind == "version":
        return _renamed(structure, _VERSION)
    return fields(structure)  # range


def dims_from(dims: Mapping[str, Any], where: str) -> Any:
    """Returns an aclmdlIODims from a dict. Raises TypeError or ValueError if the dict has not its form."""
    given: Any = dims.get("dims")
    counted: Any = dims.get("dimCount")
    if not issubclass(type(given), list) or not all(isinstance(each, int) for each in given):
        raise TypeError(f"{where}: expected the dict to have 'dims', a list of ints, got {given!r}")
    if not isinstance(counted, int):
        raise TypeError(f"{where}: expected the dict to have 'dimCount', an int, got {counted!r}")
    if not 0 <= counted <= min(len(given), MOST_DIMS):
        raise ValueError(
            f"{where}: expected 'dimCount' from 0 to the length of 'dims' and at most {MOST_DIMS}, got {counted}"
        )
    made: Any = ffi.new("aclmdlIODims *")
    made.name = str(dims.get("name", "")).encode()[: MOST_DIMS - 1]
    made.dimCount = counted
    for index in range(counted):
        made.dims[index] = given[index]
    return made
