"""What goes into the archive of `report`: the fields that are listed here, and nothing else.

A text of the runtime, of a command or of the environment may contain a path, a name, an address or the serial of a
card. So no such text is copied. A number is copied if its field is listed. A word is copied if aioacl knows it: the
name of an ACL function, of a check, of a sequence. A version or the name of a chip is copied if it has the form of one.
"""

from __future__ import annotations

import json
import platform
import re
import signal
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from aioacl import __version__
from aioacl._base.ffi import lib, text_of
from aioacl._cli._doctor_rows import make_rows
from aioacl._cli._report_steps import SEQUENCES
from aioacl._conformance._vectors import load
from aioacl._selftest._table import ASSUMPTIONS

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from aioacl._base.flight import FlightRecord
    from aioacl._base.flight_ring import Ring

Lines = list[dict[str, Any]]
Fields = dict[str, Any]

# 3.14.0rc1, 8.5.0, 8.0.RC3.alpha003. Four numbers could be an address.
VERSION: Final = re.compile(
    r"(?!\d+(\.\d+){3}$)\d{1,3}(\.(\d{1,3}((a|b|rc)\d{1,3})?|(RC|SPC|T|B|alpha|beta)\d{1,3})){1,4}"
)
CHIP: Final = re.compile(r"Ascend\d{3}[A-Z0-9]{0,4}([_-]\d{1,4})?")
WORDS: Final = {
    "backend": ("simulator", "ascend"),
    "detection": ("exact", "confirmed"),
    "verdict": ("held", "broken", "known_trait", "not_testable"),
    "behaviour": ("spins", "sleeps"),
    "suits": ("watch", "thread"),
    "status": ("normal", "abnormal"),
    "phase": ("load", "first call", "second call"),
}
OTHER: Final = "not in the form that is expected"
MOST_EVIDENCE: Final = 12  # words of one text
MOST_CODE: Final = 999_999
MOST_RECORDS: Final = 64  # of the flight recorder, for each process
MOST_NUMBER: Final = 10**15
WORK: Final = (
    "files",
    "bytes",
    "mismatches",
    "tasks",
    "streams",
    "finished",
    "awaits",
    "resets",
    "generation",
)
REFUSALS: Final = ("stale_refused", "resetting_refused", "interrupted")
LAGS: Final = ("loop_lag_p50_ms", "loop_lag_p99_ms", "blocking_loop_lag_p50_ms", "blocking_loop_lag_p99_ms")
DEMO: Final = (*WORK, *REFUSALS, *LAGS)
RATES: Final = ("alone_per_s", "together_per_s")
DIGITS: Final = ("digits", "results", "wrong", "duplicates", "lost", "accuracy", "resets", "repeated", *RATES)
# Codes, names of functions and signals, and what happened, in a text.
EVIDENCE: Final = re.compile(
    r"\b(?P<code>(?:returned|expected) -?\d{1,6})\b"
    r"|\b(?P<named>\d{6}) ACL_"
    r"|\b(?P<function>acl[A-Za-z0-9]+)\b"
    r"|\b(?P<signal>SIG[A-Z0-9]+)\b"
    r"|\b(?P<late>no report within|did not return within|did not end within)\b"
)


# --- single values -----------------------------------------------------------------------------------------------


@cache
def functions() -> frozenset[str]:
    """Returns the names of the ACL functions that aioacl knows."""
    calls = {step.call for vector in load(SEQUENCES) for step in vector.steps}
    return frozenset({text_of(lib.aio_table_name(index)) for index in range(lib.aio_table_size())} | calls)


