"""`python -m aioacl simulator conformance`: correct vectors pass, and each difference is reported."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioacl._conformance._specs import Output, spec_of
from aioacl.simulator import library_path
from tests.support import forkserver
from tests.support.command import finished

if TYPE_CHECKING:
    import subprocess

VECTORS = Path(__file__).parents[1] / "conformance"
SET = {"t": 0, "call": "aclrtSetDevice", "args": [0], "rc": 0}
STREAM = {"t": 0, "call": "aclrtCreateStream", "args": [], "bind": "$s1", "rc": 0}
HELD = [
    SET,
    STREAM,
    {"t": 0, "call": "aclrtCreateEventWithFlag", "args": [1], "bind": "$e1", "rc": 0},
    {"t": 0, "call": "aclrtStreamWaitEvent", "args": ["$s1", "$e1"], "rc": 0},
]


def vector(name: str, *steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "id": name,
        "family": "made",
        "devices": 1,
        "class": "host",
        "since": "8.1",
        "steps": steps,
        **more,
    }


def conformance(*arguments: str | Path, **settings: str) -> subprocess.CompletedProcess[str]:
    return forkserver.run(_command(*arguments), env=_environment(settings), timeout=300)


def conformance_in_new_process(*arguments: str | Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in a process that Python starts, not the fork server."""
    return finished(_command(*arguments), env=_environment(settings), timeout=300)


def _command(*arguments: str | Path) -> list[str]:
    command = [sys.executable, "-W", "error", "-m", "aioacl", "simulator", "conformance"]
    return [*command, *map(str, arguments)]


def _environment(settings: dict[str, str]) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AIOACL_")}
    return clean | settings


def found(*arguments: str | Path, status: int) -> dict[str, Any]:
    done = conformance(*arguments, "--json")
    assert done.returncode == status, done.stdout + done.stderr
    assert done.stderr == ""
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def run_vectors(
    folder: Path, *vectors: dict[str, Any], status: int, options: tuple[str, ...] = ()
) -> dict[str, Any]:
    path = folder / "made.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in vectors))
    return found(path, *options, status=status)


class TestRecorded:
    def test_sequences_of_the_vendors_documents_pass(self) -> None:
        result = found(VECTORS / "lifecycle.jsonl.gz", "--id", "seed-", "--jobs", "2", status=0)
        assert (result["failed"], result["skipped"], result["failures"]) == (0, 0, [])
        assert result["passed"] == result["total"] > 30

    @pytest.mark.parametrize("family", ["callbacks", "events", "memory", "notify-device", "streams"])
    def test_sample_of_a_family_passes(self, family: str, tmp_path: Path) -> None:
        with gzip.open(VECTORS / f"{family}.jsonl.gz", "rt") as lines:
            some = [line for line in lines if "WithCfg" not in line and "2d" not in line][::23]
        path = tmp_path / "some.jsonl"
        path.write_text("".join(some))
        result = found(path, status=0)
        assert result["passed"] == result["total"] == len(some) > 10

    def test_derived_vectors_pass(self) -> None:
        result = found(VECTORS / "derived.jsonl", status=0)
        assert result["passed"] == result["total"] > 0

    def test_vectors_are_complete_and_have_different_ids(self) -> None:
        ids: list[str] = []
        for path in sorted(VECTORS.glob("*.jsonl.gz")):
            with gzip.open(path, "rt") as lines:
                ids += [json.loads(line)["id"] for line in lines]
        assert len(set(ids)) == len(ids) == 2954


