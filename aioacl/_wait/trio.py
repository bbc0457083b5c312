"""The port of a trio run.

This module does not import trio at the top. `_bind` imports it when a run needs its first port. trio is loaded by then,
so the import does not read files. Reading files would block the run's event loop.

Ctrl-C: trio raises KeyboardInterrupt in the main task at any line, unless a frame on the stack is protected. Inside
aioacl the interrupt could separate steps that belong together. For example, C would have begun a wait that no task
awaits, or no object would refer to the memory of a running copy. So every function of aioacl is protected, and the
interrupt is raised at the next checkpoint, as with asyncio's runner. The caller's own code, for instance the body of an
`async with`, does not run below a frame of aioacl, so it is not protected.
"""

from __future__ import annotations

import inspect
import sys
import weakref
from typing import TYPE_CHECKING, Any, Final

from aioacl._base import late, sync
from aioacl._base.ffi import bind_trio, failure
from aioacl._wait.port import TIMED_OUT, LoopPort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import FunctionType

    import outcome  # noqa: TC004 - `_bind` imports it
    import trio  # noqa: TC004 - `_bind` imports it

    from aioacl._base.ffi import CData


class TrioPort(LoopPort):
    """A port whose descriptor is read by a system task of a trio run."""

    async def serve(self) -> None:
        """The system task: drains the port until the run ends. Then the run's variable no longer refers to the port."""
        try:
            while True:
                await trio.lowlevel.wait_readable(self.fd)
                try:
                    self.drain()
                except MemoryError as error:
                    sync.report(error)  # the reader runs once more; an error here would end the whole run
        finally:
            _of_run.set(None)
            self.give_up()
            del self

    async def wait(
        self,
        start: Callable[[CData, int], int],
        *,
        deadline: float | None = None,
        after: Callable[[], object] | None = None,
    ) -> int:
        if deadline is None:
            return await self._wait(start, after)
        with trio.move_on_after(max(0.0, deadline - sync.monotonic())):
            return await self._wait(start, after)
        return TIMED_OUT

    async def _wait(self, start: Callable[[CData, int], int], after: Callable[[], object] | None) -> int:
        waiting: list[trio.lowlevel.Task] = [trio.lowlevel.current_task()]

        def deliver(result: int) -> None:
            if waiting:
                value = outcome.Value(result)  # made first: without memory, the delivery is repeated
                trio.lowlevel.reschedule(waiting.pop(), value)

        def abort(_: object) -> trio.lowlevel.Abort:
            waiting.clear()
            return trio.lowlevel.Abort.SUCCEEDED

        code = self.begin(start, deliver, after)
        if code:
            await trio.lowlevel.checkpoint()
            return failure(code)
        result: int = await trio.lowlevel.wait_task_rescheduled(abort)
        return result

    async def breathe(self) -> None:
        """Runs one checkpoint, as trio's rules require."""
        await trio.lowlevel.checkpoint()

    async def next_turn(self) -> None:
        await trio.lowlevel.checkpoint()

    def shield(self) -> AbstractContextManager[object]:
        return trio.CancelScope(shield=True)


_of_run: trio.lowlevel.RunVar[TrioPort | None]
# All threads share the first RunVar: the first thread stores it here.
_first: dict[str, trio.lowlevel.RunVar[TrioPort | None]] = {}
_bound = False


def _bind() -> None:
    """Binds trio's modules, which the running trio has loaded. Several threads may call it at once."""
    global outcome, trio, _of_run, _bound  # noqa: PLW0603 - the names of this module
    import outcome  # noqa: PLC0415 - trio has imported it
    import trio  # noqa: PLC0415 - see the docstring of this module

    bind_trio(trio.lowlevel)
    late.listeners.add(_put_off_interrupts)
    _put_off_interrupts()
    _of_run = _first.setdefault("port", trio.lowlevel.RunVar("aioacl-port", None))
    _bound = True


def port_of_run() -> TrioPort:
    """The port of the trio run that this thread is in."""
    if not _bound:
        _bind()
    port = _of_run.get()
    if port is None:
        port = TrioPort()
        _of_run.set(port)
        trio.lowlevel.spawn_system_task(port.serve, name="aioacl-port")
    return port


# --- Ctrl-C --------------------------------------------------------------------------------------------------


def _functions(namespace: dict[str, Any], module: str) -> Iterator[FunctionType]:
    """Yields the functions of a module or class, and those that properties, class methods and decorators wrap."""
    for member in tuple(namespace.values()):  # a copy: another thread may bind a global at the same time
        if inspect.isclass(member) and member.__module__ in (module, PUBLIC):
            yield from _functions(dict(vars(member)), module)
        if inspect.ismodule(member):  # a look-up of a name would import a module that is late
            continue
        for bare in (getattr(member, "fget", None), getattr(member, "__func__", None), member):
            found = inspect.unwrap(bare) if callable(bare) else None
            if inspect.isfunction(found) and found.__globals__.get("__name__") == module:
                yield found


PUBLIC: Final = "aioacl"  # what public classes report as their module
_protected: Final[weakref.WeakSet[FunctionType]] = weakref.WeakSet()
_LAYERS: Final = tuple(
    f"aioacl._{layer}"
    for layer in (
        "base.",
        "library.",
        "wait.",
        "lifecycle.",
        "handles.",
        "batches.",
        "device",
        "opening",
        "pool.",
    )
)


def _put_off_interrupts() -> None:
    """Protects the functions of all modules that are imported by now; called again after an import that is late."""
    for name, module in list(sys.modules.items()):
        if name.startswith(_LAYERS):
            for function in _functions(vars(module), name):
                if function not in _protected:
                    trio.lowlevel.enable_ki_protection(function)
                    _protected.add(function)
