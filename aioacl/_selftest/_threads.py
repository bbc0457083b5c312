"""The threads of a check, and the time that their calls may take."""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from aioacl._selftest._outcomes import Broken

if TYPE_CHECKING:
    from collections.abc import Callable

HANDLE_SECONDS: Final = 10.0  # the time for a call that must return
MOMENT_SECONDS: Final = 0.05  # how long a check watches a call that must not return
WAIT_MS: Final = 8000  # the time limit of waits that must succeed


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
