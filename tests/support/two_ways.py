"""Random enqueues for the comparison of two implementations: their operands, the states of a device, and their outcome.

A `World` has two devices, and objects in each state in which an enqueue may find them. An outcome has no addresses and
no positions, so the outcomes of two worlds with one seed are equal.
"""

from __future__ import annotations

import asyncio
import random
import re
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib
from tests.kit import Raised, fill_queue, in_thread, until_now
from tests.support.dlpack import READ_ONLY, Producer
from tests.support.refused import HUGE, Unreadable, Unshowable, released

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

SIZE: Final = 64
LARGE: Final = (1 << 20) + 8
FAULT: Final = 507015
REFUSALS: Final = (107000, 207001, 507899)  # codes of ACL that refuse one call
FUNCTIONS: Final = {
    "copy": "aclrtMemcpyAsync",
    "fill": "aclrtMemsetAsync",
    "wait_event": "aclrtStreamWaitEvent",
}

HELD: Final = ("held", "recorder", "foreign")

Outcome = tuple[object, ...]


class Small(int):
    """A subclass of int."""


class Indexed:
    """A number that is not an int."""

    def __index__(self) -> int:
        return 8


SIZES: Final[dict[str, Any]] = {
    "None": None,
    **{str(number): number for number in (0, 1, 8, 16, 32, SIZE, SIZE + 1, 1 << 20, LARGE, -1, -(1 << 70))},
    **{str(number): number for number in (1 << 62, (1 << 63) - 1, 1 << 63, 1 << 64)},
    "huge": HUGE,
    "-huge": -HUGE,
    "True": True,
    "numpy.int64": np.int64(8),
    "subclass": Small(8),
    "index": Indexed(),
    "float": 8.0,
    "text": "8",
    "unreadable": Unreadable(),
    "unshowable": Unshowable(),
}
BYTES: Final[dict[str, Any]] = {
    **{str(number): number for number in (0, 1, 128, 255, 256, -1, 1 << 31, 1 << 63, 1 << 64, -(1 << 64))},
    "huge": HUGE,
    "True": True,
    "numpy.uint8": np.uint8(3),
    "subclass": Small(8),
    "index": Indexed(),
    "None": None,
    "float": 1.0,
    "text": "1",
    "bytes": b"1",
    "unreadable": Unreadable(),
    "unshowable": Unshowable(),
}
HOST: Final[dict[str, Callable[[], object]]] = {
    "bytes": lambda: bytes(SIZE),
    "short bytes": lambda: bytes(8),
    "no bytes": lambda: b"",
    "bytearray": lambda: bytearray(SIZE),
    "long bytearray": lambda: bytearray(LARGE),
    "memoryview": lambda: memoryview(bytearray(SIZE)),
    "read-only view": lambda: memoryview(bytes(SIZE)),
    "stepped view": lambda: memoryview(bytearray(SIZE))[::2],
    "released view": released,
    "array": lambda: np.zeros(8, np.float64),
    "read-only array": lambda: np.frombuffer(bytes(SIZE), np.uint8),
    "stepped array": lambda: np.zeros(16, np.uint8)[::2],
    "transposed array": lambda: np.zeros((2, 4), np.uint8).T,
    "scalar array": lambda: np.array(1.0),
    "times": lambda: np.zeros(8, "M8[s]"),
    "objects": lambda: np.array([object()]),
    "None": lambda: None,
    "int": lambda: 3,
    "text": lambda: "text",
    "list": lambda: [1, 2],
    "class": lambda: aioacl.DeviceBuffer,
    "unshowable": Unshowable,
}


