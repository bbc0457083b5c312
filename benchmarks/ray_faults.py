"""Measures what a failure of one device costs the requests of Ray Serve: repaired in the replica, or replaced with it.

    python -m benchmarks.ray_faults [repaired] [replaced] [--requests N] [--at-most SHARE]

Each way has two replicas on two simulated devices, and 64 clients. After a fifth of the requests, one device enters a
fault state that only a reset or a new process ends. `repaired` is the deployment of examples/ray_serve.py. `replaced`
is the same without a supervisor: the requests fail, so does the health check, and Ray Serve starts another replica. The
clients go on until the device that has failed answers again.

Prints one JSON object: for each way the requests that were lost, the wrong answers, the restarts of the replica, the
resets, and the longest time in seconds in which the device that has failed answered nothing. Exits with 1 if a repaired
request is lost, or if the `ratio` of the two times is more than `--at-most`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import AsyncExitStack, redirect_stdout
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import ray
from ray import serve

import aioacl
from aioacl import _digits, simulator
from examples.ray_serve import Digits

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

ROOT: Final = Path(__file__).resolve().parent.parent
CLIENTS: Final = 64
FAULT: Final = 507013  # a fault of the whole device
SECONDS_AT_MOST: Final = 1200.0  # a replica that does not come back ends the run
HEALTH_PERIOD: Final = 1.0  # Ray Serve replaces a replica after three checks that fail; its default is 10 s


class Answer(NamedTuple):
    """One answer, and the replica that gave it."""

    card: str
    actor: str
    generation: int
    digit: int


class Repaired(Digits):
    """The replica of the example, which also returns where it ran."""

    async def answer(self, x: NDArray[np.float32]) -> Answer:
        """One request. It has no time limit: a request is lost if it fails, and not if a busy machine is slow."""
        scores = await self.infer(x)
        return Answer(self.card, self.actor, self.device.generation, int(scores.argmax()))

    def fail(self) -> str:
        """The next execution makes the device fail. Returns the card."""
        self.opened.enter_context(simulator.fault("aclmdlExecuteAsync", nth=1, sticky=FAULT))
        return self.card

    @property
    def card(self) -> str:
        """The card that Ray has given this replica."""
        return os.environ["ASCEND_RT_VISIBLE_DEVICES"]

    @property
    def actor(self) -> str:
        """The id of this replica's actor."""
        return str(ray.get_runtime_context().get_actor_id())


class Replaced(Repaired):
    """The same replica without a supervisor."""

    async def __init__(self, path: str) -> None:  # type: ignore[misc]  # Ray Serve awaits it
        async with AsyncExitStack() as opened:
            self.device = await opened.enter_async_context(aioacl.open_device(0))
            model = await opened.enter_async_context(self.device.load_model(path, warm_up=True))
            self.infer = await opened.enter_async_context(aioacl.open_batcher(model))
            self.opened = opened.pop_all()


WAYS: Final = {"repaired": Repaired, "replaced": Replaced}


@dataclass
class Found:
    """What the clients have seen."""

    requests: int = 0
    lost: int = 0
    wrong: int = 0
    errors: dict[str, int] = field(default_factory=dict[str, int])
    restarts: int = 0
    resets: int = 0
    gap: float = 0.0


class Run:
    """The clients of one way."""

    def __init__(self, handle: Any, requests: int) -> None:
        self._handle = handle
        self._requests = requests
        self._found = Found()
        self._failed = ""  # the card that fails
        self._answers = defaultdict[str, list[tuple[float, Answer]]](list)
        images = _digits.digits().images
        rows = zip(_digits.inputs(images)[:, None], _digits.expected(images).tolist(), strict=True)
        self._items: Iterator[tuple[NDArray[np.float32], int]] = itertools.cycle(rows)
        self._end = time.monotonic() + SECONDS_AT_MOST

    async def whole(self) -> Found:
        """Runs the clients, and returns what they have seen."""
        async with asyncio.TaskGroup() as clients:
            for _ in range(CLIENTS):
                clients.create_task(self._client())
        of_failed = self._answers[self._failed]
        found = self._found
        found.gap = max(after - before for (before, _), (after, _) in itertools.pairwise(of_failed))
        found.restarts = sum(len({answer.actor for _, answer in each}) - 1 for each in self._answers.values())
        found.resets = of_failed[-1][1].generation - of_failed[0][1].generation if not found.restarts else 0
        return found

    async def _client(self) -> None:
        while self._goes_on():
            if not self._failed and self._found.requests >= self._requests // 5:
                self._failed = "?"  # the other clients do not fail a device too
                self._failed = await self._handle.fail.remote()
            await self._request()

    def _goes_on(self) -> bool:
        if time.monotonic() > self._end:
            sys.exit(f"the device has not come back within {SECONDS_AT_MOST:.0f} s")
        if self._found.requests < self._requests:
            return True
        (_, first), (_, last) = (self._answers[self._failed][at] for at in (0, -1))
        return first[1:3] == last[1:3]

    async def _request(self) -> None:
        x, digit = next(self._items)
        self._found.requests += 1
        try:
            answer = Answer(*await self._handle.answer.remote(x))
        except Exception as error:  # noqa: BLE001 - each error of Ray or of the replica is a lost request
            self._found.lost += 1
            name = type(error).__name__
            self._found.errors[name] = self._found.errors.get(name, 0) + 1
            return
        self._found.wrong += answer.digit != digit
        self._answers[answer.card].append((time.monotonic(), answer))


def measure(way: str, requests: int) -> Found:
    """Runs one way in a cluster of its own, which ends with it."""
    deployment = serve.deployment(
        WAYS[way],
        num_replicas=2,
        max_ongoing_requests=CLIENTS,
        ray_actor_options={"resources": {"NPU": 1}},
        health_check_period_s=HEALTH_PERIOD,
        health_check_timeout_s=SECONDS_AT_MOST,  # a check fails if it raises, not if a busy machine is slow
        logging_config={"enable_access_log": False},
    )
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        # Ray detects no NPU without CANN's module `acl`, so the cluster is told how many there are.
        ray.init(
            num_cpus=2, resources={"NPU": 2}, include_dashboard=False, log_to_driver=False, _temp_dir=folder
        )
        try:
            serve.start(proxy_location="Disabled")
            handle = serve.run(deployment.bind(str(ROOT / "aioacl" / "data" / "digits_batches.om")))
            return asyncio.run(Run(handle, requests).whole())
        finally:
            serve.shutdown()
            ray.shutdown()


def main() -> int:
    """Measures the chosen ways."""
    parser = argparse.ArgumentParser(description="Measures what a failure of one device costs in Ray Serve.")
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"one of {', '.join(WAYS)} (default: both)")
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--at-most", type=float, default=0.1, metavar="SHARE")
    arguments = parser.parse_args()
    if unknown := set(arguments.ways) - WAYS.keys():
        parser.error(f"expected a way of {', '.join(WAYS)}, got {', '.join(unknown)}")
    # The processes of Ray inherit the environment.
    os.environ |= {
        "AIOACL_LIBRARY": "simulator",
        "AIOACL_SIM_DEVICES": "2",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    with redirect_stdout(sys.stderr):  # Ray prints messages of its processes
        found = {way: measure(way, arguments.requests) for way in arguments.ways or WAYS}
    result: dict[str, Any] = {way: asdict(each) for way, each in found.items()}
    missed = "repaired" in found and found["repaired"].lost > 0
    if len(found) == len(WAYS):
        result["ratio"] = found["repaired"].gap / found["replaced"].gap
        missed = missed or result["ratio"] > arguments.at_most
    print(json.dumps(result, indent=2))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
