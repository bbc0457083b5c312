"""The type checkers accept and refuse programs as docs/typing.md describes.

The type checkers belong to the extra `lint`, which .ci/run and .ci/slow install. Like a user's type checkers, they
search for aioacl in the environment, not in the folder of the program.
"""

from __future__ import annotations

import json
import re
import runpy
import shlex
import subprocess
import sys
import sysconfig
from collections import Counter
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from scripts.pages import ROOT, blocks, one
from tests.support.command import finished

PYTHONS = ("3.11", "3.12")  # before 3.12 the stubs of numpy do not declare `__buffer__`
REFUSED = "# refused"
PROGRAM = "from __future__ import annotations"
# The number of blocks of the page, by language and first line.
BLOCKS = {
    ("console", ""): 4,
    ("python", PROGRAM): 1,
    ("python", REFUSED): 1,
    ("python", "# reported"): 2,
    ("python", "# accepted"): 2,
    ("toml", "# reports"): 1,
    ("toml", "# accepts"): 1,
}
STRICT = "[tool.mypy]\nstrict = true\n"

checked = [pytest.mark.process, pytest.mark.slow]

BUFFERS = """
import array
import ctypes
import mmap

import numpy as np

import aioacl

class Tensor:
    dtype: object

    def __dlpack__(self, *, stream: int | None = None) -> object:
        return self

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

def use(
    device: aioacl.Device, stream: aioacl.Stream, memory: aioacl.DeviceBuffer, pinned: aioacl.PinnedBuffer,
    tensor: Tensor,
) -> None:
    numbers = np.zeros(4, np.float32)
    stream.copy(memory, b"bytes")
    stream.copy(memory, bytearray(4))
    stream.copy(memory, memoryview(b"view"))
    stream.copy(memory, array.array("i", [1]))
    stream.copy(memory, mmap.mmap(-1, 4))
    stream.copy(memory, (ctypes.c_int * 4)())
    stream.copy(memory, numbers)
    stream.copy(memory, numbers[1:], nbytes=np.int64(4))
    stream.copy(memory, pinned)
    stream.copy(memory, memory)
    stream.copy(bytearray(4), memory)
    stream.copy(numbers, memory)
    stream.copy(pinned, memory)
    stream.copy(pinned.view, memory)
    stream.fill(memory, np.uint8(1))
    stream.fill(pinned, 1, nbytes=4)
    stream.upload(memory, b"bytes", nbytes=2).result()
    stream.upload(memory, numbers).result()
    stream.upload(memory, pinned).result()
    stream.download(bytearray(4), memory, nbytes=np.int32(2)).result()
    stream.download(numbers, memory).result()
    stream.download(pinned, memory).result()
    stream.upload(memory, tensor).result()
    stream.download(tensor, memory).result()
    stream.copy(memory, tensor)
    device.allocate(np.prod(numbers.shape)).result()
    stream.synchronize(np.float32(0.5)).result(np.int64(1))
    stream.copy(memory, "text")  # refused
    stream.copy(memory, 5)  # refused
    stream.copy(memory, None)  # refused
    stream.copy(memory, [1, 2])  # refused
    stream.copy("text", memory)  # refused
    stream.copy(5, memory)  # refused
    stream.copy(memory, device)  # refused
    stream.copy(memory, b"bytes", nbytes=1.0)  # refused
    stream.fill(bytearray(4), 1)  # refused
    stream.fill(memory, b"x")  # refused
    stream.upload(memory, "text")  # refused
    stream.upload(memory, memory)  # refused
    stream.upload(bytearray(4), memory)  # refused
    stream.upload(memory, b"bytes", nbytes="2")  # refused
    stream.download("text", memory)  # refused
    stream.download(5, memory)  # refused
    stream.download(memory, bytearray(4))  # refused
    device.allocate("4")  # refused
    device.pinned(4.0)  # refused
    stream.synchronize("1").result()  # refused
"""

