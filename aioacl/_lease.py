"""Leases: a task's promise that no reset should part its steps, and the book of those that are held."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Self

from aioacl._errors import ParameterError
from aioacl._ffi import lib
from aioacl._options import deadline_of
from aioacl._port import current_holder, run_blocking

if TYPE_CHECKING:
    from aioacl._lifecycle import Manager


class Lease:
    """A task's promise that it is between steps which a reset should not part.

    `async with device.lease() as lease:` A force reset waits for it, at most its grace time; then the lease is
    revoked: the holder's waits raise DeviceReset, and his next call DeviceResetting, or StaleHandleError with an old
    handle. A foreign reset waits for nobody: it revokes at once, and so does the last close.

    Only the task that entered it holds it, and those to which `share()` was handed. `asyncio.gather`, and `wait_for`
    before Python 3.12, make tasks of their own, which do not hold it: use `asyncio.timeout()`, and share it.
    """

    def __init__(self, manager: Manager, *, wait: bool, timeout: float | None) -> None:
        self._manager = manager
        self._wait = wait
        self._timeout = timeout
        self._holders: list[object] = []  # once for each time that one has entered
        self._lost: list[object] = []  # those it was taken from, until they leave

    async def __aenter__(self) -> Self:
        await self._manager.grant(self, wait=self._wait, deadline=deadline_of(self._timeout))
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._manager.give_back(self, current_holder())

    def __enter__(self) -> Self:
        """For a plain thread, without a running loop: the thread is the holder."""
        run_blocking(self.__aenter__, None)
        return self

    def __exit__(self, *exc: object) -> None:
        self._manager.give_back(self, current_holder())

    def share(self) -> SharedLease:
        """What another task enters, with `with`, to hold this lease too."""
        return SharedLease(self._manager, self)

    @property
    def held(self) -> bool:
        """Whether the current task holds it now; not any more once somebody else has reset the device."""
        return current_holder() in self._holders and not lib.aio_gate_foreign(self._manager.index)


class SharedLease:
    """A lease on its way to another task."""

    def __init__(self, manager: Manager, lease: Lease) -> None:
        self._manager = manager
        self._lease = lease

    def __enter__(self) -> Lease:
        self._manager.share_lease(self._lease, current_holder())
        return self._lease

    def __exit__(self, *exc: object) -> None:
        self._manager.give_back(self._lease, current_holder())


class Leases:
    """The leases of a device that are held, and by whom. Guarded by the lock of the device's manager."""

    def __init__(self) -> None:
        self._held: list[Lease] = []
        self._revoked: weakref.WeakSet[Lease] = weakref.WeakSet()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, lease: Lease, holder: object) -> None:
        """One holder more."""
        if lease not in self._held:
            self._held.append(lease)
        lease._holders.append(holder)

    def join(self, lease: Lease, holder: object) -> None:
        """One holder more of a lease that somebody holds."""
        if lease not in self._held:
            raise ParameterError(
                "nobody holds this lease any more", hint="Enter it while its owner holds it."
            )
        self.add(lease, holder)

    def remove(self, lease: Lease, holder: object) -> bool:
        """One holder less; whether he was the last."""
        if holder in lease._holders:
            lease._holders.remove(holder)
        elif holder in lease._lost:
            lease._lost.remove(holder)
            if not lease._lost:
                self._revoked.discard(lease)
        if lease._holders or lease not in self._held:
            return False
        self._held.remove(lease)
        return True

    def revoke(self) -> int:
        """Ends all of them: what they protected is about to end. How many there were."""
        revoked = len(self._held)
        for lease in self._held:
            lease._lost += lease._holders
            lease._holders.clear()
            self._revoked.add(lease)
        self._held.clear()
        return revoked

    def holds(self, holder: object) -> bool:
        """Whether he holds one."""
        return any(holder in lease._holders for lease in self._held)

    @staticmethod
    def concerns(lease: Lease, holder: object) -> bool:
        """Whether he holds it, or held it when it was revoked; takes no lock."""
        return holder in lease._holders or holder in lease._lost

    def was_revoked(self, lease: Lease) -> bool:
        """Whether it was taken from somebody who has not left it yet."""
        return lease in self._revoked

    def lost(self, holder: object) -> bool:
        """Whether one was taken from him that he has not left yet."""
        return any(holder in lease._lost for lease in tuple(self._revoked))