class World:
    """Two open devices, and the handles that the calls use.

    The streams of `HELD` are held from `hold` to `release`, so that the in-flight references are kept.
    """

    def __init__(self, open_device: Callable[[int], Any], seed: object) -> None:
        self.random = random.Random(repr(seed))
        self.devices = [open_device(index).result() for index in (0, 1)]
        self.opened: list[Any] = []
        self.streams: dict[str, Any] = {}
        self.buffers: dict[str, Any] = {}
        self.events: dict[str, Any] = {}
        self._make_stale()
        self._make()
        self.names = {id(thing): name for name, thing in self._all()}

    def _all(self) -> Iterator[tuple[str, Any]]:
        for table in (self.streams, self.buffers, self.events):
            yield from table.items()

    def _opened(self, opening: Any) -> Any:
        made = opening.result()
        self.opened.append(made)
        return made

    def _make_stale(self) -> None:
        device = self.devices[0]
        stream = self.streams["stale"] = self._opened(device.create_stream())
        memory = self.buffers["stale memory"] = self._opened(device.allocate(SIZE))
        self.buffers["stale view"] = memory[:32]
        self.buffers["old pinned"] = self._opened(device.pinned(SIZE))
        self.events["stale event"] = stream.record()
        self.events["stale timing event"] = self._opened(device.create_event(timing=True))
        stream.result()
        assert device.force_reset(grace=0).result().ok

    def _make(self) -> None:
        device, other = self.devices
        streams, buffers, events = self.streams, self.buffers, self.events
        for name in ("held", "recorder", "closed", "failed", "full"):
            streams[name] = self._opened(device.create_stream())
        streams["foreign"] = self._opened(other.create_stream())
        memory = buffers["memory"] = self._opened(device.allocate(SIZE))
        buffers["large"] = self._opened(device.allocate(2 * LARGE))
        pinned = buffers["pinned"] = self._opened(device.pinned(SIZE))
        buffers["nothing"] = self._opened(device.allocate(0))
        buffers["pinned nothing"] = self._opened(device.pinned(0))
        buffers["foreign"] = self._opened(other.allocate(SIZE))
        buffers["foreign pinned"] = self._opened(other.pinned(SIZE))
        buffers["wrapped"] = self._opened(_Made(device.wrap_memory(memory.address, SIZE)))
        tensor = device.from_dlpack(Producer(memory.address, (SIZE,), flags=READ_ONLY))
        buffers["tensor"] = self._opened(_Made(tensor))
        for name, closed in (("closed", device.allocate(SIZE)), ("closed pinned", device.pinned(SIZE))):
            buffers[name] = closed.result()
            buffers[f"view of {name}"] = buffers[name][:8]
            buffers[name].close().result()
        views = {
            "first half": memory[:32],
            "middle": memory[16:48],
            "end": memory[32:],
            "no bytes": memory[8:8],
        }
        buffers |= views | {"pinned view": pinned[8:40], "view of tensor": tensor[:32]}
        self.buffers = buffers
        streams["closed"].close().result()
        self._make_events(memory)
        events["failed event"] = self._fail(streams["failed"], memory)
        simulator.hold(streams["full"])
        fill_queue(streams["full"], memory)

    def _make_events(self, memory: Any) -> None:
        device, other = self.devices
        streams, events = self.streams, self.events
        for name in ("event", "timing event", "closed event", "unrecorded event"):
            events[name] = self._opened(device.create_event(timing=name == "timing event"))
        for name in ("event", "timing event", "closed event"):
            streams["recorder"].fill(memory, 1)
            streams["recorder"].record(events[name])
        events["closed event"].close().result()
        events["event of held"] = streams["held"].record()
        events["foreign event"] = self._opened(other.create_event()).record(streams["foreign"])
        for name in ("held", "recorder", "foreign"):
            streams[name].result()

    def _fail(self, stream: Any, memory: Any) -> Any:
        simulator.fail_next(stream, FAULT)
        ticket, event = stream.fill(memory, 1), stream.record()
        try:
            ticket.result()
        except aioacl.AclError:
            return event
        raise AssertionError("expected the fill to fail, it did not")

    def hold(self) -> None:
        """Keeps the work of the streams unfinished."""
        for name in HELD:
            simulator.hold(self.streams[name])

    def release(self) -> None:
        """Ends that work. Work of one of the streams may wait for an event of another."""
        for act in (simulator.release, aioacl.Stream.result):
            for name in HELD:
                act(self.streams[name])

    @contextmanager
    def draining(self) -> Generator[None]:
        """Within this context, device 0 drains, and this thread has a lease. Then all handles of device 0 are stale."""
        device = self.devices[0]
        with device.lease():
            reset = Raised(lambda: device.force_reset(grace=100, timeout=200).result())
            assert until_now(lambda: device.state is aioacl.State.DRAINING)
            yield
            simulator.release_all()
        reset.join()
        simulator.hold(self.streams["foreign"])

    def close(self) -> None:
        """Closes what is open."""
        simulator.release_all()
        for thing in self.opened:
            thing.close().result()
        for device in self.devices:
            device.close().result()

    # --- random calls ------------------------------------------------------------------------------------------------

    def call(self) -> Call:
        """Returns a random call of a stream."""
        pick = self.random
        kind = pick.choice(("copy", "copy", "copy", "fill", "fill", "record", "wait_event"))
        usual = pick.random() < 0.6  # most calls are accepted, or refused by a late check
        stream = pick.choice(("held", "recorder") if usual else list(self.streams))
        arguments: tuple[Any, ...]
        if kind == "record":
            named = pick.choice([*self.events, "None", "int", "text", "unshowable"])
            arguments = (self._named(named),)
        elif kind == "wait_event":
            named = pick.choice([*self.events, "None", "int", "unshowable"])
            arguments = (self._named(named),)
        elif kind == "fill":
            target, byte, size = (
                self._memory(usual=usual),
                self._of(BYTES, usual=usual),
                self._of(SIZES, usual=usual),
            )
            named, arguments = f"{target}, {byte}, {size}", (self._named(target), BYTES[byte], SIZES[size])
        else:
            target, source = self._memory(usual=usual), self._memory(usual=usual)
            size = self._of(SIZES, usual=usual)
            named = f"{target}, {source}, {size}"
            arguments = (self._named(target), self._named(source), SIZES[size])
        # The watcher records events too, so another call could get a failure of a record.
        code = pick.choice(REFUSALS) if kind != "record" and pick.random() < 0.03 else 0
        return Call(self, kind, stream, arguments, f"{stream}.{kind}({named}){code or ''}", code)

    def _memory(self, *, usual: bool) -> str:
        pick = self.random
        if usual and pick.random() < 0.8:
            return pick.choice(
                ("memory", "pinned", "first half", "middle", "end", "wrapped", "large", "pinned view")
            )
        return pick.choice([*self.buffers, *HOST, "event"])

    def _of(self, table: dict[str, Any], *, usual: bool) -> str:
        names = list(table)
        return self.random.choice(names[:6] if usual else names)

    def _named(self, name: str) -> Any:
        known = self.buffers.get(name) or self.events.get(name)
        return HOST[name]() if known is None else known

    def name_of(self, thing: object) -> str:
        """Returns the name of a handle of this world, or the type of another object."""
        return self.names.get(id(thing), type(thing).__name__)


