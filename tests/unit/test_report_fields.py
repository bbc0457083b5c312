"""The archive of `report`: no text of a step's output gets into it, and each output has a summary."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from aioacl._base import flight, flight_ring
from aioacl._base.ffi import lib
from aioacl._cli import _report_fields as fields
from aioacl._cli._report_archive import files_of
from aioacl._cli._report_process import Ended
from aioacl._cli._report_summary import summary
from aioacl._cli.report import LIMITS, Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PLANTED = (
    "zaphod",
    "heart-of-gold.example",
    "/home/zaphod/secret-model.om",
    "0x7f00deadbeef",
    "2102353ABCD0012345",
    "0000:c1:00.0",
    "00:1b:44:11:3a:b7",
)
TEXT = f"EZ9999: returned zaphod {' '.join(PLANTED)} ACL_zaphod SIGzaphod aclzaphod"
ROW = {"step": "empty task", "what": TEXT, "unit": TEXT, "median": 1.5, "low": 1, "high": 2, "samples": 3}
OUTPUTS: dict[str, fields.Lines] = {
    "doctor": [
        {
            "ok": True,
            "library": {
                "path": TEXT,
                "origin": TEXT,
                "backend": "ascend",
                "extra_paths": [TEXT],
                "functions": 500,
                "missing": [{"name": "aclrtMalloc", "since": TEXT, "cost": TEXT}, {"name": "zaphod"}],
            },
            "candidates": [{"path": TEXT, "reason": TEXT}],
            "runtime": {
                "aclInit": 0,
                "aclrtGetDeviceCount": 0,
                "devices": 8,
                "version": "8.5.0",
                "version_number": 80500000,
                "soc": "Ascend910B4",
                "failure_detection": "exact",
                "failure_detection_means": TEXT,
            },
            "environment": {"SECRET": TEXT},
            "limits": {"cpus": 4},
            "python": {"platform": TEXT},
            "problems": [TEXT],
            "warnings": [TEXT],
        }
    ],
    "device before": [{"path": TEXT, "devices": [{"index": 0, "soc": TEXT, "status": "normal"}]}],
    "selftest": [
        {"total": 2, "problem": False},
        {"library": TEXT, "backend": "ascend"},
        {"id": "process.loads", "verdict": "held", "detail": TEXT, "says": TEXT},
        {"id": "waits.zero", "verdict": "broken", "detail": f"aclrtMalloc returned 507018: {TEXT}"},
    ],
    "sequences": [
        {"total": 2, "problem": False},
        {"id": "rnd-events-0097"},
        {
            "id": "rnd-events-0185",
            "step": 1,
            "call": "aclInit",
            "expected": '{"rc": 0}',
            "got": json.dumps({"rc": 7, "out": TEXT}),
        },
        {"id": "rnd-events-0185", "step": 1, "call": "aclInit", "expected": '{"rc": 0}', "got": TEXT},
    ],
    "timing": [{"timing": {"device": 0, "rows": [ROW], "suits": "watch", "reason": TEXT}, "path": TEXT}],
    "demo": [
        {
            "tasks": 64,
            "finished": 63,
            "failures": [f"task 1: aclrtMalloc on device 0: 507899 ACL_ERROR_RT: {TEXT}"],
            "inference": {"digits": 3, "failures": [TEXT]},
            "inference_skipped": TEXT,
        }
    ],
    "model": [
        {"begun": "load"},
        {"phase": "load", "ms": 12.5},
        {"inputs": 1, "outputs": 1, "gears": 0},
        {"error": TEXT, "code": 507018, "call": "aclmdlExecuteAsync"},
    ],
    "device after": [{"devices": [{"status": f"unknown: 507899 {TEXT}"}]}],
}
LOOKS: dict[str, Callable[[fields.Lines], fields.Fields]] = {
    "doctor": fields.doctor,
    "device before": fields.device,
    "selftest": fields.selftest,
    "sequences": fields.sequences,
    "timing": fields.timing,
    "demo": fields.demo,
    "model": fields.model,
    "device after": fields.device,
}


def kept(outputs: dict[str, fields.Lines], *, status: int | None = 1) -> tuple[str, str]:
    """Returns the summary, and all content of the archive."""
    report = Report("/home/zaphod/libascendcl.so", "/home/zaphod/secret-model.om", reset=False, limit=None)
    for name, look in LOOKS.items():
        report.keep(name, Ended(status, 1.25, outputs[name], TEXT), look)
    found = report.as_json()
    text = summary(found)
    return text, "".join(f"{name}\n{content.decode()}" for name, content in files_of(found, text).items())


def variants(value: Any) -> Iterator[Any]:
    """Yields copies of an output in which one value is replaced by TEXT, or by a value of another type."""
    yield from (TEXT, None, 3.25, [TEXT], {"rc": TEXT})
    if isinstance(value, dict):
        yield {**value, "zaphod": TEXT, TEXT: 1}
        for key, inner in value.items():
            yield {name: each for name, each in value.items() if name != key}
            yield from ({**value, key: changed} for changed in variants(inner))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from ([*value[:place], changed, *value[place + 1 :]] for changed in variants(inner))


def test_codes_and_names_of_functions_are_kept() -> None:
    text, content = kept(OUTPUTS)
    assert text.splitlines()[0] == "aioacl report: Ascend910B4, CANN 8.5.0"
    assert "broken: waits.zero: aclrtMalloc returned 507018" in text
    assert "rnd-events-0185, step 1, aclInit: expected 0, got 7 and outputs" in text
    assert "the errors name aclrtMalloc 507899" in text
    assert "no success in the load: aclmdlExecuteAsync 507018" in text
    for name in ("summary.txt", "report.json", *(f"{each.replace(' ', '-')}.json" for each in LIMITS)):
        assert f"{name}\n" in content


@pytest.mark.thorough  # tries each field of each output
@pytest.mark.parametrize("name", OUTPUTS)
def test_text_in_any_field_of_a_step_is_left_out(name: str) -> None:
    tried = 0
    for changed in variants(OUTPUTS[name]):
        if not isinstance(changed, list) or not all(isinstance(each, dict) for each in changed):
            continue  # `_report_process` passes a list of objects only
        text, content = kept({**OUTPUTS, name: changed})
        for planted in PLANTED:
            assert planted not in text + content, (planted, changed)
        tried += 1
    assert tried > 5


@pytest.mark.parametrize("status", [None, -11, -40, 0, 2])
def test_steps_without_output_have_a_summary(status: int | None) -> None:
    text, _ = kept({name: [] for name in OUTPUTS}, status=status)
    word = {None: "hang", -11: "crash", -40: "crash"}.get(status, "problem")
    rows = [line for line in text.splitlines() if re.match(rf"(\w+ ?\w+) +{word} ", line)]
    assert len(rows) == len(LIMITS)


def test_checks_without_their_number_are_a_problem() -> None:
    found = fields.selftest([{"id": "process.loads", "verdict": "held"}])
    assert (found["well"], found["total"], found["held"]) == (False, None, 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 10**400, 2102353000012345])
def test_number_that_nothing_has_counted_is_left_out(value: float) -> None:
    assert fields.number(value) is None


@pytest.mark.parametrize(
    "text",
    ["8.5.0", "8.0.RC3.alpha003", "7.0.0.B050", "3.14.0rc1", "8.2.RC1.SPC001"],
)
def test_version_in_its_form_is_kept(text: str) -> None:
    assert fields.formed(fields.VERSION, text) == text


@pytest.mark.parametrize(
    "text", ["8.5.0 zaphod", "8.5.0-host", "10.1.2.zaphod", "10.1.2.3", "/8.5", "2102353ABCD0012345"]
)
def test_version_in_another_form_is_left_out(text: str) -> None:
    assert fields.formed(fields.VERSION, text) == fields.OTHER


@pytest.mark.parametrize(
    "text", ["Ascend910B4", "Ascend910_9391", "Ascend310P3", "Ascend910B4-1", "Ascend950PR_9599"]
)
def test_chip_in_its_form_is_kept(text: str) -> None:
    assert fields.formed(fields.CHIP, text) == text


@pytest.mark.parametrize("text", ["Ascend910B4 2102353ABCD", "Ascend-zaphod", "Ascend910B4_2102353"])
def test_chip_in_another_form_is_left_out(text: str) -> None:
    assert fields.formed(fields.CHIP, text) == fields.OTHER


def test_summary_names_each_figure_of_the_timing_that_is_missing() -> None:
    missing = {
        "step": "wake-up, watch",
        "what": "",
        "unit": "us",
        "median": None,
        "error": "the time has passed",
    }
    text, _ = kept({**OUTPUTS, "timing": [{"timing": {"suits": "watch", "rows": [ROW, missing]}}]})
    assert "    no figure: wake-up, watch: no code\n" in text
    assert "no figure: empty task" not in text


def test_summary_counts_one_problem_in_the_singular() -> None:
    facts = {"library": {"backend": "simulator"}, "problems": ["one"], "warnings": []}
    text, _ = kept({**OUTPUTS, "doctor": [facts]})
    assert "1 problem, 0 notes\n" in text


def test_recorder_has_kinds_codes_and_numbers_and_no_id_of_a_thread() -> None:
    note, kinds = flight.flight_note, {name: number for number, name in flight.KINDS.items()}
    for value in range(fields.MOST_RECORDS + 5):
        note(kinds["wait ends"], 0, (3 << 32) | value, lib.AIO_WAS_RESET, value)
    [found] = fields.recorder([flight_ring.of_this_process()])
    assert len(found["records"]) == fields.MOST_RECORDS
    assert found["records"][-1] == {
        "kind": "wait ends",
        "ms": found["records"][-1]["ms"],
        "device": 0,
        "thread": 0,
        "id": (3 << 32) | (fields.MOST_RECORDS + 4),
        "code": lib.AIO_WAS_RESET,
        "value": fields.MOST_RECORDS + 4,
    }
    assert found["records"][0]["ms"] == 0
    assert {type(value) for each in found["records"] for key, value in each.items() if key != "kind"} <= {
        int,
        float,
    }
