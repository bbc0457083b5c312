"""Errors about wrong arguments are short, and print no contents of an argument."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

import aioacl
from aioacl import lowlevel, simulator

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tests.kit import OpenDevice

MOST_CHARACTERS: Final = 320  # without the hint; the longest has a text of the simulator
SECRET: Final = "secret"


class Tensor:
    """An object that prints its contents, and has no buffer."""

    shape = (1000, 1000)
    dtype = "bfloat16"

    def __repr__(self) -> str:
        return f"tensor({SECRET * 10_000})"


class Unshowable:
    def __repr__(self) -> str:
        raise ZeroDivisionError(SECRET)


class Chatty:
    """An object without a size that prints its contents."""

    def __repr__(self) -> str:
        return SECRET * 10_000


ARGUMENTS: Final[dict[str, Callable[[], Any]]] = {
    "a tensor": Tensor,
    "an array": lambda: np.array([SECRET * 100] * 10_000, object),
    "an object whose repr raises": Unshowable,
    "an object with a long repr": Chatty,
    "bytes": (SECRET * 200_000).encode,
    "a list": lambda: [SECRET] * 10_000,
    "a tuple": lambda: (SECRET * 10_000,),
    "a dict": lambda: {f"{SECRET}{number}": Chatty() for number in range(10_000)},
    "a slice": lambda: slice(Chatty(), SECRET),
}
FUNCTIONS: Final[dict[str, Callable[[Any, Any], object]]] = {
    "open_device": lambda _, bad: aioacl.open_device(bad).result(),
    "open_device waits": lambda _, bad: aioacl.open_device(0, bad).result(),
    "open_device cache": lambda _, bad: aioacl.open_device(cache=bad).result(),
    "open_device timeout": lambda _, bad: aioacl.open_device(timeout=bad).result(),
    "device.allocate": lambda w, bad: w.device.allocate(bad),
    "device.pinned": lambda w, bad: w.device.pinned(bad),
    "device.create_stream priority": lambda w, bad: w.device.create_stream(priority=bad),
    "device.create_stream on_failure": lambda w, bad: w.device.create_stream(on_failure=bad),
    "device.create_stream timeout": lambda w, bad: w.device.create_stream(timeout=bad).result(),
    "device.create_event timeout": lambda w, bad: w.device.create_event(timeout=bad).result(),
    "device.load_model": lambda w, bad: w.device.load_model(bad).result(),
    "device.load_model slots": lambda w, bad: w.device.load_model(b"x", slots=bad).result(),
    "device.load_model instances": lambda w, bad: w.device.load_model(b"x", instances=bad).result(),
    "device.load_model reload": lambda w, bad: w.device.load_model(b"x", reload=bad).result(),
    "device.run": lambda w, bad: w.device.run(bad).result(),
    "device.lease timeout": lambda w, bad: w.device.lease(timeout=bad).__enter__(),
    "device.executor": lambda w, bad: w.device.executor.submit(bad),
    "device.abortable": lambda w, bad: w.device.abortable(bad),
    "device.wrap_memory address": lambda w, bad: w.device.wrap_memory(bad, 8),
    "device.wrap_memory size": lambda w, bad: w.device.wrap_memory(8, bad),
    "device.from_dlpack": lambda w, bad: w.device.from_dlpack(bad),
    "device.from_dlpack stream": lambda w, bad: w.device.from_dlpack(w.memory, stream=bad),
    "device.synchronize": lambda w, bad: w.device.synchronize(bad).result(),
    "device.force_reset grace": lambda w, bad: w.device.force_reset(grace=bad),
    "device.force_reset timeout": lambda w, bad: w.device.force_reset(timeout=bad),
    "device.force_reset reason": lambda w, bad: w.device.force_reset(reason=bad),
    "stream.copy target": lambda w, bad: w.stream.copy(bad, w.memory),
    "stream.copy source": lambda w, bad: w.stream.copy(w.memory, bad),
    "stream.copy nbytes": lambda w, bad: w.stream.copy(w.memory, w.memory, nbytes=bad),
    "stream.upload": lambda w, bad: w.stream.upload(w.memory, bad).result(),
    "stream.download": lambda w, bad: w.stream.download(bad, w.memory).result(),
    "stream.fill target": lambda w, bad: w.stream.fill(bad, 0),
    "stream.fill byte": lambda w, bad: w.stream.fill(w.memory, bad),
    "stream.record": lambda w, bad: w.stream.record(bad),
    "stream.wait_event": lambda w, bad: w.stream.wait_event(bad),
    "stream.renew timeout": lambda w, bad: w.stream.renew(timeout=bad).result(),
    "stream.renew abort": lambda w, bad: w.stream.renew(abort=bad),
    "stream.synchronize": lambda w, bad: w.stream.synchronize(bad).result(),
    "event.result": lambda w, bad: w.stream.record(w.event).result(bad),
    "event.record": lambda w, bad: w.event.record(bad),
    "event.elapsed": lambda w, bad: w.event.elapsed_since(bad),
    "memory[]": lambda w, bad: w.memory[bad],
    "memory[:]": lambda w, bad: w.memory[:bad],
    "memory.__dlpack__ copy": lambda w, bad: w.memory.__dlpack__(copy=bad),
    "memory.__dlpack__ stream": lambda w, bad: w.memory.__dlpack__(stream=bad),
    "memory.__dlpack__ device": lambda w, bad: w.memory.__dlpack__(dl_device=bad),
    "memory.__dlpack__ version": lambda w, bad: w.memory.__dlpack__(max_version=bad),
    "ticket.result": lambda w, bad: w.stream.fill(w.memory, 0).result(bad),
    "model()": lambda w, bad: w.model(bad).result(),
    "model() out": lambda w, bad: w.model(w.x, out=bad).result(),
    "model() timeout": lambda w, bad: w.model(w.x, timeout=bad).result(),
    "model.map limit": lambda w, bad: w.model.map([], limit=bad),
    "model.map errors": lambda w, bad: w.model.map([], errors=bad),
    "model.enqueue": lambda w, bad: w.model.enqueue(bad, bad),
    "lowlevel.on": lambda _, bad: lowlevel.on(bad),
    "lowlevel.handle": lambda _, bad: lowlevel.handle(bad),
    "lowlevel.functions": lambda _, bad: lowlevel.functions.aclrtSetDevice(bad),
    "use_library": lambda _, bad: aioacl.use_library(bad),
    "simulator.hold": lambda _, bad: simulator.hold(bad),
    "simulator.hang_call": lambda _, bad: simulator.hang_call(bad),
    "simulator.fail_call": lambda _, bad: simulator.fail_call("aclrtMalloc", bad),
    "simulator.fault": lambda _, bad: simulator.fault(bad),
    "simulator.fault rc": lambda _, bad: simulator.fault("aclrtMalloc", rc=bad),
    "simulator.fault latency": lambda _, bad: simulator.fault("aclrtMalloc", latency=bad),
    "simulator.library_path": lambda _, bad: simulator.library_path(bad),
    "simulator.set_model_cost": lambda _, bad: simulator.set_model_cost(base=bad),
}


class World:
    """The objects of the tests."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.stream: Any = device.create_stream().result()
        self.memory: Any = device.allocate(64).result()
        self.event: Any = device.create_event().result()

    @cached_property
    def model(self) -> Any:
        pytest.importorskip("onnxruntime", reason="loading a model needs onnxruntime")
        from tests.support import offline

        return self.device.load_model(offline.product()).result()

    x = np.zeros((2, 3), np.float32)

    def close(self) -> None:
        made = (self.__dict__.get("model"), self.event, self.memory, self.stream)
        for thing in (*filter(None, made), self.device):
            thing.close().result()


@pytest.fixture
def world(open_device: OpenDevice) -> Generator[World]:
    made = World(open_device().result())
    yield made
    made.close()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_error_of_a_wrong_argument_is_short_and_shows_no_contents(world: World, function: str) -> None:
    for name, make in ARGUMENTS.items():
        with pytest.raises((aioacl.AclError, TypeError, BufferError)) as caught:
            FUNCTIONS[function](world, make())
        error = caught.value
        message = error.message if isinstance(error, aioacl.AclError) else str(error)
        assert SECRET not in str(error), name
        assert len(message) <= MOST_CHARACTERS, (name, message)
