"""`python -m aioacl report` on the simulator in six states: it ends, writes one archive or none, and leaves nothing.

A test with a number is the test of this promise of docs/contract.md.
"""

from __future__ import annotations

import errno
import getpass
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import zipfile
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import pytest

from aioacl import _digits
from aioacl._base.ffi import lib, text_of
from aioacl._cli import UserError
from aioacl._cli._report_archive import check_place, write
from aioacl._cli._report_process import MOST_BYTES, MOST_LINE, Ended, Objects, is_left, run
from aioacl._cli.report import Report
from aioacl.simulator import library_path
from tests.kit import until_now
from tests.support.command import finished

ARCHIVE = "aioacl-report.zip"
CANN = Path("/usr/local/Ascend")
VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"
COMMAND = [sys.executable, "-W", "error", "-m", "aioacl", "report"]
# SIGINT is ignored in background jobs of a shell.
INTERRUPTIBLE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from aioacl.__main__ import main
sys.exit(main())
"""
WITHOUT_SPACE = """
import errno, os, sys
from aioacl.__main__ import main
def fail(_descriptor):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
os.fsync = fail
sys.exit(main())
"""
SIGNALLED = """
import os, signal, sys
from aioacl.__main__ import main
signal.signal(signal.SIGINT, signal.default_int_handler)
write = os.fsync
def interrupt(descriptor):
    os.kill(os.getpid(), int(os.environ["SIGNAL"]))
    write(descriptor)
