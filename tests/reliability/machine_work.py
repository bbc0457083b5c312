"""The machine's rules about work: enqueueing, blocked streams, waiting, failing, and closing handles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition

import aioacl
from aioacl import State, simulator
from aioacl._lifecycle.manager import manager_of
from tests.kit import until_now
from tests.reliability.machine_base import BYTES, PATIENCE_SECONDS, PICK, Base, expect, step
from tests.reliability.machine_model import Event, Pinned, Point, Stream, Thing

if TYPE_CHECKING:
    from collections.abc import Callable

FAULT = 507013

with_a_buffer = precondition(lambda self: self.streams and self.buffers)
with_a_stream = precondition(lambda self: self.streams)
with_an_event = precondition(lambda self: self.events)


class Work(Base):
    """Rules about work."""

    # --- enqueueing -----------------------------------------------------------------------------------------------

    def _enqueue(
        self, stream: Stream, call: Callable[[], Any], *others: Thing, wrong: Any = None
    ) -> Point | None:
        """Makes the call, and checks its refusal. Unusable handles come first, then bad values, then the gate."""
        refusals = [thing.refusal for thing in (stream, *others)]
        expected = (
            next((refusal for refusal in refusals if refusal), None) or wrong or stream.card.work_refusal
        )
        made, error = expect(call, expected)
        if error is not None:
            return None
        stream.points.append(Point(stream, made, blocked=stream.blocked))
        return stream.points[-1]

    def _ticket(self, stream: Stream, call: Callable[[], Any], *others: Thing, wrong: Any = None) -> None:
        point = self._enqueue(stream, call, *others, wrong=wrong)
        if point is not None:
            self.points.append(point)

    @staticmethod
    def _of_another(stream: Stream, buffer: Thing) -> Any:
        elsewhere = not isinstance(buffer, Pinned) and buffer.card is not stream.card
        return aioacl.ParameterError if elsewhere else None

    @with_a_buffer
    @step(pick=PICK, which=PICK, value=st.integers(0, 255))
    def fill(self, pick: int, which: int, value: int) -> None:
        stream, buffer = self.of(self.streams, pick), self.of(self.buffers, which)
        wrong = self._of_another(stream, buffer)
        self._ticket(stream, lambda: stream.made.fill(buffer.made, value), buffer, wrong=wrong)

    @with_a_buffer
    @step(pick=PICK, which=PICK, up=st.booleans())
    def copy(self, pick: int, which: int, up: bool) -> None:
        """Copies between pageable memory and a buffer. If the buffer is pinned memory, the copy is refused."""
        stream, buffer = self.of(self.streams, pick), self.of(self.buffers, which)
        wrong = aioacl.ParameterError if isinstance(buffer, Pinned) else self._of_another(stream, buffer)
        target, source = (buffer.made, bytes(BYTES)) if up else (bytearray(BYTES), buffer.made)
        self._ticket(stream, lambda: stream.made.copy(target, source), buffer, wrong=wrong)

    @with_a_stream
    @step(pick=PICK)
    def record(self, pick: int) -> None:
        stream = self.of(self.streams, pick)
        point = self._enqueue(stream, stream.made.record)
        if point is not None:
            self.events.append(Event(point.made, stream.card, stream.generation, point=point))

    @precondition(lambda self: self.streams and self.events)
    @step(pick=PICK, which=PICK)
    def record_again(self, pick: int, which: int) -> None:
        stream, event = self.of(self.streams, pick), self.of(self.events, which)
        wrong = aioacl.ParameterError if event.card is not stream.card else None
        point = self._enqueue(stream, lambda: stream.made.record(event.made), event, wrong=wrong)
        event.point = point or event.point

    @precondition(lambda self: self.streams and self.events)
    @step(pick=PICK, which=PICK)
    def wait_event(self, pick: int, which: int) -> None:
        """Makes a stream wait for an event of its device that has ended, or that is recorded on a held stream."""
        stream, event = self.of(self.streams, pick), self.of(self.events, which)
        point: Point | None = event.point
        other = point.stream if point and point.blocked and point.stream is not stream else None
        if event.card is not stream.card or stream.held or (other and not other.held):
            return  # held streams: a wait for an event that has ended enqueues nothing, so it would not be blocked
        before = stream.waits_for[:]
        if other and stream.runs:
            self._all_known(stream)
            if event.refusal is None:
                stream.waits_for.append(other)
        wrong = aioacl.ParameterError if point is None else None
        entered = self._enqueue(stream, lambda: stream.made.wait_event(event.made), event, wrong=wrong)
        if entered is None:
            stream.waits_for = before
        else:
            self.points.append(entered)

    # --- blocked streams ------------------------------------------------------------------------------------------

    @precondition(lambda self: any(stream.runs for stream in self.streams))
    @step(pick=PICK)
    def hold(self, pick: int) -> None:
        """Waits until aioacl knows that all earlier work of the stream has ended, and then holds the stream."""
        stream = self.of([stream for stream in self.streams if stream.runs], pick)
        self._all_known(stream)
        simulator.hold(stream.made)
        stream.held = True

    @precondition(lambda self: any(stream.usable and stream.held for stream in self.streams))
    @step(pick=PICK)
    def release(self, pick: int) -> None:
        stream = self.of([stream for stream in self.streams if stream.usable and stream.held], pick)
        self._release(stream, stream.made)

    def _release(self, stream: Stream, made: Any) -> None:
        simulator.release(made)
        stream.unblock()
        for other in self.streams:
            if stream in other.waits_for:
                other.waits_for = [it for it in other.waits_for if it is not stream]
                if not other.blocked:
                    other.unblock()

    def _all_known(self, stream: Stream) -> None:
        """Waits for all work of a stream that is not blocked."""
        expect(lambda: stream.made.result(PATIENCE_SECONDS), stream.last)
        self._raised(stream, stream.last)
        for point in stream.points:
            point.known = True

    @staticmethod
    def _raised(stream: Stream, error: Any) -> None:
        """Records a raised fault in the model. A fault of an older generation is not recorded."""
        if error is aioacl.DeviceFault and not stream.stale:
            stream.card.faulted = True

    # --- failing --------------------------------------------------------------------------------------------------

    @precondition(lambda self: self._running_pairs())
    @step(pick=PICK, which=PICK)
    def fail(self, pick: int, which: int) -> None:
        """Makes a task fail. Its ticket always raises the error, and the stream refuses work until it is renewed."""
        stream, buffer = self._pair(pick, which)
        self._all_known(stream)
        manager = manager_of(stream.card.index)
        before = manager.failures.count
        simulator.fail_next(stream.made, FAULT)
        point = Point(stream, stream.made.fill(buffer.made, 1), known=True, error=aioacl.DeviceFault)
        stream.points.append(point)
        self.points.append(point)
        expect(lambda: point.made.result(PATIENCE_SECONDS), aioacl.DeviceFault)
        self._raised(stream, point.error)
        assert until_now(lambda: manager.failures.count == before + 1)
        stream.card.announce("fault")
        expect(lambda: stream.made.fill(buffer.made, 1), aioacl.DeviceFault)
        assert stream.made.error is not None
        stream.made.renew().result(PATIENCE_SECONDS)
        stream.points.clear()

    @precondition(lambda self: self._running_pairs())
    @step(pick=PICK, which=PICK, value=st.integers(0, 255))
    def round_trip(self, pick: int, which: int, value: int) -> None:
        """Fills a buffer, and checks that a copy returns these bytes."""
        stream, buffer = self._pair(pick, which)
        answer = bytearray(BYTES)
        self._ticket(stream, lambda: stream.made.fill(buffer.made, value), buffer)
        self._ticket(stream, lambda: stream.made.copy(answer, buffer.made), buffer)
        self._all_known(stream)
        assert bytes(answer) == bytes([value]) * BYTES

    def _running_pairs(self) -> list[tuple[Stream, Thing]]:
        """Streams that are not blocked, each with a buffer of its device."""
        return [
            (stream, buffer)
            for stream in self.streams
            if stream.runs
            for buffer in self.buffers
            if buffer.usable and buffer.card is stream.card and not isinstance(buffer, Pinned)
        ]

    def _pair(self, pick: int, which: int) -> tuple[Stream, Thing]:
        pair: tuple[Stream, Thing] = self.of(self._running_pairs(), pick + which)
        return pair

    # --- waiting --------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.points)
    @step(pick=PICK)
    def ticket_result(self, pick: int) -> None:
        point: Point = self.of(self.points, pick)
        self._wait_for(point, point.made)
        if point.known:
            assert point.made.done

    @precondition(lambda self: any(point.known and point.stream.stale for point in self.points))
    @step(pick=PICK)
    def wait_for_an_old_ticket(self, pick: int) -> None:
        """Waits again for work that ended before a reset. Only a failure of this work is raised."""
        old = [point for point in self.points if point.known and point.stream.stale]
        point: Point = self.of(sorted(old, key=lambda point: point.error is not None), pick)
        self._wait_for(point, point.made)

    def _wait_for(self, point: Point, made: Any) -> None:
        _, error = expect(lambda: made.result(0 if point.blocked else PATIENCE_SECONDS), *point.ends)
        self._raised(point.stream, error)
        point.known = point.known or error is None

    @with_an_event
    @step(pick=PICK)
    def event_result(self, pick: int) -> None:
        event: Event = self.of(self.events, pick)
        refusal = event.refusal or (aioacl.ParameterError if event.point is None else None)
        if refusal or event.point is None:
            expect(lambda: event.made.result(PATIENCE_SECONDS), refusal)
        else:
            self._wait_for(event.point, event.made)

    @with_an_event
    @step(pick=PICK)
    def event_query(self, pick: int) -> None:
        event: Event = self.of(self.events, pick)
        point = event.point
        refusal = event.refusal or (aioacl.ParameterError if point is None else None)
        may_be: list[Any] = [refusal]
        if not refusal and point and not point.known and event.card.state is State.QUARANTINED:
            may_be = [aioacl.DeviceQuarantined] if point.blocked else [None, aioacl.DeviceQuarantined]
        done, error = expect(event.made.query, *may_be)
        if error is None and point:
            assert done is True if point.known else done is False if point.blocked else True

    @with_a_stream
    @step(pick=PICK)
    def stream_result(self, pick: int) -> None:
        stream: Stream = self.of(self.streams, pick)
        if stream.runs:
            self._all_known(stream)
            return
        whole = stream.points[-1:]  # a wait for the stream is a wait for its last position
        expected = (stream.refusal,) if stream.refusal else whole[0].ends if whole else (None,)
        _, error = expect(lambda: stream.made.result(0 if stream.blocked else PATIENCE_SECONDS), *expected)
        self._raised(stream, error)

    @with_a_stream
    @step(pick=PICK)
    def stream_query(self, pick: int) -> None:
        stream: Stream = self.of(self.streams, pick)
        quarantined = stream.card.state is State.QUARANTINED
        may_be = (
            (stream.refusal,)
            if stream.refusal
            else (None, aioacl.DeviceQuarantined)
            if quarantined
            else (None,)
        )
        done, error = expect(stream.made.query, *may_be)
        if error is None and stream.usable and stream.unfinished:
            assert done is False

    @precondition(lambda self: self.devices)
    @step(pick=PICK)
    def synchronize(self, pick: int) -> None:
        device = self.device(pick)
        card = device.card
        streams = [
            stream for stream in self.streams if stream.card is card and stream.generation == card.generation
        ]
        if any(stream.last for stream in streams):
            return  # it is not defined which failure the wait raises
        points = [point for stream in streams for point in stream.points]
        blocked = any(point.blocked for point in points)
        may_be = [card.refusal(device)]
        # If the end of some work is not known yet, the wait first checks the device's streams.
        if not device.closed and not all(point.known for point in points):
            quarantined = card.state is State.QUARANTINED
            may_be = (
                [aioacl.DeviceQuarantined] if quarantined else [aioacl.DeviceTimeout] if blocked else may_be
            )
            may_be += [card.refusal(device)] if quarantined and not blocked else []
        _, error = expect(
            lambda: device.made.synchronize(0 if blocked else PATIENCE_SECONDS).result(), *may_be
        )
        if error is None:
            for point in points:
                point.known = True

    # --- ends -----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.things)
    @step(pick=PICK, of=st.sampled_from(["streams", "buffers", "events"]))
    def close_one(self, pick: int, of: str) -> None:
        """Closes a handle. This succeeds for stale and for closed handles too. Work that was enqueued goes on."""
        things = getattr(self, of) or self.things
        thing: Thing = self.of(things, pick)
        held = isinstance(thing, Stream) and thing.usable and thing.held and thing.unfinished
        native: Any = thing.made._core.native if held else None
        expect(lambda: thing.made.close().result(), None)
        if (
            isinstance(thing, Stream) and held
        ):  # after a fault, the close leaves the native stream to the next reset
            self._release(thing, native)
        thing.closed = True
        if isinstance(thing, Event):
            thing.point = None
