"""`python -m aioacl trace --from FILE`: the records of a file in words and as JSON, and what it refuses."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from aioacl._base.flight_ring import HEADER_BYTES
from tests.process.child import Child
from tests.process.test_recorder import CRASH, WORKS, variable
from tests.support.command import finished
from tests.unit.test_trace import Decoded

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = [sys.executable, "-W", "error", "-m", "aioacl", "trace"]


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a process that a SIGSEGV has killed."""
    path = tmp_path_factory.mktemp("crashed") / "flight"
    with Child(WORKS + CRASH, more=variable(path)) as child:
        child.end()
    return path


def test_trace_shows_the_records_of_a_crashed_process_in_words(crashed: Path) -> None:
    done = finished([*COMMAND, "--from", str(crashed), "--last", "0"])
    first, *lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert first.startswith("process ")
    assert first.endswith(f": {len(lines)} records; 0 older ones are overwritten, 0 are missing")
    assert any("state: OPEN, generation 1" in line for line in lines)
    assert any("enqueue: aclrtMemsetAsync on stream 1, position 1" in line for line in lines)


def test_trace_shows_only_the_last_records_and_those_of_a_device(crashed: Path) -> None:
    whole = finished([*COMMAND, "--from", str(crashed), "--last", "0"]).stdout.splitlines()
    assert finished([*COMMAND, "--from", str(crashed), "--last", "2"]).stdout.splitlines()[1:] == whole[-2:]
    none = finished([*COMMAND, "--from", str(crashed), "--device", "7"])
    assert (none.returncode, none.stdout.splitlines()[1:]) == (0, [])


def test_trace_prints_one_object_as_json(crashed: Path) -> None:
    found = json.loads(finished([*COMMAND, "--from", str(crashed), "--json", "--last", "1"]).stdout)
    [record] = found.pop("records")
    assert record.keys() == {"number", "at", "kind", "device", "id", "code", "value", "thread"}
    assert found["written"] == record["number"] + 1
    assert (found["overwritten"], found["missing"], found["dropped"]) == (0, 0, 0)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("absent", None, "No such file or directory; pass the file that AIOACL_RECORDER named"),
        ("text", b"text\n" * HEADER_BYTES, "expected a file that AIOACL_RECORDER has named, got"),
    ],
)
def test_trace_of_another_file_is_refused_with_its_cure(
    tmp_path: Path, name: str, content: bytes | None, complaint: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    done = finished([*COMMAND, "--from", str(path)])
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr


def test_negative_number_of_records_is_refused(crashed: Path) -> None:
    done = finished([*COMMAND, "--from", str(crashed), "--last", "-1"])
    assert done.returncode == 2
    assert "--last must be 0 or more, got -1; pass 0 for all records" in done.stderr


def test_trace_and_page_of_a_crashed_process_are_written(crashed: Path, tmp_path: Path) -> None:
    output, html = tmp_path / "run.pftrace", tmp_path / "run.html"
    done = finished([*COMMAND, "--from", str(crashed), "--output", str(output), "--html", str(html)])
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1)
    found = Decoded(output.read_bytes())
    assert found.named("OPEN")
    assert any(event.name == "aclrtMemsetAsync" for event in found.events)
    assert html.read_text().startswith("<!doctype html>")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["run.html", "run.pftrace"]


@pytest.mark.parametrize("option", ["--output", "--html"])
def test_file_of_the_recorder_is_not_replaced(option: str, crashed: Path) -> None:
    before = crashed.read_bytes()
    done = finished([*COMMAND, "--from", str(crashed), option, str(crashed)])
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{option} must be another file than --from, got {crashed} for both" in done.stderr
    assert crashed.read_bytes() == before


def test_same_file_for_trace_and_page_is_refused(crashed: Path, tmp_path: Path) -> None:
    output = str(tmp_path / "run")
    done = finished([*COMMAND, "--from", str(crashed), "--output", output, "--html", output])
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--html must be another file than --output, got {output} for both" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_trace_in_a_missing_folder_is_refused(crashed: Path, tmp_path: Path) -> None:
    output = tmp_path / "absent" / "run.pftrace"
    done = finished([*COMMAND, "--from", str(crashed), "--output", str(output)])
    assert done.returncode == 2
    assert f"{output}: No such file or directory; choose another file" in done.stderr
