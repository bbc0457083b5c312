"""An ASGI service without a framework. Its lifespan opens and supervises the device. Requests wait during a reset.

Any ASGI server can run `app`. Each request has a body of one chunk. Here, main() acts as the server and its clients, in
one process.
"""

import asyncio
from contextlib import suppress
from typing import Any

import aioacl

state: dict[str, aioacl.Device] = {}


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Opens the device for the lifespan, and answers requests."""
    message = await receive()
    if scope["type"] == "lifespan":
        async with aioacl.open_device(0) as state["device"], state["device"].supervise():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})
    else:
        status, body = await respond(state["device"], scope["path"], message["body"])
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": body})


async def respond(device: aioacl.Device, path: str, body: bytes) -> tuple[int, bytes]:
    """The status and body for a request."""
    if path == "/readyz":
        return (200 if device.health.ready else 503), device.state.name.encode()
    if path == "/reset":
        report = await device.force_reset(grace=1.0, reason="requested by the operator")
        return (200 if report.ok else 503), str(report).encode()
    try:
        async with asyncio.timeout(5):
            return 200, await echo(device, body)
    except (TimeoutError, aioacl.DeviceQuarantined) as error:
        return 503, repr(error).encode()


async def echo(device: aioacl.Device, body: bytes) -> bytes:
    """Copies the body to the device and back. If a reset interrupts this, begins again. A reset waits for the lease."""
    while True:
        with suppress(aioacl.ResetError):
            async with device.lease(), device.create_stream() as stream, device.allocate(len(body)) as memory:
                answer = bytearray(len(body))
                await stream.upload(memory, body)
                await stream.download(answer, memory)
                return bytes(answer)


async def request(path: str, body: bytes = b"") -> tuple[int, bytes]:
    """Sends one request to the app, as a server does, and returns the status and body."""
    to_app, from_app = asyncio.Queue[Any](), asyncio.Queue[Any]()
    to_app.put_nowait({"type": "http.request", "body": body})
    await app({"type": "http", "path": path}, to_app.get, from_app.put)
    return (await from_app.get())["status"], (await from_app.get())["body"]


async def main() -> None:
    to_app, from_app = asyncio.Queue[Any](), asyncio.Queue[Any]()
    lifespan = asyncio.create_task(app({"type": "lifespan"}, to_app.get, from_app.put))
    await to_app.put({"type": "lifespan.startup"})
    print((await from_app.get())["type"], *await request("/readyz"))
    bodies = [bytes([number]) * 1000 for number in range(200)]
    echoes = [asyncio.create_task(request("/echo", body)) for body in bodies]
    print("reset:", (await request("/reset"))[0])
    print("all echoed:", await asyncio.gather(*echoes) == [(200, body) for body in bodies])
    print("generation:", state["device"].generation)
    await to_app.put({"type": "lifespan.shutdown"})
    await lifespan


if __name__ == "__main__":
    aioacl.library_info()  # loads the library; if there is none, the error names the remedy
    asyncio.run(main())
