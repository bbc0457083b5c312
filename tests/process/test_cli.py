"""The commands other than demo, selftest and conformance, as processes: results, refusals and output."""

import ctypes
import io
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import build_ffi
from aioacl._cli._doctor_facts import Facts, look_at_library
from aioacl._cli._doctor_visible import meaning, mistakes
from aioacl._cli._screen import GREEN, Bar, Screen
from aioacl._cli.doctor import measure_waits, show_library
from aioacl._library.features import cost_of
from aioacl._library.load import LibraryInfo, MissingSymbol
from aioacl.simulator import library_path
from aioacl.simulator._releases import RELEASES
from tests import elf
from tests.support import forkserver
from tests.support.command import finished

WARNINGS_ARE_ERRORS = [sys.executable, "-X", "dev", "-W", "error"]
CANN_LIBRARIES_ARE_MISSING = """
import sys
from aioacl import simulator, use_library
from aioacl.__main__ import main
use_library("simulator")
simulator.fail_call("aclInit", 500000, -1)
simulator.fail_call("aclrtGetDeviceCount", 507000, -1)
sys.exit(main(["doctor", "--library", "simulator", *sys.argv[1:]]))
"""


def _environment(environ: dict[str, str]) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AIOACL_", "ASCEND_"))}
    return {**clean, **environ}


