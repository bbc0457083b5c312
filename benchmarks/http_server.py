"""The servers of the suite `http`: `python -m benchmarks.http_server echo|service` prints its port, and then serves.

Both have routes of the same kinds: /bare is raw ASGI, and /classify is a plain route of FastAPI, for bytes and JSON.
The echo answers with the request.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvicorn
import uvloop
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from benchmarks.http_load import HOST, RAW

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    App = Callable[[Any, Any, Any], Awaitable[None]]

NEW_OBJECTS: Final = 10_000  # as in examples/service
FOLDER: Final = Path(__file__).resolve().parents[1] / "examples" / "service"


async def body_of(receive: Any) -> bytes:
    """Reads the body of a request in raw ASGI."""
    message = await receive()
    body: bytes = message.get("body", b"")
    while message.get("more_body"):
        message = await receive()
        body += message.get("body", b"")
    return body


async def answer(send: Any, body: bytes) -> None:
    """Sends an answer in raw ASGI."""
    headers = [(b"content-length", str(len(body)).encode()), (b"content-type", RAW.encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def echo_of(request: Request) -> Response:
    """Answers with the request."""
    if request.headers["content-type"] == RAW:
        return Response(await request.body(), media_type=RAW)
    return JSONResponse(await request.json())


async def short_answer_of(request: Request) -> Response:
    """Reads JSON as the service does, and gives an answer of the same length as the service's."""
    return JSONResponse({"digits": [len((await request.json())["rows"])]})


def echo() -> App:
    """Returns the echo."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_route("/classify", echo_of, methods=["POST"])
    app.add_route("/short", short_answer_of, methods=["POST"])

    async def bare(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/bare":
            await answer(send, await body_of(receive))
        else:
            await app(scope, receive, send)

    return bare


def service() -> App:
    """Returns examples/service, the same without FastAPI at /bare, and a force reset at /reset."""
    sys.path.insert(0, str(FOLDER))
    example: Any = importlib.import_module("service")

    async def bare(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/bare":
            rows = example.from_raw(await body_of(receive))
            scores = await example.state.infer(rows, wait=False, timeout=example.ITEM_SECONDS)
            await answer(send, bytes(scores.argmax(1).tolist()))
        elif scope["type"] == "http" and scope["path"] == "/reset":
            await example.state.device.force_reset(grace=1.0)
            await answer(send, b"")
        else:
            await example.app(scope, receive, send)

    return bare


async def serve(app: App) -> None:
    """Serves until SIGTERM, on a free port, which it prints first."""
    listening = socket.create_server((HOST, 0), backlog=1024)
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(app, http="httptools", log_level="warning", access_log=False)
    await uvicorn.Server(config).serve([listening])


def main(name: str) -> None:
    """Runs a server by its name, on uvloop. The echo collects garbage as rarely as the service."""
    gc.set_threshold(NEW_OBJECTS)
    gc.freeze()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve({"echo": echo, "service": service}[name]()))


if __name__ == "__main__":
    main(sys.argv[1])