class TestDifferences:
    def test_wrong_code_is_reported_with_its_step(self, tmp_path: Path) -> None:
        wrong = {"t": 0, "call": "aclrtResetDevice", "args": [0], "rc": 107002}
        result = run_vectors(tmp_path, vector("good", SET), vector("bad", SET, SET, wrong), status=1)
        assert (result["passed"], result["failed"], result["total"]) == (1, 1, 2)
        assert result["failures"] == [
            {
                "id": "bad",
                "family": "made",
                "step": 2,
                "call": "aclrtResetDevice",
                "expected": '{"rc": 107002}',
                "got": '{"rc": 0}',
            }
        ]

    def test_wrong_output_is_reported(self, tmp_path: Path) -> None:
        asked = {"t": 0, "call": "aclrtGetDevice", "args": [], "rc": 0, "out": {"device": 1}}
        (failure,) = run_vectors(tmp_path, vector("bad", SET, asked), status=1)["failures"]
        assert failure["got"] == '{"rc": 0, "out": {"device": 0}}'

    def test_outputs_of_a_step_with_noout_are_not_compared(self, tmp_path: Path) -> None:
        asked = {"t": 0, "call": "aclrtGetDevice", "args": [], "rc": 0, "noout": True}
        assert run_vectors(tmp_path, vector("good", SET, asked), status=0)["passed"] == 1

    def test_call_that_blocks_is_a_failure(self, tmp_path: Path) -> None:
        waits = {"t": 0, "call": "aclrtSynchronizeStream", "args": ["$s1"], "rc": 0}
        (failure,) = run_vectors(tmp_path, vector("bad", *HELD, waits), status=1)["failures"]
        assert (failure["step"], failure["got"]) == (4, "the call blocks")

    def test_call_that_returns_although_it_should_block_is_a_failure(self, tmp_path: Path) -> None:
        waits = {"t": 0, "call": "aclrtSynchronizeStream", "args": ["$s1"], "async": 5000, "done": False}
        (failure,) = run_vectors(tmp_path, vector("bad", SET, STREAM, waits), status=1)["failures"]
        assert '"done": true' in failure["got"]

    def test_call_that_was_started_can_be_joined(self, tmp_path: Path) -> None:
        waits = {"t": 0, "call": "aclrtSynchronizeStream", "args": ["$s1"], "async": 1, "done": False}
        others = [
            {"t": 1, "call": "aclrtSetDevice", "args": [0], "rc": 0},
            {"t": 1, "call": "aclrtCreateStream", "args": [], "bind": "$s2", "rc": 0},
            {"t": 1, "call": "aclrtRecordEvent", "args": ["$e1", "$s2"], "rc": 0},
            {"t": 0, "call": "join", "rc": 0},
        ]
        assert run_vectors(tmp_path, vector("good", *HELD, waits, *others), status=0)["passed"] == 1

    @pytest.mark.parametrize("call", ["aclrtDance", "dance"])
    def test_unknown_call_is_a_failure(self, call: str, tmp_path: Path) -> None:
        result = run_vectors(tmp_path, vector("bad", {"t": 0, "call": call, "args": [], "rc": 0}), status=1)
        assert (result["failed"], result["skipped"]) == (1, 0)

    def test_function_that_the_library_lacks_is_a_failure(self, tmp_path: Path) -> None:
        log = {"t": 0, "call": "aclrtLaunchHostFunc", "args": ["$s1", "@cb", None], "rc": 0}
        options = ("--library", str(library_path("8.1")))
        (failure,) = run_vectors(tmp_path, vector("bad", SET, STREAM, log), status=1, options=options)[
            "failures"
        ]
        assert (failure["step"], failure["got"]) == (2, "the library lacks the function")

    def test_symbol_that_is_not_bound_is_a_failure(self, tmp_path: Path) -> None:
        lost = {"t": 0, "call": "aclrtSynchronizeStream", "args": ["$s9"], "rc": 0}
        (failure,) = run_vectors(tmp_path, vector("bad", SET, lost), status=1)["failures"]
        assert failure["got"] == "$s9 is not bound"

    def test_crash_is_reported_with_its_signal(self, tmp_path: Path) -> None:
        into_nowhere = {"t": 0, "call": "fill", "args": [4096, 0, 8, 1], "rc": 0}
        result = run_vectors(tmp_path, vector("bad", SET, into_nowhere), vector("good", SET), status=1)
        assert result["passed"] == 1
        assert result["failures"][0]["step"] == 1
        assert result["failures"][0]["got"] == "the process ended with SIGSEGV"

    def test_vector_runs_with_the_number_of_devices_that_it_names(self, tmp_path: Path) -> None:
        counts = [
            vector(
                f"of-{n}",
                {"t": 0, "call": "aclrtGetDeviceCount", "args": [], "rc": 0, "out": {"count": n}},
                devices=n,
            )
            for n in (1, 3, 8)
        ]
        assert run_vectors(tmp_path, *counts, status=0)["passed"] == 3


