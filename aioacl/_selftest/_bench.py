"""The tools of a check.

Each check gets its own bench, on a new thread. That thread has set the device, unless the check runs in a process of
its own. The handles that the check makes with the bench are released at the end. To hold a stream, the bench makes it
wait for an event that is not recorded yet. This needs only ACL functions, so it works on a card too.

Time is measured as little as possible. To see that a call does not return, a check watches it for a short time only. So
a slow machine may make a broken runtime pass. A correct runtime fails only if a call takes many seconds.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from aioacl._base.codes import lookup
from aioacl._base.ffi import ffi, lib
from aioacl._selftest._outcomes import Broken, NotTestable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from aioacl._base.ffi import CData

HANDLE_SECONDS: Final = 10.0  # the time for a call that must return
POLL_SECONDS: Final = 0.0005
MOMENT_SECONDS: Final = 0.05  # how long a check watches a call that must not return
ENTER_SECONDS: Final = 0.2  # the time for a thread to enter a call, if no query reports that it is inside
WAIT_MS: Final = 8000  # the time limit of waits that must succeed
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
SYNC, TIME_LINE = 0x1, 0x8  # flags of events
BLOCK_BYTES: Final = 4096
PATTERN_BYTES: Final = 1 << 16  # a longer pattern repeats, because making more bytes takes seconds


def named(code: int) -> str:
    """Returns the code and its name in ACL."""
    return f"{code} {lookup(code).name}" if code > lib.AIO_LIMIT else f"{code}"


def call(function: str, *arguments: Any) -> Any:
    """Calls an ACL function without a check, through the table that all of aioacl uses."""
    return getattr(lib, f"aio_u_{function}")(*arguments)


def expect(wanted: int, function: str, *arguments: Any) -> None:
    """Calls a function that must return the expected code."""
    require_code(wanted, call(function, *arguments), function)


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


class Patience:
    """The time for a call that must return: less than usual if the check has a short limit."""

    def __init__(self) -> None:
        self.seconds = HANDLE_SECONDS
        self.wait_ms = WAIT_MS

    def fit(self, limit_seconds: float) -> None:
        """Shortens the times, so a call that hangs is found before the parent kills the process at the time limit."""
        self.seconds = min(HANDLE_SECONDS, limit_seconds / 2)
        self.wait_ms = min(WAIT_MS, int(limit_seconds * 400) or 1)


patience: Final = Patience()


class Helper:
    """A function on a plain thread, which has no context until it sets one."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._answer: Any = None
        self._error: BaseException | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._answer = self._work()
        except BaseException as error:  # noqa: BLE001 - `outcome` raises it
            self._error = error
        self._done.set()

    def returned(self, seconds: float = MOMENT_SECONDS) -> bool:
        """Waits that long, and returns whether the function has returned."""
        return self._done.wait(seconds)

    def answer(self, what: str) -> Any:
        """Returns the result of the function, which must return in time."""
        if not self._done.wait(patience.seconds):
            raise Broken(f"{what} did not return within {patience.seconds:g} s")
        return self.outcome()

    def outcome(self) -> Any:
        """Returns the result of the function, without a time limit."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._answer


class RemoteThread:
    """A plain thread that runs given functions, one after another."""

    def __init__(self) -> None:
        self._orders: SimpleQueue[tuple[Callable[[], Any], SimpleQueue[Any]]] = SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            work, answers = self._orders.get()
            answers.put(work())

    def do(self, work: Callable[[], Any]) -> Any:
        """Runs the function on that thread, and returns its result."""
        answers: SimpleQueue[Any] = SimpleQueue()
        self._orders.put((work, answers))
        try:
            return answers.get(timeout=patience.seconds)
        except Empty:
            raise Broken(f"a call on another thread did not return within {patience.seconds:g} s") from None


def on_a_thread(work: Callable[[], Any], what: str = "the call") -> Any:
    """Returns the result of the function on a new thread."""
    return Helper(work).answer(what)


class Bench:
    """Calls and handles for one check, on the thread that made it."""

    def __init__(self, device: int, *, simulated: bool, model: str | None = None) -> None:
        self.device = device
        self.simulated = simulated
        self.model = model  # the path of an .om file; None: the model of the package
        self.context = ffi.NULL
        self._cleanup = ExitStack()

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
        found = ffi.new("aclrtContext *")
        expect(0, "aclrtGetCurrentContext", found)
        context: CData = found[0]
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
        made = ffi.new("aclrtContext *")
        expect(0, "aclrtCreateContext", made, self.device)
        try:
            yield made[0]
        finally:
            call("aclrtDestroyContext", made[0])
            self.borrow()

    def helper(self, work: Callable[[], Any]) -> Helper:
        """Runs the function on another thread, with the device's primary context."""

        def bound() -> Any:
            self.borrow()
            return work()

        return Helper(bound)

    # --- handles ----------------------------------------------------------------------------------------------------

    def keep(self, function: str, handle: CData | int) -> None:
        """Calls the function with the handle when the check ends."""
        self._cleanup.callback(expect, 0, function, handle)

    def make(self, destroy: str, c_type: str, create: str, *arguments: Any) -> CData:
        """Returns a new handle, which is destroyed when the check ends."""
        made = ffi.new(f"{c_type} *")
        expect(0, create, made, *arguments)
        self.keep(destroy, made[0])
        handle: CData = made[0]
        return handle

    def stream(self) -> CData:
        """Returns a new stream."""
        return self.make("aclrtDestroyStream", "aclrtStream", "aclrtCreateStream")

    def event(self, flags: int = SYNC) -> CData:
        """Returns a new event of the kind that aioacl uses."""
        return self.make("aclrtDestroyEvent", "aclrtEvent", "aclrtCreateEventExWithFlag", flags)

    def memory(self, size: int = BLOCK_BYTES) -> CData:
        """Returns device memory."""
        return self.make("aclrtFree", "void *", "aclrtMalloc", size, lib.ACL_MEM_MALLOC_HUGE_FIRST)

    def pinned(self, size: int = BLOCK_BYTES) -> CData:
        """Returns pinned host memory."""
        return self.make("aclrtFreeHost", "void *", "aclrtMallocHost", size)

    # --- held streams -------------------------------------------------------------------------------------------------

    @contextmanager
    def held(self, *streams: CData) -> Generator[Callable[[], None]]:
        """Holds streams until the block ends, or until the function that it yields is called."""
        gate = ffi.new("aclrtEvent *")
        expect(0, "aclrtCreateEventWithFlag", gate, SYNC)
        opener = self.stream()
        opened = False

        def release() -> None:
            nonlocal opened
            if not opened:
                opened = True
                expect(0, "aclrtRecordEvent", gate[0], opener)
                expect(0, "aclrtSynchronizeStreamWithTimeout", opener, patience.wait_ms)

        try:
            for stream in streams:
                expect(0, "aclrtStreamWaitEvent", stream, gate[0])
            yield release
        finally:
            release()
        for stream in streams:
            expect(0, "aclrtSynchronizeStreamWithTimeout", stream, patience.wait_ms)
        expect(0, "aclrtDestroyEvent", gate[0])

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
        return status_of("aclrtStreamQuery", "aclrtStreamStatus", stream)

    def event_status(self, event: CData) -> int:
        """Returns the number that aclrtQueryEventStatus writes."""
        return status_of("aclrtQueryEventStatus", "aclrtEventRecordedStatus", event)

    def finish(self, stream: CData) -> None:
        """Waits for the work of the stream."""
        expect(0, "aclrtSynchronizeStreamWithTimeout", stream, patience.wait_ms)

    # --- injected faults, on the simulator ----------------------------------------------------------------------------

    def fail_next(self, stream: CData, code: int) -> None:
        """Makes the next task of the stream fail."""
        symbol = ffi.cast("int (*)(void *, int32_t)", lib.aio_library_symbol(b"aclsim_fail_next"))
        if symbol(stream, code):
            raise NotTestable("the simulator refused the injected fault")


def _returned(function: str) -> str:
    return f"{function} returned before the work was done"


def status_of(function: str, c_type: str, handle: CData) -> int:
    """Returns the number that a query writes; the query must return 0."""
    status = ffi.new(f"{c_type} *")
    expect(0, function, handle, status)
    return int(status[0])


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
