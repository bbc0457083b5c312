"""The tools of a check.

Each check gets its own bench, on a new thread. That thread has set the device, unless the check runs in a process of
its own. The bench makes the handles that the parameters of the check name by their types. These handles, and those that
the check makes with the bench, are released at the end. To hold a stream, the bench makes it wait for an event that is
not recorded yet. This needs only ACL functions, so it works on a card too.

Time is measured as little as possible. To see that a call does not return, a check watches it for a short time only. So
a slow machine may make a broken runtime pass. A correct runtime fails only if a call takes many seconds.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aioacl._base.codes import lookup
from aioacl._base.ffi import ffi, lib
from aioacl._selftest._outcomes import Broken, NotTestable
from aioacl._selftest._threads import MOMENT_SECONDS, Helper, on_a_thread, patience

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from aioacl._base.ffi import CData

    # The parameters of checks have these types; see Bench.run.
    Stream: TypeAlias = CData
    Event: TypeAlias = CData
    Memory: TypeAlias = CData
    Pinned: TypeAlias = CData

POLL_SECONDS: Final = 0.0005
ENTER_SECONDS: Final = 0.2  # the time for a thread to enter a call, if no query reports that it is inside
REPEAT_INITIALIZE: Final = 100002
NO_CONTEXT: Final = 107002
WRONG_CONTEXT: Final = 107003
REFUSED: Final = 107000
NULL_REFUSED: Final = 100000
STREAM_TIMEOUT: Final = 507046
EVENT_TIMEOUT: Final = 507047
ABORTED: Final = 107023
NOT_SET: Final = 507007
NO_DEVICE: Final = 107001
UNSUPPORTED: Final = 207000
SYNC, TIME_LINE = 0x1, 0x8  # flags of events; with SYNC alone, aclrtCreateEventWithFlag makes the old kind
BLOCK_BYTES: Final = 4096
PATTERN_BYTES: Final = 1 << 16  # a longer pattern repeats, because making more bytes takes seconds


def named(code: int) -> str:
    """Returns the code and its name in ACL."""
    return f"{code} {lookup(code).name}" if code > lib.AIO_LIMIT else f"{code}"


def call(function: str, *arguments: Any) -> Any:
    """Calls an ACL function without a check, through the table that all of aioacl uses."""
    return getattr(lib, f"aio_u_{function}")(*arguments)


def expect(wanted: int, function: str, *arguments: Any, when: str = "") -> None:
    """Calls a function that must return the expected code."""
    require_code(wanted, call(function, *arguments), function, when)


def written_by(function: str, *arguments: Any) -> Any:
    """Calls a function that must succeed, and returns what it writes through its first parameter."""
    place = ffi.new(_parameters(function)[0])
    expect(0, function, place, *arguments)
    return place[0]


def status_of(function: str, handle: CData) -> int:
    """Returns the number that a query writes through its last parameter; the query must return 0."""
    status = ffi.new(_parameters(function)[-1])
    expect(0, function, handle, status)
    return int(status[0])


def _parameters(function: str) -> Any:
    return ffi.typeof(getattr(lib, f"aio_u_{function}")).args


def require_code(wanted: int, code: int, function: str, when: str = "") -> None:
    """Raises Broken if a call has returned another code."""
    if code != wanted:
        raise Broken(f"{function} returned {named(code)}{when and ' ' + when}, expected {named(wanted)}")


def require(condition: object, otherwise: str) -> None:
    """Raises Broken unless the condition holds."""
    if not condition:
        raise Broken(otherwise)


def until(condition: Callable[[], object], what: str) -> None:
    """Checks the condition until it holds. Raises Broken if it does not hold in time."""
    end = time.monotonic() + patience.seconds
    while not condition():
        require(time.monotonic() < end, f"{what} within {patience.seconds:g} s")
        time.sleep(POLL_SECONDS)


def expect_on_a_thread(wanted: int, function: str, *arguments: Any, when: str = "") -> None:
    """Calls a function that must return the expected code, on a new thread, which has no context."""
    code = on_a_thread(lambda: call(function, *arguments), function)
    require_code(wanted, code, function, when)


class Waiter:
    """A thread that waits in an ACL function."""

    def __init__(self, bench: Bench, function: str, *arguments: Any) -> None:
        self._function = function
        self._helper = bench.helper(lambda: call(function, *arguments))
        bench.wait_inside(self._helper, function)

    def must_wait(self, otherwise: str) -> None:
        """Raises Broken if the function has returned."""
        require(not self._helper.returned(), otherwise)

    def must_return(self, wanted: int, when: str = "", *, what: str = "") -> None:
        """Raises Broken unless the function returns this code in time."""
        require_code(wanted, self._helper.answer(what or self._function), self._function, when)


class Bench:
    """Calls and handles for one check, on the thread that made it."""

    def __init__(self, device: int, *, simulated: bool, model: str | None = None) -> None:
        self.device = device
        self.simulated = simulated
        self.model = model  # the path of an .om file; None: the model of the package
        self.context = ffi.NULL
        self._cleanup = ExitStack()

    def run(self, check: Callable[..., None]) -> None:
        """Calls the check with what the types of its parameters name: this bench, and new handles."""
        check(*(MAKERS[kind](self) for name, kind in check.__annotations__.items() if name != "return"))

    def initialise(self) -> None:
        """Calls aclInit, as each program does first; it returns 100002 if this process has called it already."""
        one_of((0, REPEAT_INITIALIZE), call("aclInit", ffi.NULL), "aclInit")

    def set_device(self) -> None:
        """Binds this thread to the device, and stores its primary context."""
        expect(0, "aclrtSetDevice", self.device)
        self.context = self.current_context()

    def close(self) -> None:
        """Releases what was made; each release must succeed."""
        self._cleanup.close()

    def forget(self) -> None:
        """Discards the handles without releasing them: a reset has released them, or the check has failed."""
        self._cleanup.pop_all()

    # --- contexts -------------------------------------------------------------------------------------------------

    def current_context(self) -> CData:
        """Returns the context of this thread, which must have one."""
        context: CData = written_by("aclrtGetCurrentContext")
        return context

    def is_active(self) -> bool:
        """Returns whether the device has a primary context now. Passes NULL for the flags, as aioacl does."""
        active = ffi.new("int32_t *", -1)
        expect(0, "aclrtGetPrimaryCtxState", self.device, ffi.NULL, active)
        return int(active[0]) == 1

    def borrow(self) -> None:
        """Makes the primary context current on a helper thread, as the gate does."""
        expect(0, "aclrtSetCurrentContext", self.context)

    @contextmanager
    def explicit_context(self) -> Generator[CData]:
        """A second context of the device, current inside the block. After it, the primary one is current again."""
        made = written_by("aclrtCreateContext", self.device)
        try:
            yield made
        finally:
            call("aclrtDestroyContext", made)
            self.borrow()

    def helper(self, work: Callable[[], Any]) -> Helper:
        """Runs the function on another thread, with the device's primary context."""

        def bound() -> Any:
            self.borrow()
            return work()

        return Helper(bound)

    def expect_return(self, wanted: int, function: str, *arguments: Any) -> None:
        """Calls a function that must return the expected code in time, on another thread with the same context."""
        code = self.helper(lambda: call(function, *arguments)).answer(function)
        require_code(wanted, code, function)

    def waiter(self, function: str, *arguments: Any) -> Waiter:
        """Returns a thread with the same context that is inside this call, which must not return yet."""
        return Waiter(self, function, *arguments)

    # --- handles ----------------------------------------------------------------------------------------------------

    def keep(self, function: str, handle: CData | int) -> None:
        """Calls the function with the handle when the check ends."""
        self._cleanup.callback(expect, 0, function, handle)

    def make(self, destroy: str, create: str, *arguments: Any) -> CData:
        """Returns a new handle, which is destroyed when the check ends."""
        handle: CData = written_by(create, *arguments)
        self.keep(destroy, handle)
        return handle

    def stream(self) -> CData:
        """Returns a new stream."""
        return self.make("aclrtDestroyStream", "aclrtCreateStream")

    def event(self, flags: int = SYNC) -> CData:
        """Returns a new event of the kind that aioacl uses."""
        return self.make("aclrtDestroyEvent", "aclrtCreateEventExWithFlag", flags)

    def old_event(self) -> CData:
        """Returns a new event of the old kind."""
        return self.make("aclrtDestroyEvent", "aclrtCreateEventWithFlag", SYNC)

    def memory(self, size: int = BLOCK_BYTES) -> CData:
        """Returns device memory."""
        return self.make("aclrtFree", "aclrtMalloc", size, lib.ACL_MEM_MALLOC_HUGE_FIRST)

    def pinned(self, size: int = BLOCK_BYTES) -> CData:
        """Returns pinned host memory."""
        return self.make("aclrtFreeHost", "aclrtMallocHost", size)

    # --- held streams -------------------------------------------------------------------------------------------------

    @contextmanager
    def held(self, *streams: CData) -> Generator[Callable[[], None]]:
        """Holds streams until the block ends, or until the function that it yields is called."""
        gate = written_by("aclrtCreateEventWithFlag", SYNC)
        opener = self.stream()
        opened = False

        def release() -> None:
            nonlocal opened
            if not opened:
                opened = True
                expect(0, "aclrtRecordEvent", gate, opener)
                self.finish(opener)

        try:
            for stream in streams:
                expect(0, "aclrtStreamWaitEvent", stream, gate)
            yield release
        finally:
            release()
        for stream in streams:
            self.finish(stream)
        expect(0, "aclrtDestroyEvent", gate)

    def hold_for_ever(self, stream: CData) -> None:
        """Makes the stream wait for an event that is never recorded."""
        expect(0, "aclrtStreamWaitEvent", stream, written_by("aclrtCreateEventWithFlag", SYNC))

    def wait_inside(self, helper: Helper, function: str) -> None:
        """Waits until the helper is inside the function. The check fails if the function has returned."""
        if self.simulated:
            symbol = ffi.cast("int (*)(const char *)", lib.aio_library_symbol(b"aclsim_waiting"))
            name = ffi.new("char[]", function.encode())
            for _ in range(int(patience.seconds * 1000)):
                if symbol(name) or helper.returned(0.001):
                    break
        require(not helper.returned(MOMENT_SECONDS if self.simulated else ENTER_SECONDS), _returned(function))

    # --- queries ------------------------------------------------------------------------------------------------------

    def stream_status(self, stream: CData) -> int:
        """Returns the number that aclrtStreamQuery writes."""
        return status_of("aclrtStreamQuery", stream)

    def event_status(self, event: CData) -> int:
        """Returns the number that aclrtQueryEventStatus writes."""
        return status_of("aclrtQueryEventStatus", event)

    def finish(self, stream: CData) -> None:
        """Waits for the work of the stream."""
        expect(0, "aclrtSynchronizeStreamWithTimeout", stream, patience.wait_ms)

    # --- injected faults, on the simulator ----------------------------------------------------------------------------

    def fail_next(self, stream: CData, code: int) -> None:
        """Makes the next task of the stream fail."""
        symbol = ffi.cast("int (*)(void *, int32_t)", lib.aio_library_symbol(b"aclsim_fail_next"))
        if symbol(stream, code):
            raise NotTestable("the simulator refused the injected fault")

    def nudge_until(self, condition: Callable[[], bool]) -> None:
        """Wakes the runtime's thread that handles failed tasks, until the condition holds or the time is over."""
        idle, wake = self.stream(), self.old_event()
        for _ in range(patience.wait_ms):
            expect(0, "aclrtRecordEvent", wake, idle)
            status_of("aclrtQueryEvent", wake)
            if condition():
                break


