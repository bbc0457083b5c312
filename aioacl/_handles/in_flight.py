"""In-flight references: the objects that unfinished work uses. They must not be freed before the work is done."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from aioacl._base.states import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import InFlight
    from aioacl._handles.memory import Buffer
    from aioacl._lifecycle.manager import Manager

UNKNOWN: Final = 1 << 62  # the position of work that is being enqueued


# For each piece of work that is being enqueued: the buffers that it uses and that were closed during the enqueue.
deferred: Final[dict[InFlight, deque[Buffer]]] = {}


def wait_for_enqueue(reference: InFlight, buffer: Buffer) -> bool:
    """Registers a closed buffer, which is checked again when the running enqueue ends.

    Returns False if the enqueue has already ended: then the caller has to check the buffer.
    """
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
    """Makes the maintenance thread check the buffers that were closed during an enqueue.

    Called when the position of the enqueued work is known.
    """
    waiting = deferred.pop(reference, None)
    while waiting:
        try:
            buffer = waiting.popleft()
        except IndexError:  # `wait_for_enqueue` has removed the last one
            return
        leave_note(buffer._manager, buffer._free_when_unused)


def leave_note(manager: Manager, clean_up: Callable[[], object]) -> None:
    """Makes the maintenance thread run the clean-up. If the device is closed, `clean_up` runs at once."""
    _leave(manager, manager.deferred.notes, clean_up, lambda: False)
    manager.maintenance.kick()


def leave_until_reset(
    manager: Manager, clean_up: Callable[[], object], over: Callable[[], bool] = lambda: False
) -> None:
    """Runs the clean-up after the next reset or close.

    If the device is closed and its own clean-up has ended, `clean_up` runs at once. So it does if `over` returns True:
    the device may have been closed and opened again before this call.
    """
    _leave(manager, manager.deferred.leftovers, clean_up, over)


def _leave(
    manager: Manager,
    queue: deque[Callable[[], object]],
    clean_up: Callable[[], object],
    over: Callable[[], bool],
) -> None:
    queue.append(clean_up)
    if manager.admission.state is State.CLOSED or over():
        try:
            queue.remove(clean_up)
        except ValueError:  # another thread runs it
            return
        clean_up()
