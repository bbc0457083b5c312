"""ACL calls inside callbacks of aclrtProcessReport and inside host functions: which the usage checker reports."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from aioacl import simulator
from aioacl._base.ffi import ffi
from tests.simulator.modelcalls import value
from tests.simulator.rawacl import device, good, malloc, new_memory, new_pinned, new_stream

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK, PATIENCE_MS = 1, 10000


def reported(function: Callable[[], object]) -> list[Any]:
    """Runs the function in a callback of this thread, and returns what it has returned."""
    answers: list[Any] = []
    call = ffi.callback("void(void *)", lambda _data: answers.append(function()))
    stream, thread = new_stream(), threading.get_ident()
    good("aclrtSubscribeReport", thread, stream)
    good("aclrtLaunchCallback", call, ffi.NULL, BLOCK, stream)
    good("aclrtProcessReport", PATIENCE_MS)
    good("aclrtUnSubscribeReport", thread, stream)
    good("aclrtDestroyStream", stream)
    return answers


def test_callback_may_copy_to_pinned_memory_and_read_data_buffers() -> None:
    with device():
        memory = new_memory(8)
        buffer = value("aclCreateDataBuffer", memory, 8)
        good("aclrtMemset", memory, 8, 7, 8)

        def read() -> bytes:
            host = new_pinned(8)
            good("aclrtMemcpy", host, 8, value("aclGetDataBufferAddr", buffer), 8, 2)
            content = bytes(ffi.buffer(host, 8))
            good("aclrtFreeHost", host)
            return content

        assert reported(read) == [b"\7" * 8]
        good("aclDestroyDataBuffer", buffer)
        good("aclrtFree", memory)
    assert simulator.violations() == []


@pytest.mark.parametrize("function", [malloc, new_stream])
def test_callback_that_makes_device_objects_is_reported(function: Callable[[], object]) -> None:
    with device():
        assert len(reported(function)) == 1
    assert any("calls ACL inside a callback" in text for text in simulator.violations())
    simulator.forget()


def test_call_after_a_callback_is_not_reported() -> None:
    with device():
        assert reported(lambda: 1) == [1]
        assert malloc() == 0
    assert simulator.violations() == []


def test_host_function_that_copies_is_reported() -> None:
    with device():
        stream, host = new_stream(), new_pinned(8)
        call = ffi.callback("void(void *)", lambda _data: good("aclrtFreeHost", host))
        good("aclrtLaunchHostFunc", stream, call, ffi.NULL)
        good("aclrtSynchronizeStream", stream)
        good("aclrtDestroyStream", stream)
    assert any("calls ACL inside a callback" in text for text in simulator.violations())
    simulator.forget()
