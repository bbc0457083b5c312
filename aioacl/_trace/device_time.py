"""Device times of a trace: which times of CLOCK_MONOTONIC belong to the timestamps of the device, and with which error.

Each span has two timestamps of the device, and two times of this process between which its work ran: before the
enqueue, and when its end was seen. Let a line map the device's clock to CLOCK_MONOTONIC. The line must map no begin of
a span before its enqueue, and no end after the time at which it was seen. `Fit` takes the line in the middle of all
lines for which this holds. The error at a time is the largest distance to one of them.

This needs a clock with an offset and a constant drift. If no line fits, the clock has not run like that: it was set, or
it is the simulator's virtual clock. Then the error is what the two times of each span permit by themselves.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioacl._base.ffi import ffi, lib
from aioacl._base.flight import LAYOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

MOST_DRIFT: Final = 1e-3  # clocks differ by less than that
RESOLUTION_NS: Final = 1000.0  # of a timestamp, which is rounded down
STEPS: Final = 64  # of a ternary search: (2/3)^64 of the drift is far below a nanosecond in a day
PARTS: Final = 32  # the error is stated at that many times of a generation
AT_ONCE: Final = 4096
MOST_ERROR: Final = (1 << 31) - 1


class Span(NamedTuple):
    """An execution, a copy or a fill on the device.

    Attributes:
        device: the device's index.
        generation: the generation, as in the gate.
        id: the id of the entry, as in the records of the flight recorder.
        function: the index of the ACL function that enqueued the work.
        since_ns: a time of CLOCK_MONOTONIC before the enqueue.
        seen_ns: a time of CLOCK_MONOTONIC at which the work was done.
        began_ns: the timestamp before the work, on the device's clock.
        ended_ns: the timestamp after the work.
    """

    device: int
    generation: int
    id: int
    function: int
    since_ns: int
    seen_ns: int
    began_ns: int
    ended_ns: int


Point = tuple[float, float]


def _hull(points: Iterable[Point], sign: int) -> list[Point]:
    """Returns the points that bound a line from below (sign 1: the upper hull) or from above (sign -1)."""
    found: list[Point] = []
    for x, y in sorted(points, key=lambda point: (point[0], sign * point[1])):
        while found and found[-1][0] == x:
            found.pop()
        while len(found) > 1 and sign * _turn(found[-2], found[-1], (x, y)) >= 0:
            found.pop()
        found.append((x, y))
    return found


def _turn(a: Point, b: Point, c: Point) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def _best(value: Callable[[float], float]) -> float:
    """Returns the drift at which a concave function is largest."""
    low, high = -MOST_DRIFT, MOST_DRIFT
    for _ in range(STEPS):
        third = (high - low) / 3
        if value(low + third) < value(high - third):
            low += third
        else:
            high -= third
    return (low + high) / 2


class Fit:
    """The relation of one generation's device clock to CLOCK_MONOTONIC.

    Attributes:
        linear: whether there is a line that fits all spans.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self._start = min(span.began_ns for span in spans)
        self._stop = max(span.ended_ns for span in spans)
        self._shift = spans[0].since_ns - spans[0].began_ns  # so that floats need not be large
        self._lower = _hull((self._point(it.began_ns, it.since_ns, -RESOLUTION_NS) for it in spans), 1)
        self._upper = _hull((self._point(it.ended_ns, it.seen_ns, 0) for it in spans), -1)
        self._drift = _best(lambda drift: self._most(drift) - self._least(drift))
        self._offset = (self._most(self._drift) + self._least(self._drift)) / 2
        self.linear = self._most(self._drift) >= self._least(self._drift)
        self._own = 0.0 if self.linear else max(map(self._own_error, spans))
        step = max(1, (self._stop - self._start) // PARTS)
        self.times: list[int] = [*range(self._start, self._stop, step), self._stop]
        """Times of the device's clock. Between two of them, the error is at most the larger one of `errors`."""
        self.errors = [self._error(at) for at in self.times]

    def _point(self, device_ns: int, host_ns: int, more: float) -> Point:
        """The offset of the host's clock at a time."""
        return float(device_ns - self._start), host_ns - device_ns - self._shift + more

    def _least(self, drift: float) -> float:
        """The least offset with which no work begins before its enqueue."""
        return max(y - drift * x for x, y in self._lower)

    def _most(self, drift: float) -> float:
        """The largest offset with which no work ends after its end was seen."""
        return min(y - drift * x for x, y in self._upper)

    def host_ns(self, device_ns: int) -> int:
        """Returns the time of CLOCK_MONOTONIC for a timestamp."""
        x = device_ns - self._start
        return device_ns + self._shift + round(self._offset + self._drift * x)

    def _error(self, device_ns: int) -> float:
        if not self.linear:
            return self._own
        x = float(device_ns - self._start)
        middle = self._offset + self._drift * x
        high = _best(lambda drift: self._most(drift) + drift * x if self._fits(drift) else self._off(drift))
        low = _best(lambda drift: -self._least(drift) - drift * x if self._fits(drift) else self._off(drift))
        most, least = self._most(high) + high * x, self._least(low) + low * x
        return max(most - middle, middle - least) + RESOLUTION_NS

    def _fits(self, drift: float) -> bool:
        return self._most(drift) >= self._least(drift)

    def _off(self, drift: float) -> float:
        """Less than any value of a drift that fits, and rising towards these drifts."""
        return (self._most(drift) - self._least(drift)) * 1e6 - 1e18

    def _own_error(self, span: Span) -> float:
        begun, ended = self.host_ns(span.began_ns), self.host_ns(span.ended_ns)
        return RESOLUTION_NS + max(
            *(abs(at - bound) for at in (begun, ended) for bound in (span.since_ns, span.seen_ns)),
        )

    def error_ns(self, device_ns: int) -> int:
        """Returns the largest error of `host_ns` at this time, which must be one between the spans."""
        at = bisect_left(self.times, device_ns)
        return round(max(self.errors[max(at - 1, 0)], self.errors[min(at, len(self.errors) - 1)])) + 1


class Spans:
    """Collects the spans of a trace. Only one trace of a process can collect at a time."""

    def __init__(self) -> None:
        self.found: list[Span] = []
        self._room: Any = ffi.new("aio_span[]", AT_ONCE)

    def look(self, devices: Iterable[int]) -> None:
        """Takes the spans of these devices that are done. Never waits."""
        for device in devices:
            count = AT_ONCE
            while count == AT_ONCE:
                count = lib.aio_spans_read(device, self._room, AT_ONCE)
                self.found += [_span(device, self._room[index]) for index in range(count)]

    def records(self, ends: Mapping[tuple[int, int], int]) -> bytes:
        """Returns records of the spans and of their errors. `ends` has the times at which entries were seen done."""
        groups: dict[tuple[int, int], list[Span]] = {}
        for span in self.found:
            seen_ns = min(span.seen_ns, ends.get((span.device, span.id), span.seen_ns))
            groups.setdefault((span.device, span.generation), []).append(span._replace(seen_ns=seen_ns))
        return b"".join(_records(device, spans) for (device, _), spans in groups.items())


def _span(device: int, read: Any) -> Span:
    return Span(
        device,
        read.generation,
        read.id,
        read.function,
        read.since_ns,
        read.seen_ns,
        read.began_us * 1000,
        read.ended_us * 1000,
    )


def _records(device: int, spans: list[Span]) -> bytes:
    fit = Fit(spans)
    found = [
        LAYOUT.pack(
            0, fit.host_ns(at), 0, lib.AIO_TRACE_UNCERTAINTY, device, 0, 0, min(round(error), MOST_ERROR)
        )
        for at, error in zip(fit.times, fit.errors, strict=True)
    ]
    for span in sorted(spans, key=lambda span: span.ended_ns):
        begun, ended = fit.host_ns(span.began_ns), fit.host_ns(span.ended_ns)
        error = min(max(fit.error_ns(span.began_ns), fit.error_ns(span.ended_ns)), MOST_ERROR)
        found.append(
            LAYOUT.pack(
                0,
                ended,
                span.id,
                lib.AIO_TRACE_SPAN,
                device,
                span.function,
                error,
                min((ended - begun) // 1000, 0xFFFFFFFF),
            )
        )
    return b"".join(found)


def ends_of(raw: bytes) -> dict[tuple[int, int], int]:
    """Returns the times of CLOCK_MONOTONIC at which entries were seen done, by device and id, from records."""
    found: dict[tuple[int, int], int] = {}
    kinds = {lib.AIO_FLIGHT_WAIT_ENDS, lib.AIO_FLIGHT_NO_WAIT, lib.AIO_FLIGHT_EXECUTION_ENDS}
    for _, ns, entry, kind, device, code, _, _ in LAYOUT.iter_unpack(raw):
        if kind in kinds and code == 0:
            found.setdefault((device, entry), ns)
    return found
