"""Leases: a task's promise that no reset should part its steps, and times as deadlines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from aioacl._options import deadline_of
from aioacl._port import current_holder, run_blocking

if TYPE_CHECKING:
    from aioacl._lifecycle import Manager


class Lease:
    """A task's promise that it is between steps which a reset should not part.

    `async with device.lease() as lease:` A force reset waits for it, at most its grace time; then the lease is
    revoked, and the holder's next call raises DeviceResetting. Only the task that entered it holds it, and those
    to which `share()` was handed.
    """

    def __init__(self, manager: Manager, *, wait: bool, timeout: float | None) -> None:
        self._manager = manager
        self._wait = wait
        self._timeout = timeout
        self._holders: list[object] = []

    async def __aenter__(self) -> Self:
        await self._manager.grant(self, wait=self._wait, deadline=deadline_of(self._timeout))
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._manager.leave(self, current_holder())

    def __enter__(self) -> Self:
        """For a plain thread, without a running loop: the thread is the holder."""
        run_blocking(self.__aenter__, None)
        return self

    def __exit__(self, *exc: object) -> None:
        self._manager.leave(self, current_holder())

    def share(self) -> SharedLease:
        """What another task enters, with `with`, to hold this lease too."""
        return SharedLease(self._manager, self)

    @property
    def held(self) -> bool:
        """Whether the current task holds it now."""
        return current_holder() in self._holders


class SharedLease:
    """A lease on its way to another task."""

    def __init__(self, manager: Manager, lease: Lease) -> None:
        self._manager = manager
        self._lease = lease

    def __enter__(self) -> Lease:
        self._manager.join_lease(self._lease, current_holder())
        return self._lease

    def __exit__(self, *exc: object) -> None:
        self._manager.leave(self._lease, current_holder())
