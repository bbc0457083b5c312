"""The functions of `acl.rt` and `acl.mdl` that take or return dicts, and those of `acl.media`, written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioacl._base.ffi import ffi, lib, pointer, text_of
from aioacl._pyacl.arguments import encoded, enumerator
from aioacl._pyacl.calls import UNSUPPORTED
from aioacl._pyacl.structures import dims_from, fields
from aioacl._pyacl.tensors import INVALID_PARAM, MOST

if TYPE_CHECKING:
    from collections.abc import Callable

# --- acl.rt -------------------------------------------------------------------------------------------------------

_STREAM_FIELDS: Final = {
    lib.ACL_STREAM_ATTR_FAILURE_MODE: "failureMode",
    lib.ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK: "overflowSwitch",
    lib.ACL_STREAM_ATTR_USER_CUSTOM_TAG: "userCustomTag",
}
_RESERVED: Final = 4


def set_stream_attribute(stream: int, attribute: int, value: dict[str, Any]) -> int:
    """Sets an attribute of a stream from a dict with one entry; an entry that is missing counts as 0."""
    made: Any = ffi.new("aclrtStreamAttrValue *")
    field = _STREAM_FIELDS.get(attribute)
    if field is not None:
        setattr(made, field, value.get(field, 0))
    else:
        for index, each in enumerate(value.get("reserved", [])[:_RESERVED]):
            made.reserve[index] = each
    return lib.aio_u_aclrtSetStreamAttribute(ffi.cast("aclrtStream", stream), enumerator(attribute), made)


def get_stream_attribute(stream: int, attribute: int) -> tuple[dict[str, Any], int]:
    """Returns an attribute of a stream as a dict with one entry, and the code."""
    made: Any = ffi.new("aclrtStreamAttrValue *")
    code = lib.aio_u_aclrtGetStreamAttribute(ffi.cast("aclrtStream", stream), enumerator(attribute), made)
    field = _STREAM_FIELDS.get(attribute)
    if field is not None:
        return {field: getattr(made, field)}, code
    return {"reserved": list(made.reserve)}, code


def malloc_physical(size: int, properties: dict[str, Any], flags: int) -> tuple[int, int]:
    """Allocates physical memory with the properties of a dict, and returns its handle and the code."""
    handle = ffi.new("aclrtDrvMemHandle *")
    made: Any = ffi.new("aclrtPhysicalMemProp *")
    for name in ("handleType", "allocationType", "memAttr", "reserve"):
        setattr(made, name, properties.get(name, 0))
    location: Any = properties.get("location")
    if not issubclass(type(location), dict):
        raise TypeError(
            f"expected the dict to have 'location', a dict with 'id' and 'type', got {location!r}"
        )
    made.location.id, made.location.type = location.get("id", 0), location.get("type", 0)
    code = lib.aio_u_aclrtMallocPhysical(handle, size, made, flags)
    return pointer(handle[0]), code


def malloc_with_cfg(size: int, policy: int, config: dict[str, Any]) -> tuple[int, int]:
    """Allocates device memory. Only an empty dict is implemented as the configuration."""
    return _with_config(config, lib.aio_u_aclrtMallocWithCfg, size, enumerator(policy))


def malloc_for_task_scheduler(size: int, policy: int, config: dict[str, Any]) -> tuple[int, int]:
    """Allocates device memory for the task scheduler. Only an empty dict is implemented as the configuration."""
    return _with_config(config, lib.aio_u_aclrtMallocForTaskScheduler, size, enumerator(policy))


def malloc_host_with_cfg(size: int, config: dict[str, Any]) -> tuple[int, int]:
    """Allocates pinned memory. Only an empty dict is implemented as the configuration."""
    return _with_config(config, lib.aio_u_aclrtMallocHostWithCfg, size)


def _with_config(config: dict[str, Any], native: Any, *arguments: int) -> tuple[int, int]:
    if config:
        return 0, UNSUPPORTED
    made = ffi.new("void **")
    code = native(made, *arguments, ffi.NULL)
    return pointer(made[0]), code


# --- acl.mdl ------------------------------------------------------------------------------------------------------

_TEXT: Final = lib.ACL_MDL_PATH_PTR
_ADDRESSES: Final = frozenset(
    {
        lib.ACL_MDL_MEM_ADDR_PTR,
        lib.ACL_MDL_WEIGHT_ADDR_PTR,
        lib.ACL_MDL_WORKSPACE_ADDR_PTR,
        lib.ACL_MDL_WEIGHT_PATH_PTR,
    }
)
_keep_paths: Final[list[object]] = []  # a configuration refers to the path until it is used


def set_input_dynamic_dims(model: int, dataset: int, index: int, dims: dict[str, Any]) -> int:
    """Selects the gear of a model for an execution."""
    made = dims_from(dims, "acl.mdl.set_input_dynamic_dims")
    return lib.aio_u_aclmdlSetInputDynamicDims(model, ffi.cast("aclmdlDataset *", dataset), index, made)


def get_input_dynamic_dims(desc: int, index: int, number: int) -> tuple[list[Any] | None, int]:
    """Returns a dict for each gear, and the code."""
    if number > MOST:
        return None, INVALID_PARAM
    made = ffi.new("aclmdlIODims[]", number + 1)
    code = lib.aio_u_aclmdlGetInputDynamicDims(ffi.cast("const aclmdlDesc *", desc), index, made, number)
    return [None] * number if code else [fields(made[each]) for each in range(number)], code


def set_config_opt(handle: int, attribute: int, value: Any) -> int:
    """Sets an option of a load: a path as a str, everything else as an int."""
    if attribute == _TEXT:
        if not isinstance(value, str):
            raise TypeError(f"acl.mdl.set_config_opt: expected a path as a str, got {value!r}")
        path = ffi.new("char[]", encoded(value))
        _keep_paths.append(path)
        made = ffi.new("char **", path)
    elif not isinstance(value, int):
        raise TypeError(f"acl.mdl.set_config_opt: expected an int, got {value!r}")
    elif attribute == lib.ACL_MDL_PRIORITY_INT32:
        made = ffi.new("int32_t *", value)
    else:
        made = ffi.new("uint64_t *", value & (1 << 64) - 1)
    size = ffi.sizeof(made[0]) if attribute in _ADDRESSES else ffi.sizeof(ffi.typeof(made).item)
    return lib.aio_u_aclmdlSetConfigOpt(
        ffi.cast("aclmdlConfigHandle *", handle), enumerator(attribute), made, size
    )


def set_exec_config_opt(handle: int, attribute: int, value: int) -> int:
    """Sets an option of an execution."""
    made = ffi.new("uint32_t *", value)
    return lib.aio_u_aclmdlSetExecConfigOpt(
        ffi.cast("aclmdlExecConfigHandle *", handle), enumerator(attribute), made, ffi.sizeof("uint32_t")
    )


def set_dump(config: str | None = None) -> int:
    """Configures the dump of models from a file."""
    return lib.aio_u_aclmdlSetDump(ffi.NULL if config is None else encoded(config))


def create_and_get_op_desc(
    device: int, stream: int, task: int, length: int
) -> tuple[str, int, int, int, int, int]:
    """Returns the name of the operator of a task, its descriptions and their numbers, and the code."""
    if length > MOST:
        return "", 0, 0, 0, 0, INVALID_PARAM
    name = ffi.new("char[]", length + 1)
    inputs, outputs = ffi.new("aclTensorDesc **"), ffi.new("aclTensorDesc **")
    number_in, number_out = ffi.new("size_t *"), ffi.new("size_t *")
    code = lib.aio_u_aclmdlCreateAndGetOpDesc(
        device, stream, task, name, length, inputs, number_in, outputs, number_out
    )
    return text_of(name), pointer(inputs[0]), number_in[0], pointer(outputs[0]), number_out[0], code


# --- acl.media ----------------------------------------------------------------------------------------------------


def dvpp_malloc(size: int) -> tuple[int, int]:
    """Allocates device memory with the alignment that the image unit needs. Returns its address and the code."""
    made = ffi.new("void **")
    code = lib.aio_u_aclrtMalloc(made, size, lib.ACL_MEM_MALLOC_HUGE_FIRST)
    return pointer(made[0]), code


def dvpp_free(address: int) -> int:
    """Frees the memory of dvpp_malloc."""
    return lib.aio_u_aclrtFree(ffi.cast("void *", address))


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "create_and_get_op_desc": create_and_get_op_desc,
    "dvpp_free": dvpp_free,
    "dvpp_malloc": dvpp_malloc,
    "get_input_dynamic_dims": get_input_dynamic_dims,
    "get_stream_attribute": get_stream_attribute,
    "malloc_for_task_scheduler": malloc_for_task_scheduler,
    "malloc_host_with_cfg": malloc_host_with_cfg,
    "malloc_physical": malloc_physical,
    "malloc_with_cfg": malloc_with_cfg,
    "set_config_opt": set_config_opt,
    "set_dump": set_dump,
    "set_exec_config_opt": set_exec_config_opt,
    "set_input_dynamic_dims": set_input_dynamic_dims,
    "set_stream_attribute": set_stream_attribute,
}
"""The functions of the table that are written here."""
