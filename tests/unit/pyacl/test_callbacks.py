"""Callbacks and threads of `acl`: who calls them, the GIL, and their exceptions."""

from __future__ import annotations

import errno
import signal
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from aioacl import simulator
from aioacl._base.late import late
from tests.kit import until_now

if TYPE_CHECKING:
    from collections.abc import Iterator

    import aioacl.pyacl as acl
else:
    acl = late("aioacl.pyacl")

BLOCKING = 1  # ACL_CALLBACK_BLOCK
TIMEOUT = 100  # milliseconds
TASK_FAULT = 507015


@pytest.fixture
def stream() -> Iterator[int]:
    """A stream of `acl` on device 0."""
    assert acl.rt.set_device(0) == 0
    made, code = acl.rt.create_stream()
    assert code == 0
    yield made
    assert acl.rt.destroy_stream(made) == acl.rt.reset_device(0) == 0


class Reports:
    """A thread of start_thread that processes the reports of a stream, as the samples of CANN do."""

    def __init__(self, stream: int) -> None:
        self.stream, self.ends = stream, threading.Event()
        context, code = acl.rt.get_context()
        assert code == 0
        self.thread, code = acl.util.start_thread(self.run, [context, TIMEOUT])
        assert code == 0
        assert acl.rt.subscribe_report(self.thread, stream) == 0

    def run(self, arguments: Any) -> None:
        context, timeout = arguments
        assert acl.rt.set_context(context) == 0
        while not self.ends.is_set():
            acl.rt.process_report(timeout)

    def close(self) -> None:
        assert acl.rt.unsubscribe_report(self.thread, self.stream) == 0
        self.ends.set()
        assert acl.util.stop_thread(self.thread) == 0


@pytest.fixture
def reports(stream: int) -> Iterator[Reports]:
    made = Reports(stream)
    yield made
    made.close()


def test_88_callback_runs_on_the_thread_that_processes_reports_with_one_argument(
    stream: int, reports: Reports
) -> None:
    calls: list[tuple[Any, int]] = []
    argument = {"any": "object"}
    code = acl.rt.launch_callback(
        lambda given: calls.append((given, threading.get_ident())), argument, BLOCKING, stream
    )
    # This thread waits in C without the GIL, which the callback needs.
    assert code == acl.rt.synchronize_stream(stream) == 0
    [(given, thread)] = calls
    assert given is argument
    assert thread == reports.thread


