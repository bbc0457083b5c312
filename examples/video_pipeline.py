"""Frames pass through four steps: decode on a thread, a model, a second model on the device, and a write in order.

The result of the first model stays on the device, where an event makes the second model wait for it. If a reset
interrupts a frame, the frame begins again, and is written once. It needs NumPy, and the simulator needs onnxruntime.
On a card, pass two models that CANN's atc has made of examples/models/pixels.onnx and of aioacl/data/digits.onnx.
"""

import asyncio
import sys
from collections import deque
from pathlib import Path

import numpy as np

import aioacl

DATA = Path(aioacl.__file__).parent / "data"
MODELS = [*map(Path, sys.argv[1:])] or [Path(__file__).with_name("models") / "pixels.om", DATA / "digits.om"]
FRAMES, IN_FLIGHT, RESET_EVERY = 60, 8, 20
DIGITS = np.load(DATA / "digits.npz")


def decode(number: int) -> bytes:
    """The pixels of one frame. A real program calls its decoder here."""
    return bytes(DIGITS["images"][number].tobytes())


async def infer(device: aioacl.Device, first: aioacl.Model, second: aioacl.Model, frame: bytes) -> int:
    """Runs both models on one frame. Returns the class with the highest score."""
    sizes = first.inputs[0].nbytes, first.outputs[0].nbytes, second.outputs[0].nbytes
    x, between, y = (device.allocate(size) for size in sizes)
    async with x as pixels, between as scaled, y as result:
        first.stream.copy(pixels, frame)
        first.enqueue(pixels, scaled)
        second.stream.wait_event(first.stream.record())  # the device waits, not the program
        second.enqueue(scaled, result)
        scores = np.zeros(10, np.float32)
        await second.stream.copy(scores, result)
    return int(scores.argmax())


async def process(device: aioacl.Device, first: aioacl.Model, second: aioacl.Model, number: int) -> int:
    """One frame, from decoding to its class."""
    frame = await asyncio.to_thread(decode, number)
    while True:
        try:
            await first.reload()  # does nothing unless the device was reset
            await second.reload()
            return await infer(device, first, second, frame)
        except (aioacl.ResetError, aioacl.DeviceFault) as error:
            if error.action == "new_stream":  # the failure of this frame
                raise
            await asyncio.sleep(0.01)  # the supervisor resets the device


async def main() -> None:
    written: list[int] = []
    async with (
        aioacl.open_device(0) as device,
        device.supervise(),
        device.load_model(MODELS[0]) as first,
        device.load_model(MODELS[1]) as second,
        asyncio.TaskGroup() as group,
    ):
        frames: deque[asyncio.Task[int]] = deque()  # at most IN_FLIGHT, in order
        for number in range(FRAMES):
            frames.append(group.create_task(process(device, first, second, number)))
            if len(frames) == IN_FLIGHT:
                written.append(await frames.popleft())  # a real program writes the frame here
            if number % RESET_EVERY == IN_FLIGHT:
                await device.force_reset(grace=0.0, reason="an operator asked for it")
        written += [await frame for frame in frames]
        resets = device.generation - 1
    print(f"{len(written)} frames, {sum(written == DIGITS['labels'][:FRAMES])} right, {resets} resets")


if __name__ == "__main__":
    aioacl.library_info()  # loads the library; if there is none, the error names the remedy
    asyncio.run(main())