class TestArguments:
    def test_arrays_and_structures_are_passed_by_address(self, tmp_path: Path) -> None:
        memory = [
            {"t": 0, "call": "aclrtMalloc", "args": [64, 0], "bind": "$d1", "rc": 0},
            {"t": 0, "call": "aclrtMallocHost", "args": [64], "bind": "$h1", "rc": 0},
            {"t": 0, "call": "pattern", "args": ["$h1", 0, 16, 5], "rc": 0},
        ]
        to_device = ["arr:$d1|$d1+8", "arr:$h1|$h1+8", "w32:0|1|0|0"]
        back = ["arr:$h1+40|$h1+32", "arr:$d1+8|$d1", "w32:0|0|0|1"]
        copies = [
            {
                "t": 0,
                "call": "aclrtMemcpyBatch",
                "args": [to, "arr:8|8", source, "w64:8|8", 2, places, "w64:0", 1],
                "rc": 0,
            }
            for to, source, places in (to_device, back)
        ]
        match = {"t": 0, "call": "checkpat", "args": ["$h1+32", 0, 16, 5], "rc": 0, "out": {"match": 1}}
        assert run_vectors(tmp_path, vector("good", SET, *memory, *copies, match), status=0)["passed"] == 1

    def test_symbol_in_an_array_that_is_not_bound_is_a_failure(self, tmp_path: Path) -> None:
        lost = {"t": 0, "call": "aclrtNotifyBatchReset", "args": ["arr:0|$n9", 2], "rc": 0}
        (failure,) = run_vectors(tmp_path, vector("bad", SET, lost), status=1)["failures"]
        assert failure["got"] == "$n9 is not bound"

    def test_number_that_a_function_changes_is_an_argument_and_an_output(self, tmp_path: Path) -> None:
        exchange = "aclmdlRICaptureThreadExchangeMode"
        steps = [
            {"t": 0, "call": exchange, "args": ["pu32:2"], "rc": 0, "out": {"mode": 0}},
            {"t": 0, "call": exchange, "args": ["pu32:1"], "rc": 0, "out": {"mode": 2}},
            {"t": 0, "call": exchange, "args": [None], "rc": 100000},
        ]
        assert run_vectors(tmp_path, vector("good", SET, *steps), status=0)["passed"] == 1
        wrong = {**steps[0], "out": {"mode": 1}}
        (failure,) = run_vectors(tmp_path, vector("bad", SET, wrong), status=1)["failures"]
        assert failure["got"] == '{"rc": 0, "out": {"mode": 0}}'

    def test_size_that_a_function_returns_is_an_output(self, tmp_path: Path) -> None:
        sizes = [
            {"t": 0, "call": "aclDataTypeSize", "args": [0], "rc": 0, "out": {"size": 4}},
            {"t": 0, "call": "halloc", "args": [64], "bind": "$p1", "rc": 0},
            {"t": 0, "call": "aclCreateDataBuffer", "args": ["$p1", 64], "bind": "$q1", "rc": 0},
            {"t": 0, "call": "aclGetDataBufferSizeV2", "args": ["$q1"], "rc": 0, "out": {"size": 64}},
        ]
        assert run_vectors(tmp_path, vector("good", *sizes), status=0)["passed"] == 1


class TestReleases:
    def test_later_vectors_are_skipped_and_counted(self, tmp_path: Path) -> None:
        vectors = [
            vector("old", SET),
            vector("new", SET, since="9.1.0"),
            vector("newest", SET, versions="master"),
        ]
        result = run_vectors(tmp_path, *vectors, status=0, options=("--release", "9.0"))
        assert (result["passed"], result["skipped"], result["total"]) == (1, 2, 3)
        assert {skip["id"] for skip in result["skips"]} == {"new", "newest"}
        assert "CANN 9.1.0" in result["skips"][0]["reason"]


