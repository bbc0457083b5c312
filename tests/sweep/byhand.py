"""Scenarios that call many ACL functions directly, in the order in which programs call them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from aioacl import open_device
from aioacl._base.ffi import ffi
from aioacl.lowlevel import functions, on
from aioacl.simulator._control import control_function
from tests.kit import until_now

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioacl.lowlevel import Functions

SIZE: Final = 256
SYNC_EVENT: Final = 1
TIMED_EVENT: Final = 9
HBM: Final = 1


def new(kind: str, count: int = 1) -> Any:
    """Returns zeroed memory for a result."""
    return ffi.new(f"{kind}[{count}]")


def ask(acl: Functions, calls: Mapping[str, tuple[Any, ...]]) -> None:
    """Calls each function. An argument that is a type, such as "int32_t *", is replaced by memory for a result."""
    for name, arguments in calls.items():
        filled = [new(one.removesuffix(" *"), 64) if isinstance(one, str) else one for one in arguments]
        getattr(acl, name)(*filled)


FACTS: Final[Mapping[str, tuple[Any, ...]]] = {
    "aclrtGetRunMode": ("aclrtRunMode *",),
    "aclrtGetDeviceCount": ("uint32_t *",),
    "aclrtGetDevice": ("int32_t *",),
    "aclrtQueryDeviceStatus": (0, "aclrtDeviceStatus *"),
    "aclrtGetPrimaryCtxState": (0, ffi.NULL, "int32_t *"),
    "aclrtGetCurrentContext": ("aclrtContext *",),
    "aclrtCtxGetCurrentDefaultStream": ("aclrtStream *",),
    "aclrtDeviceGetStreamPriorityRange": ("int32_t *", "int32_t *"),
    "aclrtGetStreamAvailableNum": ("uint32_t *",),
    "aclrtGetEventAvailNum": ("uint32_t *",),
    "aclrtSetSysParamOpt": (0, 1),
    "aclrtGetSysParamOpt": (0, "int64_t *"),
    "aclrtCtxSetSysParamOpt": (0, 1),
    "aclrtCtxGetSysParamOpt": (0, "int64_t *"),
    "aclrtSetOpWaitTimeout": (60,),
    "aclrtSetOpExecuteTimeOut": (60,),
    "aclrtSetOpExecuteTimeOutWithMs": (60000,),
    "aclrtGetOpExecuteTimeout": ("uint32_t *",),
    "aclrtGetOpTimeOutInterval": ("uint64_t *",),
    "aclrtGetMemInfo": (HBM, "size_t *", "size_t *"),
    "aclrtGetDeviceInfo": (0, 1, "int64_t *"),
    "aclrtDeviceCanAccessPeer": ("int32_t *", 0, 1),
    "aclrtDevicePeerAccessStatus": (0, 1, "int32_t *"),
    "aclrtDeviceGetPCIBusId": (0, "char *", 64),
    "aclrtDeviceGetBareTgid": ("int32_t *",),
    "aclrtGetPhyDevIdByLogicDevId": (0, "int32_t *"),
    "aclrtGetLogicDevIdByPhyDevId": (0, "int32_t *"),
    "aclrtGetUserDevIdByLogicDevId": (0, "int32_t *"),
    "aclrtGetLogicDevIdByUserDevId": (0, "int32_t *"),
    "aclrtGetUserDevIdByPhyDevId": (0, "int32_t *"),
    "aclrtGetPhyDevIdByUserDevId": (0, "int32_t *"),
    "aclrtGetVersion": ("int32_t *", "int32_t *", "int32_t *"),
    "aclsysGetVersionNum": (ffi.new("char[]", b"runtime"), "int32_t *"),
    "aclsysGetVersionStr": (ffi.new("char[]", b"runtime"), "char *"),
    "aclrtGetDeviceSatMode": ("aclrtFloatOverflowMode *",),
    "aclrtSetDeviceSatMode": (0,),
    "aclrtGetDeviceUtilizationRate": (0, "aclrtUtilizationInfo *"),
    "aclrtGetDevicesTopo": (0, 1, "uint64_t *"),
    "aclrtGetThreadLastTaskId": ("uint32_t *",),
    "aclrtGetMemUsageInfo": (0, "aclrtMemUsageInfo *", 8, "size_t *"),
    "aclrtCheckArchCompatibility": (b"Ascend910B1", "int32_t *"),
}


async def facts() -> None:
    """Calls the functions that return facts about the process, a device and its context."""
    async with open_device() as device:
        acl = on(device)

        def body() -> None:
            ask(acl, FACTS)

        await device.run(body)


def streams_of(acl: Functions, stack: ExitStack) -> tuple[Any, Any, Any]:
    """Makes a stream, an event with timing, and a notify."""
    stream, event, notify = new("aclrtStream"), new("aclrtEvent"), new("aclrtNotify")
    acl.aclrtCreateStreamWithConfig(stream, 0, 0)
    stack.callback(acl.aclrtDestroyStream, stream[0])
    acl.aclrtCreateEventWithFlag(event, TIMED_EVENT)
    stack.callback(acl.aclrtDestroyEvent, event[0])
    acl.aclrtCreateNotify(notify, 0)
    stack.callback(acl.aclrtDestroyNotify, notify[0])
    return stream[0], event[0], notify[0]


def use_streams(acl: Functions) -> None:
    """Calls the functions of streams, events and notifies."""
    with ExitStack() as stack:
        stream, event, notify = streams_of(acl, stack)
        ask(
            acl,
            {
                "aclrtStreamGetId": (stream, "int32_t *"),
                "aclrtStreamGetPriority": (stream, "uint32_t *"),
                "aclrtStreamGetFlags": (stream, "uint32_t *"),
                "aclrtSetStreamFailureMode": (stream, 0),
                "aclrtSetStreamOverflowSwitch": (stream, 1),
                "aclrtGetStreamOverflowSwitch": (stream, "uint32_t *"),
                "aclrtGetNotifyId": (notify, "uint32_t *"),
                "aclrtRecordEvent": (event, stream),
                "aclrtStreamWaitEvent": (stream, event),
                "aclrtStreamWaitEventWithTimeout": (stream, event, 60),
                "aclrtRecordNotify": (notify, stream),
                "aclrtWaitAndResetNotify": (notify, stream, 60),
                "aclrtSynchronizeEvent": (event,),
                "aclrtSynchronizeEventWithTimeout": (event, 60000),
                "aclrtSynchronizeStream": (stream,),
                "aclrtSynchronizeStreamWithTimeout": (stream, 60000),
                "aclrtSynchronizeDevice": (),
                "aclrtSynchronizeDeviceWithTimeout": (60000,),
                "aclrtGetEventId": (event, "uint32_t *"),
                "aclrtQueryEvent": (event, "aclrtEventStatus *"),
                "aclrtQueryEventStatus": (event, "aclrtEventRecordedStatus *"),
                "aclrtQueryEventWaitStatus": (event, "aclrtEventWaitStatus *"),
                "aclrtEventElapsedTime": ("float *", event, event),
                "aclrtEventGetTimestamp": (event, "uint64_t *"),
                "aclrtResetEvent": (event, stream),
                "aclrtStreamQuery": (stream, "aclrtStreamStatus *"),
                "aclrtStreamAbort": (stream,),
            },
        )


async def streams() -> None:
    """Streams, events and notifies, by direct calls."""
    async with open_device() as device:
        await device.run(use_streams, on(device))


def use_contexts(acl: Functions) -> None:
    """Creates an explicit context, and an event in it."""
    device, before, context, event = (
        new("int32_t"),
        new("aclrtContext"),
        new("aclrtContext"),
        new("aclrtEvent"),
    )
    acl.aclrtGetDevice(device)
    acl.aclrtGetCurrentContext(before)
    with ExitStack() as stack:
        acl.aclrtCreateContext(context, device[0])
        # This call needs no context. `acl` would first make its context current, which may fail.
        stack.callback(functions.aclrtDestroyContext, context[0])
        stack.callback(acl.aclrtSetCurrentContext, before[0])
        acl.aclrtSetCurrentContext(context[0])
        functions.aclrtCreateEvent(event)
        functions.aclrtDestroyEvent(event[0])


async def contexts() -> None:
    """Contexts, by direct calls."""
    async with open_device() as device:
        await device.run(use_contexts, on(device))


def taken(acl: Functions, stack: ExitStack, function: str, free: str, *arguments: object) -> Any:
    """Allocates memory with the function. The stack frees it."""
    pointer = new("void *")
    getattr(acl, function)(pointer, *arguments)
    stack.callback(getattr(acl, free), pointer[0])
    return pointer[0]


def settled(stream: Any) -> None:
    """Waits until the stream is idle, because memory in use must not be freed. Queries the simulator, not ACL."""
    pending = control_function("aclsim_pending", "int64_t (*)(void *)")
    assert until_now(lambda: pending(stream) <= 0)


def use_memory(acl: Functions) -> None:
    """Calls each function that allocates memory, and the functions that copy and fill it."""
    with ExitStack() as stack:
        stream = new("aclrtStream")
        acl.aclrtCreateStream(stream)
        stack.callback(acl.aclrtDestroyStreamForce, stream[0])
        one = taken(acl, stack, "aclrtMalloc", "aclrtFree", SIZE, 0)
        two = taken(acl, stack, "aclrtMallocAlign32", "aclrtFree", SIZE, 0)
        three = taken(acl, stack, "aclrtMallocCached", "aclrtFree", SIZE, 0)
        host = taken(acl, stack, "aclrtMallocHost", "aclrtFreeHost", SIZE)
        stack.callback(settled, stream[0])
        ask(
            acl,
            {
                "aclrtPointerGetAttributes": (one, "aclrtPtrAttributes *"),
                "aclrtMemset": (one, SIZE, 1, SIZE),
                "aclrtMemcpy": (two, SIZE, one, SIZE, 3),
                "aclrtMemsetAsync": (three, SIZE, 1, SIZE, stream[0]),
                "aclrtMemcpyAsync": (host, SIZE, three, SIZE, 2, stream[0]),
                "aclrtMemcpy2d": (one, 16, host, 16, 16, 4, 1),
                "aclrtMemcpy2dAsync": (one, 16, host, 16, 16, 4, 1, stream[0]),
                "aclrtMemFlush": (three, SIZE),
                "aclrtMemInvalidate": (three, SIZE),
                "aclrtSynchronizeStream": (stream[0],),
            },
        )


async def memory() -> None:
    """Memory, by direct calls."""
    async with open_device() as device:
        await device.run(use_memory, on(device))
