"""`simulator conformance`: runs conformance vectors on the simulator or on another ACL library."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioacl._cli import UserError
from aioacl._cli._library import add_option
from aioacl._cli._screen import BOLD, GREEN, RED, YELLOW, Bar, Screen, put_json
from aioacl._conformance._runner import run as run_vectors
from aioacl._conformance._runner import trial
from aioacl._conformance._vectors import RELEASES, BadVector, Outcome, Vector, load, too_new
from aioacl.simulator import library_path

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

MOST_JOBS: Final = 256
STATUSES: Final = ("passed", "failed", "skipped")


def add(actions: Any) -> None:
    """Adds the action to the parser of the simulator."""
    parser = actions.add_parser(
        "conformance",
        help="run conformance vectors: sequences of calls with the results of the real runtime",
        description="Run conformance vectors, each in a separate process, and compare every result with that of the "
        "real runtime. The exit status is 1 if a result differs.",
    )
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="a file with one vector on each line, plain or gzipped",
    )
    add_option(parser, default="simulator", otherwise="the simulator")
    parser.add_argument(
        "--jobs",
        type=_jobs,
        default=len(os.sched_getaffinity(0)),
        metavar="N",
        help="the number of vectors to run at a time (default: one for each processor)",
    )
    parser.add_argument(
        "--id", default="", metavar="PREFIX", help="run only the vectors whose id begins with PREFIX"
    )
    parser.add_argument(
        "--release",
        choices=RELEASES,
        default=RELEASES[-1],
        help="the release of the library: vectors of later releases are skipped (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run, parser=parser)


def _jobs(text: str) -> int:
    with suppress(ValueError):
        number = int(text)
        if 1 <= number <= MOST_JOBS:
            return number
    raise ArgumentTypeError(f"expected a whole number from 1 to {MOST_JOBS}, got {text!r}")


def run(arguments: Namespace) -> int:
    """Runs the vectors; returns 1 if one failed."""
    vectors = [each for each in _loaded(arguments.files) if each.id.startswith(arguments.id)]
    if not vectors:
        raise UserError(f"no vector has an id that begins with {arguments.id!r}")
    library = _found(arguments.library)
    outcomes = [*_skipped(vectors, arguments.release)]
    skipped = {id(outcome.vector) for outcome in outcomes}
    outcomes += _played([each for each in vectors if id(each) not in skipped], library, arguments.jobs)
    counts = {status: sum(outcome.status == status for outcome in outcomes) for status in STATUSES}
    if arguments.json:
        put_json({"library": library, **counts, "total": len(outcomes), **_details(outcomes)})
    else:
        _show(outcomes, counts, Screen())
    return 1 if counts["failed"] else 0


def _loaded(files: list[Path]) -> list[Vector]:
    try:
        return [vector for file in files for vector in load(file)]
    except OSError as error:
        raise UserError(f"{error.filename or 'the file'}: {error.strerror or error}") from error
    except BadVector as error:
        raise UserError(str(error)) from error


def _found(choice: str) -> str:
    path = str(library_path() if choice == "simulator" else Path(choice).absolute())
    problem = trial(path)
    if problem:
        raise UserError(f"{path}: {problem}")
    return path


def _skipped(vectors: list[Vector], release: str) -> Iterator[Outcome]:
    for vector in vectors:
        reason = too_new(vector, release)
        if reason:
            yield Outcome(vector, "skipped", reason=reason)


def _played(vectors: list[Vector], library: str, jobs: int) -> list[Outcome]:
    outcomes: list[Outcome] = []
    order = {id(vector): place for place, vector in enumerate(vectors)}
    with Bar() as bar:
        for outcome in run_vectors(vectors, library, jobs):
            outcomes.append(outcome)
            bar.draw("running", len(outcomes), len(vectors), outcome.vector.family)
    return sorted(outcomes, key=lambda outcome: order[id(outcome.vector)])


def _details(outcomes: list[Outcome]) -> dict[str, list[dict[str, Any]]]:
    return {
        "failures": [failure_of(outcome) for outcome in outcomes if outcome.status == "failed"],
        "skips": [
            {"id": outcome.vector.id, "reason": outcome.reason}
            for outcome in outcomes
            if outcome.status == "skipped"
        ],
    }


def failure_of(outcome: Outcome) -> dict[str, Any]:
    """Returns what differed in a vector that failed."""
    vector = outcome.vector
    return {
        "id": vector.id,
        "family": vector.family,
        "step": outcome.step,
        "call": vector.steps[outcome.step].call,
        "expected": outcome.expected,
        "got": outcome.got,
    }


def _show(outcomes: list[Outcome], counts: dict[str, int], screen: Screen) -> None:
    for failure in _details(outcomes)["failures"]:
        screen.wrapped(failure["id"], f": step {failure['step']}, {failure['call']}", RED, BOLD)
        screen.rows([("expected", failure["expected"]), ("got", failure["got"])], indent=4)
    reasons = Counter(outcome.reason for outcome in outcomes if outcome.status == "skipped")
    for reason, number in reasons.items():
        screen.wrapped(f"{number} skipped: ", reason, YELLOW)
    sums = ", ".join(f"{number} {status}" for status, number in counts.items())
    screen.line(screen.paint(f"{sums}, {len(outcomes)} in all", RED if counts["failed"] else GREEN, BOLD))