def run(*command: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Runs Python in a forked process."""
    return forkserver.run([*WARNINGS_ARE_ERRORS, *command], env=_environment(environ))


def run_in_new_process(*command: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Runs a new Python, for variables that Python reads at its start. Each command has at least one such test."""
    return finished([*WARNINGS_ARE_ERRORS, *command], env=_environment(environ), timeout=60)


def aioacl(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return run("-m", "aioacl", *arguments, **environ)


def aioacl_in_new_process(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return run_in_new_process("-m", "aioacl", *arguments, **environ)


def found(done: "subprocess.CompletedProcess[str]", status: int = 0) -> dict[str, Any]:
    assert done.returncode == status, done.stderr
    assert done.stderr == ""
    (line,) = done.stdout.splitlines()
    result: dict[str, Any] = json.loads(line)
    return result


class TestCommands:
    @pytest.mark.parametrize("arguments", [(), ("simulator",)])
    def test_missing_command_prints_the_help(self, arguments: tuple[str, ...]) -> None:
        done = aioacl_in_new_process(*arguments)
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.startswith("usage: aioacl")

    @pytest.mark.parametrize("command", ["demo", "doctor", "devices", "simulator"])
    def test_command_has_a_help_option(self, command: str) -> None:
        done = aioacl(command, "--help")
        assert done.returncode == 0
        assert done.stderr == ""

    def test_unknown_command_is_refused(self) -> None:
        assert aioacl("dance").returncode == 2

    def test_command_with_a_closed_output_pipe_prints_no_error(self) -> None:
        reading, writing = os.pipe()
        os.close(reading)
        with subprocess.Popen(
            [*WARNINGS_ARE_ERRORS, "-m", "aioacl", "doctor", "--library", "simulator"],
            stdout=writing,
            stderr=subprocess.PIPE,
        ) as process:
            os.close(writing)
            assert process.communicate(timeout=60)[1] == b""
        assert process.returncode == 141


class TestDoctor:
    def test_simulator_passes_and_is_reported_as_simulator(self) -> None:
        result = found(aioacl_in_new_process("doctor", "--library", "simulator", "--json"))
        assert result["ok"]
        assert result["library"]["backend"] == "simulator"
        assert result["library"]["path"] == str(library_path())
        assert result["library"]["missing"] == []
        assert result["runtime"]["devices"] == 2
        assert result["runtime"]["soc"].startswith("Ascend")
        assert result["runtime"]["version"]
        assert result["limits"].keys() >= {"open_files", "processes", "threads"}
        assert result["python"].keys() >= {"python", "cffi", "anyio"}

    def test_doctor_opens_no_device(self) -> None:
        program = """
from aioacl import simulator
from aioacl.__main__ import main
main(["doctor", "--library", "simulator", "--json"])
assert "aclrtSetDevice" not in [call["call"] for call in simulator.journal()]
assert simulator.stats().contexts == 0
"""
        found(run("-c", program))

    def test_file_that_is_not_a_library_is_listed_with_the_reason(self, tmp_path: Path) -> None:
        path = tmp_path / "libascendcl.so"
        path.write_bytes(b"INPUT(libacl_rt.so)")
        result = found(aioacl("doctor", "--json", AIOACL_LIBRARY=str(path)), status=1)
        assert not result["ok"]
        assert result["library"] is None
        assert result["candidates"] == [
            {"path": str(path), "reason": "it is not an ELF file (from AIOACL_LIBRARY)"}
        ]

    def test_all_places_of_the_search_are_reported(self) -> None:
        done = aioacl("doctor", ASCEND_HOME_PATH="/nowhere")
        assert done.returncode == 1
        assert done.stderr == ""
        for place in ("/nowhere/lib64/libascendcl.so", "/usr/local/Ascend/cann/lib64/libacl_rt.so"):
            assert place in done.stdout
        assert "source set_env.sh" in " ".join(done.stdout.split())

    @pytest.mark.parametrize("arguments", [(), ("--json",)])
    def test_missing_libraries_of_cann_are_recognised_by_their_error_codes(
        self, arguments: tuple[str, ...]
    ) -> None:
        done = run("-c", CANN_LIBRARIES_ARE_MISSING, *arguments)
        assert done.returncode == 1
        assert done.stderr == ""
        assert "source set_env.sh" in " ".join(done.stdout.split())

    def test_library_that_other_users_may_write_to_is_reported(self, tmp_path: Path) -> None:
        path = tmp_path / "libascendcl.so"
        path.write_bytes(library_path().read_bytes())
        (tmp_path / "libruntime.so").write_bytes(library_path().with_name("libruntime.so").read_bytes())
        path.chmod(0o664)
        result = found(aioacl("doctor", "--json", "--library", str(path)))
        assert any("may write to" in warning for warning in result["warnings"])

    def test_list_of_visible_devices_is_checked(self) -> None:
        result = found(
            aioacl("doctor", "--library", "simulator", "--json", ASCEND_RT_VISIBLE_DEVICES="1, 0,0,x")
        )
        report = " ".join(result["warnings"])
        for mistake in ("space", "ascend", "twice", "'x'"):
            assert mistake in report

    def test_output_without_json_is_a_plain_ascii_table(self) -> None:
        done = aioacl_in_new_process(
            "doctor", "--library", "simulator", PYTHONIOENCODING="ascii", PYTHONUTF8="0"
        )
        assert done.returncode == 0
        assert done.stdout.isascii()
        assert "simulator: no card is used" in done.stdout
        assert "\033" not in done.stdout

    def test_missing_function_is_listed_with_the_features_that_are_lost(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        facts = Facts()
        missing = (
            MissingSymbol("aclrtRegDeviceStateCallback", "8.5"),
            MissingSymbol("aclrtSetDevice", "8.1"),
        )
        look_at_library(facts, LibraryInfo("ascend", "/x/libascendcl.so", "argument", missing=missing))
        assert facts.library is not None
        for each in facts.library["missing"]:
            assert each["cost"] == cost_of(each["name"])
        assert len(facts.problems) == 1
        assert "aclrtSetDevice" in facts.problems[0]
        show_library(facts.library, Screen())
        report = capsys.readouterr().out
        assert "aclrtRegDeviceStateCallback (CANN 8.5)" in report
        assert "foreign resets" in report


ACL_MODULE = """
class rt:
    get_device_count = staticmethod(lambda: ({count}, {code}))
get_soc_name = lambda: "Ascend310P3"
"""


class TestWhatRayWouldSee:
    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        """A folder for a module `acl` that stands for CANN's."""
        (tmp_path / "acl").mkdir()
        return tmp_path

    def doctor(self, place: Path, program: str, **environ: str) -> Any:
        (place / "acl" / "__init__.py").write_text(program)
        done = aioacl_in_new_process(
            "doctor", "--library", "simulator", "--json", PYTHONPATH=str(place), **environ
        )
        return json.loads(done.stdout)["ray"]  # whatever the simulator makes of the variable

    def test_without_the_module_ray_counts_the_files_of_devices(self) -> None:
        done = aioacl_in_new_process("doctor", "--library", "simulator")
        assert "import acl         ModuleNotFoundError: No module named 'acl'\n" in done.stdout
        count = len(list(Path("/dev").glob("davinci[0-9]*")))
        assert f"NPU                {count}, by /dev/davinci*\n" in done.stdout

    @pytest.mark.parametrize(
        ("environ", "count", "counted_by"),
        [
            ({}, 4, "acl.rt.get_device_count()"),
            ({"ASCEND_RT_VISIBLE_DEVICES": "4,5,6,7"}, 4, "acl.rt.get_device_count()"),
            ({"ASCEND_RT_VISIBLE_DEVICES": "1"}, 1, "ASCEND_RT_VISIBLE_DEVICES"),
            ({"ASCEND_RT_VISIBLE_DEVICES": "NoDevFiles"}, 0, "ASCEND_RT_VISIBLE_DEVICES"),
        ],
    )
    def test_the_module_and_the_variable_decide_the_number(
        self, place: Path, environ: dict[str, str], count: int, counted_by: str
    ) -> None:
        assert self.doctor(place, ACL_MODULE.format(count=4, code=0), **environ) == {
            "acl": str(place / "acl" / "__init__.py"),
            "error": "",
            "npus": count,
            "counted_by": counted_by,
            "accelerator_type": "Ascend310P3" if count else None,
        }

    def test_module_of_aioacl_counts_simulated_devices(self) -> None:
        done = run_in_new_process("-m", "aioacl", "pyacl", "--path")
        environ = {"AIOACL_LIBRARY": "simulator", "PYTHONPATH": done.stdout.strip()}
        ray = found(aioacl_in_new_process("doctor", "--json", **environ))["ray"]
        assert (ray["npus"], ray["error"], ray["accelerator_type"][:6]) == (2, "", "Ascend")
        assert ray["acl"].startswith(environ["PYTHONPATH"])

    @pytest.mark.parametrize(
        ("program", "error"),
        [
            (ACL_MODULE.format(count=0, code=507008), "acl.rt.get_device_count() returned 507008"),
            ("raise ImportError('libascendcl.so: cannot open')", "ImportError: libascendcl.so: cannot open"),
            ("import os; os.abort()", "`import acl` ended the process with the status -6"),
        ],
    )
    def test_module_that_does_not_work_is_reported_with_the_reason(
        self, place: Path, program: str, error: str
    ) -> None:
        ray = self.doctor(place, program)
        assert (ray["error"], ray["counted_by"]) == (error, "/dev/davinci*")


INTERRUPTED_IN_C = """
import os, signal, sys, threading
from aioacl import simulator, use_library
from aioacl.__main__ import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # the test may run in the background, which ignores it
use_library("simulator")
simulator.hang_call("aclrtSynchronizeStreamWithTimeout")
def interrupt():
    while not simulator.hung("aclrtSynchronizeStreamWithTimeout"):
        pass
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
sys.exit(main(["doctor", "--timing", "--library", "simulator"]))
"""


class TestDoctorTiming:
    def test_json_has_each_step_with_its_figures_and_the_strategy_that_suits(self) -> None:
        result = found(aioacl_in_new_process("doctor", "--timing", "--library", "simulator", "--json"))
        timing = result["timing"]
        assert timing.keys() == {"device", "rows", "suits", "reason"}
        assert (timing["device"], len(timing["rows"])) == (0, 8)
        assert timing["suits"] in ("watch", "thread")
        assert timing["reason"]
        keys = {"step", "what", "unit", "median", "low", "high", "samples", "behaviour", "error"}
        for row in timing["rows"]:
            assert row.keys() == keys
            assert row["unit"] in ("us", "%")
            assert (row["error"] is None) == (row["median"] is not None) == (row["samples"] > 0)
            assert row["median"] is None or row["low"] <= row["median"] <= row["high"]
        assert "the figures are those of the simulator, not of a card" in result["warnings"]

    @pytest.mark.parametrize(("waits", "behaviour"), [("spin", "spins"), ("sleep", "sleeps")])
    def test_blocking_waits_are_not_reported_to_do_the_opposite(self, waits: str, behaviour: str) -> None:
        done = aioacl("doctor", "--timing", "--library", "simulator", "--json", AIOACL_SIM_WAIT=waits)
        timing = found(done)["timing"]
        shown = {row["behaviour"] for row in timing["rows"] if row["unit"] == "%"}
        assert shown <= {behaviour, None}  # on a busy machine, it may not be clear
        if waits == "spin":
            assert timing["suits"] == "watch"
            assert "spins" in timing["reason"]

    def test_table_has_a_line_for_each_step_and_the_advice(self) -> None:
        done = aioacl("doctor", "--timing", "--library", "simulator", "--device", "1")
        assert (done.returncode, done.stderr) == (0, "")
        assert "timing on device 1\n" in done.stdout
        for step in ("query of an event", "query of a stream", "record", "empty task", "wait for a stream"):
            assert re.search(rf"^  {step} +[\d.,]+ (us|%)", done.stdout, re.MULTILINE), done.stdout
        assert re.search(r'^waits="(watch|thread)" suits: ', done.stdout, re.MULTILINE)

    def test_step_that_fails_is_reported_and_the_exit_status_stays_0(self) -> None:
        faults = "aclrtSynchronizeEventWithTimeout:rc=507000:once"
        done = aioacl("doctor", "--timing", "--library", "simulator", AIOACL_SIM_FAULTS=faults)
        assert (done.returncode, done.stderr) == (0, "")
        assert "  wait for an event   error: aclrtSynchronizeEventWithTimeout returned 507000" in done.stdout
        assert 'waits="watch" suits: it is the default, and there is no figure' in done.stdout

    def test_device_that_cannot_be_opened_is_a_problem(self) -> None:
        done = aioacl(
            "doctor",
            "--timing",
            "--library",
            "simulator",
            "--json",
            AIOACL_SIM_FAULTS="aclrtSetDevice:rc=507899",
        )
        result = found(done, status=1)
        (problem,) = result["problems"]
        assert problem.startswith("device 0 could not be measured: open_device(0")
        assert all(row["error"] for row in result["timing"]["rows"])

    @pytest.mark.parametrize("device", ["2", "-1"])
    def test_device_that_does_not_exist_is_refused_in_one_line(self, device: str) -> None:
        done = aioacl("doctor", "--timing", "--library", "simulator", "--device", device)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"aioacl: there is no device {device}: the number of visible devices is 2\n"

    def test_device_without_timing_is_refused(self) -> None:
        done = aioacl("doctor", "--library", "simulator", "--device", "1")
        assert done.returncode == 2
        assert done.stderr.endswith("--device needs --timing\n")

    @pytest.mark.parametrize("devices", [0, None])
    def test_timing_without_a_device_measures_nothing(self, devices: int | None) -> None:
        facts = Facts(runtime={"devices": devices})
        measure_waits(facts, 0)
        assert facts.timing is None
        assert facts.problems == ["nothing was measured, because no device is visible"]

    def test_ctrl_c_ends_the_command_although_a_call_hangs_in_c(self) -> None:
        done = run("-c", INTERRUPTED_IN_C)
        assert done.returncode == 130
        assert done.stderr == "aioacl: interrupted\n"


class TestVisibleDevices:
    def test_visible_devices_are_numbered_from_0(self) -> None:
        meanings = meaning({"ASCEND_RT_VISIBLE_DEVICES": "4,6"})
        assert "device 0 is card 4, device 1 is card 6" in meanings["ASCEND_RT_VISIBLE_DEVICES"]
        assert mistakes({"ASCEND_RT_VISIBLE_DEVICES": "4,6"}, 2) == []

    def test_unset_variable_has_no_mistake(self) -> None:
        assert mistakes({}, 8) == []

    @pytest.mark.parametrize(
        ("value", "visible", "what"),
        [
            ("", None, "empty"),
            ("0, 1", None, "space"),
            ("0,a", None, "not the number"),
            ("0,-1", None, "not the number"),
            ("0,", None, "not the number"),
            ("0,²", None, "not the number"),
            ("1,0", None, "ascend"),
            ("0,0", None, "twice"),
            ("0,9", 1, "unknown card"),
        ],
    )
    def test_mistake_in_the_value_is_named(self, value: str, visible: int | None, what: str) -> None:
        assert any(what in mistake for mistake in mistakes({"ASCEND_RT_VISIBLE_DEVICES": value}, visible))

    def test_variable_of_the_container_runtime_is_reported_as_ignored(self) -> None:
        environ = {"ASCEND_VISIBLE_DEVICES": "3"}
        assert "container" in meaning(environ)["ASCEND_VISIBLE_DEVICES"]
        assert len(mistakes(environ, 1)) == 1


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class TestScreen:
    @pytest.fixture(autouse=True)
    def environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)

    def test_output_has_colours_only_on_a_terminal(self) -> None:
        assert Screen(Terminal()).paint("well", GREEN) == "\033[32mwell\033[0m"
        assert Screen(io.StringIO()).paint("well", GREEN) == "well"

    def test_no_color_turns_colours_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NO_COLOR", "1")
        assert Screen(Terminal()).paint("well", GREEN) == "well"

    def test_bar_without_a_terminal_is_not_drawn(self) -> None:
        nowhere = io.StringIO()
        with Bar(nowhere) as bar:
            bar.draw("moving", 1, 2)
        assert nowhere.getvalue() == ""


class TestDevices:
    def test_each_device_has_a_number_a_chip_and_a_status(self) -> None:
        result = found(
            aioacl_in_new_process("devices", "--library", "simulator", "--json", AIOACL_SIM_DEVICES="3")
        )
        assert [each["index"] for each in result["devices"]] == [0, 1, 2]
        assert {each["status"] for each in result["devices"]} == {"normal"}
        assert all(each["soc"] for each in result["devices"])

    def test_runtime_that_fails_to_count_devices_gives_one_line(self) -> None:
        program = """
import sys
from aioacl import simulator, use_library
from aioacl.__main__ import main
use_library("simulator")
simulator.fail_call("aclrtGetDeviceCount", 207004)
sys.exit(main(["devices", "--library", "simulator"]))
"""
        done = run("-c", program)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert "ASCEND_RT_VISIBLE_DEVICES" in line

    def test_missing_library_gives_a_line_that_names_doctor(self) -> None:
        done = aioacl("devices", ASCEND_HOME_PATH="/nowhere")
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert "doctor" in line


class TestSimulatorFolder:
    def test_second_call_returns_the_same_folder(self, tmp_path: Path) -> None:
        outputs = [
            aioacl_in_new_process("simulator", "dir", XDG_CACHE_HOME=str(tmp_path)).stdout for _ in range(2)
        ]
        assert outputs[0] == outputs[1]
        folder = Path(outputs[0].splitlines()[-1])
        assert folder.parent == tmp_path / "aioacl"
        assert (folder / "libascendcl.so").read_bytes() == library_path().read_bytes()
        assert not (folder / "libascendcl.so").is_symlink()
        assert folder.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH) == 0
        assert [path for path in folder.iterdir() if path.name.startswith(".")] == []

    def test_relative_cache_variable_is_replaced_by_the_home_folder(self, tmp_path: Path) -> None:
        done = aioacl("simulator", "dir", "--json", HOME=str(tmp_path), XDG_CACHE_HOME="relative")
        assert Path(found(done)["folder"]).parent == tmp_path / ".cache" / "aioacl"

    def test_program_can_load_the_simulator_under_the_names_of_cann(self, tmp_path: Path) -> None:
        result = found(aioacl("simulator", "dir", "--json", XDG_CACHE_HOME=str(tmp_path)))
        assert {"libacl_rt.so", "libacl_rt_impl.so"} <= {*result["links"]}
        program = """
import ctypes, sys
for name in sys.argv[1:]:
    count = ctypes.c_uint32()
    assert ctypes.CDLL(name).aclrtGetDeviceCount(ctypes.byref(count)) == 0
    assert count.value == 2
"""
        done = run_in_new_process("-c", program, *result["links"], LD_LIBRARY_PATH=result["folder"])
        assert (done.returncode, done.stderr) == (0, "")

    def test_lost_or_changed_file_is_replaced(self, tmp_path: Path) -> None:
        folder = Path(found(aioacl("simulator", "dir", "--json", XDG_CACHE_HOME=str(tmp_path)))["folder"])
        (folder / "libacl_rt.so").unlink()
        (folder / "libacl_mdl.so").unlink()
        (folder / "libacl_mdl.so").write_text("something else")
        (folder / "libascendcl.so").write_bytes(b"half")
        (folder / "libruntime.so").unlink()
        aioacl("simulator", "dir", XDG_CACHE_HOME=str(tmp_path))
        assert ctypes.CDLL(str(folder / "libacl_rt.so")).aclrtGetSocName() != 0
        assert (folder / "libacl_mdl.so").readlink() == Path("libascendcl.so")

    def test_folder_of_a_release_of_cann_lacks_later_functions(self, tmp_path: Path) -> None:
        known = build_ffi.exports()
        folders: set[str] = set()
        for cann in RELEASES:
            result = found(aioacl("simulator", "dir", "--json", "--cann", cann, XDG_CACHE_HOME=str(tmp_path)))
            there = elf.exports(Path(result["folder"], "libascendcl.so"))
            assert result["cann"] == cann
            assert sorted(known.keys() - there) == result["missing"]
            assert result["functions"] == len(known.keys() & there)
            folders.add(result["folder"])
            assert Path(result["folder"], "libruntime.so").exists() == (cann != "8.1")
        assert len(folders) == len(RELEASES)

    def test_unknown_release_of_cann_is_refused(self, tmp_path: Path) -> None:
        done = aioacl("simulator", "dir", "--cann", "7.0", XDG_CACHE_HOME=str(tmp_path))
        assert (done.returncode, done.stdout) == (2, "")
        assert "8.1" in done.stderr

    def test_processes_may_make_the_folder_at_the_same_time(self, tmp_path: Path) -> None:
        command = [*WARNINGS_ARE_ERRORS, "-m", "aioacl", "simulator", "dir"]
        environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
        processes = [forkserver.Forked(command, stdout=subprocess.PIPE, env=environ) for _ in range(4)]
        outputs = {process.communicate(timeout=60)[0] for process in processes}
        assert len(outputs) == 1
        assert all(process.returncode == 0 for process in processes)

    def test_folder_that_other_users_may_write_to_is_refused(self, tmp_path: Path) -> None:
        folder = Path(found(aioacl("simulator", "dir", "--json", XDG_CACHE_HOME=str(tmp_path)))["folder"])
        folder.chmod(0o777)
        done = aioacl("simulator", "dir", XDG_CACHE_HOME=str(tmp_path))
        assert done.returncode == 2
        assert done.stdout == ""
        assert "other users may write to it" in done.stderr

    def test_cache_that_is_not_a_folder_is_refused_in_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        done = aioacl("simulator", "dir", XDG_CACHE_HOME=str(tmp_path / "file"))
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
