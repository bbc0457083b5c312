"""The last part of the demo: a model classifies handwritten digits, while the device is force-reset.

First the rates are measured, without a reset: a program that awaits one call at a time, and one that has a call for
each slot. In the simulator, copies and executions then take fixed times. After that, each digit has a task, all tasks
call the model at the same time, and the device is reset when half of the digits are classified. aioacl repeats no call
that a reset has ended, because it cannot know whether that is safe. So the demo repeats these calls itself.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import anyio

from aioacl import _digits, simulator
from aioacl._base.errors import AclError, DeviceReset
from aioacl._cli import UserError
from aioacl._cli._demo_library import LATENCY
from aioacl._library import onnxruntime
from aioacl._opening import open_device

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from pathlib import Path

    from aioacl._device import Device
    from aioacl._library.load import LibraryInfo
    from aioacl._models.model import Model

DIGITS: Final = 1797  # all
MEASURED: Final = 200  # the digits of each measurement of a rate
SLOTS: Final = 3
COPY_SECONDS: Final = 0.002
RUN_SECONDS: Final = 0.005
LEAST_ACCURACY: Final = 0.95
FAILURES_AT_MOST: Final = 5  # if the device is lost, all tasks fail in the same way
INSTALL: Final = "pip install 'aioacl[onnx]'"
NEEDS_MODEL: Final = "on a card, this part needs a model that CANN's atc has made: --model FILE.om"


@dataclass(frozen=True, slots=True)
class Times:
    """How long the stages of a call take in the simulator, in seconds."""

    upload: float
    run: float
    download: float

    def bound(self, slots: int) -> float:
        """The highest rate, in calls per second: of the slowest stage, or of too few slots."""
        stages = (self.upload, self.run, self.download)
        return min(1 / max(stages), slots / sum(stages))


@dataclass(frozen=True, slots=True)
class Rates:
    """Digits per second: one call at a time, and with a call for each slot."""

    alone: float
    together: float
    times: Times | None  # None on a card, whose times are not known

    @property
    def overlap(self) -> float:
        """How many times more digits the slots classify in the same time."""
        return self.together / self.alone

    @property
    def bound(self) -> float | None:
        """The highest rate that the slots allow, or None if it is not known."""
        return None if self.times is None else self.times.bound(SLOTS)

    @property
    def share(self) -> float | None:
        """The share of the bound that was reached."""
        return None if self.bound is None else self.together / self.bound


@dataclass(frozen=True, slots=True)
class Inference:
    """The results of this part."""

    digits: int
    held_out: int
    results: int
    wrong: int  # results that differ from those that NumPy computes with the same weights
    duplicates: int
    lost: int
    accuracy: float  # of the held-out digits
    resets: int
    repeated: int  # calls that the reset ended, and that the demo made again
    seconds: float  # of the pass with the reset
    rates: Rates | None  # None if a call failed before they were known
    failures: tuple[str, ...]

    @property
    def well(self) -> bool:
        """Whether each digit has one result, the results are right, and the reset succeeded."""
        errors = self.wrong or self.duplicates or self.lost or self.failures
        return not errors and self.accuracy >= LEAST_ACCURACY and self.resets >= 1


@dataclass
class Progress:
    """What the view shows: the stage, and how many of its digits are classified."""

    stage: str = ""
    done: int = 0
    total: int = 0
    events: list[str] = field(default_factory=list[str])

    def begin(self, stage: str, total: int) -> None:
        """Begins a stage."""
        self.stage, self.done, self.total = stage, 0, total


def refusal(library: LibraryInfo, model: str | None) -> str | None:
    """Returns why this part cannot run, in a line, or None if it can."""
    simulated = library.backend == "simulator"
    needed = {"numpy": find_spec("numpy") is not None}
    if simulated:
        needed["onnxruntime"] = onnxruntime.is_available()
    elif model is None:
        return NEEDS_MODEL
    missing = [name for name, found in needed.items() if not found]
    if not missing:
        return None
    return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed: {INSTALL}"


def _takes_digits(model: Model) -> bool:
    """Whether a call takes one digit and returns a number for each class. A gear may have more digits."""
    tensors = (*model.inputs, *model.outputs)
    if (len(model.inputs), len(model.outputs)) != (1, 1) or any(each.dtype != "float32" for each in tensors):
        return False
    x, y = (each.shape for each in tensors)
    return x[:1] in ((1,), (None,)) and x[1:] == (_digits.PIXELS,) and y[1:] == (_digits.CLASSES,)


@contextmanager
def _times(library: LibraryInfo) -> Generator[Times | None]:
    """Makes copies and executions of the simulator take fixed times, and restores their times at the end."""
    if library.backend != "simulator":
        yield None
        return
    always = int(os.environ.get(LATENCY, "0")) / 1e6
    added = max(0.0, COPY_SECONDS - always)
    with ExitStack() as stack:
        stack.callback(simulator.set_model_cost)
        simulator.set_model_cost(base=RUN_SECONDS)
        if added:
            stack.enter_context(simulator.fault("aclrtMemcpyAsync", late_complete=added))
        yield Times(always + added, RUN_SECONDS, always + added)


class Classifier:
    """Classifies the digits; see the head of this file."""

    def __init__(self, library: LibraryInfo, model: str | None) -> None:
        found = _digits.digits()
        self.progress = Progress()
        self._library = library
        self._given = model
        self._path: str | Path = _digits.MODEL if model is None else model
        images = found.images[:DIGITS]
        self._x = _digits.inputs(images)
        self._labels: list[int] = found.labels.tolist()
        self._expected: list[int] = _digits.expected(images).tolist()
        self._held_out: list[int] = [each for each in found.held_out.tolist() if each < len(images)]
        self._found: list[tuple[int, int]] = []  # each result: the index of the digit, and its class
        self._resets = self._repeated = 0
        self._rates: Rates | None = None
        self._seconds = 0.0
        self._failures: list[str] = []

    async def run(self) -> None:
        """Measures the rates, and classifies all digits with a reset."""
        try:
            async with AsyncExitStack() as stack:
                device = await stack.enter_async_context(open_device(0))
                model = await self._load(stack, device)
                self._rates = await self._measure(model)
                begun = time.monotonic()
                await self._classify_all(device, model)
                self._seconds = time.monotonic() - begun
        except AclError as error:
            self._failed(error)

    async def _load(self, stack: AsyncExitStack, device: Device) -> Model:
        try:
            model = await stack.enter_async_context(device.load_model(self._path, slots=SLOTS))
        except AclError as error:
            if self._given is None:
                raise
            raise UserError(f"--model: {error}") from error
        if not _takes_digits(model):
            raise UserError(
                f"--model: expected a model of digits, made from {_digits.ONNX}, with an input float32 [1, "
                f"{_digits.PIXELS}] and an output float32 [1, {_digits.CLASSES}], got {self._path}"
            )
        return model

    async def _classify(self, model: Model, number: int) -> int:
        y = await model(self._x[number : number + 1])
        return int(y.argmax())

    def _failed(self, error: AclError) -> None:
        if len(self._failures) < FAILURES_AT_MOST:
            self._failures.append(str(error))

    # --- the rates --------------------------------------------------------------------------------------------------

    async def _measure(self, model: Model) -> Rates:
        with _times(self._library) as times:
            for number in range(SLOTS):  # the first call of each slot also allocates
                await self._classify(model, number)
            alone = await self._rate("one at a time", self._alone, model)
            together = await self._rate(f"with {SLOTS} slots", self._together, model)
        return Rates(alone, together, times)

    async def _rate(self, how: str, work: Callable[[Model, int], Awaitable[None]], model: Model) -> float:
        count = min(MEASURED, len(self._x))
        self.progress.begin(f"measuring the rate {how}", count)
        begun = time.monotonic()
        await work(model, count)
        return count / (time.monotonic() - begun)

    async def _alone(self, model: Model, count: int) -> None:
        for number in range(count):
            await self._classify(model, number)
            self.progress.done += 1

    async def _together(self, model: Model, count: int) -> None:
        images: Any = (self._x[number : number + 1] for number in range(count))
        async with model.map(images, ordered=False) as results:
            async for _ in results:
                self.progress.done += 1

    # --- all digits, with a reset -----------------------------------------------------------------------------------

    async def _classify_all(self, device: Device, model: Model) -> None:
        count = len(self._x)
        self.progress.begin("classifying all digits at the same time", count)
        async with anyio.create_task_group() as group:
            for number in range(count):
                group.start_soon(self._one, device, model, number)

    async def _one(self, device: Device, model: Model, number: int) -> None:
        try:
            found = await self._until_done(model, number)
        except AclError as error:
            self._failed(error)
            return
        self._found.append((number, found))
        self.progress.done += 1
        if self.progress.done == (self.progress.total + 1) // 2:
            await self._reset(device)

    async def _until_done(self, model: Model, number: int) -> int:
        while True:
            try:
                return await self._classify(model, number)
            except DeviceReset:
                self._repeated += 1

    async def _reset(self, device: Device) -> None:
        """Resets the device, without waiting for the calls that run."""
        self.progress.events.append("reset: started while half of the digits wait")
        begun = time.monotonic()
        report = await device.force_reset(grace=0.0, reason="the demo")
        self._resets += report.ok
        spent = (time.monotonic() - begun) * 1000
        self.progress.events.append(f"reset: {'done' if report.ok else 'failed'} after {spent:.0f} ms")
        if not report.ok:  # first, because it is the cause of the failures of the calls
            self._failures = [report.summary(), *self._failures][:FAILURES_AT_MOST]

    def result(self) -> Inference:
        """Returns the results, after `run`."""
        times = Counter(number for number, _ in self._found)
        classes = dict(self._found)
        right = sum(classes.get(number) == self._labels[number] for number in self._held_out)
        return Inference(
            digits=len(self._x),
            held_out=len(self._held_out),
            results=len(self._found),
            wrong=sum(found != self._expected[number] for number, found in self._found),
            duplicates=sum(count - 1 for count in times.values()),
            lost=len(self._x) - len(times),
            accuracy=right / max(1, len(self._held_out)),
            resets=self._resets,
            repeated=self._repeated,
            seconds=self._seconds,
            rates=self._rates,
            failures=tuple(self._failures),
        )
