"""Which parameters of a function are outputs.

A vector lists inputs only. The type of a parameter in the table of functions decides whether the parameter is an
output. A pointer to a number, an enumeration or a handle is an output. Each other parameter is one machine word that
the vector gives.
The exceptions are arrays that the caller writes, outputs that vectors name differently, and outputs that are not
compared because they depend on the hardware.

The kind of an output is a letter: H a handle, P memory (both can be bound to a symbol), i and u 32 bits with and
without a sign, l 64 bits, f a time of which only the sign is compared, t a clock that must not be zero, - not compared,
S a structure of zeros that is not compared, M 32 bits that the vector gives by their address and the function changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

from aioacl._base.ffi import ffi
from aioacl.lowlevel._table import Parameter, Row, rows

_NUMBERS: Final = {
    "int32_t": "i",
    "uint32_t": "u",
    "int64_t": "l",
    "uint64_t": "l",
    "size_t": "l",
    "float": "f",
    "void *": "P",
}
_EXCEPTIONS: Final = {
    "aclrtGetDevice": "i:device",
    "aclrtQueryDeviceStatus": ". -:status",
    "aclrtGetDeviceUtilizationRate": ". S:info",
    "aclrtDeviceCanAccessPeer": "-:can . .",
    "aclrtDeviceGetStreamPriorityRange": "i:least i:greatest",
    "aclrtGetDeviceInfo": ". . -:value",
    "aclrtGetDeviceCapability": ". . -:value",
    "aclrtGetMemInfo": ". -:free -:total",
    "aclrtGetStreamAvailableNum": "-:count",
    "aclrtGetStreamAttribute": ". . u:value",
    "aclrtGetOpExecuteTimeout": "-:timeout",
    "aclrtEventGetTimestamp": ". t:timestamp",
    "aclrtGetEventId": ". -:eventId",
    "aclrtGetEventAvailNum": "-:count",
    "aclrtMalloc": "P:ptr . .",
    "aclrtMallocAlign32": "P:ptr . .",
    "aclrtMallocCached": "P:ptr . .",
    "aclrtMallocWithCfg": "P:ptr . . .",
    "aclrtMallocHost": "P:ptr .",
    "aclrtGetNotifyId": ". -:notifyId",
    "aclrtCntNotifyCreate": "H:notify .",
    "aclrtGetThreadLastTaskId": "-:taskId",
    "aclmdlRICaptureGetInfo": ". i:status H:model",
    "aclmdlRICaptureEnd": ". H:model",
    "aclmdlRICaptureThreadExchangeMode": "M:mode",
    "aclmdlRICaptureTaskGrpEnd": ". H:grp",
    "aclmdlRIBuildBegin": "H:model .",
    "aclmdlRIGetName": ". . -:name",
    "aclmdlRIGetId": ". -:id",
    "aclmdlRIGetStreams": ". . M:num",
    "aclmdlRIGetTasksByStream": ". . M:num",
    "aclmdlRITaskGetSeqId": ". -:id",
    "aclrtCreateLabelList": ". . H:list",
    "aclrtNotifyBatchReset": ". .",
    "aclrtNotifySetImportPid": ". . .",
    "aclrtCntNotifyGetId": ". -:id",
    "aclrtMemcpyBatch": ". . . . . . . . -:fail",
    "aclrtMemcpyBatchV2": ". . . . . . . .",
    "aclrtMemcpyBatchAsync": ". . . . . . . . -:fail .",
    "aclrtMemcpyBatchAsyncV2": ". . . . . . . . .",
    "aclrtHostRegister": ". . . P:dev",
    "aclrtHostGetDevicePointer": ". P:dev .",
    "aclrtGetErrorVerbose": ". S:info",
    "aclrtGetVersion": "-:major -:minor -:patch",
    "aclsysGetCANNVersion": ". S:v",
    "aclsysGetVersionStr": ". S:v",
    "aclsysGetVersionNum": ". -:v",
    "aclrtGetLogicDevIdByUserDevId": ". i:id",
    "aclrtGetUserDevIdByLogicDevId": ". i:id",
    "aclrtGetLogicDevIdByPhyDevId": ". i:id",
    "aclrtGetPhyDevIdByLogicDevId": ". i:id",
    "aclrtGetUserDevIdByPhyDevId": ". i:id",
    "aclrtGetPhyDevIdByUserDevId": ". i:id",
    "aclrtMemPoolCreate": "H:pool .",
    "aclrtMemPoolGetAttr": ". . l:value",
    "aclrtGetGroupCount": "-:count",
    "aclrtCtxGetFloatOverflowAddr": "P:addr",
    "aclrtIpcGetEventHandle": ". S:handle",
    "aclrtCheckArchCompatibility": ". i:ok",
    "aclrtPointerGetAttributes": ". S:attr",
    "aclGetCannAttribute": ". -:v",
}
_SAME: Final = {
    "aclrtGetCurrentContext": "c",
    "aclrtCtxGetCurrentDefaultStream": "s",
    "aclrtStreamGetId": "i",
}
_ENDING: Final = ("aclrtDestroy", "aclrtFree", "aclDestroy", "aclrtCntNotifyDestroy", "aclrtMemPoolDestroy")
_SIZES: Final = ("size_t", "uint32_t")


@dataclass(frozen=True, slots=True)
class Output:
    """A parameter that the function writes to."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Spec:
    """How a function is called, and what is compared of its result."""

    parameters: tuple[Output | None, ...]  # None: an input
    returns_pointer: bool
    returns_size: bool
    ends: bool  # on success, its first input is no longer valid
    same_as: str  # its output is compared with the symbols of this kind


@cache
def spec_of(name: str) -> Spec | None:
    """Returns the spec of the function, or None if the table lacks it."""
    row = rows().get(name)
    if row is None:
        return None
    return Spec(
        _parameters(row),
        "*" in row.returns,
        row.returns in _SIZES,
        name.startswith(_ENDING),
        _SAME.get(name, ""),
    )


def _parameters(row: Row) -> tuple[Output | None, ...]:
    if row.name not in _EXCEPTIONS:
        return tuple(map(_derived, row.parameters))
    tokens = [token.partition(":") for token in _EXCEPTIONS[row.name].split()]
    return tuple(Output(kind, name) if name else None for kind, _, name in tokens)


def _derived(parameter: Parameter) -> Output | None:
    target = parameter.bare.removesuffix("*").strip()
    if not parameter.writable or target == parameter.bare:
        return None
    kind = _NUMBERS.get(target) or _kind_of_type(target)
    return Output(kind, parameter.name) if kind else None


def _kind_of_type(target: str) -> str:
    """Returns the kind of a pointer to a type of ACL: handles and enumerations are outputs, structures are inputs."""
    if not target.startswith("acl") or target.endswith("*"):
        return ""
    return {"pointer": "H", "enum": "i"}.get(ffi.typeof(target).kind, "")