os.fsync = interrupt
sys.exit(main())
"""
WITHOUT_TEMPORARY_FILES = """
import resource, sys
from aioacl.__main__ import main
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # like a full disk
sys.exit(main())
"""
IN_REMOVED_FOLDER = """
import os, sys
from aioacl.__main__ import main
os.rmdir(os.getcwd())
sys.exit(main())
"""
WITH_INTERPRETER = """
import sys
from aioacl.__main__ import main
sys.executable = sys.argv.pop(1)
sys.exit(main())
"""
# An interpreter that removes itself when the first step starts. A guard starts without -P.
REMOVED = f"""#!/bin/sh
test "$1" != -P || rm "$0"
exec '{sys.executable}' "$@"
"""
# A step that does not end, and has a child that does not end either.
FAMILY = """
import json, signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print("text of a library ", json.dumps({"child": child.pid}), flush=True)
print("{", flush=True)
signal.pause()
"""
NOT_NAMED = ("summary.txt", "report.json")
LIMIT = "2"  # of steps that hang; steps that take longer on a busy machine count as hanging too
ENOUGH = "3600"  # of steps that end
HANG = "aclInit|aclrtGetDeviceCount:hang"
RESET_FAILS = "aclrtResetDeviceForce:rc=507018"


class Done(NamedTuple):
    """The end of a report."""

    status: int
    summary: str
    errors: str
    files: dict[str, str]

    @property
    def results(self) -> dict[str, str]:
        """The result of each step."""
        return {
            name.removesuffix(".json"): json.loads(text)["result"]
            for name, text in self.files.items()
            if name not in NOT_NAMED
        }

    def step(self, name: str) -> Any:
        return json.loads(self.files[f"{name}.json"])


def environment(environ: dict[str, str]) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AIOACL_", "ASCEND_"))}
    return {**clean, **environ}


def report(folder: Path, *arguments: str, **environ: str) -> Done:
    """Runs the command in the folder, which then has one more file."""
    before = set(folder.iterdir())
    done = finished([*COMMAND, *arguments], cwd=folder, env=environment(environ), timeout=3600)
    assert "Traceback" not in done.stderr, done.stderr
    assert set(folder.iterdir()) - before == {folder / ARCHIVE}, done.stderr
    with zipfile.ZipFile(folder / ARCHIVE) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    assert (folder / ARCHIVE).stat().st_mode & 0o777 == 0o600
    for name in files:
        assert f"  {name} " in done.stderr  # the list of files, before the archive was written
    assert files["summary.txt"] == done.stdout
    return Done(done.returncode, done.stdout, done.stderr, files)


# --- the six states ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_40_report_of_a_healthy_device_force_resets_nothing(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.touch()
    done = report(tmp_path, "--library", "simulator", "--limit", ENOUGH, AIOACL_SIM_TRACE=str(trace))
    assert done.summary.startswith("aioacl report: SIMULATOR, no card was used\n")
    assert done.status == 0, done.summary
    assert set(done.results.values()) == {"ok"}
    assert done.step("sequences")["as_recorded"] == done.step("sequences")["total"] > 50
    assert done.step("selftest")["broken"] == 0
    assert done.step("demo")["resets"] == 0
    calls = re.findall(r'"call":"(aclrtResetDeviceForce|aclrtSetDevice)"', trace.read_text())
    assert set(calls) == {"aclrtSetDevice"}  # nothing has force-reset the device


@pytest.mark.slow
def test_39_planted_values_are_not_in_the_archive(tmp_path: Path) -> None:
    place = tmp_path / "zaphod-models"
    place.mkdir()
    model, library = place / "zaphod.om", place / "libascendcl.so"
    model.write_bytes(_digits.MODEL.read_bytes())
    for name in ("libascendcl.so", "libruntime.so"):
        (place / name).write_bytes(library_path().with_name(name).read_bytes())
    planted = {
        "USER": "zaphod-user",
        "LOGNAME": "zaphod-user",
        "HOSTNAME": "zaphod-host",
        "ASCEND_HOME_PATH": str(place),
        "ASCEND_PROCESS_LOG_PATH": "/zaphod/log",
        "SECRET_TOKEN": "zaphod-token",
        "AIOACL_SIM_FAULTS": "aclmdlExecuteAsync:rc=507018",
    }
    done = report(
        tmp_path, "--library", str(library), "--model", str(model), "--limit", ENOUGH, "--reset", **planted
    )
    assert done.step("model")["code"] == 507018
    assert done.status == 1
    text = done.summary + "".join(done.files) + "".join(done.files.values())
    assert "zaphod" not in text
    for value in (str(tmp_path), str(Path.home()), str(Path.cwd()), sys.executable, socket.gethostname()):
        assert value not in text
    assert not re.search(rf"\b{re.escape(getpass.getuser())}\b", text)
    assert not re.search(r"0x[0-9a-f]{4,}", text)


@pytest.mark.slow
def test_38_device_that_hangs_is_reported_within_the_limits(tmp_path: Path) -> None:
    done = report(tmp_path, "--library", "simulator", "--limit", LIMIT, AIOACL_SIM_FAULTS=HANG)
    assert done.summary.startswith("aioacl report: SIMULATOR, no card was used\n")
    assert done.status == 1
    assert done.results["doctor"] == done.results["demo"] == done.results["device-after"] == "hang"
    assert f"killed after {LIMIT} s" in done.summary
    assert not processes_in(tmp_path)


@pytest.mark.slow
def test_reset_that_fails_is_reported(tmp_path: Path) -> None:
    done = report(
        tmp_path, "--library", "simulator", "--reset", "--limit", ENOUGH, AIOACL_SIM_FAULTS=RESET_FAILS
    )
    assert done.status == 1
    assert "with resets of the device" in done.summary
    assert done.results["selftest"] == done.results["demo"] == "problem"
    assert done.results["doctor"] == done.results["sequences"] == done.results["device-after"] == "ok"
    broken = [each for each in done.step("selftest")["checks"] if each["verdict"] == "broken"]
    assert all("aclrtResetDeviceForce returned 507018" in each["evidence"] for each in broken)
    assert done.step("demo")["resets"] == 0
    assert "aclrtResetDeviceForce" in done.step("demo")["evidence"]


def test_missing_library_is_reported(tmp_path: Path) -> None:
    done = report(tmp_path, AIOACL_LIBRARY="/nowhere/libascendcl.so")
    assert done.summary.startswith("aioacl report: no ACL library was found\n")
    assert done.status == 1
    assert done.results.pop("doctor") == "problem"
    assert {result for name, result in done.results.items() if name != "doctor"} == {"not run"}
    assert "no library in 1 place\n" in done.summary
    assert "'/nowhere/libascendcl.so': no such file (from AIOACL_LIBRARY)" in done.errors
    assert "Unset AIOACL_LIBRARY" in done.errors
    assert "Remove it, and start the report again" in done.errors
    assert not any("nowhere" in text for text in done.files.values())


@pytest.mark.skipif(CANN.exists(), reason="the report would use this machine's card")
def test_41_simulator_that_was_not_selected_is_not_used(tmp_path: Path) -> None:
    place = str(library_path().parent)
    done = report(tmp_path, LD_LIBRARY_PATH=place, ASCEND_TOOLKIT_HOME=str(Path(place).parent))
    assert done.summary.startswith("aioacl report: no ACL library was found\n")
    assert done.step("doctor")["places_tried"] > 0
    assert done.step("demo")["result"] == "not run"


@pytest.mark.parametrize(
    ("value", "visible"),
    [(None, "0"), ("4,5", "4"), ("4,x", "4"), ("", ""), ("x", "x"), ("-1", "-1"), (" 4", " 4")],
)
def test_41_report_uses_no_card_that_the_variable_hides(
    monkeypatch: pytest.MonkeyPatch, value: str | None, visible: str
) -> None:
    if value is None:
        monkeypatch.delenv(VISIBLE, raising=False)
    else:
        monkeypatch.setenv(VISIBLE, value)
    made = Report(library="/cann/libascendcl.so", model=None, reset=False, limit=None, backend="ascend")
    assert made.environ("demo")[VISIBLE] == visible
    assert made.environ("doctor").get(VISIBLE) == value
    made.backend = "simulator"  # the variable is about the cards of the machine
    assert made.environ("demo")[VISIBLE] == "0"
    assert VISIBLE not in made.environ("doctor")


@pytest.mark.slow
def test_library_without_half_of_its_functions_is_reported(tmp_path: Path) -> None:
    place = tmp_path / "half"
    place.mkdir()
    lost = half_of_the_functions()
    content = library_path().read_bytes()
    for (
        name
    ) in lost:  # the dynamic linker does not find the new name, because its hash is that of the old one
        content = content.replace(f"\0{name}\0".encode(), f"\0x{name[1:]}\0".encode())
    (place / "libascendcl.so").write_bytes(content)
    (place / "libruntime.so").write_bytes(library_path().with_name("libruntime.so").read_bytes())
    done = report(tmp_path, "--library", str(place / "libascendcl.so"), "--limit", ENOUGH)
    assert done.summary.startswith("aioacl report: SIMULATOR, no card was used\n")
    assert done.status == 1
    assert set(lost) <= set(done.step("doctor")["missing"])
    assert done.step("doctor")["result"] == "problem"
    assert done.step("sequences")["lack_a_function"] > 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_report_that_is_killed_leaves_no_archive_and_no_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    command = [sys.executable, "-c", INTERRUPTIBLE, "report", "--library", "simulator", "--limit", ENOUGH]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment({"AIOACL_SIM_FAULTS": HANG}), stderr=subprocess.PIPE, text=True
    ) as process:
        assert until_now(lambda: len(children_of(process.pid)) == 2)  # the guard and the step, which hangs
        descriptors = [os.pidfd_open(child) for child in children_of(process.pid)]
        process.send_signal(number)
        errors = process.communicate()[1]
        for descriptor in descriptors:
            assert select.select([descriptor], [], [], 60)[0]  # the child has ended
            os.close(descriptor)
    assert process.returncode == (-9 if number == signal.SIGKILL else 130)
    assert list(tmp_path.iterdir()) == []
    if number == signal.SIGINT:
        assert errors.splitlines()[-2:] == [
            "aioacl: interrupted in the step doctor: its processes were killed; no archive was written",
            "aioacl: interrupted",
        ]


def half_of_the_functions() -> list[str]:
    """Returns every second function. Functions that the simulator itself calls by their names are left out."""
    names = sorted(text_of(lib.aio_table_name(index)) for index in range(lib.aio_table_size()))
    libraries = (library_path(), library_path().with_name("libruntime.so"))
    command = ["readelf", "--wide", "--relocs", *map(str, libraries)]
    called = {*re.findall(r"acl\w+", finished(command, check=True).stdout)} | {"aclrtGetDeviceCount"}
    return [name for name in names if name not in called][::2]


# --- one step ----------------------------------------------------------------------------------------------------


def played(program: str, limit: float = 60.0) -> tuple[Ended, list[list[dict[str, Any]]]]:
    seen: list[list[dict[str, Any]]] = []
    return run([sys.executable, "-c", program], os.environ, limit, seen.append), seen


def test_38_step_that_does_not_end_is_killed_with_its_children() -> None:
    limit = 1.0
    ended, _ = played(FAMILY, limit)
    while not ended.lines:  # on a busy machine, Python may take longer to start
        limit *= 2
        ended, _ = played(FAMILY, limit)
    assert (ended.status, ended.left) == (None, False)
    (line,) = ended.lines
    assert not runs(line["child"])


def test_38_step_that_ends_leaves_no_child() -> None:
    ended, _ = played(FAMILY.replace("signal.pause()\n", "sys.exit(3)\n"))
    assert ended.status == 3
    (line,) = ended.lines
    assert not runs(line["child"])


def test_38_child_of_a_step_that_does_not_end_is_noticed() -> None:
    """The group has a process that was not killed, which stands for one that the driver holds."""
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, process_group=0) as child:
        assert child.stdout
        child.stdout.readline()
        assert is_left(child.pid, 0.0)
        child.kill()
        descriptor = os.pidfd_open(child.pid)
        assert select.select([descriptor], [], [], 60)[0]
        os.close(descriptor)
        assert not is_left(child.pid, 0.0)  # it has ended, although its status was not read


def test_step_that_crashes_keeps_its_results() -> None:
    ended, _ = played("import os; print('{\"id\": 1}', flush=True); os.write(2, b'aclInit'); os.abort()")
    assert (ended.status, ended.lines, ended.errors) == (-signal.SIGABRT, [{"id": 1}], "aclInit")


def test_step_that_cannot_be_run_is_a_result() -> None:
    ended = run(["/nowhere/python"], os.environ, 60.0, lambda _: None)
    assert isinstance(ended.error, FileNotFoundError)
    assert (ended.lines, ended.left) == ([], False)


def test_interpreter_that_is_removed_is_a_problem_of_the_later_steps(tmp_path: Path) -> None:
    interpreter = tmp_path / "python"
    interpreter.write_text(REMOVED)
    interpreter.chmod(0o700)
    command = [sys.executable, "-c", WITH_INTERPRETER, str(interpreter), "report", "--library", "simulator"]
    done = finished(command, cwd=tmp_path, env=environment({}))
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "the step demo could not be run: [Errno 2] No such file or directory" in done.stderr
    rows = done.stdout.splitlines()[4:]
    assert rows[0].split()[:2] == ["doctor", "ok"]
    assert all(row.endswith(" s  could not be run: ENOENT") for row in rows[1:])
    assert len(rows) == 7
    with zipfile.ZipFile(tmp_path / ARCHIVE) as archive:
        texts = [archive.read(name).decode() for name in archive.namelist()]
    assert json.loads(texts[-1])["result"] == "problem"
    assert not any(str(tmp_path) in text for text in texts)


def test_output_that_is_nested_too_deeply_is_left_out() -> None:
    ended, _ = played("print('{\"a\":' * 200_000); print('{\"id\": 1}')")
    assert (ended.status, ended.lines) == (0, [{"id": 1}])


def test_object_after_a_library_text_with_a_brace_is_read() -> None:
    ended, _ = played("print('[INFO] {device 0} ', end=''); print('{\"id\": 1}')")
    assert ended.lines == [{"id": 1}]


def test_objects_before_and_after_megabytes_of_log_are_read() -> None:
    """Some settings let the runtime write its log to stdout, before and between the objects."""
    with TemporaryFile() as file:
        file.write(b'{"id": 1}\n' + b"[INFO] 1\n" * (3 * MOST_BYTES // 9) + b'{"id": 2}\n')
        file.flush()
        assert Objects(file).all() == [{"id": 1}, {"id": 2}]


def test_object_that_is_written_in_two_parts_is_read_once() -> None:
    program = """
