"""Requests that arrive at the same time share one execution of a model that has gears for several batch sizes.

This program needs NumPy, and the simulator needs onnxruntime: pip install 'aioacl[onnx]'. On a card, pass the path of a
model that CANN's atc has made of aioacl/data/digits.onnx with --dynamic_batch_size.
"""

import asyncio
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import aioacl

DATA = Path(aioacl.__file__).parent / "data"
MODEL = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "digits_batches.om"
Request = tuple[NDArray[np.float32], asyncio.Future[int]]


class Batcher:
    """Executes the requests that wait as one batch. Requests that arrive meanwhile wait for the next one."""

    def __init__(self, model: aioacl.Model) -> None:
        self.model = model
        self.largest = max(gear for gear in model.gears if isinstance(gear, int))
        self.requests = asyncio.Queue[Request]()
        self.sizes: list[int] = []

    async def classify(self, x: NDArray[np.float32]) -> int:
        """Returns the digit in one image."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.requests.put_nowait((x, answer))
        return await answer

    async def run(self) -> None:
        """Executes batches until it is cancelled."""
        while True:
            batch = [await self.requests.get()]
            while len(batch) < self.largest and not self.requests.empty():
                batch.append(self.requests.get_nowait())
            self.sizes.append(len(batch))
            await self.execute(batch)

    async def execute(self, batch: list[Request]) -> None:
        """Executes one batch, and answers its requests. aioacl pads the batch to a gear."""
        try:
            scores = await self.model(np.stack([x for x, _ in batch]), timeout=10)
        except aioacl.AclError as error:  # the requests of this batch fail, and the next batch runs
            for _, answer in batch:
                if not answer.done():  # it is done if the request was cancelled
                    answer.set_exception(error)
        else:
            for (_, answer), found in zip(batch, scores.argmax(axis=1).tolist(), strict=True):
                if not answer.done():
                    answer.set_result(found)


async def main() -> None:
    digits = np.load(DATA / "digits.npz")
    inputs = digits["images"].reshape(-1, 64).astype(np.float32) / 16
    async with (
        aioacl.open_device(0) as device,
        device.load_model(MODEL) as model,
        asyncio.TaskGroup() as group,
    ):
        batcher = Batcher(model)
        runs = group.create_task(batcher.run())
        for count in (1, 5, 40):
            batcher.sizes.clear()
            found = await asyncio.gather(*map(batcher.classify, inputs[:count]))
            right = sum(found == digits["labels"][:count])
            print(f"{count} requests in batches of {batcher.sizes}: {right} right")
        runs.cancel()


if __name__ == "__main__":
    aioacl.library_info()  # loads the library; if there is none, the error names the remedy
    asyncio.run(main())