class TestText:
    def test_failure_is_printed_in_lines(self, tmp_path: Path) -> None:
        path = tmp_path / "made.jsonl"
        path.write_text(json.dumps(vector("bad-one", {**SET, "rc": 107001})))
        done = conformance_in_new_process(path)
        assert (done.returncode, done.stderr) == (1, "")
        lines = done.stdout.splitlines()
        assert lines[0] == "bad-one: step 0, aclrtSetDevice"
        assert [line.split(None, 1)[1] for line in lines[1:3]] == ['{"rc": 107001}', '{"rc": 0}']
        assert lines[-1] == "0 passed, 1 failed, 0 skipped, 1 in all"

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "expected at least one vector, found none"),
            (b"{}\n", 'line 1: expected a vector in JSON: a vector has no "steps"'),
            (b"[]\n", "line 1: expected a vector in JSON: expected a vector to be an object, got []"),
            (b'{"id": 1, "steps": []}\n', 'expected "id" of a vector to be a text, got 1'),
            (b'{"id": "x", "steps": [{}]}\n', 'a step has no "call"'),
            (
                b'{"id": "x", "steps": [{"call": "aclInit", "args": 7}]}\n',
                'expected "args" of a step to be a list',
            ),
            (
                b'{"id": "x", "steps": [{"call": "aclInit"}]}\n\nnonsense\n',
                "line 3: expected a vector in JSON: Expecting value",
            ),
            (b"\xff\xfe", "decode"),
        ],
    )
    def test_file_without_vectors_is_refused_in_one_line(
        self, content: bytes, message: str, tmp_path: Path
    ) -> None:
        path = tmp_path / "made.jsonl"
        path.write_bytes(content)
        done = conformance(path)
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert message in line

    def test_broken_archive_is_refused_in_one_line(self, tmp_path: Path) -> None:
        path = tmp_path / "made.jsonl.gz"
        path.write_bytes(b"no archive")
        done = conformance(path)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("/nowhere.jsonl",), "No such file"),
            ((str(VECTORS / "errors.jsonl.gz"), "--library", "/nowhere.so"), "cannot open shared object"),
            ((str(VECTORS / "errors.jsonl.gz"), "--id", "dance-"), "no vector has an id that begins with"),
        ],
    )
    def test_missing_file_or_vector_is_refused_in_one_line(
        self, arguments: tuple[str, ...], message: str
    ) -> None:
        done = conformance(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert message in line

    def test_refusal_with_json_is_an_object(self) -> None:
        done = conformance("/nowhere.jsonl", "--json")
        assert done.returncode == 2
        assert "No such file" in json.loads(done.stdout)["error"]

    @pytest.mark.parametrize("jobs", ["0", "x", "257"])
    def test_invalid_number_of_jobs_is_refused(self, jobs: str) -> None:
        done = conformance("any.jsonl", "--jobs", jobs)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.endswith(f"argument --jobs: expected a whole number from 1 to 256, got {jobs!r}\n")

    def test_setting_that_the_simulator_refuses_is_reported(self, tmp_path: Path) -> None:
        path = tmp_path / "made.jsonl"
        path.write_text(json.dumps(vector("any", SET)))
        done = conformance(path, AIOACL_SIM_DEVICES="99")
        assert done.returncode == 2
        assert "AIOACL_SIM_DEVICES=99: expected a whole number from 1" in done.stderr


class TestSpecs:
    @pytest.mark.parametrize(
        ("name", "wanted"),
        [
            ("aclrtMemcpyAsync", ["", "", "", "", "", ""]),
            ("aclrtCreateStreamWithConfig", ["H:stream", "", ""]),
            ("aclrtMallocPhysical", ["H:handle", "", "", ""]),
            ("aclrtStreamQuery", ["", "i:status"]),
            ("aclrtGetDeviceResLimit", ["", "", "u:value"]),
            ("aclrtSetStreamAttribute", ["", "", ""]),
            ("aclmdlRICaptureThreadExchangeMode", ["M:mode"]),
            ("aclmdlRICaptureEnd", ["", "H:model"]),
            ("aclrtMemcpyBatchAsync", [*[""] * 8, "-:fail", ""]),
            ("aclrtReserveMemAddress", ["P:virPtr", "", "", "", ""]),
        ],
    )
    def test_outputs_follow_from_the_prototype(self, name: str, wanted: list[str]) -> None:
        spec = spec_of(name)
        assert spec is not None
        assert [_written(output) for output in spec.parameters] == wanted

    def test_exceptions_have_as_many_parameters_as_the_prototype(self) -> None:
        from aioacl._conformance._specs import _EXCEPTIONS
        from aioacl.lowlevel._table import rows

        for name, text in _EXCEPTIONS.items():
            assert len(text.split()) == len(rows()[name].parameters), name


def _written(output: Output | None) -> str:
    return f"{output.kind}:{output.name}" if output else ""
