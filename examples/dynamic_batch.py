"""Requests that arrive at the same time share one execution of a model that has gears for several batch sizes.

This program needs NumPy, and the simulator needs onnxruntime: pip install 'aioacl[onnx]'. On a card, pass the path of a
model that CANN's atc has made of aioacl/data/digits.onnx with --dynamic_batch_size.
"""

import asyncio
import sys
from pathlib import Path

import numpy as np

import aioacl

DATA = Path(aioacl.__file__).parent / "data"
MODEL = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "digits_batches.om"


async def main() -> None:
    digits = np.load(DATA / "digits.npz")
    inputs = digits["images"].reshape(-1, 64).astype(np.float32) / 16
    async with (
        aioacl.open_device(0) as device,
        device.load_model(MODEL) as model,
        aioacl.open_batcher(model) as infer,
    ):

        async def classify(number: int) -> bool:
            """One request. Returns whether the digit is right."""
            scores = await infer(inputs[number : number + 1], timeout=10)
            return bool(scores.argmax() == digits["labels"][number])

        for count in (1, 5, 40):
            before = infer.stats().executions
            right = await asyncio.gather(*map(classify, range(count)))
            executions = infer.stats().executions - before
            print(f"{count} requests in {executions} executions: {sum(right)} right")


if __name__ == "__main__":
    aioacl.library_info()  # loads the library; if there is none, the error names the remedy
    asyncio.run(main())