def number(value: object) -> float | None:
    """Returns a number, rounded to three decimals. Nothing in the archive is MOST_NUMBER or more."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < MOST_NUMBER:
        return None
    return value if isinstance(value, int) else round(value, 3)


def code(value: object) -> int | None:
    """Returns a code of ACL; no larger number is one."""
    found = value if isinstance(value, int) and not isinstance(value, bool) else None
    return found if found is not None and abs(found) <= MOST_CODE else None


def known(names: Container[str], value: object) -> str | None:
    """Returns a text that is one of the names."""
    return value if isinstance(value, str) and value in names else None


def word(kind: str, value: object) -> str | None:
    """Returns a text that is one of the known words of this kind."""
    return known(WORDS[kind], value)


def formed(pattern: re.Pattern[str], value: object) -> str:
    """Returns a text that has the form, "" for no text, or OTHER."""
    text = value if isinstance(value, str) else ""
    return text if not text or pattern.fullmatch(text) else OTHER


def evidence(text: object) -> str:
    """Returns the codes, functions and signals that a text names, without the rest of the text."""
    if not isinstance(text, str):
        return ""
    found: list[str] = []
    for match in EVIDENCE.finditer(text):
        kind, value = match.lastgroup, match[match.lastgroup or 0]
        if kind == "late":
            found.append("no answer in time")
        elif kind in ("code", "named") or value in functions() or value in signal.Signals.__members__:
            found.append(value)
    return " ".join(found[:MOST_EVIDENCE])


def numbers(found: Fields, names: Iterable[str]) -> Fields:
    """Returns the listed fields, which are numbers."""
    return {name: number(found.get(name)) for name in names}


def _is(kind: type, value: object) -> bool:
    return isinstance(value, kind)


def part(found: Fields, name: str) -> Fields:
    """Returns the object in a field, or an empty one."""
    value: Fields = found.get(name) or {}
    return value if _is(dict, value) else {}


def items(found: Fields, name: str) -> list[Any]:
    """Returns the list in a field, or an empty one."""
    value: list[Any] = found.get(name) or []
    return value if _is(list, value) else []


def objects(found: Fields, name: str) -> Lines:
    """Returns the objects of the list in a field."""
    return [each for each in items(found, name) if _is(dict, each)]


def _merged(lines: Lines) -> Fields:
    return {name: value for line in lines for name, value in line.items()}


# --- the steps ---------------------------------------------------------------------------------------------------


@cache
def machine() -> Fields:
    """Returns the versions of Python and of the packages, and the processor's architecture."""
    return {
        "aioacl": __version__,
        "python": formed(VERSION, platform.python_version()),
        "cffi": formed(VERSION, version("cffi")),
        "anyio": formed(VERSION, version("anyio")),
        "architecture": platform.machine() if platform.machine() in ("x86_64", "aarch64") else OTHER,
        "libc": formed(VERSION, platform.libc_ver()[1]),
    }


def recorder(rings: Iterable[Ring]) -> list[Fields]:
    """Returns the end of what each process of a step has recorded: kinds, codes and numbers.

    The ids of threads are replaced by their order, and the times begin with the first record.
    """
    return [
        {
            "written": number(ring.written),
            "missing": number(ring.missing),
            "records": _records(ring.records()[-MOST_RECORDS:]),
        }
        for ring in rings
    ]


def _records(records: list[FlightRecord]) -> list[Fields]:
    threads = {each.thread: None for each in records}
    order = {thread: place for place, thread in enumerate(threads)}
    return [
        {
            "kind": each.kind,
            "ms": round((each.at - records[0].at) * 1e3, 3),
            "device": each.device,
            "thread": order[each.thread],
            "id": number(each.id),
            "code": number(each.code),
            "value": number(each.value),
        }
        for each in records
    ]


def doctor(lines: Lines) -> Fields:
    """Returns what `doctor --json` found, without its texts."""
    facts = _merged(lines)
    library, runtime = part(facts, "library"), part(facts, "runtime")
    return {
        "well": facts.get("ok") is True,
        "backend": word("backend", library.get("backend")),
        "places_tried": len(items(facts, "candidates")),
        "functions": number(library.get("functions")),
        "missing": [
            each["name"] for each in objects(library, "missing") if known(functions(), each.get("name"))
        ],
        "aclInit": code(runtime.get("aclInit")),
        "aclrtGetDeviceCount": code(runtime.get("aclrtGetDeviceCount")),
        "devices": number(runtime.get("devices")),
        "cann": formed(VERSION, runtime.get("version")),
        "cann_number": number(runtime.get("version_number")),
        "chip": formed(CHIP, runtime.get("soc")),
        "failure_detection": word("detection", runtime.get("failure_detection")),
        "problems": len(items(facts, "problems")),
        "warnings": len(items(facts, "warnings")),
    }