class Call:
    """One call of a stream. `run` makes the call once more, and returns its outcome."""

    def __init__(
        self, world: World, kind: str, stream: str, arguments: tuple[Any, ...], text: str, code: int
    ) -> None:
        self._world, self._kind, self._arguments, self._code = world, kind, arguments, code
        self._stream, self.text = world.streams[stream], text

    def run(self) -> Outcome:
        """Makes the call, and returns what it returned or raised, and the in-flight references that it added."""
        core = self._stream._core
        before = {} if core.gone else dict.fromkeys(core.in_flight)
        tail = 0 if core.gone else lib.aio_stream_tail(core.handle)
        fault: Any = (
            simulator.fault(FUNCTIONS[self._kind], rc=self._code, times=1) if self._code else nullcontext()
        )
        with fault:
            result = self._result(tail)
        added = [] if core.gone else [each for each in core.in_flight if each not in before]
        entries = 0 if core.gone else lib.aio_stream_tail(core.handle) - tail
        return (*result, entries, tuple(self._reference(each, tail) for each in added))

    def _result(self, tail: int) -> Outcome:
        try:
            made = getattr(self._stream, self._kind)(*self._arguments[:2], **self._size())
        except Exception as error:
            return _shown(error)
        if isinstance(made, aioacl.Event):
            version = made._version
            given = made is self._arguments[0]
            if version is None:
                return ("event", given)
            same = version.core is self._stream._core
            return (
                "event",
                given,
                made.timing,
                made.generation == self._stream.generation,
                same,
                version.position - tail,
            )
        assert isinstance(made, aioacl.Ticket)
        return ("ticket", made._core is self._stream._core, made._position - tail, made._call, made._twin)

    def _size(self) -> dict[str, Any]:
        return {"nbytes": self._arguments[2]} if len(self._arguments) == 3 else {}

    def _reference(self, reference: Any, tail: int) -> Outcome:
        held = reference.held
        shown = self._world.name_of(held)
        if hasattr(held, "core"):  # the record of an event
            shown = f"record {held.core is self._stream._core}"
        return (tuple(map(self._world.name_of, reference.buffers)), shown, reference.position - tail)

    @property
    def staged(self) -> bool:
        """Whether the call may use staging memory, which only few calls on a held stream can use."""
        return self._kind == "copy" and not all(hasattr(end, "_manager") for end in self._arguments[:2])


