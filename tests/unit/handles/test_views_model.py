"""Random work on views from eight threads, with failed tasks and resets, compared with a model in NumPy."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
import numpy as np
import pytest

import aioacl
from aioacl import simulator
from tests.kit import TASK_FAULT, simulated, until

if TYPE_CHECKING:
    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio
THREADS: Final = 8
SIZE: Final = 256

B = TypeVar("B", aioacl.DeviceBuffer, aioacl.PinnedBuffer)


class Round:
    """A stream, device memory and pinned memory, and two arrays that have the same bytes as the memory.

    Each step changes the arrays once the work on the memory has succeeded.
    """

    def __init__(
        self,
        choose: random.Random,
        stream: aioacl.Stream,
        memory: aioacl.DeviceBuffer,
        pinned: aioacl.PinnedBuffer,
    ) -> None:
        self.choose, self.stream, self.memory, self.pinned = choose, stream, memory, pinned
        self.device, self.host = np.zeros(SIZE, np.uint8), np.zeros(SIZE, np.uint8)
        stream.fill(memory, 0).result()
        pinned.view[:] = bytes(SIZE)

    def step(self) -> None:
        """Works on a random part, which may be empty. At times the work is made to fail."""
        if self.choose.random() < 0.005:
            with suppress(aioacl.ParameterError):  # a reset may have ended the native stream
                simulator.fail_next(self.stream, TASK_FAULT)
        start, stop = sorted(self.choose.choices(range(SIZE + 1), k=2))
        self.choose.choice((self.fill, self.up, self.down, self.stage, self.compare))(slice(start, stop))

    def view_of(self, buffer: B, part: slice) -> B:
        """Returns a view of the part: a slice of a slice."""
        first, last = self.choose.randint(0, part.start), self.choose.randint(part.stop, SIZE)
        return buffer[first:last][part.start - first : part.stop - first]

    def fill(self, part: slice) -> None:
        value = self.choose.randrange(256)
        self.stream.fill(self.view_of(self.memory, part), value).result()
        self.device[part] = value

    def up(self, part: slice) -> None:
        view = self.view_of(self.pinned, part)
        view.view[:] = values = self.choose.randbytes(part.stop - part.start)
        self.host[part] = np.frombuffer(values, np.uint8)
        self.stream.copy(self.view_of(self.memory, part), view).result()
        self.device[part] = self.host[part]

    def down(self, part: slice) -> None:
        self.stream.copy(self.view_of(self.pinned, part), self.view_of(self.memory, part)).result()
        self.host[part] = self.device[part]

    def stage(self, part: slice) -> None:
        values = np.frombuffer(self.choose.randbytes(part.stop - part.start), np.uint8)
        self.stream.copy(self.view_of(self.memory, part), values).result()
        self.device[part] = values

    def compare(self, part: slice) -> None:
        found = np.empty(part.stop - part.start, np.uint8)
        self.stream.copy(found, self.view_of(self.memory, part)).result()
        assert found.tolist() == self.device[part].tolist()
        assert bytes(self.pinned.view) == self.host.tobytes()


def work(device: aioacl.Device, seed: int, operations: int) -> int:
    """Runs random operations. After a failed task or a reset, goes on with new memory. Returns how often it did."""
    choose, lost = random.Random(seed), 0
    while operations > 0:
        try:
            with (
                device.create_stream() as stream,
                device.allocate(SIZE) as memory,
                device.pinned(SIZE) as pinned,
            ):
                here = Round(choose, stream, memory, pinned)
                for _ in range(choose.randint(1, 100)):
                    operations -= 1
                    here.step()
                here.compare(slice(0, SIZE))
        except (aioacl.ResetError, aioacl.DeviceFault):
            lost += 1
    return lost


@pytest.mark.parametrize(
    ("operations", "resets"), [(200, 2), pytest.param(12_500, 40, marks=pytest.mark.slow)]
)
async def test_views_have_the_bytes_of_a_model_through_failures_and_resets(
    open_device: OpenDevice, operations: int, resets: int
) -> None:
    lost: list[int] = []
    before = simulated()

    async with open_device() as device, anyio.create_task_group() as group:

        async def run(seed: int) -> None:
            lost.append(await anyio.to_thread.run_sync(work, device, seed, operations))

        for seed in range(THREADS):
            group.start_soon(run, seed)
        for _ in range(resets):
            report = await device.force_reset()
            assert report.ok
            enough = simulator.calls("aclrtMemcpyAsync") + operations // resets
            await until(lambda: simulator.calls("aclrtMemcpyAsync") >= enough or len(lost) == THREADS)  # noqa: B023 - it ends in this iteration
    assert len(lost) == THREADS
    assert sum(lost) > 0
    assert simulated() == before
