"""The runtime's callbacks about the states of devices and streams.

They report resets by other code to aioacl, on the resetting thread, and aioacl aborts its streams in the callback.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from aioacl._base.ffi import ffi
from aioacl._selftest._bench import (
    ABORTED,
    NO_CONTEXT,
    NOT_SET,
    REFUSED,
    UNSUPPORTED,
    call,
    expect,
    require,
    require_code,
    written_by,
)
from aioacl._selftest._outcomes import NotTestable
from aioacl._selftest._records import Family, Needs
from aioacl._selftest._threads import RemoteThread, patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioacl._base.ffi import CData
    from aioacl._selftest._bench import Bench

STATES: Final = Family("states", "callbacks on devices and streams", alone=True)
SET_PRE, SET_POST, RESET_PRE, RESET_POST = range(4)
CREATED, DESTROYING = 1, 2
WORDS: Final = ("SET_PRE", "SET_POST", "RESET_PRE", "RESET_POST")


class StateCallback:
    """A registered callback that records the reported states, and the threads that it ran on."""

    def __init__(self, device: int, also: Callable[[int], object] = lambda _: None) -> None:
        self.reported: list[tuple[int, int]] = []

        def note(index: int, state: int, _: Any) -> None:
            if index == device:
                self.reported.append((state, threading.get_native_id()))
                also(state)

        self._callback = ffi.callback("void(int32_t, int, void *)", note)
        expect(0, "aclrtRegDeviceStateCallback", NAME, as_callback(self._callback), ffi.NULL)

    def must_be(self, *wanted: int) -> None:
        """Raises Broken unless these states were reported since the last check, on this thread."""
        states = [state for state, _ in self.reported]
        here = all(thread == threading.get_native_id() for _, thread in self.reported)
        self.reported.clear()
        require(states == list(wanted), f"the callback reported {_words(states)}, expected {_words(wanted)}")
        require(here, "the callback ran on another thread than the call")


NAME: Final = b"aioacl-selftest"


def as_callback(function: CData) -> CData:
    """Returns the same address, with the type that the table names."""
    return ffi.cast("aclrtDeviceStateCallback", function)


def _words(states: Iterable[int]) -> str:
    return " ".join(WORDS[state] if 0 <= state < len(WORDS) else str(state) for state in states) or "nothing"


@STATES.assumes("name", "H", "aclrtRegDeviceStateCallback", "_native/abort.c")
def _(bench: Bench) -> None:
    """A second registration of a name is refused with 107000, and accepted after NULL was registered."""
    reported = StateCallback(bench.device)
    other = ffi.callback("void(int32_t, int, void *)", lambda *_: None)
    expect(REFUSED, "aclrtRegDeviceStateCallback", NAME, as_callback(other), ffi.NULL)
    expect(0, "aclrtRegDeviceStateCallback", NAME, ffi.NULL, ffi.NULL)
    bench.set_device()
    reported.must_be()
    expect(0, "aclrtRegDeviceStateCallback", NAME, as_callback(other), ffi.NULL)


@STATES.assumes("set", "H", "aclrtRegDeviceStateCallback aclrtSetDevice", "_native/abort.c")
def _(bench: Bench) -> None:
    """The first aclrtSetDevice reports SET_PRE and SET_POST, each later one SET_POST, on the calling thread."""
    reported = StateCallback(bench.device)
    bench.set_device()
    reported.must_be(SET_PRE, SET_POST)
    bench.set_device()
    reported.must_be(SET_POST)


@STATES.assumes(
    "streams",
    "H",
    "aclrtRegStreamStateCallback aclrtCreateStream aclrtDestroyStream",
    "_native/foreignstop.c",
)
def _(bench: Bench) -> None:
    """The callback for streams reports 1 after a stream is made and 2 before it is destroyed, on the calling thread."""
    reported: list[tuple[CData, int, int]] = []

    def note(stream: CData, state: int, _: Any) -> None:
        reported.append((stream, state, threading.get_native_id()))

    callback = ffi.callback("void(void *, int, void *)", note)
    bench.set_device()
    function = ffi.cast("aclrtStreamStateCallback", callback)
    expect(0, "aclrtRegStreamStateCallback", NAME, function, ffi.NULL)
    stream = written_by("aclrtCreateStream")
    expect(0, "aclrtDestroyStream", stream)
    expect(0, "aclrtRegStreamStateCallback", NAME, ffi.NULL, ffi.NULL)
    here = threading.get_native_id()
    of_ours = [(state, thread) for each, state, thread in reported if each == stream]
    require(
        of_ours == [(CREATED, here), (DESTROYING, here)],
        f"expected the states 1 and 2 on thread {here}, got (state, thread) {of_ours}",
    )


@STATES.assumes(
    "reset",
    "H",
    "aclrtRegDeviceStateCallback aclrtResetDevice aclrtResetDeviceForce",
    "_native/abort.c",
    needs=Needs.RESET,
)
def _(bench: Bench) -> None:
    """A reset that releases the device reports RESET_PRE and RESET_POST, on the calling thread; other resets do not."""
    bench.set_device()
    bench.set_device()
    reported = StateCallback(bench.device)
    expect(0, "aclrtResetDevice", bench.device)
    reported.must_be()
    expect(0, "aclrtResetDevice", bench.device)
    reported.must_be(RESET_PRE, RESET_POST)
    expect(NOT_SET, "aclrtResetDeviceForce", bench.device)
    reported.must_be()
    bench.set_device()
    reported.must_be(SET_PRE, SET_POST)
    expect(0, "aclrtResetDeviceForce", bench.device)
    reported.must_be(RESET_PRE, RESET_POST)


@STATES.assumes(
    "context",
    "H",
    "aclrtRegDeviceStateCallback aclrtResetDeviceForce aclrtGetCurrentContext",
    "_native/abort.c",
    needs=Needs.RESET,
)
def _(bench: Bench) -> None:
    """Inside RESET_PRE the resetting thread still has the device's context, and inside RESET_POST it has none."""
    codes: dict[int, int] = {}
    contexts: dict[int, CData] = {}

    def look(state: int) -> None:
        found = ffi.new("aclrtContext *")
        codes[state] = call("aclrtGetCurrentContext", found)
        contexts[state] = found[0]

    bench.set_device()
    reported = StateCallback(bench.device, look)
    expect(0, "aclrtResetDeviceForce", bench.device)
    reported.must_be(RESET_PRE, RESET_POST)
    require_code(0, codes[RESET_PRE], "aclrtGetCurrentContext", "inside RESET_PRE")
    require(contexts[RESET_PRE] == bench.context, "inside RESET_PRE another context is current")
    require_code(NO_CONTEXT, codes[RESET_POST], "aclrtGetCurrentContext", "inside RESET_POST")


