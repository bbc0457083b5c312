"""What the runner asks of a model and of its device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from aioacl._batches.state import DeviceState, ModelState

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._batches.items import BatchItem

Outcomes = list[Any] | BaseException


class Executor(Protocol):
    """Executes batches on one model."""

    @property
    def zeros(self) -> Any:
        """A call of one row, whose numbers are zero."""
        ...

    def execute(self, calls: list[Any], ended: Callable[[Outcomes], object]) -> object:
        """Begins an execution of checked calls, whose rows follow one another. Does not block.

        It calls `ended` once, on any thread: with a list that has a result for each call; with a `Mixed` list, in which
        some results are exceptions; or with one exception, if the execution has failed.
        """
        ...

    def alone(self) -> Callable[[], bool]:
        """Called before the execution of a suspect.

        The function that it returns is called after the execution. It returns whether it is known that nothing else
        has run on the device.
        """
        ...

    def close(self) -> object:
        """Called when no execution will begin any more. Does not block."""
        ...


class Look(NamedTuple):
    """What a device can do, at one moment.

    Attributes:
        generation: the number of the generation, which each reset raises.
        is_open: whether it admits work.
        failed: whether it has a failure of this generation that only a reset ends.
        returns: whether it drains, is being reset, or has a supervisor that has not given up.
    """

    generation: int
    is_open: bool
    failed: bool
    returns: bool


class DeviceView(Protocol):
    """What the batcher asks of a device. No answer blocks."""

    def look(self) -> Look:
        """Returns what it can do now."""
        ...

    def listen(self, changed: Callable[[], object]) -> Callable[[], object]:
        """Calls `changed` after each change, on any thread. Returns a function that ends this."""
        ...


class Watched:
    """A device, its state in the core, and its newest failure."""

    __slots__ = ("error", "index", "state", "stop", "view")

    def __init__(self, view: DeviceView, index: int = -1) -> None:
        self.view = view
        self.index = index  # of the device, for the flight recorder
        self.state: DeviceState[BatchItem] = DeviceState()
        self.error: BaseException | None = None
        self.stop: Callable[[], object] | None = None


class Served:
    """A model of the batcher: its executor, its device, and its state in the core."""

    __slots__ = ("device", "executor", "state")

    def __init__(self, executor: Executor, device: Watched) -> None:
        self.executor = executor
        self.device = device
        self.state: ModelState[BatchItem] = ModelState(device.state)
