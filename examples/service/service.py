"""An HTTP service that classifies digits on an NPU. README.md, in this folder, describes it.

One process serves one card. Requests share executions in a batcher, a supervisor resets a device that has failed, and
a client that goes away cancels its request.
"""

import asyncio
import gc
import hmac
import json
import logging
import os
import signal
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

import aioacl

log: Final = logging.getLogger("service")

MODEL: Final = os.environ.get("SERVICE_MODEL", Path(aioacl.__file__).parent / "data" / "digits_batches.om")
ITEM_SECONDS: Final = 5.0  # how long a request may wait and run
STOP_SECONDS: Final = float(
    os.environ.get("SERVICE_STOP_SECONDS", "5")
)  # from SIGTERM until no request is accepted
GRACE_SECONDS: Final = 10.0  # how long the requests that are left may take then
STUCK_SECONDS: Final = 60.0  # a call that has been inside C for so long fails the liveness probe
WATCH_SECONDS: Final = 0.05  # a request that is done sooner saves the task that watches its connection
MOST_WAITING: Final = 4096  # rows
MOST_BYTES: Final = 1 << 20  # of a request
NEW_OBJECTS: Final = 10_000  # so many start a garbage collection; a request that waits has about 90
PIXELS: Final = 64

TOKEN: Final = "AIOACL_ADMIN_TOKEN"  # noqa: S105 - the name of a variable
FROM_ANYWHERE: Final = "AIOACL_ADMIN_FROM_ANYWHERE"
TOKEN_CHARACTERS: Final = 32
RESET_SECONDS: Final = 60.0  # the admin may request one reset in this time
LOCAL: Final = ("127.0.0.1", "::1")
GONE: Final = 499  # the status in the log of a request whose client has gone away


class State:
    """What the requests share."""

    device: aioacl.Device
    infer: aioacl.Batcher
    waiting: dict[asyncio.Task[Any], Request]  # the tasks of the requests whose items have not ended
    watching: dict[asyncio.Task[Any], asyncio.Task[None]]  # the tasks that watch their connections
    stopping = False
    last_reset = -RESET_SECONDS


state = State()


# --- begin and end ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    """Opens the device and the batcher. The end closes them in the reverse order."""
    # Without a handler, the states, resets and faults of the device would be in no log.
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    async with (
        aioacl.open_device(0) as state.device,
        state.device.supervise(),
        state.device.load_model(MODEL, warm_up=True) as model,
        aioacl.open_batcher(model, limit=MOST_WAITING) as state.infer,
    ):
        state.stopping, state.waiting, state.watching = False, {}, {}
        watching = asyncio.create_task(watch_old())
        restore = stop_gently()
        with rare_collections():
            yield
        restore()
        state.stopping = True
        await state.infer.close(grace=GRACE_SECONDS)
        watching.cancel()


@contextmanager
def rare_collections() -> Generator[None]:
    """Collects garbage less often. By default, 64 requests that wait start several collections for each batch."""
    gc.collect()
    gc.freeze()  # a collection under load does not visit the modules, which would take tens of milliseconds
    before = gc.get_threshold()
    gc.set_threshold(NEW_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def stop_gently() -> Callable[[], None]:
    """At SIGTERM, fails the readiness probe at once, but accepts requests for STOP_SECONDS more.

    Without this delay, a load balancer would send requests to a server that does not listen any more. Afterwards, the
    handler of the server does its part: it stops to listen, and waits for the requests that run.
    """
    handler: Any = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        return lambda: None
    loop = asyncio.get_running_loop()

    def begin() -> None:
        if not state.stopping:
            state.stopping = True
            loop.call_later(STOP_SECONDS, handler, signal.SIGTERM, None)

    loop.add_signal_handler(signal.SIGTERM, begin)

    def restore() -> None:
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, handler)

    return restore


app: Final = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)


# --- requests ---------------------------------------------------------------------------------------------------------


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = {} if retry_after is None else {"Retry-After": str(max(1, round(retry_after)))}


