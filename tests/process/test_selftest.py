"""`python -m aioacl selftest`: all assumptions hold on the simulator, and wrong results of a library are found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioacl import _digits
from aioacl._base.ffi import lib, text_of
from aioacl._selftest.__main__ import Order, cannot
from aioacl._selftest._bench import MAKERS
from aioacl._selftest._records import Needs
from aioacl._selftest._table import ASSUMPTIONS, FAMILIES
from aioacl.simulator import library_path
from tests.support import forkserver
from tests.support.command import finished

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).with_name("wrong_results.c")
LIMIT = "20"
SHORT_LIMIT = "6"  # for calls that do not return: selftest waits half of this time for such a call


# Runs the command in a forked process. Its children are also forked.
FORKING = """
import subprocess, sys
from aioacl.__main__ import main
from tests.support import forkserver
address = sys.argv.pop(1)
for flags in ((), ("-P",)):
    forkserver.use(flags, forkserver.PLAIN, address)
subprocess.Popen = forkserver.Forked
sys.exit(main())
"""


def selftest_in_new_process(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in a new Python process, whose children are new Python processes too."""
    return finished(
        [sys.executable, "-W", "error", "-m", "aioacl", "selftest", *arguments],
        env=_environment(environ),
        timeout=300,
    )


def selftest(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs the command and its children as forked processes."""
    address = forkserver.server((), forkserver.PLAIN).address
    command = [sys.executable, "-W", "error", "-c", FORKING, address, "selftest", *arguments]
    return forkserver.run(command, env=_environment(environ), timeout=300)


def _environment(environ: dict[str, str]) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AIOACL_", "ASCEND_"))}
    return {**clean, **environ}


def tried(*arguments: str, status: int, limit: str = LIMIT, **environ: str) -> dict[str, Any]:
    """Runs `selftest --json`, and returns its parsed output. The command must end with this status."""
    return _parsed(selftest(*arguments, "--limit", limit, "--json", **environ), status)


def tried_in_new_process(*arguments: str, status: int, **environ: str) -> dict[str, Any]:
    """Does the same as `tried`, but in a new Python process."""
    return _parsed(selftest_in_new_process(*arguments, "--limit", LIMIT, "--json", **environ), status)


def _parsed(done: subprocess.CompletedProcess[str], status: int) -> dict[str, Any]:
    (line,) = done.stdout.splitlines()
    result: dict[str, Any] = json.loads(line)
    assert done.returncode == status, (broken(result), done.stderr)
    return result


def broken(result: dict[str, Any]) -> dict[str, str]:
    return {each["id"]: each["detail"] for each in result["assumptions"] if each["verdict"] == "broken"}


@pytest.fixture(scope="module")
def wrong_library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Returns a function that builds a library with one wrong result."""
    simulator = library_path()
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    folder = tmp_path_factory.mktemp("wrong_libraries")

    def build(result_name: str) -> str:
        target = folder / f"{result_name.lower()}.so"
        command = [compiler, "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        command += [
            f"-D{result_name}",
            f'-DACTUAL="{simulator}"',
            f"-I{ROOT / 'aioacl' / '_native'}",
            str(SOURCE),
        ]
        command += [
            "-o",
            str(target),
            "-Wl,--no-as-needed",
            str(simulator),
            f"-Wl,-rpath,{simulator.parent}",
            "-ldl",
        ]
        subprocess.run(command, check=True)
        return str(target)

    return build


class TestTheTable:
    def test_ids_are_unique_and_readable(self) -> None:
        members = [each for family in FAMILIES for each in family.members]
        assert len(members) == len(ASSUMPTIONS) > 100
        assert all(each.id == each.id.lower() and each.says.endswith(".") for each in members)

    def test_assumption_names_functions_of_the_table(self) -> None:
        known = {text_of(lib.aio_table_name(index)) for index in range(lib.aio_table_size())}
        for assumption in ASSUMPTIONS.values():
            assert set(assumption.calls) <= known, assumption.id

    def test_assumption_names_modules_that_exist(self) -> None:
        for assumption in ASSUMPTIONS.values():
            for module in assumption.used_by:
                path = ROOT / "aioacl" / module
                assert path.exists() or path.with_suffix(".py").exists(), f"{assumption.id}: {module}"

    def test_check_has_parameters_that_the_bench_makes(self) -> None:
        for assumption in ASSUMPTIONS.values():
            types = {each for name, each in assumption.check.__annotations__.items() if name != "return"}
            assert types <= MAKERS.keys(), assumption.id

    def test_python_without_docstrings_says_why_the_sentence_is_missing(self) -> None:
        program = "from aioacl._selftest._table import ASSUMPTIONS as a; print(a['waits.zero'].says)"
        done = finished([sys.executable, "-OO", "-c", program], check=True)
        assert done.stdout == "The sentence is missing, because `python -OO` removes docstrings.\n"

    def test_assumption_that_calls_a_reset_needs_permission(self) -> None:
        for assumption in ASSUMPTIONS.values():
            if any(name.startswith("aclrtResetDevice") for name in assumption.calls):
                assert Needs.RESET in assumption.needs, assumption.id


class TestModels:
    """The checks of offline models, which need a model."""

    OF_MODELS = tuple(each for each in ASSUMPTIONS.values() if Needs.OM_FILE in each.needs)

    def order(self, model: str | None) -> Order:
        return Order(None, 0, (), 1.0, model)

    def test_card_without_a_model_is_not_testable(self) -> None:
        assert len(self.OF_MODELS) > 10
        for each in self.OF_MODELS:
            assert "pass --model FILE.om" in cannot(each, self.order(None), simulated=False)

    def test_card_with_a_model_is_testable_unless_a_task_must_fail(self) -> None:
        testable = {
            each.id for each in self.OF_MODELS if not cannot(each, self.order("m.om"), simulated=False)
        }
        assert testable == {each.id for each in self.OF_MODELS if Needs.FAULTS not in each.needs}

    def test_simulator_without_onnxruntime_is_not_testable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        monkeypatch.delenv("AIOACL_SIM_ONNXRUNTIME", raising=False)
        for model in (None, "m.om"):
            reason = cannot(self.OF_MODELS[0], self.order(model), simulated=True)
            assert reason == "the package onnxruntime is not installed: pip install 'aioacl[onnx]'"

    def test_assumptions_hold_for_a_given_model_with_gears(self) -> None:
        families = ("--family", "models", "--family", "model-resets", "--reset")
        result = tried("--library", "simulator", *families, "--model", str(_digits.BATCH_MODEL), status=0)
        assert broken(result) == {}
        assert result["held"] == len(self.OF_MODELS)

    def test_gears_of_a_model_without_gears_are_not_testable(self) -> None:
        result = tried(
            "--library", "simulator", "--family", "models", "--model", str(_digits.MODEL), status=0
        )
        left = {each["id"]: each["detail"] for each in result["assumptions"] if each["verdict"] != "held"}
        assert left == {"models.gears": "the model of --model has no batch sizes"}

    def test_missing_model_is_refused_in_one_line(self) -> None:
        done = selftest("--library", "simulator", "--model", "/nowhere/model.om")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "aioacl: /nowhere/model.om: No such file or directory\n"

    def test_file_that_is_no_model_breaks_the_checks(self) -> None:
        result = tried("--library", "simulator", "--family", "models", "--model", __file__, status=1)
        assert len(broken(result)) == len(result["assumptions"])
        assert all("aclmdlQuerySize" in detail for detail in broken(result).values())


class TestTheSimulator:
    @pytest.mark.slow
    @pytest.mark.parametrize(("wait", "reset"), [("sleep", False), ("sleep", True), ("spin", True)])
    def test_all_assumptions_hold(self, wait: str, reset: bool) -> None:
        arguments = ["--reset"] if reset else []
        start = tried_in_new_process if (wait, reset) == ("sleep", True) else tried
        result = start("--library", "simulator", *arguments, status=0, AIOACL_SIM_WAIT=wait)
        assert broken(result) == {}
        assert result["held"] + result["not_testable"] == len(ASSUMPTIONS)
        left = {each["id"] for each in result["assumptions"] if each["verdict"] == "not_testable"}
        assert left == {each.id for each in ASSUMPTIONS.values() if Needs.RESET in each.needs and not reset}
        assert (result["backend"], result["device"]) == ("simulator", 0)

    def test_functions_that_a_release_lacks_are_not_testable(self) -> None:
        path = str(library_path("8.1"))
        result = tried_in_new_process(
            "--library", path, "--family", "hostfuncs", "--family", "waits", status=0
        )
        verdicts = {each["id"]: each["verdict"] for each in result["assumptions"]}
        assert {name for name, verdict in verdicts.items() if verdict != "held"} == {
            "hostfuncs.order",
            "hostfuncs.elsewhere",
            "hostfuncs.blocks",
        }
        assert result["not_testable"] == 3

    def test_selftest_runs_on_another_device(self) -> None:
        result = tried("--library", "simulator", "--device", "1", "--family", "streams", status=0)
        assert (result["device"], result["broken"]) == (1, 0)
        assert result["held"] == len(result["assumptions"])

    def test_checks_without_permission_make_no_reset(self) -> None:
        program = """
import sys
from aioacl import simulator, use_library
from aioacl._selftest._bench import Bench
from aioacl._selftest._threads import Helper
from aioacl import _digits
from aioacl._selftest.__main__ import Order, cannot
from aioacl._selftest._records import Needs
from aioacl._selftest._table import ASSUMPTIONS

use_library("simulator")

def attempt(assumption):
    bench = Bench(0, simulated=True)
    if not assumption.alone:
        bench.set_device()
    bench.run(assumption.check)
    bench.close()

WRONG_CONTEXTS = {"aborts.context", "contexts.foreign-work", "contexts.foreign-destroy"}  # these misuse ACL

for assumption in ASSUMPTIONS.values():
    if not (assumption.needs - {Needs.OM_FILE} or assumption.alone):
        simulator.forget()
        Helper(lambda: attempt(assumption)).answer(assumption.id)
        texts = simulator.violations()
        about_contexts = bool(texts) and all("which is not the current one" in text for text in texts)
        assert about_contexts if assumption.id in WRONG_CONTEXTS else texts == [], (assumption.id, texts)
assert simulator.resets(0) == 0
assert simulator.calls("aclrtResetDevice") == simulator.calls("aclrtResetDeviceForce") == 0
left = simulator.stats()
assert (left.streams, left.events, left.contexts, left.device_blocks, left.host_blocks) == (0, 0, 0, 0, 0), left
"""
        done = forkserver.run([sys.executable, "-W", "error", "-c", program])
        assert (done.returncode, done.stderr) == (0, "")


# For each wrong result, the family of checks that it concerns, and the checks that fail.
WRONG_RESULTS = {
    "WRONG_ZERO_LIMIT": ("waits", "zero"),
    "WRONG_TIMEOUT_CODE": ("waits", "milliseconds stream-limit"),
    "WRONG_NO_WAIT": ("waits", "covers entry beside together"),
    "WRONG_EVENT_STATUS": ("events", "unrecorded status covers again many"),
    "WRONG_STREAM_STATUS": ("streams", "busy apart"),
    "WRONG_ERROR_TWICE": ("errors", "once device-collects"),
    "WRONG_ABORT_CODE": ("aborts", "waiter"),
    "WRONG_FRESH_THREAD": ("contexts", "fresh destroyed"),
    "WRONG_TEXT_STAYS": ("text", "cleared quiet"),
    "WRONG_SHORT_COPY": ("copies", "pinned pageable late across"),
    "WRONG_EARLY_STATUS": ("events", "covers"),
    "WRONG_DESTROY_WAITS": ("waits", "beside"),
    "WRONG_FEW_TASKS": ("streams", "many"),
    "WRONG_CUT_COPY": ("copies", "too-small"),
    "WRONG_RESET_CLEARS": ("resets", "decrement"),
    "WRONG_KEEPS_USES": ("process", "finalise"),
    "WRONG_TASK_ID": ("reports", "task-ids"),
    "WRONG_NO_REPORTS": ("reports", "before-the-event before-idle"),
    "WRONG_NO_STATE_CALLBACK": ("states", "name set reset context others abort"),
    "WRONG_MODEL_WEIGHTS": ("models", "shared-weights"),
    "WRONG_MODEL_BYTES": ("models", "from-bytes"),
    "WRONG_MODEL_ORDER": ("models", "order failure-thread after-failure"),
    "WRONG_MODEL_STREAM": ("models", "next-stream after-failure"),
    "WRONG_MODEL_THREAD": ("models", "failure-thread"),
    "WRONG_MODEL_GEAR": ("models", "gears"),
    "WRONG_MODEL_AFTER_RESET": ("model-resets", "unloaded abandoned"),
    "WRONG_NOT_SET_CODE": ("resets", "counts-r counts-ssfr counts-ssrrr counts-srrsr"),
    "WRONG_NO_RELEASE": (
        "resets",
        """counts-f counts-ssfr counts-ssrff counts-ssrrf no-device threads unbound inactive others-unbound detached
        stream-waiter event-waiter stale-stream""",
    ),
}

CALLS_THAT_DO_NOT_RETURN = {"WRONG_NO_RELEASE", "WRONG_DESTROY_WAITS", "WRONG_EVENT_STATUS"}


class TestWrongResults:
    @pytest.mark.parametrize("result_name", WRONG_RESULTS)
    def test_wrong_result_breaks_its_checks_and_no_others(
        self, result_name: str, wrong_library: Callable[[str], str]
    ) -> None:
        family, names = WRONG_RESULTS[result_name]
        slowly = {"AIOACL_SIM_COPY_LATENCY_US": "5000"} if result_name == "WRONG_EARLY_STATUS" else {}
        limit = SHORT_LIMIT if result_name in CALLS_THAT_DO_NOT_RETURN else LIMIT
        result = tried(
            "--library",
            wrong_library(result_name),
            "--family",
            family,
            "--reset",
            status=1,
            limit=limit,
            **slowly,
        )
        assert broken(result).keys() == {f"{family}.{name}" for name in names.split()}
        assert all(broken(result).values())

    def test_impossible_result_breaks_the_checks_that_use_it(
        self, wrong_library: Callable[[str], str]
    ) -> None:
        result = tried("--library", wrong_library("GARBAGE"), "--family", "streams", status=1)
        assert "-5" in broken(result)["streams.idle"]
        assert result["held"] > 0

    def test_table_shows_the_result_and_the_modules_that_rely_on_it(
        self, wrong_library: Callable[[str], str]
    ) -> None:
        done = selftest("--library", wrong_library("WRONG_ZERO_LIMIT"), "--family", "waits")
        assert (done.returncode, done.stderr) == (1, "")
        text = " ".join(done.stdout.split())
        assert "BROKEN waits.zero [H]" in text
        assert "returned 0 ACL_SUCCESS for a limit of 0, expected 107000" in text
        assert "relied on by: _device, _native/device.c" in text
        assert text.endswith("1 broken, 0 known trait, 0 not testable.")


class TestTraitsOfTheRuntime:
    """What CANN's own runtime does on a healthy card breaks no assumption."""

    def test_old_status_that_several_queries_return_late_holds(
        self, wrong_library: Callable[[str], str]
    ) -> None:
        result = tried("--library", wrong_library("LATE_OLD_STATUS"), "--family", "events", status=0)
        assert result["held"] == len(result["assumptions"])

    def test_crash_of_a_stream_waiter_in_a_reset_is_a_known_trait(
        self, wrong_library: Callable[[str], str]
    ) -> None:
        library = wrong_library("CRASH_OF_STREAM_WAITERS")
        result = tried_in_new_process("--library", library, "--family", "resets", "--reset", status=0)
        traits = {
            each["id"]: each["detail"] for each in result["assumptions"] if each["verdict"] == "known_trait"
        }
        assert traits.keys() == {"resets.stream-waiter"}
        assert traits["resets.stream-waiter"].startswith("crashed with SIGSEGV: the runtime may crash")
        assert (result["broken"], result["known_trait"]) == (0, 1)
        assert result["held"] == len(result["assumptions"]) - 1

    def test_table_shows_the_trait_and_what_aioacl_does(self, wrong_library: Callable[[str], str]) -> None:
        library = wrong_library("CRASH_OF_STREAM_WAITERS")
        done = selftest_in_new_process("--library", library, "--family", "resets", "--reset")
        text = " ".join(done.stdout.split())
        assert "known trait resets.stream-waiter [H]" in text
        assert "-> crashed with SIGSEGV: the runtime may crash if a thread is in this wait" in text
        assert text.endswith("0 broken, 1 known trait, 0 not testable.")


class TestCrashes:
    def test_crash_breaks_its_check_and_the_others_run(self, wrong_library: Callable[[str], str]) -> None:
        result = tried_in_new_process("--library", wrong_library("CRASH"), "--family", "events", status=1)
        assert broken(result).keys() == {"events.unrecorded", "events.covers"}
        assert set(broken(result).values()) == {"crashed with SIGSEGV"}
        assert result["held"] == len(result["assumptions"]) - 2

    def test_hang_breaks_its_check_and_the_others_run(self, wrong_library: Callable[[str], str]) -> None:
        done = selftest("--library", wrong_library("HANG"), "--family", "events", "--limit", "3", "--json")
        assert (done.returncode, done.stderr) == (1, "")
        result = json.loads(done.stdout)
        assert broken(result).keys() == {"events.elapsed", "events.elapsed-early"}
        assert set(broken(result).values()) == {"no report within 3 s"}
        assert result["held"] == len(result["assumptions"]) - 2

    def test_crash_at_the_end_breaks_the_check_of_the_exit(self, wrong_library: Callable[[str], str]) -> None:
        result = tried_in_new_process(
            "--library", wrong_library("CRASH_AT_EXIT"), "--family", "process", status=1
        )
        assert broken(result) == {"process.exit": "after the check: crashed with SIGSEGV"}

    def test_crash_at_the_load_runs_no_other_check(self, wrong_library: Callable[[str], str]) -> None:
        result = tried_in_new_process(
            "--library", wrong_library("CRASH_ON_LOAD"), "--family", "events", status=1
        )
        assert broken(result) == {"process.loads": "crashed with SIGSEGV"}
        assert (result["held"], result["not_testable"]) == (0, len(result["assumptions"]) - 1)

    def test_message_of_the_simulator_is_reported(self) -> None:
        result = tried("--library", "simulator", "--family", "events", status=1, AIOACL_SIM_WAIT="dance")
        assert "AIOACL_SIM_WAIT=dance" in broken(result)["process.loads"]


class TestMisuse:
    def test_missing_library_is_refused_in_one_line(self) -> None:
        done = selftest_in_new_process("--library", "/nowhere/libascendcl.so")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "aioacl: /nowhere/libascendcl.so: no such file\n"

    def test_missing_library_is_not_replaced_by_the_simulator(self) -> None:
        done = selftest(ASCEND_HOME_PATH="/nowhere")
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert "`--library simulator` works without CANN" in line

    @pytest.mark.parametrize("device", ["7", "-1"])
    def test_missing_device_is_refused_in_one_line(self, device: str) -> None:
        done = selftest("--library", "simulator", f"--device={device}")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"aioacl: there is no device {device}: the number of visible devices is 2\n"

    @pytest.mark.parametrize("arguments", [("--limit", "0"), ("--limit", "x"), ("--family", "dance")])
    def test_invalid_arguments_are_refused(self, arguments: tuple[str, str]) -> None:
        done = selftest(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("usage: aioacl selftest")
        assert "_seconds" not in done.stderr
        if arguments[0] == "--limit":
            assert "expected a number of seconds, more than 0" in done.stderr

    def test_effects_of_resets_are_printed_first(self) -> None:
        done = selftest("--library", "simulator", "--family", "text", "--reset", "--device", "1")
        assert done.returncode == 0
        assert "set device 1 and reset it many times, with and without force" in done.stderr
