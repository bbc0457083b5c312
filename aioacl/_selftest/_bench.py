"""The bench of a check.

Each check gets its own bench, on a thread that has set the device and nothing else. What it makes there is given back
when it ends. A stream is held by a wait for an event that is not recorded yet: plain ACL, so it works on a card too.

Time is measured as little as possible. Where a check has to see that a call does not return, it looks for a moment and
is content: a slow machine can make a broken runtime look well, but never a good one broken.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from aioacl._base.codes import lookup
from aioacl._base.ffi import ffi, lib, text_of
from aioacl._selftest._outcomes import Broken, NotTestable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from aioacl._base.ffi import CData

HANDLE_SECONDS: Final = 10.0  # what a call that must return gets
MOMENT_SECONDS: Final = 0.05  # how long a call is watched that must not return
ENTER_SECONDS: Final = 0.2  # what a thread gets to be inside a call, where no query shows that it is inside
WAIT_MS: Final = 8000  # the limit of waits that must succeed
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
PATTERN_BYTES: Final = 1 << 16  # after which it repeats itself, for to make more takes seconds


def named(code: int) -> str:
    """The code, and its name in ACL."""
    return f"{code} {lookup(code).name}" if code > lib.AIO_LIMIT else f"{code}"


def call(function: str, *arguments: Any) -> Any:
    """Calls an ACL function as it is, through the table that all of aioacl uses."""
    return getattr(lib, f"aio_u_{function}")(*arguments)


def expect(wanted: int, function: str, *arguments: Any) -> None:
    """Calls a function that must answer that code."""
    require_code(wanted, call(function, *arguments), function)


def require_code(wanted: int, code: int, function: str, when: str = "") -> None:
    """Complains of a call that returned another code."""
    if code != wanted:
        raise Broken(f"{function} returned {named(code)}{when and ' ' + when}, not {named(wanted)}")


def require(condition: object, otherwise: str) -> None:
    """Complains unless it is so."""
    if not condition:
        raise Broken(otherwise)


class Patience:
    """How long a call may take that must return: less than usual when the whole check has little time."""

    def __init__(self) -> None:
        self.seconds = HANDLE_SECONDS
        self.wait_ms = WAIT_MS

    def fit(self, limit_seconds: float) -> None:
        """A call that does not return is noticed before the check's limit, so the next check needs no new process."""
        self.seconds = min(HANDLE_SECONDS, limit_seconds / 2)
        self.wait_ms = min(WAIT_MS, int(limit_seconds * 400) or 1)


patience: Final = Patience()


class Helper:
    """A function on a plain thread, which has no context before it gets itself one."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._answer: Any = None
        self._error: BaseException | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._answer = self._work()
        except BaseException as error:  # noqa: BLE001 - it is raised where the answer is asked for
            self._error = error
        self._done.set()

    def returned(self, seconds: float = MOMENT_SECONDS) -> bool:
        """Whether it has returned, after a look of that length."""
        return self._done.wait(seconds)

    def answer(self, what: str) -> Any:
        """What it has returned; it must do so in time."""
        if not self._done.wait(patience.seconds):
            raise Broken(f"{what} has not returned within {patience.seconds:g} s")
        return self.outcome()

    def outcome(self) -> Any:
        """What it has returned, however long that takes."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._answer


class Puppet:
    """A plain thread that runs calls, one after another."""

    def __init__(self) -> None:
        self._orders: SimpleQueue[tuple[Callable[[], Any], SimpleQueue[Any]]] = SimpleQueue()
        threading.Thread(target=self._obey, daemon=True).start()

    def _obey(self) -> None:
        while True:
            work, answers = self._orders.get()
            answers.put(work())

    def do(self, work: Callable[[], Any]) -> Any:
        """What the function answers on that thread."""
        answers: SimpleQueue[Any] = SimpleQueue()
        self._orders.put((work, answers))
        try:
            return answers.get(timeout=patience.seconds)
        except Empty:
            raise Broken(f"a call on another thread has not returned within {patience.seconds:g} s") from None


def on_a_thread(work: Callable[[], Any], what: str = "the call") -> Any:
    """What the function answers on a fresh thread."""
    return Helper(work).answer(what)