MAKERS: Final[dict[str, Callable[[Bench], Any]]] = {
    "Bench": lambda bench: bench,
    "Stream": Bench.stream,
    "Event": Bench.event,
    "Memory": Bench.memory,
    "Pinned": Bench.pinned,
}


def _returned(function: str) -> str:
    return f"{function} returned before the work was done"


def pattern(size: int, seed: int = 3) -> bytes:
    """Returns bytes that no fill and no shifted copy can produce."""
    once = bytes((i * 7 + (i >> 8) * 13 + seed * 31) & 0xFF for i in range(min(size, PATTERN_BYTES)))
    return (once * (size // PATTERN_BYTES + 1))[:size]


def write(target: CData, data: bytes) -> None:
    """Writes bytes into host memory."""
    ffi.buffer(target, len(data))[:] = data


def read(source: CData, size: int) -> bytes:
    """Returns bytes from host memory."""
    return bytes(ffi.buffer(source, size))


def download(source: CData, size: int) -> bytes:
    """Returns the bytes of device memory; copies them with aclrtMemcpy, which waits."""
    back = ffi.new("char[]", size)
    expect(0, "aclrtMemcpy", back, size, source, size, lib.ACL_MEMCPY_DEVICE_TO_HOST)
    return read(back, size)


def fill(stream: CData, target: CData, value: int, size: int = BLOCK_BYTES) -> None:
    """Enqueues a fill."""
    expect(0, "aclrtMemsetAsync", target, size, value, size, stream)


def one_of(codes: Iterable[int], code: int, function: str) -> None:
    """Raises Broken unless the call has returned one of the codes."""
    allowed = tuple(codes)
    require(
        code in allowed,
        f"{function} returned {named(code)}, expected {' or '.join(named(each) for each in allowed)}",
    )
