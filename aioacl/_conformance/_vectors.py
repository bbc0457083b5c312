"""What a vector is, and the comparison of a library's results with it."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast

if TYPE_CHECKING:
    from pathlib import Path

RELEASES: Final = ("8.1", "8.5", "9.0", "9.1", "master")

Answer = dict[str, Any]
"""The result of a step: `rc` and `out`, and `done` if it is asynchronous; or `missing`, `unbound`, `blocks`."""


class BadVector(Exception):
    """The file does not contain vectors; the text has the place and the reason."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call."""

    thread: int
    call: str
    arguments: tuple[Any, ...]
    binds: tuple[str, ...]
    null: frozenset[str]
    wait_ms: int | None  # for an asynchronous step
    quiet: bool  # its outputs are not compared
    expected: Answer


@dataclass(frozen=True, slots=True)
class Vector:
    """A sequence of calls, to be run in its own process."""

    id: str
    family: str
    devices: int
    since: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a vector; the other fields describe where it failed, or why it was skipped."""

    vector: Vector
    status: Literal["passed", "failed", "skipped"]
    step: int = -1
    expected: str = ""
    got: str = ""
    reason: str = ""


def load(path: Path) -> list[Vector]:
    """Returns the vectors of a file, which may be gzipped. Raises OSError and BadVector."""
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8") as file
        ):
            vectors = [
                _vector(path, number, line) for number, line in enumerate(file, start=1) if line.strip()
            ]
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
        raise BadVector(
            f"{path}: expected text, or an archive with a name that ends in .gz: {error}"
        ) from None
    if not vectors:
        raise BadVector(f"{path}: expected at least one vector, found none")
    return vectors


def _vector(path: Path, number: int, line: str) -> Vector:
    try:
        fields = _mapping(json.loads(line), "a vector")
        steps = tuple(
            _step(_mapping(step, "a step")) for step in _list(fields, "steps", "a vector", needed=True)
        )
        since = "master" if fields.get("versions") == "master" else fields.get("since", RELEASES[0])
        return Vector(
            _text_in(fields, "id", "a vector"),
            fields.get("family", ""),
            fields.get("devices", 1),
            since,
            steps,
        )
    except json.JSONDecodeError as error:
        problem = f"{error.msg}, at column {error.colno}"
    except _Misshapen as error:
        problem = str(error)
    raise BadVector(f"{path}, line {number}: expected a vector in JSON: {problem}. {_SHAPE}")


_SHAPE: Final = (
    'A vector is an object with "id" and "steps"; '
    'a step is an object with "call", and usually "t", "args", "bind", "rc", "out".'
)


class _Misshapen(Exception):
    """A part of a vector does not have the form that it must have."""


def _mapping(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Misshapen(f"expected {what} to be an object, got {json.dumps(value)[:40]}")
    return cast("dict[str, Any]", value)


def _text_in(fields: dict[str, Any], key: str, what: str) -> str:
    if key not in fields:
        raise _Misshapen(f'{what} has no "{key}"')
    if not isinstance(fields[key], str):
        raise _Misshapen(f'expected "{key}" of {what} to be a text, got {json.dumps(fields[key])[:40]}')
    return cast("str", fields[key])


def _list(fields: dict[str, Any], key: str, what: str, *, needed: bool = False) -> list[Any]:
    if needed and key not in fields:
        raise _Misshapen(f'{what} has no "{key}"')
    value: list[Any] = fields.get(key) or []
    if not _is_list(value):
        raise _Misshapen(f'expected "{key}" of {what} to be a list, got {json.dumps(value)[:40]}')
    return value


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _step(fields: dict[str, Any]) -> Step:
    binds = fields.get("bind")
    return Step(
        fields.get("t", 0),
        _text_in(fields, "call", "a step"),
        tuple(_list(fields, "args", "a step")),
        (binds,) if isinstance(binds, str) else tuple(_list(fields, "bind", "a step")),
        frozenset(_list(fields, "null", "a step")),
        fields.get("async"),
        bool(fields.get("noout")),
        {key: fields[key] for key in ("done", "rc", "out") if key in fields},
    )


def compare(vector: Vector, answers: list[Answer], ending: str) -> Outcome:
    """Compares the results of a library with a vector. `ending` states why the process ended early, or is ""."""
    for index, step in enumerate(vector.steps):
        if index == len(answers):
            return Outcome(vector, "failed", index, _text(step.expected), ending or "the process ended")
        answer = answers[index]
        for word in ("missing", "unbound", "blocks"):
            if word in answer:
                return Outcome(vector, "failed", index, _text(step.expected), answer[word])
        if any(answer.get(key) != value for key, value in step.expected.items()):
            return Outcome(vector, "failed", index, _text(step.expected), _text(answer))
    return Outcome(vector, "passed")


def _text(answer: Answer) -> str:
    return json.dumps(answer)


def too_new(vector: Vector, release: str) -> str:
    """Returns why a library of that release cannot run the vector, or an empty text if it can."""
    needed = next((each for each in RELEASES if vector.since.startswith(each)), RELEASES[-1])
    newer = RELEASES.index(needed) > RELEASES.index(release)
    return f"it needs CANN {vector.since}, but the library (--release) is {release}" if newer else ""
