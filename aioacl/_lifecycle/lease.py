"""Leases: a task's promise that no reset should part its steps, and the book of those that are held."""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, Self

from aioacl._base import origin
from aioacl._base.errors import ParameterError
from aioacl._base.ffi import lib
from aioacl._base.options import deadline_of
from aioacl._base.unique import Unique
from aioacl._library.runtime import of_parent
from aioacl._wait.current import current_holder, run_blocking

if TYPE_CHECKING:
    from aioacl._base.options import Seconds
    from aioacl._base.origin import Origin, Site


def _leaver(kind: type[BaseException] | None, entered: list[object]) -> object | None:
    """The holder that leaves now: a generator may be closed by another task than the one that entered in it.

    None if the caller has not entered here, or has left already: what it holds by another entry stays.
    """
    holder = current_holder()
    if kind is GeneratorExit and entered and holder not in entered:
        holder = entered[-1]
    try:
        entered.remove(holder)
    except ValueError:
        return None
    return holder


def _entered_before(noun: str, index: int, hint: str) -> ParameterError:
    return ParameterError(f"expected a new {noun}, got one that was already entered", device=index, hint=hint)


class Grantor(Protocol):
    """What a lease asks of the admission of its device."""

    @property
    def index(self) -> int:
        """The device's."""
        ...

    @property
    def generation(self) -> int:
        """The gate's."""
        ...

    async def grant(self, lease: Lease, *, wait: bool, deadline: float | None) -> None:
        """Makes the current task a holder."""
        ...

    def share_lease(self, shared: SharedLease, holder: object) -> None:
        """Makes another task a holder of a lease that is held."""
        ...

    def entered(self, lease: Lease, holder: object) -> int:
        """How often the holder has entered the lease and not left it yet."""
        ...

    def give_back(self, lease: Lease, holder: object, left: int) -> None:
        """Until the holder has entered it so often and no more."""
        ...

    def forsake_lease(self, lease: Lease, holder: object) -> None:
        """For finalizers: the holder has left the lease."""
        ...

    def forget_lease(self) -> None:
        """For finalizers: a lease that was entered is gone."""
        ...

    def tidy_leases(self) -> None:
        """Holders have left theirs without the lock."""
        ...


class Lease(Unique):
    """A task's promise that it is between steps which a reset should not part.

    `async with device.lease() as lease:` A force reset waits for it, at most its grace time; then the lease is
    revoked: the holder's waits raise DeviceReset, and his next call DeviceResetting, or StaleHandleError with an old
    handle. A foreign reset waits for nobody: it revokes at once, and so does the last close.

    Only the task that entered it holds it, and those to which `share()` was handed. `asyncio.gather`, and `wait_for`
    before Python 3.12, make tasks of their own, which do not hold it: use `asyncio.timeout()`, and share it.
    """

    __slots__ = (
        *("__weakref__", "_born", "_entered", "_generation", "_holders", "_lost"),
        *("_grantor", "_site", "_timeout", "_wait"),
    )
    noun = "lease"

    def __init__(self, grantor: Grantor, *, wait: bool, timeout: Seconds | None) -> None:
        self._grantor = grantor
        self._wait = wait
        self._timeout = timeout
        self._holders: list[object] = []  # once for each time that one has entered
        self._lost: list[object] = []  # those it was taken from, until they leave
        self._entered: list[object] = []  # those who have entered it itself: without those it was shared with
        self._generation = 0  # in which it was entered; 0: it was not entered yet
        self._born: Origin | None = None
        self._site: Site | None = origin.site()

    def _must_be_new(self) -> None:
        """ParameterError for a lease that was entered before."""
        if self._generation:
            hint = "Call device.lease() once for each block, or pass lease.share() to another task."
            raise _entered_before(self.noun, self._grantor.index, hint)

    async def __aenter__(self) -> Self:
        before = self._grantor.entered(self, current_holder())
        try:
            await self._grantor.grant(self, wait=self._wait, deadline=deadline_of(self._timeout))
            self._entered.append(current_holder())
            return self  # noqa: TRY300 - an `else` would leave the block
        except GeneratorExit:
            raise  # by a finalizer, before it was granted: perhaps on a thread that has the lock
        except BaseException:
            self._grantor.give_back(self, current_holder(), before)
            raise

    async def __aexit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        self._leave(kind, self._entered)

    def __enter__(self) -> Self:
        """For a plain thread, without a running loop: the thread is the holder."""
        before = self._grantor.entered(self, current_holder())
        try:
            run_blocking(self.__aenter__, None, "enter the lease with `async with`")
            return self  # noqa: TRY300 - an `else` would leave the block
        except BaseException:
            self._grantor.give_back(self, current_holder(), before)
            raise

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        self._leave(kind, self._entered)

    def _leave(self, kind: type[BaseException] | None, entered: list[object]) -> None:
        holder = _leaver(kind, entered)
        if holder is None:
            return
        if kind is GeneratorExit:  # by a finalizer, perhaps on a thread that has the lock
            self._grantor.forsake_lease(self, holder)
            return
        left = self._grantor.entered(self, holder) - 1
        try:
            self._grantor.give_back(self, holder, left)
        finally:
            self._grantor.give_back(self, holder, left)  # Ctrl-C may have come in the middle of it

    def __del__(self) -> None:
        if not hasattr(self, "_site") or not (self._holders or self._lost) or lib.aio_forked():
            return
        self._holders.clear()
        self._lost.clear()
        self._grantor.forget_lease()
        sentence = f"a lease on device {self._grantor.index} was entered and not left: use `async with`"
        origin.warn_of_drop(self, sentence)

    def __repr__(self) -> str:
        held, lost = len(self._holders), len(self._lost)
        state = (
            f"held by {held}"
            if held
            else "revoked"
            if lost
            else "left"
            if self._generation
            else "not entered"
        )
        where = f"device {self._grantor.index}, generation {self._generation or self._grantor.generation}"
        return f"<Lease on {where}, {state}{of_parent()}>"

    def share(self) -> SharedLease:
        """What another task enters, with `with` or `async with`, to hold this lease too; that waits for nothing."""
        return SharedLease(self._grantor, self)

    @property
    def held(self) -> bool:
        """Whether the current task holds it now; not any more once somebody else has reset the device."""
        return current_holder() in self._holders and not lib.aio_gate_foreign(self._grantor.index)


