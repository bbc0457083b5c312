"""OpenVINO as a peer of the calls of a model. The package is optional: `pip install openvino`."""

from __future__ import annotations

import asyncio
import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from aioacl import _digits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


PACKAGE: Final = "openvino"


def installed() -> bool:
    """Returns whether the package can be imported."""
    return find_spec(PACKAGE) is not None


class OpenVino:
    """The same network in OpenVINO: an AsyncInferQueue whose callback sets a future of the loop."""

    def __init__(self, x: NDArray[np.float32], requests: int) -> None:
        openvino: Any = importlib.import_module(PACKAGE)
        core = openvino.Core()
        network = core.read_model(str(_digits.ONNX))
        network.reshape(list(x.shape))
        # The process has one core, and the results of float32 are compared with aioacl's.
        options = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
        self._queue = openvino.AsyncInferQueue(core.compile_model(network, "CPU", options), requests)
        self._queue.set_callback(self._done)

    @staticmethod
    def _done(request: Any, future: asyncio.Future[NDArray[np.float32]]) -> None:
        result = request.get_output_tensor().data.copy()  # the memory belongs to the request
        future.get_loop().call_soon_threadsafe(future.set_result, result)

    async def __call__(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Runs the network once. The caller makes no more calls at once than there are requests."""
        future: asyncio.Future[NDArray[np.float32]] = asyncio.get_running_loop().create_future()
        self._queue.start_async(x, future)
        return await future