def device(lines: Lines) -> Fields:
    """Returns the status of the device in `devices --json`."""
    status = next((each.get("status") for each in objects(_merged(lines), "devices")), None)
    return {
        "well": status == "normal",
        "status": word("status", status) or "unknown",
        "evidence": evidence(f"returned {str(status).removeprefix('unknown: ')}"),
    }


def selftest(lines: Lines) -> Fields:
    """Returns the verdict of each check."""
    head = _merged([line for line in lines if "total" in line])
    rows = [
        {
            "id": line["id"],
            "verdict": word("verdict", line.get("verdict")),
            "evidence": "" if line.get("verdict") == "not_testable" else evidence(line.get("detail")),
        }
        for line in lines
        if known(ASSUMPTIONS, line.get("id"))
    ]
    counts = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in WORDS["verdict"]}
    well = bool(rows) and not head.get("problem") and not counts["broken"] and len(rows) == head.get("total")
    return {"well": well, "total": number(head.get("total")), **counts, "checks": rows}


@cache
def _families() -> dict[str, str]:
    return {vector.id: vector.family for vector in load(SEQUENCES)}


def sequences(lines: Lines) -> Fields:
    """Returns the sequences whose results differ from the recorded results."""
    head = _merged([line for line in lines if "total" in line])
    rows = [line for line in lines if known(_families(), line.get("id"))]
    failed = [_difference(line) for line in rows if "got" in line]
    lacking = sum(each["got"] == "no such function" for each in failed)
    return {
        "well": len(rows) == head.get("total") and len(failed) == lacking,
        "total": number(head.get("total")),
        "as_recorded": len(rows) - len(failed),
        "different": len(failed) - lacking,
        "lack_a_function": lacking,
        "differences": failed,
    }


def _difference(line: Fields) -> Fields:
    return {
        "id": line["id"],
        "family": _families()[line["id"]],
        "step": number(line.get("step")),
        "call": known(functions(), line.get("call")),
        "expected": _result(line.get("expected")),
        "got": _result(line.get("got")),
    }


def _result(text: object) -> str:
    """Returns a result of a step, as a code or in known words. Other values may be sizes or texts of a card."""
    answer: Fields = {}
    with suppress(ValueError):
        answer = part({"": json.loads(text)}, "") if isinstance(text, str) else {}
    if "rc" in answer:
        return f"{code(answer['rc'])}{' and outputs' if answer.get('out') else ''}"
    if not isinstance(text, str) or "block" in text:
        return "the call does not return"
    return "no such function" if "function" in text else evidence(text) or "the step could not be run"


def timing(lines: Lines) -> Fields:
    """Returns the figures of `doctor --timing --json`."""
    facts = _merged(lines)
    found = part(facts, "timing")
    units = {row.step: row.unit for row in make_rows()}
    rows = [
        {
            "step": row["step"],
            "unit": units[row["step"]],
            **numbers(row, ("median", "low", "high", "samples")),
            "behaviour": word("behaviour", row.get("behaviour")),
            "evidence": evidence(row.get("error")),
        }
        for row in objects(found, "rows")
        if known(units, row.get("step"))
    ]
    well = bool(rows) and all(row["median"] is not None for row in rows)
    return {"well": well, "suits": word("suits", found.get("suits")), "rows": rows}


def demo(lines: Lines) -> Fields:
    """Returns the figures of `demo --json`."""
    found = _merged(lines)
    digits = part(found, "inference")
    failures = [*items(found, "failures"), *items(digits, "failures")]
    done = found.get("finished") is not None and found.get("finished") == found.get("tasks")
    return {
        "well": done and not failures and found.get("mismatches") == 0,
        **numbers(found, DEMO),
        "inference": numbers(digits, DIGITS) if digits else None,
        "failures": len(failures),
        "evidence": evidence(" ".join(map(str, failures[:3]))),
    }


def model(lines: Lines) -> Fields:
    """Returns how long the load and the calls of the user's model took, or the error."""
    found = _merged(lines)
    return {
        "well": found.get("closed") is True,
        **numbers(found, ("inputs", "outputs", "gears")),
        "phases": [
            {"phase": line["phase"], "ms": number(line.get("ms"))}
            for line in lines
            if word("phase", line.get("phase"))
        ],
        "at": word("phase", found.get("begun")),
        "code": code(found.get("code")),
        "call": known(functions(), found.get("call")),
    }