class SharedLease(Unique):
    """A lease on its way to another task, which enters it once."""

    __slots__ = ("__weakref__", "_born", "_entered", "_grantor", "_lease", "_site", "_used")
    noun = "shared lease"

    def __init__(self, grantor: Grantor, lease: Lease) -> None:
        self._grantor = grantor
        self._lease = lease
        self._entered: list[object] = []  # by whom
        self._used = False
        self._born: Origin | None = None
        self._site: Site | None = origin.site()

    def __del__(self) -> None:
        if not hasattr(self, "_site") or lib.aio_forked():
            return
        dropped = [holder for holder in self._entered if Leases.concerns(self._lease, holder)]
        for holder in dropped:
            self._grantor.forsake_lease(self._lease, holder)
        if dropped:
            sentence = f"a shared lease on device {self._grantor.index} was entered and not left: use `with`"
            origin.warn_of_drop(self, sentence)

    def __repr__(self) -> str:
        return f"<SharedLease of {self._lease!r}>"

    def __enter__(self) -> Lease:
        holder = current_holder()
        before = self._grantor.entered(self._lease, holder)
        try:
            self._grantor.share_lease(self, holder)
            self._entered.append(holder)
            return self._lease  # noqa: TRY300 - an `else` would leave the block
        except BaseException:
            self._grantor.give_back(self._lease, holder, before)
            raise

    def _must_be_new(self) -> None:
        """ParameterError for a shared lease that was entered before."""
        if self._used:
            raise _entered_before(
                self.noun, self._grantor.index, "Call lease.share() for each task and block."
            )

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        self._lease._leave(kind, self._entered)

    async def __aenter__(self) -> Lease:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        self.__exit__(kind)


class Leases:
    """The leases of a device that are held, and by whom. Guarded by the lock of the device's manager.

    It keeps none of them: one that nobody can leave any more, for a Ctrl-C has come between, is not held for ever.
    """

    def __init__(self) -> None:
        self._held: weakref.WeakSet[Lease] = weakref.WeakSet()
        self._revoked: weakref.WeakSet[Lease] = weakref.WeakSet()

    def __len__(self) -> int:
        return len(self._held)

    def grant(self, lease: Lease, holder: object, generation: int) -> None:
        """Its first holder."""
        lease._must_be_new()  # once more: several tasks may have waited for the device to open
        lease._generation = generation
        self.add(lease, holder)

    def add(self, lease: Lease, holder: object) -> None:
        """One holder more."""
        lease._holders.append(holder)
        self._held.add(lease)

    def join(self, shared: SharedLease, holder: object) -> None:
        """One holder more of a lease that somebody holds."""
        if shared._lease not in self._held:
            raise ParameterError(
                "expected a lease that a task holds, got one that no task holds",
                hint="Enter lease.share() while the owner of the lease is inside its block.",
            )
        self.add(shared._lease, holder)
        shared._used = True

    @staticmethod
    def entered(lease: Lease, holder: object) -> int:
        """How often he has entered it and not left it yet."""
        return lease._holders.count(holder) + lease._lost.count(holder)

    def remove(self, lease: Lease, holder: object, left: int) -> bool:
        """Until he has entered it so often and no more; whether he was the last. Broken off, it can be done again."""
        last = False
        while self.entered(lease, holder) > left:
            if holder in lease._holders:
                last = len(lease._holders) == 1
                if last:
                    self._held.discard(lease)
                lease._holders.remove(holder)
            else:
                if len(lease._lost) == 1:
                    self._revoked.discard(lease)
                lease._lost.remove(holder)
        return last

    @staticmethod
    def forsake(lease: Lease, holder: object) -> None:
        """One time less that he has entered it, whatever else is true; takes no lock. To be followed by `tidy`."""
        with suppress(ValueError):
            (lease._holders if holder in lease._holders else lease._lost).remove(holder)

    def tidy(self) -> None:
        """Drops the leases without a holder. To be called after `forsake`."""
        for lease in tuple(self._held):
            if not lease._holders:
                self._held.discard(lease)
        for lease in tuple(self._revoked):
            if not lease._lost:
                self._revoked.discard(lease)

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
