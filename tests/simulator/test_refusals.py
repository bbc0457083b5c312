"""The order of checks: which error a call with several mistakes returns. The runtime checks in the same order."""

from __future__ import annotations

import pytest

from aioacl import simulator
from aioacl._base.ffi import ffi
from aioacl._library import runtime
from tests.simulator.rawacl import DEVICE, device, good, made, new_memory, new_stream, rc

NO_HANDLE = 100000
BAD_VALUE = 107000
NO_CONTEXT = 107002
FOREIGN_STREAM = 107003
DEVICE_TO_DEVICE = 3


def last_error() -> int:
    return rc("aclrtGetLastError", 0)


@pytest.mark.parametrize("option", [0, 1, 2])
def test_context_option_with_a_bad_value_and_no_context_reports_the_value(option: int) -> None:
    runtime.load()
    last_error()
    assert [rc("aclrtCtxSetSysParamOpt", option, 1), last_error()] == [NO_CONTEXT, NO_CONTEXT]
    for value in (-1, 5):
        assert [rc("aclrtCtxSetSysParamOpt", option, value), last_error()] == [BAD_VALUE, BAD_VALUE]
    with device():
        good("aclrtCtxSetSysParamOpt", option, 1)
        assert [rc("aclrtCtxSetSysParamOpt", option, 5), last_error()] == [BAD_VALUE, BAD_VALUE]
        good("aclrtSetSysParamOpt", option, 0)


def test_copy_onto_itself_succeeds_without_a_check_of_context_or_stream() -> None:
    with device():
        memory, context = new_memory(), made("aclrtCreateContext", "aclrtContext", DEVICE)
        theirs = new_stream()
        good("aclrtSetDevice", DEVICE)
        copied = [memory, 64, memory, 64, DEVICE_TO_DEVICE]
        assert rc("aclrtMemcpyAsync", *copied, theirs) == 0
        assert rc("aclrtMemcpyAsync", memory, 64, memory + 32, 32, DEVICE_TO_DEVICE, theirs) == FOREIGN_STREAM
        assert simulator.pending(theirs) == 0
        (violation,) = simulator.violations()
        assert "not the current one" in violation
        simulator.forget()
        good("aclrtDestroyContext", context)
    assert rc("aclrtMemcpy", *copied) == 0
    assert rc("aclrtMemcpyAsync", *copied, ffi.NULL) == NO_CONTEXT
    assert rc("aclrtMemcpy", memory, 63, memory, 64, DEVICE_TO_DEVICE) == BAD_VALUE
    last_error()


def test_event_wait_with_a_bad_time_out_and_no_event_reports_the_time_out() -> None:
    runtime.load()
    last_error()
    refusals = [rc("aclrtSynchronizeEventWithTimeout", ffi.NULL, timeout) for timeout in (-2, -1, 0, 1)]
    assert refusals == [BAD_VALUE, NO_HANDLE, NO_HANDLE, NO_HANDLE]
    assert last_error() == 0
