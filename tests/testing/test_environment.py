"""Each test starts with the settings of the environment variables, even if an earlier test changed the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.testing.test_plugin import run

if TYPE_CHECKING:
    from pathlib import Path

ENVIRONMENT = """
import pytest
from aioacl.lowlevel import ffi, functions

seen = []

def firings():
    for _ in range(32):
        try:
            functions.aclrtGetDeviceCount(ffi.new("uint32_t *"))
        except Exception:
            yield True
        else:
            yield False

@pytest.mark.parametrize("time", [1, 2])
@pytest.mark.aioacl_allow_leaks("violations")
def test_settings_are_those_of_the_environment(aioacl_device, aioacl_simulator, time):
    before = aioacl_simulator.clock()
    aioacl_device.create_stream().result().close().result()
    assert aioacl_simulator.clock() == before
    memory, stream = aioacl_device.allocate(64).result(), aioacl_device.create_stream().result()
    stream.copy(bytearray(64), memory).result()
    stream.close().result()
    memory.close().result()
    assert len(aioacl_simulator.violations()) == 1
    aioacl_simulator.watch_uninitialised(False)
    aioacl_simulator.set_virtual_clock(False)

@pytest.mark.parametrize("time", [1, 2])
def test_sequence_of_random_faults_is_the_same(aioacl_simulator, time):
    seen.append(list(firings()))
    assert True in seen[0] and False in seen[0]
    assert seen[-1] == seen[0]
    aioacl_simulator.set_seed(time)
"""


@pytest.mark.parametrize(
    ("seed", "faults"),
    [("0x10", "aclrtGetDeviceCount:p=0.5:rc=507000"), ("0", "seed=010;aclrtGetDeviceCount:p=0.5:rc=507000")],
)
def test_next_test_starts_with_the_settings_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: str, faults: str
) -> None:
    (tmp_path / "test_settings.py").write_text(ENVIRONMENT)
    monkeypatch.setenv("AIOACL_SIM_UNINIT", "1")
    monkeypatch.setenv("AIOACL_SIM_CLOCK", "virtual")
    monkeypatch.setenv("AIOACL_SIM_SEED", seed)
    monkeypatch.setenv("AIOACL_SIM_FAULTS", faults)
    ran = run(tmp_path, "test_settings.py")
    assert (ran.status, len(ran.passed)) == (0, 4), ran.output
