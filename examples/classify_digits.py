"""A model classifies handwritten digits, one call for each digit. The calls run concurrently.

This program needs NumPy, and the simulator needs onnxruntime: pip install 'aioacl[onnx]'. On a card, pass the path of a
model that CANN's atc has made of aioacl/data/digits.onnx.
"""

import asyncio
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import aioacl

DATA = Path(aioacl.__file__).parent / "data"
MODEL = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "digits.om"
SHADES = " .:-=+*#%"


def show(image: NDArray[np.uint8]) -> None:
    """Prints an image of 8x8 pixels from 0 to 16."""
    for row in image:
        print("".join(2 * SHADES[pixel // 2] for pixel in row).rstrip())


async def classify(model: aioacl.Model, image: NDArray[np.uint8]) -> int:
    """Returns the digit that the model finds in an image."""
    x = image.reshape(1, 64).astype(np.float32) / 16
    scores = await model(x)
    return int(scores.argmax())


async def main() -> None:
    digits = np.load(DATA / "digits.npz")
    chosen = digits["held_out"][:20]  # the model was not trained with these
    images, labels = digits["images"][chosen], digits["labels"][chosen]
    async with aioacl.open_device(0) as device, device.load_model(MODEL) as model:
        print(model)
        found = await asyncio.gather(*(classify(model, image) for image in images))
    show(images[0])
    print("found:    ", *found)
    print("expected: ", *labels)


if __name__ == "__main__":
    aioacl.library_info()  # loads the library; if there is none, the error names the remedy
    asyncio.run(main())
