"""Tensors that a library in C takes over. It calls the deleters on threads that are not threads of Python."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from aioacl import simulator
from tests.kit import until_now
from tests.process.child import run
from tests.support.dlpack import Consumer

if TYPE_CHECKING:
    import aioacl

pytestmark = [pytest.mark.process, pytest.mark.uncached]
SOURCE = Path(__file__).parents[2] / "support" / "consumer.c"
BOTH = pytest.mark.parametrize("version", [None, (1, 0)], ids=["legacy", "versioned"])
THREADS = 16


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled consumer."""
    made = tmp_path_factory.mktemp("consumer") / "consumer.so"
    compiler = os.environ.get("CC", "cc")
    subprocess.run(
        [compiler, "-std=c11", "-D_GNU_SOURCE", "-shared", "-fPIC", "-pthread", str(SOURCE), "-o", str(made)],
        check=True,
    )
    return made


@pytest.fixture
def library(path: Path) -> Any:
    library = ctypes.CDLL(str(path))
    library.consumer_bytes.restype = ctypes.c_int64
    library.consumer_bytes.argtypes = [ctypes.c_void_p, ctypes.c_int]
    return library


def end(library: Any, consumers: list[Consumer], version: Any) -> None:
    """Calls the deleters at the same time, each on its own thread, and waits for the threads."""
    addresses = [ctypes.addressof(consumer.managed) for consumer in consumers]
    managed = (ctypes.c_void_p * len(addresses))(*addresses)
    assert library.consumer_end(managed, version is not None, len(addresses)) == 0


@BOTH
def test_consumer_in_c_reads_the_size_of_buffers_and_views(
    library: Any, device: aioacl.Device, memory: aioacl.DeviceBuffer, version: Any
) -> None:
    with device.pinned(24) as pinned:
        for buffer, size in (
            (memory, 64),
            (memory[3:8], 5),
            (pinned, 24),
            (pinned[8:], 16),
            (memory[4:4], 0),
        ):
            consumer = Consumer(buffer.__dlpack__(max_version=version))
            found = library.consumer_bytes(ctypes.addressof(consumer.managed), version is not None)
            assert found == size
            end(library, [consumer], version)


@BOTH
@pytest.mark.parametrize("closes_first", [True, False])
def test_device_memory_is_freed_once_when_threads_of_c_delete_its_tensors(
    library: Any, device: aioacl.Device, version: Any, closes_first: bool
) -> None:
    before, frees = simulator.stats().device_blocks, simulator.calls("aclrtFree")
    memory = device.allocate(64).result()
    consumers = [Consumer(memory[i:].__dlpack__(max_version=version)) for i in range(THREADS)]
    if closes_first:
        memory.close().result()
        assert simulator.stats().device_blocks == before + 1
    end(library, consumers, version)
    memory.close().result()
    assert until_now(lambda: simulator.stats().device_blocks == before)
    assert simulator.calls("aclrtFree") == frees + 1


@BOTH
def test_pinned_memory_is_freed_once_when_threads_of_c_delete_its_tensors(
    library: Any, device: aioacl.Device, version: Any
) -> None:
    before = simulator.stats().host_blocks
    pinned = device.pinned(64).result()
    consumers = [Consumer(pinned[i:].__dlpack__(max_version=version)) for i in range(THREADS)]
    pinned.close().result()
    assert simulator.stats().host_blocks == before + 1
    end(library, consumers, version)
    assert until_now(lambda: simulator.stats().host_blocks == before)


@BOTH
def test_tensor_of_c_that_outlives_a_reset_frees_nothing(
    library: Any, device: aioacl.Device, version: Any
) -> None:
    memory = device.allocate(64).result()
    consumers = [Consumer(memory.__dlpack__(max_version=version)) for _ in range(THREADS)]
    assert device.force_reset(grace=0).result().ok
    frees = simulator.calls("aclrtFree")
    end(library, consumers, version)
    device.memory_info().result()  # runs on the maintenance thread, after the notes of finalizers
    assert simulator.calls("aclrtFree") == frees
    assert simulator.violations() == []


def test_array_of_numpy_is_imported_by_c_and_back(library: Any, device: aioacl.Device) -> None:
    with device.pinned(16) as pinned:
        array: Any = np.from_dlpack(pinned[4:12])
        array[:] = range(8)
        consumer = Consumer(array.__dlpack__())
        found = library.consumer_bytes(ctypes.addressof(consumer.managed), False)
        end(library, [consumer], None)
        assert found == 8
        assert bytes(pinned.view[4:12]) == bytes(range(8))
        del array


AT_EXIT = """
import ctypes
from tests.support.dlpack import Consumer
use_library("simulator")
device = open_device().result()
memory, pinned = device.allocate(64).result(), device.pinned(64).result()
consumer = Consumer({which}.__dlpack__(max_version=(1, 0)))
library = ctypes.CDLL({path!r})
library.consumer_end_at_exit.argtypes = [ctypes.c_void_p, ctypes.c_int]
assert library.consumer_end_at_exit(ctypes.addressof(consumer.managed), 1) == 0
say("end")
"""


@pytest.mark.parametrize("which", ["memory", "pinned", "memory[8:]"])
def test_tensor_that_c_deletes_after_python_has_ended_does_no_harm(path: Path, which: str) -> None:
    program = AT_EXIT.replace("{which}", which)
    status, output, errors = run(program.replace("{path!r}", repr(str(path))), strict=False, real=True)
    assert (status, output) == (0, "end\ndeleted\n")
    assert "Traceback" not in errors
