"""The plugin together with plugins for asynchronous tests, multiprocessing, tempfile, and pytest's xfail."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import pytest

from tests.testing.test_plugin import run

if TYPE_CHECKING:
    from pathlib import Path

# --- tests on trio ---------------------------------------------------------------------------------------------------

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


MARKED_FOR_TRIO = """
import pytest

@pytest.mark.trio
async def test_it(aioacl_device):
    await aioacl_device.memory_info()

async def test_other(aioacl_device):
    await aioacl_device.memory_info()
"""


def on_trio(folder: Path, *arguments: str, backend: str = "", marker: str = "") -> tuple[set[str], str]:
    """Runs the test; returns the names of the tests that failed, and the output."""
    both = {"params": '(params=["asyncio", "trio"])', "request": "request", "backend": "request.param"}
    one = {"params": "", "request": "", "backend": backend}
    (folder / "test_it.py").write_text(ON_TRIO.format(marker=marker, **(one if backend else both)))
    ran = run(folder, *arguments, "test_it.py")
    assert not ran.refused, ran.output
    assert all(REMEDY in text for text in ran.failed.values()), ran.output
    return set(ran.failed), ran.output


def test_trio_variant_in_auto_mode_of_pytest_asyncio_fails_with_the_remedy(tmp_path: Path) -> None:
    failed, output = on_trio(tmp_path, *AUTO)
    assert failed == {"test_it[trio]"}, output
    assert "_hooks.py" not in output


@pytest.mark.parametrize("backend", ['"trio"', '("trio", {})'])
def test_trio_test_in_auto_mode_of_pytest_asyncio_fails_with_the_remedy(tmp_path: Path, backend: str) -> None:
    failed, output = on_trio(tmp_path, *AUTO, backend=backend)
    assert failed == {"test_it"}, output


def test_trio_test_with_the_marker_of_pytest_asyncio_fails_with_the_remedy(tmp_path: Path) -> None:
    failed, output = on_trio(tmp_path, *STRICT, backend='"trio"', marker="@pytest.mark.asyncio")
    assert failed == {"test_it"}, output


def test_marker_of_pytest_trio_in_auto_mode_of_pytest_asyncio_fails_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(MARKED_FOR_TRIO)
    ran = run(tmp_path, *AUTO, "test_it.py")
    assert set(ran.failed) == {"test_it"}, ran.output
    assert REMEDY in ran.failed["test_it"], ran.output


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
    ran = run(tmp_path, "-o", "aioacl_settle_timeout=0.2", "test_it.py", new_interpreter=True)
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
    with tempfile.NamedTemporaryFile(delete=False) as file:
        pass
    os.unlink(file.name)

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

@pytest.mark.aioacl_allow_leaks("directories")
def test_may_leave_a_folder(aioacl_device):
    global folders
    folders = [tempfile.TemporaryDirectory(), tempfile.mkdtemp()]
"""


def test_report_of_an_open_temporary_file_names_its_line_and_closed_ones_are_no_leak(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEMPORARY)
    ran = run(tmp_path, "-o", "aioacl_settle_timeout=0.2", "test_it.py")
    line = next(n for n, text in enumerate(TEMPORARY.splitlines(), 1) if "# here" in text)
    assert ran.refused.keys() == {"test_keeps_one_of_two_files"}, ran.output
    assert (
        f"at test_it.py:{line} in test_keeps_one_of_two_files" in ran.refused["test_keeps_one_of_two_files"]
    )


