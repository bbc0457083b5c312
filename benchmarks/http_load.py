"""A client that keeps connections busy. It costs little, because it does not parse an answer that is like the last."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

HOST: Final = "127.0.0.1"
RAW: Final = "application/octet-stream"
END: Final = b"\r\n\r\n"
GOOD: Final = b"HTTP/1.1 200"


@dataclass
class Answers:
    """The answers of one load: when each request began, and how long it took, in seconds."""

    began: list[float] = field(default_factory=list[float])
    took: list[float] = field(default_factory=list[float])
    failed: int = 0  # answers without the status 200

    def p99(self, pauses: Sequence[tuple[float, float]] = ()) -> float:
        """Returns the 99th percentile of the requests that ran in none of the pauses."""
        kept = sorted(
            took
            for began, took in zip(self.began, self.took, strict=True)
            if not any(began < end and began + took > start for start, end in pauses)
        )
        return kept[len(kept) * 99 // 100]


def request_of(path: str, body: bytes, kind: str = RAW) -> bytes:
    """Returns the bytes of a request."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class _Connection(asyncio.Protocol):
    """Sends the request again as soon as its answer is there, until `stop`."""

    def __init__(self, request: bytes, answers: Answers) -> None:
        self.done = asyncio.get_running_loop().create_future()
        self._request = request
        self._answers = answers
        self._got = b""
        self._length = 0  # of the last whole answer
        self._stopping = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has another base class
        self._send()

    def stop(self) -> None:
        self._stopping = True

    def _send(self) -> None:
        self._began = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._got += data
        if len(self._got) != self._length and not self._is_whole():
            return
        answers = self._answers
        answers.began.append(self._began)
        answers.took.append(time.perf_counter() - self._began)
        answers.failed += not self._got.startswith(GOOD)
        self._got = b""
        if self._stopping:
            self._transport.close()
        else:
            self._send()

    def _is_whole(self) -> bool:
        head, end, body = self._got.partition(END)
        if not end:
            return False
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r")[0])
        self._length = len(self._got)
        return len(body) >= length

    def connection_lost(self, exc: Exception | None) -> None:
        if exc or not self._stopping:
            self.done.set_exception(exc or ConnectionError("the server has closed a connection"))
        else:
            self.done.set_result(None)


async def load(port: int, request: bytes, *, connections: int, seconds: float) -> Answers:
    """Keeps so many connections busy for so many seconds. Returns the answers."""
    loop, answers = asyncio.get_running_loop(), Answers()
    made = [
        (await loop.create_connection(lambda: _Connection(request, answers), HOST, port))[1]
        for _ in range(connections)
    ]
    await asyncio.sleep(seconds)
    for each in made:
        each.stop()
    await asyncio.gather(*(each.done for each in made))
    return answers
