"""Ray Serve: each replica opens a device and repairs it, and requests of one replica share executions of its model.

This program needs pip install 'aioacl[onnx]' 'ray[serve]'. Ray gives each replica one NPU, and sets
ASCEND_RT_VISIBLE_DEVICES to it, so each replica opens device 0. On a card, pass the path of a model that CANN's atc has
made of aioacl/data/digits.onnx with --dynamic_batch_size. docs/cluster.md describes how Ray finds the NPUs.
"""

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
import ray
from numpy.typing import NDArray
from ray import serve

import aioacl

DATA = Path(aioacl.__file__).parent / "data"


class Digits:
    """One replica, with one device and one model."""

    async def __init__(self, path: str) -> None:  # type: ignore[misc]  # Ray Serve awaits it
        async with AsyncExitStack() as opened:
            self.device = await opened.enter_async_context(aioacl.open_device(0))
            await opened.enter_async_context(self.device.supervise())
            model = await opened.enter_async_context(self.device.load_model(path, warm_up=True))
            self.infer = await opened.enter_async_context(aioacl.open_batcher(model))
            self.opened = opened.pop_all()

    async def __call__(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Answers one request. After a failure of the device, it waits for the reset."""
        scores: NDArray[np.float32] = await self.infer(x, timeout=30)
        return scores

    def check_health(self) -> None:
        """Raises if the device is lost. Ray Serve then replaces the replica."""
        self.device.health.check()

    async def __del__(self) -> None:
        await self.opened.aclose()


deployment = serve.deployment(
    Digits,
    num_replicas=2,
    max_ongoing_requests=64,  # two full batches; with the default of 5, a batch would have at most 5 requests
    ray_actor_options={"resources": {"NPU": 1}},
)


async def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else str(DATA / "digits_batches.om")
    digits = np.load(DATA / "digits.npz")
    inputs = digits["images"][:200].reshape(-1, 1, 64).astype(np.float32) / 16
    ray.init(include_dashboard=False)
    try:
        serve.start(proxy_location="Disabled")  # requests come by the handle, not by HTTP
        handle = serve.run(deployment.bind(model))
        scores = await asyncio.gather(*(handle.remote(x) for x in inputs))
        found = [int(each.argmax()) for each in scores]
        print(f"{int(np.sum(found == digits['labels'][:200]))} of {len(found)} digits are right")
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
