"""What was never closed warns at the line that made it, wherever it is dropped."""

from __future__ import annotations

import gc
import linecache
import warnings
from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from tests.kit import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice

MAKERS: dict[str, Callable[[aioacl.Device], aioacl.Opening[Any]]] = {
    "device": lambda _: aioacl.open_device(1),
    "stream": lambda device: device.create_stream(),
    "device buffer": lambda device: device.allocate(64),
    "pinned buffer": lambda device: device.pinned(64),
}


class Cycle:
    """What only the collector finds."""

    def __init__(self, kept: object) -> None:
        self.itself, self.kept = self, kept


def collect(kept: list[Any]) -> None:
    Cycle(kept.pop())
    gc.collect()


DROPS: dict[str, Callable[[list[Any]], object]] = {
    "here": lambda kept: kept.clear(),
    "on a thread": lambda kept: in_thread(kept.clear),
    "by the collector": collect,
}


def told_of(drop: Callable[[], object], action: Any = "always") -> list[tuple[str, int]]:
    """The files and lines of the ResourceWarnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action, ResourceWarning)
        drop()
    return [(one.filename, one.lineno) for one in caught if one.category is ResourceWarning]


@pytest.mark.parametrize("how", DROPS)
@pytest.mark.parametrize("what", MAKERS)
def test_unclosed_thing_warns_at_the_line_that_made_it(open_device: OpenDevice, what: str, how: str) -> None:
    with open_device() as device:
        kept = [MAKERS[what](device).result()]
        ((file, line),) = told_of(lambda: DROPS[how](kept))
        assert file == __file__
        assert f'"{what}": lambda' in linecache.getline(file, line)


def test_unclosed_things_of_one_line_warn_once_with_the_default_filter(open_device: OpenDevice) -> None:
    def drop() -> None:
        for _ in range(3):
            device.create_stream().result()

    with open_device() as device:
        assert len(told_of(drop, "default")) == 1


def test_unclosed_thing_that_a_module_made_which_is_gone_warns_at_its_line(open_device: OpenDevice) -> None:
    names: dict[str, Any] = {"__name__": "gone"}  # not in sys.modules
    exec(compile("def make(device):\n    return device.create_stream()\n", "gone.py", "exec"), names)
    with open_device() as device:
        assert told_of(lambda: names["make"](device).result()) == [("gone.py", 2)]
