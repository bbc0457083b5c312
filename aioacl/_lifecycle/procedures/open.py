"""The first open of a device: a flight on a thread of its own.

Each step that calls ACL runs on one of the device's lanes and has a limit. A call that does not return in time leaves
the device quarantined, with a report. The lane goes on when the call returns, and the next open gives its results back.
"""

from __future__ import annotations

from typing import NoReturn

from aioacl._base.ffi import lib
from aioacl._base.states import Event
from aioacl._library import detection as _detection
from aioacl._library import runtime as _runtime
from aioacl._lifecycle.gate import error_of
from aioacl._lifecycle.procedures import procedure as _flights
from aioacl._lifecycle.procedures.procedure import Flight, named
from aioacl._wait.workers import LaneStuck


class OpenFlight(Flight):
    """The first open of a device."""

    name = "open"
    goes_on = "It goes on, and the device is closed again unless somebody opens it: pass a longer timeout=."

    def fly(self) -> None:
        try:
            self._start()
            self._open()
        except LaneStuck:
            self._give_up()
        except BaseException:
            self._undo()
            raise

    def _start(self) -> None:
        manager = self.manager
        try:
            manager.control.start()
            manager.maintenance.start()
        except RuntimeError as error:
            raise error_of(lib.AIO_NO_THREAD, "pthread_create", self.index, manager.generation) from error
        manager.control.call(self._acquire, _flights.OPEN_SECONDS)
        _detection.warn_of_limit()
        manager.control.call(self._checked_set, _flights.OPEN_SECONDS)
        strategy = lib.AIO_WATCH if manager.strategy == "watch" else lib.AIO_THREAD
        code = lib.aio_device_start(self.index, strategy, manager.maintenance.port.handle)
        if code:
            manager.control.call(self._reset_plain, _flights.RESET_SECONDS)
            raise error_of(code, "pthread_create", self.index, manager.generation)

    def _open(self) -> None:
        manager = self.manager
        with manager.changed:
            manager.last_fault = None
            manager.apply(Event.OPEN)
            self._settle_foreign()  # until now the gate was closed, and took no notice
        manager.maintenance.call(self._prepare, _flights.OPEN_SECONDS)

    def _give_up(self) -> NoReturn:
        stuck = self._stuck()
        self._quarantine(f"the open was given up: {named(stuck)} has not returned within its time", stuck)
        raise self.manager.quarantined()

    def _undo(self) -> None:
        manager = self.manager
        try:
            if manager.control.running:
                manager.control.call(lambda: _runtime.release(manager), _flights.CLOSE_SECONDS)
        except LaneStuck:
            self._give_up()
        manager.control.stop(_flights.CLOSE_SECONDS)
        manager.maintenance.stop(_flights.CLOSE_SECONDS)
        manager.clean_up()  # who has left is told by notes, and now by no lane
