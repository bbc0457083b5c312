"""In-flight references: what unfinished work uses, which must not be freed before the work is done."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from aioacl._base.states import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import CData
    from aioacl._lifecycle.manager import Manager

UNKNOWN: Final = 1 << 62  # the position of work that is being enqueued


class WorkStream(Protocol):
    """The stream of the work."""

    @property
    def handle(self) -> CData:
        """The engine's."""
        ...

    def passed(self, position: int) -> bool:
        """Whether the work up to there is done."""
        ...

    def release_done(self) -> None:
        """Lets go of what finished work has used."""
        ...


class UsedBuffer(Protocol):
    """Memory that work uses."""

    _uses: dict[InFlight, None]
    _closed: bool

    @property
    def _manager(self) -> Manager: ...

    def _check(self) -> None: ...

    def _free_when_unused(self) -> None: ...


class InFlight:
    """What a piece of work uses, its stream, and its position.

    The position is UNKNOWN while the work is enqueued, and 0 if it was refused. A buffer that is closed stays allocated
    until the work of each reference to it is done.
    """

    __slots__ = ("buffers", "core", "held", "position")

    def __init__(self, core: WorkStream, buffers: tuple[UsedBuffer, ...], held: object) -> None:
        self.core = core
        self.buffers = buffers
        self.held = held
        self.position = UNKNOWN


deferred: Final[
    dict[InFlight, deque[UsedBuffer]]
] = {}  # closed buffers, by the work at whose enqueueing they are freed


def wait_for_enqueue(reference: InFlight, buffer: UsedBuffer) -> bool:
    """Leaves a closed buffer to the end of an enqueue. False if that is over: then the caller goes on with it."""
    waiting = deferred.setdefault(reference, deque())
    waiting.append(buffer)
    if reference.position == UNKNOWN:
        return True
    deferred.pop(reference, None)
    try:
        waiting.remove(buffer)
    except ValueError:  # `free_deferred` has taken it
        return True
    return False


def free_deferred(reference: InFlight) -> None:
    """The position of the work is known: the maintenance thread looks again at buffers that were closed meanwhile."""
    waiting = deferred.pop(reference, None)
    while waiting:
        try:
            buffer = waiting.popleft()
        except IndexError:  # `wait_for_enqueue` has taken the last one back
            return
        manager = buffer._manager
        if manager.maintenance.running:
            manager.deferred.leave_note(buffer._free_when_unused)
        else:
            leave_until_reset(manager, buffer._free_when_unused)


def leave_until_reset(manager: Manager, clean_up: Callable[[], object]) -> None:
    """For after the next reset or close. A close may be over by now, and its own clean-up past: then at once."""
    manager.deferred.leftovers.append(clean_up)
    if manager.admission.state is State.CLOSED:
        try:
            manager.deferred.leftovers.remove(clean_up)
        except ValueError:  # somebody does it
            return
        clean_up()