NAMES = """
from typing import assert_type

import aioacl
from aioacl import Device, Opening, open_device
from aioacl import opn_device  # refused

def use() -> None:
    assert_type(aioacl.open_device(), Opening[Device])
    assert_type(aioacl.open_device(), aioacl.Opening[aioacl.Device])
    assert_type(open_device(), Opening[Device])
    assert_type(aioacl.library_info(), aioacl.LibraryInfo)
    aioacl.opn_device()  # refused
"""

# The type of each awaitable, and the type of its result.
AWAITABLES = {
    "open_device()": ("Opening[Device]", "Device"),
    "device.create_stream()": ("Opening[Stream]", "Stream"),
    "device.create_event()": ("Opening[Event]", "Event"),
    "device.allocate(4)": ("Opening[DeviceBuffer]", "DeviceBuffer"),
    "device.pinned(4)": ("Opening[PinnedBuffer]", "PinnedBuffer"),
    "device.load_model('digits.om')": ("Opening[Model]", "Model"),
    "device.run(divide, 1, by=2)": ("Operation[float]", "float"),
    "device.force_reset()": ("Operation[ResetReport]", "ResetReport"),
    "device.empty_cache()": ("Operation[int]", "int"),
    "device.memory_info()": ("Operation[MemoryInfo]", "MemoryInfo"),
    "device.synchronize()": ("Operation[None]", "None"),
    "device.close()": ("Operation[None]", "None"),
    "stream.copy(memory, b'data')": ("Ticket", "None"),
    "stream.fill(memory, 1)": ("Ticket", "None"),
    "stream.wait_event(event)": ("Ticket", "None"),
    "stream.record()": ("Event", "None"),
    "stream.upload(memory, b'data')": ("Operation[None]", "None"),
    "stream.download(bytearray(4), memory)": ("Operation[None]", "None"),
    "stream.synchronize()": ("Operation[None]", "None"),
    "stream.ready()": ("Operation[None]", "None"),
    "stream.renew()": ("Operation[None]", "None"),
    "stream.abort()": ("Operation[None]", "None"),
    "stream.close()": ("Operation[None]", "None"),
    "event.record(stream)": ("Event", "None"),
    "event.synchronize()": ("Operation[None]", "None"),
    "event.close()": ("Operation[None]", "None"),
    "memory.close()": ("Operation[None]", "None"),
    "pinned.close()": ("Operation[None]", "None"),
    "model.enqueue(memory, memory)": ("Ticket", "None"),
    "model.reload()": ("Operation[None]", "None"),
    "model.close()": ("Operation[None]", "None"),
    "open_batcher(model)": ("Opening[Batcher]", "Batcher"),
    "batcher.replace(model)": ("Operation[None]", "None"),
    "batcher.close()": ("Operation[None]", "None"),
    "open_pool(path)": ("Opening[Pool]", "Pool"),
    "pool.replace(model)": ("Operation[None]", "None"),
    "pool.close()": ("Operation[None]", "None"),
}
# The first lines of a program with the awaitables.
USE = """
from typing import assert_type

from aioacl import Batcher, Device, DeviceBuffer, Event, MemoryInfo, Model, Opening, Operation, PinnedBuffer
from aioacl import Pool, ResetReport, Stream, Ticket, open_batcher, open_device, open_pool

def divide(number: int, *, by: int) -> float:
    return number / by

async def use(
    device: Device, stream: Stream, event: Event, memory: DeviceBuffer, pinned: PinnedBuffer,
    model: Model, batcher: Batcher, pool: Pool, path: str
) -> None:
"""


def texts(language: str, first: str = "") -> list[str]:
    """Returns the blocks of the page that are in this language and begin with `first`."""
    return [
        block.text
        for block in blocks(ROOT / "docs" / "typing.md")
        if block.language == language and block.text.startswith(first)
    ]


def text(first: str, language: str = "python") -> str:
    """Returns the only block of the page that is in this language and begins with the line `first`."""
    begins = f"{first}\n"
    test = "tests/test_typing.py"
    return one("docs/typing.md", test, lambda found: found.startswith(begins), language=language).text


