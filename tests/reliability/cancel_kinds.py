"""The ways in which an await is cancelled: by its task, a cancel scope, a time-out or the failure of a sibling.

A kind of cancellation runs the awaits that it will cancel, and cancels all of them on request. Some kinds cancel in the
turn of the request. The others cancel in a later turn; their property `cancelled` becomes true when they have done so.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    Body = Callable[[], Coroutine[Any, Any, None]]

FAR_SECONDS = 3600.0


class SiblingFailed(Exception):
    """The failure of a sibling task, which makes a task group cancel the awaits."""


class Kind(ABC):
    """One way to cancel some awaits."""

    name: ClassVar[str]
    backends: ClassVar[tuple[str, ...]] = ("asyncio", "trio")
    at_once: ClassVar[bool] = True  # `cancel` cancels in the same turn
    # Also cancels a task whose await has a result, if the task has not resumed.
    cancels_finished_wait: ClassVar[bool] = False

    @abstractmethod
    async def run(self, bodies: Sequence[Body]) -> None:
        """Runs the awaits concurrently until they end."""

    @abstractmethod
    def cancel(self) -> None:
        """Cancels the awaits, or starts their cancellation."""

    @property
    def cancelled(self) -> bool:
        """Whether each await has been cancelled. Some kinds also count an await that has ended in another way."""
        return True


# --- tasks of asyncio ---------------------------------------------------------------------------------------------


class TaskCancel(Kind):
    name = "task.cancel()"
    backends = ("asyncio",)
    cancels_finished_wait = True
    times: ClassVar[int] = 1

    async def run(self, bodies: Sequence[Body]) -> None:
        self._tasks = [asyncio.ensure_future(body()) for body in bodies]
        await asyncio.wait(self._tasks)

    def cancel(self) -> None:
        for task in self._tasks:
            for _ in range(self.times):
                task.cancel()


class TaskCancelTwice(TaskCancel):
    name = "task.cancel() twice"
    times = 2


class ParentCancel(Kind):
    """Cancels the parent, whose task group cancels its children a turn later."""

    name = "task.cancel() of the parent"
    backends = ("asyncio",)
    at_once = False

    async def run(self, bodies: Sequence[Body]) -> None:
        self._children: list[asyncio.Task[None]] = []
        self._parent = asyncio.ensure_future(self._run(bodies))
        await asyncio.wait([self._parent])

    async def _run(self, bodies: Sequence[Body]) -> None:
        async with asyncio.TaskGroup() as group:
            self._children = [group.create_task(self._child(body)) for body in bodies]

    @staticmethod
    async def _child(body: Body) -> None:
        await body()

    def cancel(self) -> None:
        self._parent.cancel()

    @property
    def cancelled(self) -> bool:
        return all(child.done() or child.cancelling() for child in self._children)


class TaskGroupFailure(ParentCancel):
    name = "a sibling in asyncio.TaskGroup fails"

    async def run(self, bodies: Sequence[Body]) -> None:
        self._fail = asyncio.Event()
        with suppress(BaseExceptionGroup):
            await self._run([self._sibling, *bodies])

    async def _sibling(self) -> None:
        await self._fail.wait()
        raise SiblingFailed

    def cancel(self) -> None:
        self._fail.set()


class AsyncioTimeout(Kind):
    name = "asyncio.timeout"
    backends = ("asyncio",)
    at_once = False

    async def run(self, bodies: Sequence[Body]) -> None:
        self._timeouts: list[asyncio.Timeout] = []
        async with asyncio.TaskGroup() as group:
            for body in bodies:
                group.create_task(self._within(body))

    async def _within(self, body: Body) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(FAR_SECONDS) as timeout:
                self._timeouts.append(timeout)
                await body()

    def cancel(self) -> None:
        for timeout in self._timeouts:
            timeout.reschedule(asyncio.get_running_loop().time())

    @property
    def cancelled(self) -> bool:
        return all(timeout.expired() for timeout in self._timeouts)


# --- scopes and groups of anyio -----------------------------------------------------------------------------------


class Scopes(Kind):
    name = "a cancel scope for each await"

    async def run(self, bodies: Sequence[Body]) -> None:
        self._scopes: list[anyio.CancelScope] = []
        async with anyio.create_task_group() as group:
            for body in bodies:
                group.start_soon(self._within, body)

    async def _within(self, body: Body) -> None:
        with anyio.CancelScope() as scope:
            self._scopes.append(scope)
            await body()

    def cancel(self) -> None:
        for scope in self._scopes:
            scope.cancel()

    @property
    def cancelled(self) -> bool:
        return all(scope.cancel_called for scope in self._scopes)


class OneScope(Scopes):
    name = "one cancel scope around all awaits"

    async def run(self, bodies: Sequence[Body]) -> None:
        with anyio.CancelScope() as scope:
            self._scopes = [scope]
            async with anyio.create_task_group() as group:
                for body in bodies:
                    group.start_soon(body)


class NestedScopes(Scopes):
    name = "an inner and an outer cancel scope"

    async def _within(self, body: Body) -> None:
        with anyio.CancelScope() as outer, anyio.CancelScope() as inner:
            self._scopes += [inner, outer]
            await body()


class MoveOnAfter(Scopes):
    name = "anyio.move_on_after"
    at_once = False

    async def _within(self, body: Body) -> None:
        with anyio.move_on_after(FAR_SECONDS) as scope:
            self._scopes.append(scope)
            await body()

    def cancel(self) -> None:
        for scope in self._scopes:
            scope.deadline = anyio.current_time()


class FailAfter(MoveOnAfter):
    name = "anyio.fail_after"

    async def _within(self, body: Body) -> None:
        with suppress(TimeoutError), anyio.fail_after(FAR_SECONDS) as scope:
            self._scopes.append(scope)
            await body()


class GroupFailure(Scopes):
    name = "a sibling in a task group fails"
    at_once = False

    async def run(self, bodies: Sequence[Body]) -> None:
        self._fail = anyio.Event()
        with suppress(BaseExceptionGroup):
            async with anyio.create_task_group() as group:
                self._scopes = [group.cancel_scope]
                group.start_soon(self._sibling)
                for body in bodies:
                    group.start_soon(body)

    async def _sibling(self) -> None:
        await self._fail.wait()
        raise SiblingFailed

    def cancel(self) -> None:
        self._fail.set()


KINDS: tuple[type[Kind], ...] = (
    TaskCancel,
    TaskCancelTwice,
    ParentCancel,
    TaskGroupFailure,
    AsyncioTimeout,
    Scopes,
    OneScope,
    NestedScopes,
    MoveOnAfter,
    FailAfter,
    GroupFailure,
)