def _shown(error: BaseException) -> Outcome:
    """Returns the class, the text and the fields of an error."""
    shown = (type(error).__name__, str(error), type(error.__cause__).__name__)
    if not isinstance(error, aioacl.AclError):
        return shown
    return (*shown, error.code, error.call, error.action, error.hint, error.device, error.generation)


class _Made:
    """An object that exists, as an Opening."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def result(self) -> Any:
        return self._made


def run_calls(world: World, count: int, check: Callable[[Call], None], *, hold: bool = True) -> None:
    """Passes that number of random calls to `check`. With `hold`, work is held, but for a limited number of calls."""
    entries = 0
    for _ in range(count):
        if hold and entries == 0:
            world.hold()
        call = world.call()
        check(call)
        entries = 0 if call.staged or entries == 40 else entries + 1
        if hold and entries == 0:
            world.release()
    if hold:
        world.release()


def run_states(world: World, count: int, check: Callable[[Call], None]) -> None:
    """Passes random calls to `check` in each state of the device: 5 * `count` + 4 * (`count` // 5) calls."""
    device, part = world.devices[0], count // 5
    run_calls(world, 5 * count, check)
    with world.draining():
        world.hold()
        run_calls(world, part, check, hold=False)
        in_thread(lambda: run_calls(world, part, check, hold=False))  # this thread has no lease
    run_calls(world, part, check, hold=False)
    device.close().result()
    run_calls(world, part, check, hold=False)


# --- awaits ---------------------------------------------------------------------------------------------------------


class RandomAwait:
    """An await of a random object. `run` makes the await once more, and returns its outcome.

    `how` is "at once", or what happens while the work is held: "released", "cancelled", "timed out", "failed".
    """

    def __init__(self, world: World) -> None:
        pick = world.random
        self._world = world
        self._how = pick.choice(("at once", "at once", "released", "cancelled", "timed out", "failed"))
        things = {**world.streams, **world.events} if self._how == "at once" else {}
        things.pop("full", None)  # its work never ends
        self._name = pick.choice([*things, "ticket", "record", "held"])
        self._thing = things.get(self._name)
        self.text = f"await {self._name}, {self._how}"

    def _enqueued(self) -> Any:
        world, stream = self._world, self._world.streams["held"]
        ticket = stream.fill(world.buffers["memory"], 1)
        return {"ticket": ticket, "record": stream.record(), "held": stream}[self._name]

    async def run(self) -> Outcome:
        """Makes the await in a task of its own."""
        stream = self._world.streams["held"]
        if self._how == "at once":
            thing = self._thing or self._enqueued()
            return await self._result(thing)
        simulator.hold(stream)
        if self._how == "failed":
            simulator.fail_next(stream, FAULT)
        task = asyncio.ensure_future(self._result(self._enqueued()))
        await asyncio.sleep(0)
        pending = (task.done(), simulator.pending(stream) > 0)
        if self._how == "cancelled":
            task.cancel()
        elif self._how != "timed out":
            simulator.release(stream)
        result = await task
        simulator.release(stream)
        counted = len(stream._core.waiting) + stream._core.awaits
        with suppress(aioacl.AclError):
            await stream
        if self._how == "failed":
            await stream.renew()
        return (*pending, counted, *result)

    async def _result(self, thing: Any) -> Outcome:
        try:
            async with asyncio.timeout(0.001 if self._how == "timed out" else None):
                made = await thing
        except (Exception, asyncio.CancelledError) as error:
            return tuple(
                re.sub(r"\d+", "#", str(each)) for each in _shown(error)
            )  # each renewed stream has its number
        return ("returned", made)
