"""The guard against tests that hang ends a test, and no later test notices it."""

from __future__ import annotations

import faulthandler
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from aioacl import simulator
from tests.kit import LONG_SECONDS, Raised, hanging, until_now
from tests.support import forkserver, hangs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import aioacl


@pytest.fixture
def output(tmp_path: Path) -> Iterator[int]:
    """A descriptor for tracebacks; the Guard does not close it."""
    with (tmp_path / "stderr").open("w") as file:
        yield file.fileno()


def test_test_that_hangs_in_the_simulator_is_released(
    device: aioacl.Device, output: int, tmp_path: Path
) -> None:
    simulator.hang_call("aclrtMalloc")
    with hangs.Guard(LONG_SECONDS, output) as guard:

        def expire() -> None:
            assert until_now(hanging("aclrtMalloc"))
            guard._expire()

        expiring = Raised(expire)
        device.allocate(64).result().close().result()
    expiring.join()
    assert guard.expired
    assert "must_allocate" in (tmp_path / "stderr").read_text()


def test_test_that_blocks_outside_the_simulator_is_interrupted(
    output: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hangs, "STEP_SECONDS", 0.0)
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda *_, **__: None)  # would end this process

    def block() -> None:
        with hangs.Guard(0.01, output):
            threading.Event().wait()

    with pytest.raises(pytest.fail.Exception, match="still running"):
        block()


def test_test_that_ends_in_time_is_not_interrupted(output: int) -> None:
    with hangs.Guard(LONG_SECONDS, output) as guard:
        pass
    assert not guard.expired


BLOCKS_IN_C = """
import ctypes
from tests.support import hangs
hangs.STEP_SECONDS = 0.01
hangs.Guard._expire = lambda _: None  # it could interrupt the thread before it is inside C
with hangs.Guard(0.01, 2):
    ctypes.PyDLL(None).pause()  # keeps the GIL
"""


@pytest.mark.process
def test_test_that_never_returns_from_c_ends_the_process() -> None:
    done = forkserver.run([sys.executable, "-c", BLOCKS_IN_C])
    assert done.returncode == 1
    assert "Timeout" in done.stderr
