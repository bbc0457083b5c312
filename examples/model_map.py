"""A model classifies a stream of images: uploads, executions and downloads of different batches overlap.

This program needs NumPy, and the simulator needs onnxruntime: pip install 'aioacl[onnx]'. On a card, pass the path of a
model that CANN's atc has made of aioacl/data/digits.onnx.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import aioacl

DATA = Path(aioacl.__file__).parent / "data"
MODEL = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "digits_batches.om"
BATCH = 32


async def batches(images: NDArray[np.uint8]) -> AsyncIterator[NDArray[np.float32]]:
    """Yields the images in batches, as the model takes them: 64 numbers from 0 to 1 for each image."""
    for start in range(0, len(images), BATCH):
        await asyncio.sleep(0)  # a real program waits here for a camera, a file or a network
        yield images[start : start + BATCH].reshape(-1, 64).astype(np.float32) / np.float32(16)


async def main() -> None:
    digits = np.load(DATA / "digits.npz")
    chosen = digits["held_out"]  # the model was not trained with these
    found: list[int] = []
    async with (
        aioacl.open_device(0) as device,
        device.load_model(MODEL, slots=3) as model,
        model.map(batches(digits["images"][chosen])) as results,
    ):
        async for scores in results:  # in the order of the batches
            found += scores.argmax(axis=1).tolist()
    right = int(np.sum(found == digits["labels"][chosen]))
    print(f"{right} of {len(found)} digits are right")


if __name__ == "__main__":
    aioacl.library_info()  # loads the library; if there is none, the error names the remedy
    asyncio.run(main())
