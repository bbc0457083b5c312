"""Pool: a batcher that owns its devices and models. Made by `open_pool()`."""

from __future__ import annotations

import warnings
import weakref
from functools import partial
from typing import TYPE_CHECKING, Final

from aioacl._base import sync
from aioacl._base.errors import AclWarning, DeviceTimeout
from aioacl._base.ffi import lib
from aioacl._base.options import bound_of
from aioacl._base.public import publish
from aioacl._batches.batcher import GRACE_SECONDS, Batcher
from aioacl._batches.models import served_by
from aioacl._handles.operation import Operation
from aioacl._wait.current import current_port

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioacl._base.options import Seconds
    from aioacl._batches.rows import RowsOfModel
    from aioacl._batches.state import Rules
    from aioacl._device import Device
    from aioacl._pool.member import Member

CLOSE_SECONDS: Final = 60.0


class Pool(Batcher):
    """A batcher on several devices, made by `open_pool(path)`. It is used as a Batcher.

    Its end closes the models and the devices that it has opened.
    """

    __slots__ = ("_members",)
    _factory = "open_pool(path)"
    _noun = "pool"

    def __init__(
        self,
        rules: Rules,
        rows: RowsOfModel,
        members: Sequence[Member],
    ) -> None:
        models = tuple(member.model for member in members if member.model is not None)
        super().__init__(rules, rows.check, partial(served_by, rows), models)
        self._members = tuple(members)
        for member in members:
            member.join(weakref.ref(self))

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that execute batches, a tuple of Device, in the order of `open_pool(devices=)`.

        A device that did not open is missing, until a later try succeeds.
        """
        return tuple(member.device for member in self._members if member.device is not None)

    def close(self, grace: Seconds = GRACE_SECONDS) -> Operation[None]:
        """Closes the batcher as `Batcher.close` does, then the models, the supervisors and the devices.

        Each is closed also if the close of another fails; then the first error is raised. Work that has not ended
        5 seconds after the close of the batcher is dropped by the close of its device. If all this takes more than
        60 seconds, because a call does not return from C, the close emits an AclWarning, and continues on threads of
        the pool. The models of `replace` stay open. A second close is not an error.

        Args:
            grace: the seconds after which the items that are left fail with ParameterError, finite. Their executions
                are not waited for.

        Returns:
            An Operation; await it, or call its `result()`.

        Raises:
            ParameterError: `grace` is not a number of at least 0.
            AclError: a model or a device could not be closed.
        """
        seconds = bound_of("grace", grace)
        return Operation("infer.close()", lambda: self._close(seconds), self)

    async def _close(self, grace: float) -> None:
        if lib.aio_forked():
            return
        try:
            if not self._runner.aborted:
                await super()._close(grace)
        finally:
            _stop(self._members)
        await until_closed(self._members)

    async def _close_at_end(self) -> None:
        with current_port().shield():  # each step has a limit
            await self._close(GRACE_SECONDS)

    def _close_later(self) -> bool:
        super()._close_later()
        _stop(self._members)
        return False  # the process may end after the block, so the devices must be closed before that

    def __del__(self) -> None:
        runner, members = getattr(self, "_runner", None), getattr(self, "_members", ())
        if runner is None or lib.aio_forked():
            return
        try:
            super().__del__()
        finally:  # also if the warning is an error, and if Ctrl-C has interrupted the close
            runner.when(lambda: runner.core.empty).add_done_callback(partial(_stop, members))

    def __repr__(self) -> str:
        state = "closed" if self._runner.refusal is not None else f"{self.waiting} rows waiting"
        devices = f"{len(self.devices)} of {len(self._members)} devices"
        return f"<Pool of {devices}, at most {self.max_rows} rows, {state}>"


def _stop(members: Sequence[Member], _: object = None) -> None:
    for member in members:
        member.stop()


async def until_closed(members: Sequence[Member]) -> None:
    """Waits for the members, and raises the first error of a close.

    Raises:
        DeviceTimeout: the caller's deadline came first.
    """
    end = sync.monotonic() + CLOSE_SECONDS
    for member in members:
        if await member.over.ended(end):
            continue
        if sync.monotonic() < end:
            raise DeviceTimeout(
                "the pool was not closed in time", hint="The close continues. A second close waits for it."
            )
        warnings.warn(
            f"device {member.index} of the pool is not closed after {CLOSE_SECONDS:g} s; the close continues",
            AclWarning,
            stacklevel=2,
        )
    errors = [member.take_error() for member in members]
    try:
        for error in errors:
            if error is not None:
                raise error
    finally:
        del errors  # the tracebacks refer to this frame


publish("aioacl", ["Pool"], of=__name__)
