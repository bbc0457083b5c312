"""The plugin beside others: two plugins for asynchronous tests, multiprocessing and tempfile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.testing.test_plugin import run

if TYPE_CHECKING:
    from pathlib import Path

# --- a test for trio --------------------------------------------------------------------------------------------------

AUTO = ("-o", "asyncio_mode=auto")
STRICT = ("-o", "asyncio_mode=strict")
REMEDY = 'set asyncio_mode = "strict" in pytest\'s settings'

ON_TRIO = """
import asyncio
import pytest

pytestmark = pytest.mark.anyio

@pytest.fixture{params}
def anyio_backend({request}):
    return {backend}

{marker}
async def test_it(aioacl_device, anyio_backend_name):
    async with aioacl_device.create_stream() as stream:
        await stream
    if anyio_backend_name == "asyncio":
        assert asyncio.current_task() is not None
    else:
        with pytest.raises(RuntimeError):
            asyncio.current_task()
"""


def on_trio(folder: Path, *arguments: str, backend: str = "", marker: str = "") -> tuple[set[str], str]:
    """Runs the test; the names of those that failed, and what was printed."""
    both = {"params": '(params=["asyncio", "trio"])', "request": "request", "backend": "request.param"}
    one = {"params": "", "request": "", "backend": backend}
    (folder / "test_it.py").write_text(ON_TRIO.format(marker=marker, **(one if backend else both)))
    ran = run(folder, *arguments, "test_it.py")
    assert not ran.refused, ran.output
    assert all(REMEDY in text for text in ran.failed.values()), ran.output
    return set(ran.failed), ran.output


def test_trio_variant_that_pytest_asyncio_takes_in_auto_mode_fails_with_the_remedy(tmp_path: Path) -> None:
    failed, output = on_trio(tmp_path, *AUTO)
    assert failed == {"test_it[trio]"}, output
    assert "_hooks.py" not in output


@pytest.mark.parametrize("backend", ['"trio"', '("trio", {})'])
def test_trio_test_that_pytest_asyncio_takes_in_auto_mode_fails_with_the_remedy(
    tmp_path: Path, backend: str
) -> None:
    failed, output = on_trio(tmp_path, *AUTO, backend=backend)
    assert failed == {"test_it"}, output


def test_trio_test_that_has_the_marker_of_pytest_asyncio_fails_with_the_remedy(tmp_path: Path) -> None:
    failed, output = on_trio(tmp_path, *STRICT, backend='"trio"', marker="@pytest.mark.asyncio")
    assert failed == {"test_it"}, output


def test_trio_test_in_strict_mode_runs_on_trio(tmp_path: Path) -> None:
    assert on_trio(tmp_path, *STRICT)[0] == set()


# --- multiprocessing --------------------------------------------------------------------------------------------------

PROCESSES = """
import multiprocessing
import os
from multiprocessing import shared_memory

import pytest

def test_shared_memory_starts_the_resource_tracker(aioacl_device):
    memory = shared_memory.SharedMemory(create=True, size=8)
    memory.close()
    memory.unlink()

@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_process_that_has_ended(aioacl_device, method):
    process = multiprocessing.get_context(method).Process(target=os.getpid)
    process.start()
    process.join()
    process.close()

def test_pipe_that_stays(aioacl_device):
    global kept
    kept = multiprocessing.Pipe()
"""


def test_resource_tracker_and_fork_server_of_multiprocessing_are_no_leak(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(PROCESSES)
    ran = run(tmp_path, "-o", "aioacl_patience=0.2", "test_it.py", really=True)
    assert ran.refused.keys() == {"test_pipe_that_stays"}, ran.output
    assert not ran.failed


# --- tempfile ---------------------------------------------------------------------------------------------------------

TEMPORARY = """
import os
import tempfile

import pytest

def test_closes_all(aioacl_device):
    with tempfile.TemporaryFile(), tempfile.NamedTemporaryFile(), tempfile.TemporaryDirectory():
        pass
    number, path = tempfile.mkstemp()
    os.close(number)
    os.unlink(path)
    os.rmdir(tempfile.mkdtemp())

def test_keeps_one_of_two_files(aioacl_device):
    global kept
    first = tempfile.TemporaryFile()
    kept = tempfile.TemporaryFile()  # here
    first.close()

@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as path:
        yield path

def test_uses_a_folder_of_the_module(aioacl_device, folder):
    assert os.listdir(folder) == []

@pytest.mark.aioacl_leaves("directories")
def test_may_leave_a_folder(aioacl_device):
    global folders
    folders = [tempfile.TemporaryDirectory()]
"""


def test_temporary_files_that_are_closed_are_no_leak_and_one_that_is_not_is_told_by_its_line(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_it.py").write_text(TEMPORARY)
    ran = run(tmp_path, "-o", "aioacl_patience=0.2", "test_it.py")
    line = next(n for n, text in enumerate(TEMPORARY.splitlines(), 1) if "# here" in text)
    assert ran.refused.keys() == {"test_keeps_one_of_two_files"}, ran.output
    assert (
        f"at test_it.py:{line} in test_keeps_one_of_two_files" in ran.refused["test_keeps_one_of_two_files"]
    )
