"""Which refusal comes first when a call deserves several: the order is the runtime's."""

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
def test_a_contexts_option_has_its_value_checked_before_the_context_is_missed(option: int) -> None:
    runtime.load()
    last_error()
    assert [rc("aclrtCtxSetSysParamOpt", option, 1), last_error()] == [NO_CONTEXT, NO_CONTEXT]
    for value in (-1, 5):
        assert [rc("aclrtCtxSetSysParamOpt", option, value), last_error()] == [BAD_VALUE, BAD_VALUE]
    with device():
        good("aclrtCtxSetSysParamOpt", option, 1)
        assert [rc("aclrtCtxSetSysParamOpt", option, 5), last_error()] == [BAD_VALUE, BAD_VALUE]
        good("aclrtSetSysParamOpt", option, 0)


def test_a_copy_onto_itself_is_over_before_a_context_or_the_stream_is_looked_at() -> None:
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


def test_a_time_that_cannot_be_waited_is_refused_before_the_event_is_missed() -> None:
    runtime.load()
    last_error()
    refusals = [rc("aclrtSynchronizeEventWithTimeout", ffi.NULL, timeout) for timeout in (-2, -1, 0, 1)]
    assert refusals == [BAD_VALUE, NO_HANDLE, NO_HANDLE, NO_HANDLE]
    assert last_error() == 0