def test_88_callback_runs_while_other_threads_use_python(stream: int, reports: Reports) -> None:
    ends, calls = threading.Event(), list[int]()

    def compute() -> None:
        while not ends.is_set():
            sum(range(100))

    threads = [threading.Thread(target=compute) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(20):
        assert acl.rt.launch_callback(calls.append, number, BLOCKING, stream) == 0
    assert acl.rt.synchronize_stream(stream) == 0
    ends.set()
    for thread in threads:
        thread.join()
    assert calls == list(range(20))
    assert reports.thread


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_88_exception_of_a_callback_goes_to_unraisablehook_and_the_next_one_runs(
    stream: int, reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: seen.append(unraisable.exc_value))
    calls: list[int] = []

    def fails(argument: int) -> None:
        raise KeyError(argument)

    assert acl.rt.launch_callback(fails, 3, BLOCKING, stream) == 0
    assert acl.rt.launch_callback(calls.append, 4, BLOCKING, stream) == 0
    assert acl.rt.synchronize_stream(stream) == 0
    assert [repr(each) for each in seen] == ["KeyError(3)"]
    assert calls == [4]
    assert reports.thread
    seen.clear()


def test_callback_that_cannot_be_enqueued_is_forgotten() -> None:
    from aioacl._pyacl.callbacks import _pending

    assert acl.rt.launch_callback(print, 1, BLOCKING, 0) != 0
    assert not _pending
    simulator.forget()


class Argument:
    """An argument whose end a weak reference shows."""


class Waiting:
    """A stream with one callback, which no thread processes. Keeps only a weak reference to its argument."""

    def __init__(self) -> None:
        self.calls: list[Argument] = []
        self.stream, code = acl.rt.create_stream()
        self._ends = threading.Event()
        self._thread, _ = acl.util.start_thread(self._run, None)
        assert code == acl.rt.subscribe_report(self._thread, self.stream) == 0
        argument = Argument()
        self.argument = weakref.ref(argument)
        assert acl.rt.launch_callback(self.calls.append, argument, BLOCKING, self.stream) == 0

    def _run(self) -> None:
        self._ends.wait()
        acl.rt.process_report(TIMEOUT)

    def close(self) -> None:
        self._ends.set()
        assert acl.util.stop_thread(self._thread) == 0


@pytest.mark.parametrize("reset", ["reset_device", "reset_device_force"])
def test_callback_of_a_stream_that_a_reset_ended_is_forgotten(reset: str) -> None:
    assert acl.rt.set_device(0) == 0
    waiting = Waiting()
    assert getattr(acl.rt, reset)(0) == 0
    waiting.close()
    assert (waiting.argument(), waiting.calls) == (None, [])


def test_callback_outlives_a_reset_that_does_not_release_the_device() -> None:
    assert acl.rt.set_device(0) == acl.rt.set_device(0) == 0
    waiting = Waiting()
    assert acl.rt.reset_device(0) == 0
    waiting.close()
    assert [waiting.argument()] == waiting.calls
    assert acl.rt.reset_device(0) == 0


def test_callback_of_a_stream_that_a_reset_of_aioacl_ended_is_forgotten_at_the_next_launch() -> None:
    with aioacl.open_device(0) as device:
        assert acl.rt.set_device(0) == 0
        waiting = Waiting()
        assert device.force_reset(foreign=True).result().ok
        assert acl.rt.set_device(0) == 0
        later = Waiting()
        assert waiting.argument() is None
        assert later.argument() is not None
        later.close()
        waiting.close()
        assert acl.rt.destroy_stream(later.stream) == 0
        # aioacl has made the first set again after its reset.
        assert acl.rt.reset_device(0) == acl.rt.reset_device(0) == 0


def test_exception_info_callback_gets_the_ids_of_a_failed_task(stream: int) -> None:
    seen: list[tuple[int, ...]] = []

    def note(info: int) -> None:
        rt = acl.rt
        seen.append(
            (
                rt.get_device_id_from_exception_info(info),
                rt.get_stream_id_from_exception_info(info),
                rt.get_error_code_from_exception_info(info),
                rt.get_task_id_from_exception_info(info),
                rt.get_thread_id_from_exception_info(info),
            )
        )

    number, code = acl.rt.stream_get_id(stream)
    assert code == acl.rt.set_exception_info_callback(note) == 0
    pointer, code = acl.rt.malloc(8, 0)
    assert code == 0
    simulator.fail_next(stream, TASK_FAULT)
    assert acl.rt.memset_async(pointer, 8, 1, 8, stream) == 0
    assert acl.rt.synchronize_stream(stream) == TASK_FAULT
    assert until_now(lambda: seen)
    assert seen[0][:3] == (0, number, TASK_FAULT)
    assert acl.rt.set_exception_info_callback(None) == acl.rt.set_exception_info_callback() == 0
    assert acl.rt.free(pointer) == 0


# --- threads ------------------------------------------------------------------------------------------------------


def test_88_start_thread_leaves_the_handler_of_sigint_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    thread, code = acl.util.start_thread(lambda: None, None)
    assert (code, acl.util.stop_thread(thread)) == (0, 0)
    assert signal.getsignal(signal.SIGINT) is before


def test_thread_gets_one_argument_or_none() -> None:
    given: list[Any] = []
    for argument in ([1, 2], None):
        thread, _ = acl.util.start_thread(lambda *arguments: given.append(arguments), argument)
        assert acl.util.stop_thread(thread) == 0
    assert given == [([1, 2],), ()]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_stop_thread_raises_runtime_error_if_the_function_raised() -> None:
    def fails(argument: int) -> None:
        raise KeyError(argument)

    thread, _ = acl.util.start_thread(fails, 3)
    with pytest.raises(RuntimeError, match="exception=KeyError,msg=thread call failed: 3"):
        acl.util.stop_thread(thread)
    assert acl.util.stop_thread(thread) == errno.ESRCH


def test_stop_thread_returns_a_code_for_an_unknown_thread_and_for_itself() -> None:
    assert acl.util.stop_thread(1) == errno.ESRCH
    codes: list[int] = []
    thread, _ = acl.util.start_thread(lambda: codes.append(acl.util.stop_thread(threading.get_ident())), None)
    assert until_now(lambda: codes)
    assert codes == [errno.EDEADLK]
    assert acl.util.stop_thread(thread) == 0
