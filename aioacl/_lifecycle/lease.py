"""Leases, which keep a force reset from starting between the steps of a task, and the record of held leases."""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from aioacl._base import origin
from aioacl._base.errors import ParameterError
from aioacl._base.ffi import lib
from aioacl._base.options import deadline_of
from aioacl._base.public import publish
from aioacl._base.unique import Unique
from aioacl._library.runtime import of_parent
from aioacl._wait.current import current_holder, run_blocking

if TYPE_CHECKING:
    from aioacl._base.options import Seconds
    from aioacl._base.origin import Origin, Site
    from aioacl._lifecycle.admission import Admission


def _leaver(kind: type[BaseException] | None, entered: list[object]) -> object | None:
    """Finds the holder that is leaving, removes it from `entered` and returns it.

    The holder can differ from the caller, because another task may close the generator that entered the lease. Returns
    None if the caller is not in `entered`: it entered another share of the lease, or has left already.
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
    return ParameterError(f"the {noun} was already entered", device=index, hint=hint)


class Lease(Unique):
    """Keeps a force reset from starting between the steps of a task: `async with device.lease() as lease:`.

    A force reset waits for the lease, at most for the reset's grace time, and then revokes it. After that the holder's
    waits raise DeviceReset. Until the holder leaves the lease, new calls of the holder raise DeviceResetting, or
    StaleHandleError with an old handle. A foreign reset and the last close revoke the lease at once.

    Only the task that entered the lease, and the tasks that entered a `share()` of it, hold the lease.
    `asyncio.gather`, and `wait_for` before Python 3.12, create new tasks, which do not hold the lease: use
    `asyncio.timeout()`, or share the lease.
    """

    __slots__ = (
        *("__weakref__", "_born", "_entered", "_generation", "_holders", "_lost"),
        *("_admission", "_site", "_timeout", "_wait"),
    )
    _noun = "lease"

    def __init__(self, admission: Admission, *, wait: bool, timeout: Seconds | None) -> None:
        self._admission = admission
        self._wait = wait
        self._timeout = timeout
        self._holders: list[object] = []  # one item for each entry
        self._lost: list[object] = []  # the holders when the lease was revoked, until they leave it
        self._entered: list[object] = []  # holders that entered the lease itself, not a share of it
        self._generation = 0  # the generation of the entry; 0: not entered yet
        self._born: Origin | None = None
        self._site: Site | None = origin.site()

    def _must_be_new(self) -> None:
        """Raises ParameterError if the lease was entered before."""
        if self._generation:
            hint = "Call device.lease() once for each block, or pass lease.share() to another task."
            raise _entered_before(self._noun, self._admission.index, hint)

    async def __aenter__(self) -> Self:
        before = self._admission.entered(self, current_holder())
        try:
            await self._admission.grant(self, wait=self._wait, deadline=deadline_of(self._timeout))
            self._entered.append(current_holder())
            return self  # noqa: TRY300 - an `else` would be outside the `try`
        except GeneratorExit:
            raise  # from a finalizer, before the grant, perhaps on a thread that holds the lock
        except BaseException:
            self._admission.give_back(self, current_holder(), before)
            raise

    async def __aexit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        self._leave(kind, self._entered)

    def __enter__(self) -> Self:
        """Enters the lease on a thread without a running event loop. The thread is the holder."""
        before = self._admission.entered(self, current_holder())
        try:
            run_blocking(self.__aenter__, None, "enter the lease with `async with`")
            return self  # noqa: TRY300 - an `else` would be outside the `try`
        except BaseException:
            self._admission.give_back(self, current_holder(), before)
            raise

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        self._leave(kind, self._entered)

    def _leave(self, kind: type[BaseException] | None, entered: list[object]) -> None:
        holder = _leaver(kind, entered)
        if holder is None:
            return
        if kind is GeneratorExit:  # from a finalizer, perhaps on a thread that holds the lock
            self._admission.abandon_lease(self, holder)
            return
        left = self._admission.entered(self, holder) - 1
        try:
            self._admission.give_back(self, holder, left)
        finally:
            self._admission.give_back(self, holder, left)  # Ctrl-C may have interrupted the first call

    def __del__(self) -> None:
        if not hasattr(self, "_site") or not (self._holders or self._lost) or lib.aio_forked():
            return
        self._holders.clear()
        self._lost.clear()
        self._admission.forget_lease()
        sentence = f"a lease on device {self._admission.index} was entered and not left: use `async with`"
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
        where = f"device {self._admission.index}, generation {self._generation or self._admission.generation}"
        return f"<Lease on {where}, {state}{of_parent()}>"

    def share(self) -> SharedLease:
        """Returns a SharedLease. Another task enters it, with `with` or `async with`, to hold this lease too.

        Entering it never waits.
        """
        return SharedLease(self._admission, self)

    @property
    def held(self) -> bool:
        """Whether the current task holds the lease now. False after the lease was revoked.

        A force reset whose grace time has passed, a foreign reset, and the last close revoke the lease.
        """
        return current_holder() in self._holders and not lib.aio_gate_foreign(self._admission.index)


class SharedLease(Unique):
    """A share of a lease, from `lease.share()`. One other task enters it once, to hold the lease too."""

    __slots__ = ("__weakref__", "_admission", "_born", "_entered", "_lease", "_site", "_used")
    _noun = "shared lease"

    def __init__(self, admission: Admission, lease: Lease) -> None:
        self._admission = admission
        self._lease = lease
        self._entered: list[object] = []  # the holders that entered it
        self._used = False
        self._born: Origin | None = None
        self._site: Site | None = origin.site()

    def __del__(self) -> None:
        if not hasattr(self, "_site") or lib.aio_forked():
            return
        dropped = [holder for holder in self._entered if Leases.concerns(self._lease, holder)]
        for holder in dropped:
            self._admission.abandon_lease(self._lease, holder)
        if dropped:
            sentence = (
                f"a shared lease on device {self._admission.index} was entered and not left: use `with`"
            )
            origin.warn_of_drop(self, sentence)

    def __repr__(self) -> str:
        return f"<SharedLease of {self._lease!r}>"

    def __enter__(self) -> Lease:
        holder = current_holder()
        before = self._admission.entered(self._lease, holder)
        try:
            self._admission.share_lease(self, holder)
            self._entered.append(holder)
            return self._lease  # noqa: TRY300 - an `else` would be outside the `try`
        except BaseException:
            self._admission.give_back(self._lease, holder, before)
            raise

    def _must_be_new(self) -> None:
        """Raises ParameterError if the shared lease was entered before."""
        if self._used:
            raise _entered_before(
                self._noun, self._admission.index, "Call lease.share() for each task and block."
            )

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        self._lease._leave(kind, self._entered)

    async def __aenter__(self) -> Lease:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        self.__exit__(kind)


class Leases:
    """The held leases of a device and their holders. Guarded by the lock of the device's admission.

    The references are weak. So a lease is not held forever if Ctrl-C interrupts its entry and no task can leave it.
    """

    def __init__(self) -> None:
        self._held: weakref.WeakSet[Lease] = weakref.WeakSet()
        self._revoked: weakref.WeakSet[Lease] = weakref.WeakSet()
        self.some_lost = False  # whether `lost` may be True for a holder; read without the lock
        self.ever = False  # whether a lease was ever granted; read without the lock

    def __len__(self) -> int:
        return len(self._held)

    def grant(self, lease: Lease, holder: object, generation: int) -> None:
        """Adds the first holder of a new lease."""
        self.ever = True  # first, so that a reader does not miss the lease
        lease._must_be_new()  # checked again: several tasks may have waited for the device to open
        lease._generation = generation
        self.add(lease, holder)

    def add(self, lease: Lease, holder: object) -> None:
        """Adds a holder."""
        lease._holders.append(holder)
        self._held.add(lease)

    def join(self, shared: SharedLease, holder: object) -> None:
        """Adds a holder to a held lease. Raises ParameterError if the lease is not held."""
        if shared._lease not in self._held:
            raise ParameterError(
                "expected a lease that a task holds, got one that no task holds",
                hint="Enter lease.share() while the owner of the lease is inside its block.",
            )
        self.add(shared._lease, holder)
        shared._used = True

    @staticmethod
    def entered(lease: Lease, holder: object) -> int:
        """How many times the holder has entered the lease and not left it."""
        return lease._holders.count(holder) + lease._lost.count(holder)

    def remove(self, lease: Lease, holder: object, left: int) -> bool:
        """Removes entries of the holder until `left` remain. Returns whether the holder was the last one.

        It can be called again after Ctrl-C has interrupted it.
        """
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
        self.some_lost = bool(self._revoked)
        return last

    @staticmethod
    def abandon(lease: Lease, holder: object) -> None:
        """Removes one entry of the holder. Takes no lock; call `tidy` later."""
        with suppress(ValueError):
            (lease._holders if holder in lease._holders else lease._lost).remove(holder)

    def tidy(self) -> None:
        """Drops the leases without a holder. Called after `abandon`."""
        for lease in tuple(self._held):
            if not lease._holders:
                self._held.discard(lease)
        for lease in tuple(self._revoked):
            if not lease._lost:
                self._revoked.discard(lease)
        self.some_lost = bool(self._revoked)

    def revoke(self) -> int:
        """Revokes all held leases, because a reset or a close follows. Returns how many there were."""
        revoked = len(self._held)
        self.some_lost = self.some_lost or revoked > 0
        for lease in self._held:
            lease._lost += lease._holders
            lease._holders.clear()
            self._revoked.add(lease)
        self._held.clear()
        return revoked

    def holds(self, holder: object) -> bool:
        """Whether the holder holds a lease."""
        return any(holder in lease._holders for lease in self._held)

    @staticmethod
    def concerns(lease: Lease, holder: object) -> bool:
        """Returns True until the holder leaves the lease, even if the lease was revoked. Takes no lock."""
        return holder in lease._holders or holder in lease._lost

    def was_revoked(self, lease: Lease) -> bool:
        """Returns True if the lease was revoked, until its last holder has left it."""
        return lease in self._revoked

    def lost(self, holder: object) -> bool:
        """Returns True if a lease of this holder was revoked, until the holder has left the lease."""
        return any(holder in lease._lost for lease in tuple(self._revoked))


publish("aioacl", ["Lease", "SharedLease"], of=__name__)
