"""For each ACL function: the feature of aioacl that is lost if the library lacks the function."""

from __future__ import annotations

from typing import Final

_NEEDED: Final = frozenset(
    {
        "aclInit",
        "aclrtCreateEventExWithFlag",
        "aclrtCreateStream",
        "aclrtDestroyEvent",
        "aclrtDestroyStream",
        "aclrtFree",
        "aclrtFreeHost",
        "aclrtGetCurrentContext",
        "aclrtGetDeviceCount",
        "aclrtMalloc",
        "aclrtMallocHost",
        "aclrtMemcpy",
        "aclrtMemcpyAsync",
        "aclrtQueryEventStatus",
        "aclrtRecordEvent",
        "aclrtResetDevice",
        "aclrtResetDeviceForce",
        "aclrtSetCurrentContext",
        "aclrtSetDevice",
        "aclrtStreamQuery",
        "aclrtStreamWaitEvent",
        "aclrtSynchronizeStreamWithTimeout",
    }
)

_COSTS: Final = {
    "aclFinalizeReference": "ACL is never finalized before the process ends",
    "aclGetRecentErrMsg": "errors do not contain the runtime's own text",
    "aclrtCreateStreamWithConfig": "all streams have the same priority",
    "aclrtCreateEventWithFlag": "after a failure, the device may make no progress until a call synchronizes, and "
    "Stream.from_handle() is refused",
    "aclrtDestroyStreamForce": "the stream that wakes the runtime stays until the device is reset",
    "aclrtEventElapsedTime": "event.elapsed_since() is refused",
    "aclrtEventGetTimestamp": "traces have no device times",
    "aclrtGetMemInfo": "device.memory_info() is refused, and a load of a model does not read the free memory first",
    "aclrtGetSocName": "devices are listed without the name of the chip",
    "aclrtMemsetAsync": "stream.fill() is refused",
    "aclrtQueryDeviceStatus": "devices are listed without their status",
    "aclrtRegDeviceStateCallback": "foreign resets are noticed only by the codes of later calls",
    "aclrtRegStreamStateCallback": "STOP mode of other code is noticed only after a failure, and the end of a borrowed "
    "stream only by the next enqueue on it",
    "aclmdlRICaptureGetInfo": "a capture of a borrowed stream is noticed only by the code of an enqueue",
    "aclmdlRICaptureThreadExchangeMode": "opens, resets and loads of models may fail while other code captures",
    "aclrtGetStreamAttribute": "STOP mode of other code is noticed only after a failure",
    "aclrtSetStreamFailureMode": 'on_failure="stop" is refused',
    "aclrtStreamAbort": "stream.abort() is refused, and a reset waits for the runtime to drop unfinished work",
    "aclrtSynchronizeDeviceWithTimeout": "`await device.synchronize()` is refused",
    "aclrtExceptionInfoCallbackRegister": "failed tasks are reported by an older function of libruntime.so, if any",
    "aclrtGetThreadLastTaskId": "after a failure, earlier work of the stream may be reported as failed too",
    "aclrtQueryEvent": "after a failure, the device may make no progress until a call synchronizes",
    "aclrtStreamGetId": "failed tasks are found by synchronizing",
    "aclrtSynchronizeEventWithTimeout": 'devices cannot be opened with waits="thread"',
    "aclsysGetVersionNum": "the release of CANN is known only as text, or not at all",
    "aclsysGetVersionStr": "the release of CANN is unknown",
}

_NOTHING: Final = "nothing: aioacl itself does not call the function"


def is_needed(name: str) -> bool:
    """Returns True if every device needs the function."""
    return name in _NEEDED


def cost_of(name: str) -> str:
    """Returns what is lost without the function, in a few words."""
    return "no device can be used" if is_needed(name) else _COSTS.get(name, _NOTHING)


def called() -> frozenset[str]:
    """Returns the functions that aioacl itself calls."""
    return _NEEDED | _COSTS.keys()