@app.exception_handler(Refused)
async def answer_refused(_: Request, refused: Exception) -> Response:
    """Answers with the status and the reason."""
    assert isinstance(refused, Refused)
    return JSONResponse({"error": str(refused)}, refused.status, refused.headers)


async def classify(request: Request) -> Response:
    """Returns the digit of each row, in the format of the request."""
    headers = dict(request.scope["headers"])  # their names are in lower case; quicker than request.headers
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind not in FORMATS:
        raise Refused(415, f"the Content-Type must be one of {b', '.join(FORMATS).decode()}")
    read, write = FORMATS[kind]
    body = await body_of(request)
    try:
        rows = read(body)
    except Exception as error:  # the parsers raise many kinds: OverflowError, TokenError, MemoryError, ...
        raise Refused(400, f"the body is not in the format {kind.decode()}") from error
    scores = await result_of(request, item_of(rows, headers.get(b"x-tenant")))
    return write(scores.argmax(1).tolist())


# A plain route: FastAPI's own routes also look for parameters and dependencies in each request.
app.add_route("/classify", classify, methods=["POST"])


async def body_of(request: Request) -> bytearray:
    """Reads the body, but not more than MOST_BYTES."""
    body, more = bytearray(), True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Refused(GONE, "the client has gone away")
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > MOST_BYTES:
            raise Refused(413, f"the body has more than {MOST_BYTES} bytes")
    return body


def item_of(rows: Any, tenant: bytes | None) -> aioacl.BatchItem:
    """Returns the item of a request. The tenant is a key of the batcher, so that tenants take turns."""
    try:
        return state.infer(rows, key=tenant, wait=False, timeout=ITEM_SECONDS)
    except aioacl.ParameterError as error:
        if state.stopping:
            raise Refused(503, "the service is stopping", 1) from error
        raise Refused(400, error.message) from error  # only describes the arguments


async def result_of(request: Request, item: aioacl.BatchItem) -> Any:
    """Awaits the item. If the client goes away, the item is cancelled, and does not run if it has not begun."""
    task = asyncio.current_task()
    assert task is not None
    state.waiting[task] = request
    try:
        return await item
    except aioacl.AclError as error:
        raise refusal_of(error) from error
    except asyncio.CancelledError:
        if task not in state.watching or not state.watching[task].done():
            raise
        task.uncancel()
        raise Refused(GONE, "the client has gone away") from None
    finally:
        del state.waiting[task]
        if task in state.watching:
            state.watching.pop(task).cancel()


def refusal_of(error: aioacl.AclError) -> Refused:
    """Returns the answer for a request that has failed. The text of the error goes only to the log."""
    log.info("a request has failed: %s", error)
    if isinstance(error, aioacl.QueueFull):
        return Refused(503, "the queue is full", error.retry_after or 1)
    if isinstance(error, aioacl.DeviceTimeout):
        return Refused(504, "the request was not done in time")
    if isinstance(error, aioacl.DeviceFault) and error.action == "new_stream":
        return Refused(500, "the execution of this request failed")
    return Refused(503, "the device is not available", 1)


async def watch_old() -> None:
    """Watches the connections of requests that wait for longer than WATCH_SECONDS. Most requests end sooner."""
    old: set[asyncio.Task[Any]] = set()
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        for task in old & (state.waiting.keys() - state.watching.keys()):
            state.watching[task] = asyncio.create_task(cancel_if_gone(task, state.waiting[task]))
        old = set(state.waiting)