def consoles() -> list[str]:
    """Returns the blocks of the page that show a terminal: commands, each after a `$`, or the output of a command."""
    return texts("console")


def commands() -> list[list[str]]:
    """Returns the commands of the page, with this Python in place of `.venv/bin/python`."""
    lines = [line for block in consoles() for line in block.splitlines() if line.startswith("$ ")]
    words = [shlex.split(line.removeprefix("$ ")) for line in lines]
    return [[sys.executable if word == ".venv/bin/python" else word for word in line] for line in words]


def mypy(folder: Path, program: str, settings: str = STRICT, python: str = PYTHONS[0]) -> str:
    """Returns the output of mypy for a program, job.py, in a project with these settings."""
    pytest.importorskip("mypy", reason="needs mypy; install the extra `lint`")
    (folder / "job.py").write_text(program)
    (folder / "pyproject.toml").write_text(settings)
    options = ["--follow-imports=silent", "--no-error-summary", f"--python-version={python}"]
    cache = folder / "cache"
    command = [sys.executable, "-m", "mypy", *options, f"--cache-dir={cache}", "job.py"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    assert ran.stderr == ""
    return ran.stdout


def refused_by_mypy(folder: Path, program: str, python: str) -> set[int]:
    """Returns the lines in which mypy finds an error."""
    output = mypy(folder, program, python=python)
    return {int(line) for line in re.findall(r"^job\.py:(\d+): error: ", output, flags=re.MULTILINE)}


def refused_by_pyright(folder: Path, program: str, python: str) -> set[int]:
    """Returns the lines in which pyright finds an error."""
    pytest.importorskip("pyright", reason="needs pyright; install the extra `lint`")
    (folder / "job.py").write_text(program)
    settings = {"typeCheckingMode": "strict", "pythonVersion": python}
    (folder / "pyrightconfig.json").write_text(json.dumps({**settings, "include": ["job.py"]}))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    output = json.loads(ran.stdout)
    assert output["summary"]["filesAnalyzed"] == 1, ran.stdout
    return {
        found["range"]["start"]["line"] + 1
        for found in output["generalDiagnostics"]
        if found["severity"] == "error"
    }


CHECKERS = {"mypy": refused_by_mypy, "pyright": refused_by_pyright}


class TestTypes:
    pytestmark = checked

    @pytest.mark.parametrize("python", PYTHONS)
    @pytest.mark.parametrize("checker", CHECKERS)
    def test_buffers_are_accepted_and_other_types_are_refused(
        self, tmp_path: Path, checker: str, python: str
    ) -> None:
        wrong = {n for n, line in enumerate(BUFFERS.splitlines(), 1) if line.endswith(REFUSED)}
        assert CHECKERS[checker](tmp_path, BUFFERS, python) == wrong

    @pytest.mark.parametrize("checker", CHECKERS)
    def test_names_of_the_package_have_their_types_and_unknown_names_are_refused(
        self, tmp_path: Path, checker: str
    ) -> None:
        wrong = {n for n, line in enumerate(NAMES.splitlines(), 1) if line.endswith(REFUSED)}
        assert CHECKERS[checker](tmp_path, NAMES, PYTHONS[0]) == wrong

    @pytest.mark.parametrize("checker", CHECKERS)
    def test_awaitables_and_their_results_have_their_types(self, tmp_path: Path, checker: str) -> None:
        lines = [
            f"    assert_type({waited}{use}, {kind}){refused}"
            for use, kinds in AWAITABLES.items()
            for waited, kind in zip(("", "await "), kinds, strict=True)
            for kind, refused in ((kind, ""), ("bytes", f"  {REFUSED}"))
        ]
        program = USE + "\n".join(lines) + "\n"
        wrong = {n for n, line in enumerate(program.splitlines(), 1) if line.endswith(REFUSED)}
        assert len(wrong) == 2 * len(AWAITABLES)
        assert CHECKERS[checker](tmp_path, program, PYTHONS[0]) == wrong

    @pytest.mark.parametrize("checker", CHECKERS)
    def test_each_line_that_the_page_calls_refused_is_refused(self, tmp_path: Path, checker: str) -> None:
        program = text(REFUSED)
        body = program.index("    stream")
        first = program[:body].count("\n") + 1
        lines = set(range(first, program.count("\n") + 1))
        assert CHECKERS[checker](tmp_path, program, PYTHONS[0]) == lines
        assert len(lines) == 3

    @pytest.mark.parametrize("case", [0, 1], ids=["ticket", "stream and event"])
    def test_dropped_awaitable_is_reported_as_on_the_page(self, tmp_path: Path, case: int) -> None:
        program = texts("python", "# reported")[case]
        settings = text("# reports", "toml")
        output = [block for block in consoles() if not block.startswith("$ ")]
        assert len(output) == len(texts("python", "# reported")) == 2
        errors = [line for line in mypy(tmp_path, program, settings).splitlines() if ": error: " in line]
        assert errors == output[case].splitlines()
        assert mypy(tmp_path, program) == ""  # strict mode, without the check for unused awaitables

    def test_each_way_on_the_page_to_satisfy_the_check_is_accepted(self, tmp_path: Path) -> None:
        reported, _ = texts("python", "# reported")
        checks = text("# reports", "toml")
        off = text("# accepts", "toml")
        accepted = texts("python", "# accepted")
        assert len(accepted) == 2
        for program, settings in [(reported, off), *((program, checks) for program in accepted)]:
            assert mypy(tmp_path, program, settings + "\n") == ""

    @pytest.mark.parametrize("checker", CHECKERS)
    def test_command_of_the_page_checks_the_program_of_the_page(self, tmp_path: Path, checker: str) -> None:
        pytest.importorskip(checker, reason=f"needs {checker}; install the extra `lint`")
        (command,) = [command for command in commands() if command[1:3] == ["-m", checker]]
        assert command[-1] == "job.py"
        program = text(PROGRAM)
        (tmp_path / "job.py").write_text(program)
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        (tmp_path / "job.py").write_text(program + "aioacl.open_device('zero')\n")
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 1, ran.stdout + ran.stderr

    @pytest.mark.parametrize("checker", CHECKERS)
    def test_program_of_the_page_is_accepted_in_strict_mode(self, tmp_path: Path, checker: str) -> None:
        program = text(PROGRAM)
        assert CHECKERS[checker](tmp_path, program, PYTHONS[0]) == set()


def test_type_checkers_can_find_the_installation_by_its_path() -> None:
    packages = Path(sysconfig.get_path("purelib"))
    lines = [line for file in packages.glob("*.pth") for line in file.read_text().splitlines()]
    paths = [str(packages), *(line for line in lines if not line.startswith(("import ", "#")))]
    found = PathFinder.find_spec("aioacl", paths)
    assert found is not None
    assert found.origin is not None
    assert (Path(found.origin).parent / "py.typed").exists()


@pytest.mark.process
@pytest.mark.packaging
def test_installation_command_of_the_page_installs_the_type_checkers() -> None:
    (command, editable) = [command for command in commands() if command[1:3] == ["-m", "pip"]]
    ran = finished([*command, "--dry-run", "--ignore-installed"])
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"^Would install .*\bmypy-.*\bpyright-", ran.stdout, flags=re.MULTILINE), ran.stdout
    options = (ROOT / "scripts" / "environment.sh").read_text()
    assert " ".join(editable[4:6]) in options  # ./test installs aioacl in the same way


def test_program_of_the_page_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = text(PROGRAM)
    (tmp_path / "job.py").write_text(program)
    runpy.run_path(str(tmp_path / "job.py"))
    assert capsys.readouterr().out == "hello\n"


def test_each_block_of_the_page_has_a_test() -> None:
    found = Counter(
        (block.language, "" if block.language == "console" else block.text.partition("\n")[0])
        for block in blocks(ROOT / "docs" / "typing.md")
    )
    assert found == BLOCKS, (
        "expected docs/typing.md to have the blocks in BLOCKS; add a test for each new block, and correct BLOCKS"
    )
