"""The user's functions that run before and after each force reset: `device.before_reset` and `device.after_reset`.

A plain function runs on a new thread, and an async function in a new task of the event loop that registered it. The
reset waits for each of them for a limited time. The functions run while the device is open, so they may use it.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal

from aioacl._base import sync
from aioacl._base.errors import ParameterError
from aioacl._base.options import repr_of
from aioacl._lifecycle.executor import plain
from aioacl._wait.current import current_holder
from aioacl._wait.home import current_home

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._lifecycle.admission import Admission
    from aioacl._wait.home import Home

When = Literal["before_reset", "after_reset"]
NO_LOOP: Final = "Register an async function in a task of the event loop that shall run it."
PLAIN: Final = "Pass an async function, or a plain one that returns no coroutine."


class _Hook:
    __slots__ = ("fn", "home", "limit", "user")

    def __init__(self, user: object, fn: Callable[[Any], object], limit: float) -> None:
        if not callable(fn):
            raise ParameterError(
                f"expected a function, got {repr_of(fn)}", hint="Pass a function of one argument."
            )
        self.user = user
        self.fn = fn
        self.limit = limit
        self.home: Home | None = None
        if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__):
            self.home = current_home()
            if self.home is None:
                raise ParameterError(
                    "expected a plain function on a thread without a running event loop, got an async one",
                    hint=NO_LOOP,
                )

    @property
    def name(self) -> str:
        return getattr(self.fn, "__qualname__", "") or repr_of(self.fn)


def _text_of(error: BaseException) -> str:
    """The class and the text of an error. An error of the user may have no text, or a text that cannot be read."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the class is enough
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class _Call:
    """One call of a hook, for which a reset waits."""

    def __init__(self, hook: _Hook, argument: object) -> None:
        self._hook = hook
        self._argument = argument
        self._changed = sync.condition(lasting=False)
        self._ended = False
        self._cancel: Callable[[], None] | None = None
        self.holder: object = None  # the task or thread of the function, while the reset waits
        self.error = ""

    def start(self, index: int) -> None:
        """Starts the function. Raises RuntimeError if no thread can be started or the event loop has ended."""
        home = self._hook.home
        if home is None:
            sync.spawn(f"aioacl-hook-{index}", self._run)
        else:
            self._cancel = home.start(self._begin, self._end)

    def _run(self) -> None:
        if self._ended:  # the reset no longer waits
            return
        self.holder = current_holder()
        try:
            plain(self._hook.fn, self._hook.fn(self._argument), PLAIN)
        except BaseException as error:  # noqa: BLE001 - it is in the report of the reset
            self._end(error)
        else:
            self._end(None)

    async def _begin(self) -> None:
        if self._ended:
            return
        self.holder = current_holder()
        made: Any = self._hook.fn(self._argument)
        try:
            await made
        except SystemExit as error:  # it would end the whole event loop of asyncio
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        text = "" if error is None else _text_of(error)
        with self._changed:
            if not self._ended:
                self.error = text
            self._ended = True
            self._changed.notify_all()

    def wait(self) -> None:
        """Waits for the end of the function. After its time limit, cancels the function if it is async."""
        end = sync.monotonic() + self._hook.limit
        with self._changed:
            while not self._ended and (left := end - sync.monotonic()) > 0:
                self._changed.wait(left)
            late, self._ended = not self._ended, True
            self.holder = None
        if late:
            self.error = f"it did not return within {self._hook.limit:g} s"
            if self._cancel is not None:
                self._cancel()


class Hooks:
    """The hooks of one device. An open registers them, and its close removes them.

    Guarded by the lock of the device's admission.
    """

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._hooks: dict[When, list[_Hook]] = {"before_reset": [], "after_reset": []}
        self._running: _Call | None = None

    def add(self, when: When, user: object, fn: Callable[[Any], object], limit: float) -> Callable[[], None]:
        """Adds a hook. Returns a function that removes it.

        Raises:
            ParameterError: `fn` is not a function; or it is async, and no event loop runs on this thread; or the open
                has ended.
        """
        hook, hooks = _Hook(user, fn, limit), self._hooks[when]
        with self._admission.changed:
            if user not in self._admission.users:  # `drop` does not come again
                raise self._admission.closed()
            hooks.append(hook)

        def remove() -> None:
            with self._admission.changed, suppress(ValueError):
                hooks.remove(hook)

        return remove

    def drop(self, user: object) -> None:
        """Removes the hooks of an open. Call it with the lock held."""
        for hooks in self._hooks.values():
            hooks[:] = [hook for hook in hooks if hook.user is not user]

    def any(self, when: When) -> bool:
        """Whether there is a hook to run then."""
        return bool(self._hooks[when])

    def holds_off(self, holder: object) -> bool:
        """Whether a reset waits for this task or thread, because it runs a hook."""
        call = self._running
        return call is not None and call.holder is holder

    def run(self, when: When, argument: object) -> tuple[str, ...]:
        """Runs the hooks: before a reset the newest first, after it the oldest first. Returns their errors as texts."""
        with self._admission.changed:
            hooks = self._hooks[when][:: -1 if when == "before_reset" else 1]
        return tuple(
            f"{when} {hook.name}: {error}"
            for hook in hooks
            if hook in self._hooks[when] and (error := self._run(hook, argument))
        )

    def _run(self, hook: _Hook, argument: object) -> str:
        self._running = call = _Call(hook, argument)
        try:
            call.start(self._admission.index)
            call.wait()
        except RuntimeError as error:
            return f"it could not be started: {error}"
        finally:
            self._running = None
        return call.error