import sys
print('{"id": 1}\\n{"id"', end="", flush=True)
sys.stdin.read()
print(': 2}')
"""
    with TemporaryFile() as file:
        reader = Objects(file)
        with subprocess.Popen([sys.executable, "-c", program], stdin=PIPE, stdout=file) as process:
            assert process.stdin
            assert until_now(lambda: reader.look() == [{"id": 1}])
            process.stdin.close()
        assert reader.look() == [{"id": 1}, {"id": 2}]
        assert reader.all() == [{"id": 1}, {"id": 2}]


def test_look_at_a_long_output_reads_a_part() -> None:
    """A step is killed at its limit, so the look between two waits must be short."""
    with TemporaryFile() as file:
        file.write(b"[INFO] 1\n" * 1_000_000 + b'{"id": 1}\n')
        file.flush()
        reader = Objects(file)
        assert reader.look() == []
        assert reader.all() == [{"id": 1}]


def test_output_without_a_line_end_takes_limited_memory() -> None:
    with TemporaryFile() as file:
        file.truncate(MOST_BYTES)
        reader = Objects(file)
        while reader.offset < MOST_BYTES:
            assert reader.look() == []
            assert len(reader.rest) <= MOST_LINE


# --- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--output", "there/x.zip"), "expected a folder that can be written to"),
        (("--output", "/proc/x.zip"), "expected a folder that can be written to"),
        (("--output", "."), "exists; move it away"),
        (("--output", "a" * 256), "File name too long"),
        (("--output", "/dev/null/x.zip"), "Not a directory"),
        (("--model", "missing.om"), "missing.om: No such file"),
        (("--model", "/dev/null"), "/dev/null: expected a file"),
        (("--model", "."), ".: expected a file"),
        (("--limit", "0"), "expected a number of seconds"),
    ],
)
def test_mistake_is_refused_before_the_first_step(
    tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    done = finished([*COMMAND, *arguments], cwd=tmp_path, env=environment({}))
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr
    assert "step 1" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_current_folder_that_was_removed_is_refused_before_the_first_step(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    command = [sys.executable, "-c", IN_REMOVED_FOLDER, "report"]
    done = finished(command, cwd=folder, env=environment({"AIOACL_LIBRARY": "/nowhere/x.so"}))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "aioacl: the current folder was removed; change to another folder, or give --output a whole path\n"
    )


def test_full_disk_is_refused_before_the_first_step(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_TEMPORARY_FILES, "report"]
    done = finished(command, cwd=tmp_path, env=environment({"AIOACL_LIBRARY": "/nowhere/x.so"}))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "aioacl: no folder can take temporary files; free some space, or set TMPDIR\n"


def test_json_is_one_object(tmp_path: Path) -> None:
    done = finished([*COMMAND, "--json"], cwd=tmp_path, env=environment({"AIOACL_LIBRARY": "/nowhere/x.so"}))
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert found["archive"] == str(tmp_path / ARCHIVE)
    assert (found["backend"], found["reset"], found["model"]) == (None, False, False)
    assert found["steps"]["doctor"]["result"] == "problem"


@pytest.mark.parametrize(
    ("arguments", "library", "status"), [((), "pipe", 1), (("--model", "pipe"), "/nowhere/x.so", 2)]
)
def test_38_named_pipe_that_no_process_writes_to_does_not_hang_the_report(
    tmp_path: Path, arguments: tuple[str, ...], library: str, status: int
) -> None:
    os.mkfifo(tmp_path / "pipe")
    place = str(tmp_path / library)
    command = [*COMMAND, "--limit", "10", *arguments]
    done = finished(command, cwd=tmp_path, env=environment({"AIOACL_LIBRARY": place}), timeout=600)
    assert done.returncode == status, done.stderr


def test_archive_that_cannot_be_written_does_not_lose_the_summary(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_SPACE, "report"]
    done = finished(command, cwd=tmp_path, env=environment({"AIOACL_LIBRARY": "/nowhere/x.so"}))
    assert done.returncode == 2
    assert done.stdout.startswith("aioacl report: no ACL library was found\n")
    assert f"{tmp_path / ARCHIVE}: No space left on device" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_archive_that_cannot_be_written_does_not_lose_the_results_as_json(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_SPACE, "report", "--json"]
    done = finished(command, cwd=tmp_path, env=environment({"AIOACL_LIBRARY": "/nowhere/x.so"}))
    assert done.returncode == 2
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert found["error"] == f"{tmp_path / ARCHIVE}: No space left on device"
    assert found["archive"] is None
    assert found["steps"]["doctor"]["places_tried"] == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)])
def test_signal_during_the_write_leaves_a_complete_archive(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    environ = environment({"AIOACL_LIBRARY": "/nowhere/x.so", "SIGNAL": str(int(number))})
    done = finished([sys.executable, "-c", SIGNALLED, "report"], cwd=tmp_path, env=environ)
    assert done.returncode == status, done.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / ARCHIVE]
    with zipfile.ZipFile(tmp_path / ARCHIVE) as archive:
        assert archive.testzip() is None


@pytest.mark.parametrize("name", ["archive.zip", "a" * 255])
def test_archive_can_have_any_name_of_the_file_system(tmp_path: Path, name: str) -> None:
    done = finished(
        [*COMMAND, "--output", name], cwd=tmp_path, env=environment({"AIOACL_LIBRARY": "/nowhere/x.so"})
    )
    assert [each.name for each in tmp_path.iterdir()] == [name], done.stderr


def test_archive_of_another_report_is_not_replaced(tmp_path: Path) -> None:
    place = tmp_path / ARCHIVE
    check_place(place)  # before the first step
    place.write_bytes(b"the archive of another report")
    with pytest.raises(UserError, match="exists; move it away"):
        write(place, {"summary.txt": b"text"})
    assert place.read_bytes() == b"the archive of another report"
    assert [*tmp_path.iterdir()] == [place]


def test_archive_is_written_to_a_file_system_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    place = tmp_path / ARCHIVE
    write(place, {"summary.txt": b"text"})
    assert [*tmp_path.iterdir()] == [place]
    with pytest.raises(UserError, match="exists; move it away"):
        write(place, {})


def test_files_of_the_current_folder_are_not_imported(tmp_path: Path) -> None:
    """The script `aioacl` does not search the current folder, so its steps must not search it either."""
    for name in ("aioacl", "anyio", "cffi"):
        (tmp_path / f"{name}.py").write_text(
            "raise SystemExit('a file of the current folder was imported')\n"
        )
    command = [sys.executable, "-P", "-m", "aioacl", "report", "--json"]
    done = finished(command, cwd=tmp_path, env=environment({"AIOACL_LIBRARY": "/nowhere/x.so"}))
    found = json.loads(done.stdout)
    assert found["steps"]["doctor"]["places_tried"] == 1, done.stderr


# --- helpers -----------------------------------------------------------------------------------------------------


def runs(process: int) -> bool:
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return False
    ended, _, _ = select.select([descriptor], [], [], 0)
    os.close(descriptor)
    return not ended


def children_of(process: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def processes_in(folder: Path) -> list[str]:
    """Returns the processes whose working folder is this one."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                place = str((entry / "cwd").readlink())
            except OSError:
                continue
            found += [entry.name] if place == str(folder) else []
    return found