async def cancel_if_gone(task: asyncio.Task[Any], request: Request) -> None:
    """Cancels the task of the request when the client goes away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    task.cancel()


# --- formats ----------------------------------------------------------------------------------------------------------


def from_raw(body: bytes | bytearray) -> Any:
    """Reads float32 numbers, little-endian, 64 for each row."""
    return np.frombuffer(body, "<f4").reshape(-1, PIXELS)


def to_raw(digits: list[int]) -> Response:
    """Writes a byte for each row."""
    return Response(bytes(digits), media_type="application/octet-stream")


def from_npy(body: bytes | bytearray) -> Any:
    """Reads a .npy file. np.load would allocate what the header claims, before it reads."""
    file = BytesIO(body)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("expected version 1.0 of the format")
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype != np.dtype("<f4") or by_columns or len(shape) != 2:
        raise ValueError("expected rows of float32 numbers")
    return np.frombuffer(body, dtype, offset=file.tell()).reshape(shape)


def to_npy(digits: list[int]) -> Response:
    """Writes a .npy file."""
    file = BytesIO()
    np.save(file, np.array(digits, np.uint8), allow_pickle=False)
    return Response(file.getvalue(), media_type="application/x-npy")


def from_json(body: bytes | bytearray) -> Any:
    """Reads an object with a list of rows."""
    return np.asarray(json.loads(body)["rows"], np.float32)


def to_json(digits: list[int]) -> Response:
    """Writes an object with a list of digits."""
    return JSONResponse({"digits": digits})


FORMATS: Final[dict[bytes, tuple[Callable[[bytes | bytearray], Any], Callable[[list[int]], Response]]]] = {
    b"application/octet-stream": (from_raw, to_raw),
    b"application/x-npy": (from_npy, to_npy),
    b"application/json": (from_json, to_json),
}


# --- probes and metrics -----------------------------------------------------------------------------------------------


@app.get("/readyz")
async def readyz() -> Response:
    """Whether requests should come here. Fails during a reset, and from SIGTERM on."""
    ready = state.device.health.ready and not state.stopping
    return PlainTextResponse("ready" if ready else "not ready", 200 if ready else 503)


@app.get("/livez")
async def livez() -> Response:
    """Whether the process should go on: the loop answers, and no call hangs for good."""
    live = state.device.health.stuck_for < STUCK_SECONDS
    return PlainTextResponse("live" if live else "a call does not return", 200 if live else 503)


@app.get("/metrics")
def metrics(
    request: Request,
) -> Response:  # not async: Starlette calls it on a thread, so no request waits for it
    """The metrics of aioacl, for Prometheus."""
    openmetrics = "application/openmetrics-text" in request.headers.get("accept", "")
    kind = "application/openmetrics-text; version=1.0.0" if openmetrics else "text/plain; version=0.0.4"
    text = aioacl.prometheus_text(openmetrics=openmetrics)
    return Response(text, headers={"Content-Type": f"{kind}; charset=utf-8"})


# --- the admin --------------------------------------------------------------------------------------------------------


async def reset(request: Request) -> Response:
    """Force-resets the device: with the token, from this host, and at most once a minute."""
    peer = request.client.host if request.client else "unknown"
    given = request.headers.get("authorization", "").removeprefix("Bearer ")
    if peer not in LOCAL and not os.environ.get(FROM_ANYWHERE):
        log.warning("a reset was refused: %s is another host", peer)
        raise Refused(403, "only from this host")
    sent = given.encode("latin-1")  # the bytes of the header, which Starlette has decoded
    if not hmac.compare_digest(sent, os.fsencode(os.environ[TOKEN])):
        log.warning("a reset was refused: %s has sent a wrong token", peer)
        raise Refused(401, "the token is wrong")
    left = state.last_reset + RESET_SECONDS - time.monotonic()
    if left > 0:
        log.warning("a reset was refused: %s has requested more than one in a minute", peer)
        raise Refused(429, "at most one reset a minute", left)
    state.last_reset = time.monotonic()
    log.warning("%s requests a reset", peer)
    report = await state.device.force_reset(grace=1.0, reason=f"requested by {peer}")
    log.warning("the reset that %s has requested: %s", peer, report.summary())
    return JSONResponse({"ok": report.ok, "generation": report.generation}, 200 if report.ok else 503)


def add_admin(token: str) -> None:
    """Adds the reset of the admin, if there is a token."""
    if token and len(token) < TOKEN_CHARACTERS:
        raise ValueError(
            f"{TOKEN} must have at least {TOKEN_CHARACTERS} characters, got {len(token)}; make a longer one"
        )
    if token:
        app.add_api_route("/admin/reset", reset, methods=["POST"])


add_admin(os.environ.get(TOKEN, ""))