class Bench:
    """Calls and handles for one check, on the thread that made it."""

    def __init__(self, device: int, *, simulated: bool) -> None:
        self.device = device
        self.simulated = simulated
        self.context = ffi.NULL
        self._cleanup = ExitStack()

    def initialise(self) -> None:
        """What every program begins with; 100002 when this process has begun already."""
        one_of((0, REPEAT_INITIALIZE), call("aclInit", ffi.NULL), "aclInit")

    def set_device(self) -> None:
        """Binds this thread to the device, and learns its primary context."""
        expect(0, "aclrtSetDevice", self.device)
        self.context = self.current_context()

    def close(self) -> None:
        """Gives everything back; each must take it."""
        self._cleanup.close()

    def forget(self) -> None:
        """After a reset: what was made before it is gone, and must not be given back."""
        self._cleanup.pop_all()

    # --- contexts -------------------------------------------------------------------------------------------------

    def current_context(self) -> CData:
        """The context of this thread, which must have one."""
        found = ffi.new("aclrtContext *")
        expect(0, "aclrtGetCurrentContext", found)
        context: CData = found[0]
        return context

    def is_active(self) -> bool:
        """Whether the device has a primary context now; the flags are not to be asked for."""
        active = ffi.new("int32_t *", -1)
        expect(0, "aclrtGetPrimaryCtxState", self.device, ffi.NULL, active)
        return int(active[0]) == 1

    def borrow(self) -> None:
        """Makes the primary context current on a helper thread, as the gate does."""
        expect(0, "aclrtSetCurrentContext", self.context)

    @contextmanager
    def explicit_context(self) -> Generator[CData]:
        """A second context of the device, current inside the block; then this thread has the primary one again."""
        made = ffi.new("aclrtContext *")
        expect(0, "aclrtCreateContext", made, self.device)
        try:
            yield made[0]
        finally:
            call("aclrtDestroyContext", made[0])
            self.borrow()

    def helper(self, work: Callable[[], Any]) -> Helper:
        """The function on another thread, with the device's primary context."""

        def bound() -> Any:
            self.borrow()
            return work()

        return Helper(bound)

    # --- handles ----------------------------------------------------------------------------------------------------

    def keep(self, function: str, handle: CData) -> None:
        """When the check ends, the function gets the handle."""
        self._cleanup.callback(expect, 0, function, handle)

    def make(self, destroy: str, c_type: str, create: str, *arguments: Any) -> CData:
        """A new handle that is destroyed when the check ends."""
        made = ffi.new(f"{c_type} *")
        expect(0, create, made, *arguments)
        self.keep(destroy, made[0])
        handle: CData = made[0]
        return handle

    def stream(self) -> CData:
        """A new stream."""
        return self.make("aclrtDestroyStream", "aclrtStream", "aclrtCreateStream")

    def event(self, flags: int = SYNC) -> CData:
        """A new event of the kind that aioacl uses."""
        return self.make("aclrtDestroyEvent", "aclrtEvent", "aclrtCreateEventExWithFlag", flags)

    def memory(self, size: int = BLOCK_BYTES) -> CData:
        """Memory of the device."""
        return self.make("aclrtFree", "void *", "aclrtMalloc", size, lib.ACL_MEM_MALLOC_HUGE_FIRST)

    def pinned(self, size: int = BLOCK_BYTES) -> CData:
        """Pinned memory of the host."""
        return self.make("aclrtFreeHost", "void *", "aclrtMallocHost", size)

    # --- streams that stand still -------------------------------------------------------------------------------------

    @contextmanager
    def held(self, *streams: CData) -> Generator[Callable[[], None]]:
        """Streams that stand still until the block ends, or until what it yields is called."""
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
        """Returns when the helper is inside the function; it must not have come back."""
        if self.simulated:
            symbol = ffi.cast("int (*)(const char *)", lib.aio_library_symbol(b"aclsim_waiting"))
            name = ffi.new("char[]", function.encode())
            for _ in range(int(patience.seconds * 1000)):
                if symbol(name) or helper.returned(0.001):
                    break
        require(not helper.returned(MOMENT_SECONDS if self.simulated else ENTER_SECONDS), _returned(function))

    # --- questions ----------------------------------------------------------------------------------------------------

    def stream_status(self, stream: CData) -> int:
        """The number that aclrtStreamQuery writes."""
        return status_of("aclrtStreamQuery", "aclrtStreamStatus", stream)

    def event_status(self, event: CData) -> int:
        """The number that aclrtQueryEventStatus writes."""
        return status_of("aclrtQueryEventStatus", "aclrtEventRecordedStatus", event)

    def finish(self, stream: CData) -> None:
        """Waits for the stream's work."""
        expect(0, "aclrtSynchronizeStreamWithTimeout", stream, patience.wait_ms)

    # --- faults, on the simulator -------------------------------------------------------------------------------------

    def fail_next(self, stream: CData, code: int) -> None:
        """The next task of the stream shall fail."""
        symbol = ffi.cast("int (*)(void *, int32_t)", lib.aio_library_symbol(b"aclsim_fail_next"))
        if symbol(stream, code):
            raise NotTestable("the simulator does not take the fault")


def _returned(function: str) -> str:
    return f"{function} has returned although the work is not done"


def status_of(function: str, c_type: str, handle: CData) -> int:
    """The number that a query writes; it must answer 0."""
    status = ffi.new(f"{c_type} *")
    expect(0, function, handle, status)
    return int(status[0])


def pattern(size: int, seed: int = 3) -> bytes:
    """Bytes that no fill and no shift makes."""
    once = bytes((i * 7 + (i >> 8) * 13 + seed * 31) & 0xFF for i in range(min(size, PATTERN_BYTES)))
    return (once * (size // PATTERN_BYTES + 1))[:size]


def write(target: CData, data: bytes) -> None:
    """Puts bytes into host memory."""
    ffi.buffer(target, len(data))[:] = data


def read(source: CData, size: int) -> bytes:
    """Bytes from host memory."""
    return bytes(ffi.buffer(source, size))


def download(source: CData, size: int) -> bytes:
    """The bytes of device memory, by the copy that waits."""
    back = ffi.new("char[]", size)
    expect(0, "aclrtMemcpy", back, size, source, size, lib.ACL_MEMCPY_DEVICE_TO_HOST)
    return read(back, size)


def fill(stream: CData, target: CData, value: int, size: int = BLOCK_BYTES) -> None:
    """Enqueues a fill."""
    expect(0, "aclrtMemsetAsync", target, size, value, size, stream)


def error_text() -> str:
    """The text that this thread finds now; reading clears it."""
    return text_of(call("aclGetRecentErrMsg"))


def one_of(codes: Iterable[int], code: int, function: str) -> None:
    """Complains unless the call returned one of the codes."""
    allowed = tuple(codes)
    require(
        code in allowed,
        f"{function} returned {named(code)}, not {' or '.join(named(each) for each in allowed)}",
    )
