"""A service on all devices, whose requests share executions. On a card, pass the path of a model for the digits."""

import asyncio
import sys
from pathlib import Path

import numpy as np

import aioacl

DATA = Path(aioacl.__file__).parent / "data"
MODEL = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "digits_batches.om"


async def ask(port: int, pixels: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(pixels)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


async def main() -> None:
    async with aioacl.open_pool(MODEL) as infer:

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            pixels = np.frombuffer(await reader.read(), np.uint8).reshape(-1, 64)
            scores = await infer(pixels.astype(np.float32) / 16, timeout=30)
            writer.write(scores.argmax(axis=1).astype(np.uint8).tobytes())
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port, images = server.sockets[0].getsockname()[1], np.load(DATA / "digits.npz")["images"]
            answers = await asyncio.gather(*(ask(port, image.tobytes()) for image in images[:20]))
        print(*b"".join(answers), "from", len(infer.devices), "devices")


aioacl.library_info()  # loads the library; if there is none, the error names the remedy
asyncio.run(main())
