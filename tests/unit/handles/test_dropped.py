"""A handle that is dropped without a close emits a ResourceWarning at the line that created it."""

from __future__ import annotations

import gc
import linecache
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from aioacl._lifecycle.manager import manager_of
from tests.kit import Raised, in_thread, until_now

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice

MAKERS: dict[str, Callable[[aioacl.Device], object]] = {
    "device": lambda _: aioacl.open_device(1).result(),
    "stream": lambda device: device.create_stream().result(),
    "device buffer": lambda device: device.allocate(64).result(),
    "pinned buffer": lambda device: device.pinned(64).result(),
    "lease": lambda device: device.lease().__enter__(),
}


class Cycle:
    """An object in a reference cycle, which only the garbage collector frees."""

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


def warnings_of(drop: Callable[[], object], action: Any = "always") -> list[tuple[str, int]]:
    """Runs `drop`; returns file and line of each ResourceWarning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action, ResourceWarning)
        drop()
    return [(one.filename, one.lineno) for one in caught if one.category is ResourceWarning]


@pytest.mark.parametrize("how", DROPS)
@pytest.mark.parametrize("what", MAKERS)
def test_unclosed_handle_warns_at_the_line_that_created_it(
    open_device: OpenDevice, what: str, how: str
) -> None:
    with open_device() as device:
        kept = [MAKERS[what](device)]
        ((file, line),) = warnings_of(lambda: DROPS[how](kept))
        assert file == __file__
        assert f'"{what}": lambda' in linecache.getline(file, line)


def test_unclosed_handles_of_one_line_warn_once_with_the_default_filter(open_device: OpenDevice) -> None:
    def drop() -> None:
        for _ in range(3):
            device.create_stream().result()

    with open_device() as device:
        assert len(warnings_of(drop, "default")) == 1


def test_unclosed_handle_created_by_an_unloaded_module_warns_at_its_line(open_device: OpenDevice) -> None:
    names: dict[str, Any] = {"__name__": "gone"}  # no module of this name is in sys.modules
    exec(compile("def make(device):\n    return device.create_stream()\n", "gone.py", "exec"), names)
    with open_device() as device:
        assert warnings_of(lambda: names["make"](device).result()) == [("gone.py", 2)]


@pytest.mark.parametrize("how", DROPS)
def test_lease_dropped_inside_its_block_warns_and_lets_a_reset_begin(
    open_device: OpenDevice, how: str
) -> None:
    with open_device() as device:
        kept: list[Any] = [in_thread(device.lease().__enter__)]
        reset = Raised(device.force_reset(grace=1000, timeout=2000).result)
        assert until_now(lambda: device.state is aioacl.State.DRAINING)
        with pytest.warns(ResourceWarning, match="lease on device 0 was entered and not left"):
            DROPS[how](kept)
        assert reset.join().ok
        assert device.health.leases == 0


def test_lease_whose_warning_is_an_error_that_refers_to_it_is_released(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[BaseException | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: kept.append(unraisable.exc_value))
    with open_device() as device:
        lease = [device.lease().__enter__()]
        assert warnings_of(lease.clear, "error") == []
        assert isinstance(kept[0], ResourceWarning)  # a frame of its traceback refers to the lease
        assert until_now(lambda: device.health.leases == 0)


def test_lease_that_is_dropped_after_its_revocation_warns(open_device: OpenDevice) -> None:
    with open_device() as device:
        kept: list[Any] = [in_thread(device.lease().__enter__)]
        assert device.force_reset(grace=0).result().ok
        assert len(warnings_of(kept.clear)) == 1


def test_lease_that_was_not_entered_or_was_left_is_dropped_silently(open_device: OpenDevice) -> None:
    def drop() -> None:
        device.lease()
        with device.lease() as lease, lease.share():
            lease.share()

    with open_device() as device:
        assert warnings_of(drop) == []


def test_shared_lease_dropped_inside_its_block_warns_and_stops_being_a_holder(
    open_device: OpenDevice,
) -> None:
    with open_device() as device, device.lease() as lease:
        kept = [lease.share()]
        in_thread(kept[0].__enter__)
        assert len(lease._holders) == 2
        ((file, _),) = warnings_of(kept.clear)
        assert file == __file__
        assert len(lease._holders) == 1
        assert lease.held


def test_shared_lease_dropped_after_its_revocation_ends_the_record_of_the_lease(
    open_device: OpenDevice,
) -> None:
    with open_device() as device:
        with device.lease() as lease:
            kept = [lease.share()]
            in_thread(kept[0].__enter__)
        assert device.force_reset(grace=0).result().ok
        with pytest.raises(aioacl.DeviceResetting):
            lease.share().__enter__()
        assert len(warnings_of(kept.clear)) == 1
        assert until_now(lambda: not manager_of(0).admission.leases.was_revoked(lease))
        with pytest.raises(aioacl.ParameterError, match="no task holds"):
            lease.share().__enter__()
