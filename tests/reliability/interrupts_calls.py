"""The calls to interrupt: each public call that a thread without an event loop can make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import aioacl
from aioacl import lowlevel, simulator
from aioacl._base.paths import DATA
from tests.reliability import setting

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[["Bench"], object]

BYTES: Final = 4096
BY_HAND: Final = 2  # the device that is set and reset by hand
MODEL: Final = DATA / "digits.om"
X: Final = memoryview(bytes(256)).cast("f", (1, 64))


class Bench:
    """An open device with a model, a stream and memory, which are used between the interrupts."""

    def __init__(self) -> None:
        self._registered = simulator.register_model("digits", lambda _: None)
        self.device = setting.open_device(0, cache=False).result()  # so that each request is a call
        self.model = self.device.load_model(MODEL).result()
        self.renew()

    def renew(self) -> None:
        """Creates new handles, because those from before a reset are stale."""
        self.stream = self.device.create_stream().result()
        self.memory = self.device.allocate(BYTES).result()
        self.event = self.device.create_event().result()

    def close_handles(self) -> None:
        """Closes the handles."""
        for thing in (self.event, self.memory, self.stream):
            thing.close().result()

    def close(self) -> None:
        """Closes everything."""
        self.close_handles()
        self.model.close().result()
        self.device.close().result()
        self._registered.close()


def made_and_closed(opening: Callable[[Bench], aioacl.Opening[Any]]) -> Call:
    """Returns a call that creates and closes an object. After an interrupted close, a finalizer releases the object."""
    return lambda bench: opening(bench).result().close().result()


def _lease(bench: Bench) -> None:
    with bench.device.lease() as lease, lease.share(), bench.device.lease():
        bench.stream.fill(bench.memory, 1)


def _events(bench: Bench) -> None:
    events = bench.device.events()
    bench.device.force_reset(grace=0).result()
    next(events)


def _with(bench: Bench) -> None:
    with bench.device.create_stream(), bench.device.allocate(BYTES):
        pass


def call_of(bench: Bench) -> aioacl.Operation[object]:
    """Returns a call of the model."""
    return bench.model(X, out=memoryview(bytearray(40)).cast("f", (1, 10)))


def _call_model(bench: Bench) -> object:
    return call_of(bench).result()


def _enqueue(bench: Bench) -> None:
    bench.model.stream.record()
    bench.model.enqueue(bench.memory, bench.memory).result()


def _abortable(bench: Bench) -> None:
    with bench.device.abortable(1 << 20):
        pass


def _counts(_: Bench) -> None:
    lowlevel.set_device(BY_HAND)
    lowlevel.reset_device(BY_HAND)


CALLS: Final[dict[str, Call]] = {
    "open_device, close": lambda _: setting.open_device(1).result().close().result(),
    "list_devices": lambda _: aioacl.list_devices(),
    "create_stream, close": made_and_closed(lambda bench: bench.device.create_stream()),
    "allocate, close": made_and_closed(lambda bench: bench.device.allocate(BYTES)),
    "pinned, close": made_and_closed(lambda bench: bench.device.pinned(BYTES)),
    "create_event, close": made_and_closed(lambda bench: bench.device.create_event()),
    "fill": lambda bench: bench.stream.fill(bench.memory, 1),
    "fill, result": lambda bench: bench.stream.fill(bench.memory, 1).result(),
    "copy to the device": lambda bench: bench.stream.copy(bench.memory, bytes(BYTES)).result(),
    "copy to the host": lambda bench: bench.stream.copy(bytearray(BYTES), bench.memory).result(),
    "upload": lambda bench: bench.stream.upload(bench.memory, bytes(BYTES)).result(),
    "download": lambda bench: bench.stream.download(bytearray(BYTES), bench.memory).result(),
    "record, result": lambda bench: bench.stream.record().result(),
    "record an existing event": lambda bench: bench.event.record(bench.stream).result(),
    "wait_event": lambda bench: bench.stream.wait_event(bench.stream.record()).result(),
    "stream.query": lambda bench: bench.stream.query(),
    "stream.result": lambda bench: bench.stream.result(),
    "stream.ready": lambda bench: bench.stream.ready().result(),
    "stream.synchronize": lambda bench: bench.stream.synchronize().result(),
    "stream.abort": lambda bench: bench.stream.abort().result(),
    "device.synchronize": lambda bench: bench.device.synchronize().result(),
    "memory_info": lambda bench: bench.device.memory_info().result(),
    "load_model, close": made_and_closed(lambda bench: bench.device.load_model(MODEL)),
    "model call": _call_model,
    "model.enqueue": _enqueue,
    "run": lambda bench: bench.device.run(int).result(),
    "executor.submit": lambda bench: bench.device.executor.submit(int).result(),
    "executor.map": lambda bench: list(bench.device.executor.map(abs, range(3))),
    "a job that waits for a job": lambda bench: bench.device.run(
        lambda: bench.device.run(int).result()
    ).result(),
    "with": _with,
    "lease": _lease,
    "abortable": _abortable,
    "events": _events,
    "force_reset": lambda bench: bench.device.force_reset(grace=0).result(),
    "health": lambda bench: bench.device.health,
    "set and reset by hand": _counts,
}