REMAINING = """
import multiprocessing.util
import os
import shutil
import tempfile

import pytest

@pytest.fixture(scope="module", autouse=True)
def temporary_folder():
    before, tempfile.tempdir = tempfile.tempdir, os.getcwd()  # the tests of this module leave their files here
    yield
    tempfile.tempdir = before

def test_leaves_a_folder_of_mkdtemp(aioacl_device):
    tempfile.mkdtemp()  # here

def test_leaves_a_closed_file_of_mkstemp(aioacl_device):
    os.close(tempfile.mkstemp()[0])  # here

def test_leaves_a_closed_named_file(aioacl_device):
    with tempfile.NamedTemporaryFile(delete=False):  # here
        pass

def test_leaves_a_file_that_is_open(aioacl_device):
    global kept
    kept = tempfile.NamedTemporaryFile()  # here

def test_leaves_files_in_another_folder(aioacl_device, tmp_path):
    tempfile.mkdtemp(dir=tmp_path)
    os.close(tempfile.mkstemp(dir=tmp_path)[0])

def test_removes_a_folder_with_a_file_in_it(aioacl_device):
    folder = tempfile.mkdtemp()
    os.close(tempfile.mkstemp(dir=folder)[0])
    shutil.rmtree(folder)

def test_uses_the_folder_of_multiprocessing(aioacl_device):
    assert os.path.isdir(multiprocessing.util.get_temp_dir())

@pytest.fixture(scope="module")
def folder():
    path = tempfile.mkdtemp()
    yield path
    os.rmdir(path)

def test_uses_a_folder_of_the_module(aioacl_device, folder):
    assert os.listdir(folder) == []

@pytest.mark.aioacl_allow_leaks("files", "directories")
def test_may_leave_both(aioacl_device):
    os.close(tempfile.mkstemp()[0])
    tempfile.mkdtemp()
"""


def test_report_of_a_temporary_file_or_directory_that_is_not_removed_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(REMAINING)
    ran = run(tmp_path, "-o", "aioacl_settle_timeout=0.2", "test_it.py", new_interpreter=True)
    lines = re.findall(r"def (test_\w+)|# (here)", REMAINING)
    leaks = {name for (name, _), (_, here) in itertools.pairwise(lines) if here}
    assert len(leaks) == 4
    assert ran.refused.keys() == leaks, ran.output
    for name in leaks:
        assert re.search(rf"at test_it\.py:\d+ in {name}\n.*# here", ran.refused[name]), ran.output
    assert "temporary directory" in ran.refused["test_leaves_a_folder_of_mkdtemp"]
    assert "temporary file" in ran.refused["test_leaves_a_closed_named_file"]
    assert "temporary file" not in ran.refused["test_leaves_a_file_that_is_open"]
    assert not ran.failed


# --- xfail ------------------------------------------------------------------------------------------------------------

EXPECTED = """
import os
import pytest

kept = []

@pytest.fixture
def fails_at_its_end():
    yield
    raise RuntimeError("at its end")

@pytest.mark.xfail(strict=True)
def test_leaves_a_stream(aioacl_device):
    kept.append(aioacl_device.create_stream().result())
    assert not kept

@pytest.mark.xfail(raises=Exception)
def test_leaves_a_stream_and_its_fixture_fails(aioacl_device, fails_at_its_end):
    kept.append(aioacl_device.create_stream().result())
    assert not kept

def test_leaves_a_stream_and_calls_pytest_xfail(aioacl_device):
    kept.append(aioacl_device.create_stream().result())
    pytest.xfail("known")

@pytest.mark.xfail
def test_leaves_nothing(aioacl_device):
    assert not kept

@pytest.mark.xfail
def test_leaves_only_what_its_traceback_refers_to(aioacl_device):
    file = open(os.devnull)
    assert not kept

@pytest.mark.xfail
def test_breaks_the_device_and_leaves_nothing(aioacl_device, aioacl_simulator):
    memory = aioacl_device.allocate(64).result()
    stream = aioacl_device.create_stream(on_failure="stop").result()
    aioacl_simulator.fail_next(stream, 507015)
    try:
        stream.fill(memory, 1).result()
    finally:
        stream.close().result()
        memory.close().result()
"""


def test_leak_of_a_test_that_fails_as_expected_is_reported(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(EXPECTED)
    ran = run(tmp_path, "-o", "aioacl_settle_timeout=0.2", "test_it.py")
    leaks = [name for name in re.findall(r"def (test_\w+)", EXPECTED) if "a_stream" in name]
    assert len(leaks) == 3
    assert ran.refused.keys() == set(leaks), ran.output
    for name in leaks:
        reported = ran.refused[name] + ran.output
        assert re.search(rf"a stream on device 0 .*\n +at test_it\.py:\d+ in {name}\n", reported), ran.output
    assert not ran.failed
    assert ran.status == pytest.ExitCode.TESTS_FAILED
