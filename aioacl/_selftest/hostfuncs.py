"""Functions on the host that a stream calls."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aioacl._base.ffi import ffi
from aioacl._selftest._bench import download, expect, fill, require
from aioacl._selftest._records import SIMULATOR_ONLY, Family

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import CData
    from aioacl._selftest._bench import Bench, Memory, Stream

HOSTFUNCS: Final = Family("hostfuncs", "functions on the host that a stream calls")


def host_function(work: Callable[[], object]) -> CData:
    """Returns a C function that calls `work`. Keep a reference to the result while the runtime may call it."""

    def enter(_: Any) -> None:
        work()

    return ffi.callback("void(void *)", enter)


@HOSTFUNCS.assumes("order", "H/D", "aclrtLaunchHostFunc", SIMULATOR_ONLY)
def _(bench: Bench, stream: Stream) -> None:
    """Host functions are called in the order in which they were enqueued, each before a wait for the stream returns."""
    seen = list[int]()
    functions = [host_function(partial(seen.append, number)) for number in range(20)]
    for function in functions:
        expect(0, "aclrtLaunchHostFunc", stream, function, ffi.NULL)
    bench.finish(stream)
    require(seen == list(range(20)), f"expected calls in the order 0 to 19, got {seen}")


@HOSTFUNCS.assumes("elsewhere", "H", "aclrtLaunchHostFunc", SIMULATOR_ONLY)
def _(bench: Bench, stream: Stream) -> None:
    """Host functions run on a thread of the runtime, and not inside the call that enqueues them."""
    seen = list[int]()
    function = host_function(lambda: seen.append(threading.get_native_id()))
    with bench.held(stream):
        expect(0, "aclrtLaunchHostFunc", stream, function, ffi.NULL)
        require(not seen, "the function was called while the stream was held")
    require(len(seen) == 1, f"expected one call of the function, got {len(seen)}")
    require(seen[0] != threading.get_native_id(), "the function was called on the enqueueing thread")


@HOSTFUNCS.assumes("blocks", "H/D", "aclrtLaunchHostFunc aclrtMemsetAsync", SIMULATOR_ONLY)
def _(bench: Bench, stream: Stream, memory: Memory) -> None:
    """Later work of the stream waits until the host function has returned."""
    gate = threading.Event()
    function = host_function(lambda: gate.wait(5))
    fill(stream, memory, 1)
    expect(0, "aclrtLaunchHostFunc", stream, function, ffi.NULL)
    fill(stream, memory, 2)
    try:
        still = bench.stream_status(stream)
    finally:
        gate.set()
    bench.finish(stream)
    require(still == 1, "the stream was complete, although the function had not returned")
    require(download(memory, 1) == b"\2", "the fill after the host function was not done")