@STATES.assumes(
    "others",
    "H",
    "aclrtRegDeviceStateCallback aclrtResetDeviceForce aclrtStreamQuery aclrtSetCurrentContext",
    "_native/abort.c",
    needs=Needs.RESET,
)
def _(bench: Bench) -> None:
    """While RESET_PRE runs, calls of other threads that need the context return 107002."""
    codes, other = list[int](), RemoteThread()
    status = ffi.new("aclrtStreamStatus *")

    def in_callback(state: int) -> None:
        if state == RESET_PRE:
            codes.append(other.do(lambda: call("aclrtStreamQuery", stream, status)))

    bench.set_device()
    stream = bench.stream()
    other.do(bench.borrow)
    reported = StateCallback(bench.device, in_callback)
    expect(0, "aclrtResetDeviceForce", bench.device)
    bench.forget()
    require(codes, "a call on another thread inside RESET_PRE did not return")
    reported.must_be(RESET_PRE, RESET_POST)
    require_code(NO_CONTEXT, codes[0], "aclrtStreamQuery", "on another thread inside RESET_PRE")


@STATES.assumes(
    "abort",
    "H/D",
    "aclrtRegDeviceStateCallback aclrtResetDeviceForce aclrtStreamAbort aclrtSynchronizeStreamWithTimeout",
    "_native/abort.c",
    needs=Needs.RESET,
)
def _(bench: Bench) -> None:
    """aclrtStreamAbort works inside RESET_PRE, on the resetting thread: a wait for the stream returns 107023."""
    codes = list[int]()

    def in_callback(state: int) -> None:
        if state == RESET_PRE:
            codes.append(call("aclrtStreamAbort", stream))

    bench.set_device()
    stream = bench.stream()
    bench.hold_for_ever(stream)
    waiter = bench.waiter("aclrtSynchronizeStreamWithTimeout", stream, patience.wait_ms)
    reported = StateCallback(bench.device, in_callback)
    expect(0, "aclrtResetDeviceForce", bench.device)
    bench.forget()
    reported.must_be(RESET_PRE, RESET_POST)
    if codes == [UNSUPPORTED]:
        raise NotTestable("the firmware cannot abort streams (207000)")
    require_code(0, codes[0], "aclrtStreamAbort", "inside RESET_PRE")
    waiter.must_return(ABORTED, "when the stream was aborted", what="the wait for the aborted stream")
