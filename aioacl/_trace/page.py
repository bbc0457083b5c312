"""A trace as one HTML page without network: a timeline, and a table of the slowest awaits.

Names of models are data of the user. They are in a block of JSON in which `<`, `>` and `&` are escaped, so no text can
end the block. The script puts them into the page with `textContent` and on the canvas only. The page's policy permits
only this script and this style, by their hashes, and no request.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from aioacl._base.ffi import lib
from aioacl._base.paths import DATA
from aioacl._trace.events import VALUES, Events, names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioacl._base.flight_ring import Ring

AWAIT: Final = lib.AIO_NAME_AWAIT
MOST_SLICES: Final = 100_000  # more would make the page slow; the shortest are left out
ESCAPED: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def encode(ring: Ring, labels: Mapping[int, str] | None = None) -> bytes:
    """Returns the page. `labels` has the names of models by their runtime ids.

    Raises:
        MemoryError: there is not enough memory.
    """
    return _page(data(ring, labels or {})).encode()


def data(ring: Ring, labels: Mapping[int, str]) -> dict[str, Any]:
    """Returns what the page shows.

    Each slice is [track, name, begin, duration, name of a value, value], in us. That of an await whose enqueue is in
    the trace also has the name and the track of the enqueue.
    """
    events = Events(ring.raw)
    found = [events.native[index] for index in range(events.count)]
    start = min((event.ns for event in found), default=0)
    slices = _slices(found, start)
    left = max(len(slices) - MOST_SLICES, 0)
    if left:
        longest = sorted(range(len(slices)), key=lambda index: -slices[index][3])[:MOST_SLICES]
        slices = [slices[index] for index in sorted(longest)]
    known = names()
    return {
        "summary": f"process {ring.process}: {ring.summary()}"
        + (f"; the {left} shortest slices are left out" if left else ""),
        "tracks": [{**track._asdict(), "name": track.name(labels)} for track in events.tracks],
        "names": {number: known[number] for number in _names_of(slices) if number in known},
        "values": VALUES,
        "await": AWAIT,
        "slices": slices,  # the outer slices first
    }


def _names_of(slices: list[list[Any]]) -> set[int]:
    return {name for each in slices for name in (each[1], *each[6:7])}


def _slices(events: list[Any], start: int) -> list[list[Any]]:
    """Pairs the begins and the ends of each track, in the order of the begins. An instant has the duration 0."""
    found: dict[int, list[Any]] = {}
    stacks: dict[int, list[tuple[int, Any]]] = {}
    enqueues: dict[int, tuple[int, int]] = {}
    order = sorted(range(len(events)), key=lambda index: (events[index].ns, index))
    for place, event in enumerate(events[index] for index in order):
        if event.flow and event.name != AWAIT:
            enqueues.setdefault(event.flow, (event.name, event.track))  # of a flow, the first event
        if event.type == lib.AIO_EVENT_BEGIN:
            stacks.setdefault(event.track, []).append((place, event))
        elif event.type == lib.AIO_EVENT_END and stacks.get(event.track):
            at, begun = stacks[event.track].pop()
            value = event if event.value_name else begun
            work = enqueues.get(begun.flow, ()) if begun.name == AWAIT else ()
            found[at] = [*_span(begun, start, event.ns), value.value_name, value.value, *work]
        elif event.type == lib.AIO_EVENT_INSTANT:
            found[place] = [*_span(event, start, event.ns), event.value_name, event.value]
    return [found[at] for at in sorted(found)]


def _span(begun: Any, start: int, end: int) -> list[Any]:
    return [begun.track, begun.name, (begun.ns - start) / 1e3, (end - begun.ns) / 1e3]


def escaped(value: object) -> str:
    """Returns a value as JSON that can stand in a block of HTML, whatever texts it contains."""
    text = json.dumps(value, separators=(",", ":"))
    for character, code in ESCAPED.items():
        text = text.replace(character, code)
    return text


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _page(content: dict[str, Any]) -> str:
    script, style = (DATA / "trace.js").read_text(), (DATA / "trace.css").read_text()
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>aioacl: trace</title>
<style>{style}</style>
</head>
<body>
<h1>Trace</h1>
<p id="summary"></p>
<p>Turn the wheel to zoom, and drag to move. Click a slice, or a row of the table, to see it.
<button type="button" id="closer">Zoom in</button> <button type="button" id="wider">Zoom out</button>
<button type="button" id="whole">Whole trace</button></p>
<canvas id="timeline" tabindex="0" aria-label="timeline"></canvas>
<p id="selected" role="status"></p>
<h2>The slowest awaits</h2>
<table><thead><tr><th>begin (ms)</th><th>duration (ms)</th><th>device</th><th>work</th><th>code</th></tr></thead>
<tbody id="slowest"></tbody></table>
<script type="application/json" id="data">{escaped(content)}</script>
<script>{script}</script>
</body>
</html>
"""
