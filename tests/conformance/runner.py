"""Runs conformance vectors against a library with the C interface of ACL.

    python tests/conformance/runner.py FILE --library PATH [-j N] [--family F] [--id PREFIX] [--json]

FILE holds one JSON vector a line and may be gzipped. Each vector runs in a process of its own (vecrun, built on the
first use). The exit status is 1 if a vector fails; vectors that call functions aioacl does not know are skipped.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parent.parent / "aioacl" / "_native"
WATCHDOG_MS = 3000
VECTOR_LIMIT_S = 60.0
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror")

Step = dict[str, Any]
Vector = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What became of one vector; `detail` is empty if it passed."""

    id: str
    family: str
    status: str
    detail: str


def build(directory: Path) -> Path:
    """Builds vecrun into a directory and answers its path."""
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    program = directory / "vecrun"
    sources = sorted(str(path) for path in HERE.glob("*.c"))
    command = [compiler, *FLAGS, f"-I{NATIVE}", *sources, "-o", str(program), "-lpthread", "-ldl"]
    subprocess.run(command, check=True)
    return program


def load(path: Path) -> Iterator[Vector]:
    """Reads the vectors of a file."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def argument(value: object) -> str:
    """An argument as vecrun reads it."""
    if value is None:
        return "null"
    return str(int(value)) if isinstance(value, bool) else str(value)


def step_line(step: Step) -> str:
    """A step as vecrun reads it."""
    fields = [str(step.get("t", 0)), step["call"]]
    fields += ["A" + argument(value) for value in step.get("args", [])]
    bind = step.get("bind")
    if bind:
        fields.append("B" + (bind if isinstance(bind, str) else bind[0]))
    fields += ["N" + name for name in step.get("null", [])]
    if "async" in step:
        fields.append(f"W{step['async']}")
    if step.get("noout"):
        fields.append("Q")
    return "\t".join(fields)


def execute(program: Path, library: Path, vector: Vector) -> list[Step]:
    """Runs a vector; one result per step that was executed."""
    text = "".join(step_line(step) + "\n" for step in vector["steps"])
    environment = dict(os.environ, AIOACL_SIM_DEVICES=str(vector.get("devices", 1)))
    command = [str(program), str(library), str(WATCHDOG_MS)]
    try:
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            env=environment,
            timeout=VECTOR_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return []
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [result for result in results if "end" not in result]


def mismatch(step: Step, result: Step) -> str:
    """How a result differs from what the step expects; empty if it does not."""
    for word in ("missing", "unbound", "blocks", "crash"):
        if result.get(word):
            return f"{word} {result[word]}"
    for key in ("done", "rc", "out"):
        if key in step and step[key] != result.get(key):
            return f"{key}: expected {json.dumps(step[key])}, got {json.dumps(result.get(key))}"
    return ""


def judge(vector: Vector, results: list[Step]) -> Outcome:
    """Compares the results of a vector with what it expects."""
    for index, step in enumerate(vector["steps"]):
        detail = mismatch(step, results[index]) if index < len(results) else "not executed"
        if detail:
            status = "skipped" if detail.startswith("missing") else "failed"
            where = f"step {index} {step['call']}: {detail}"
            return Outcome(vector["id"], vector["family"], status, where)
    return Outcome(vector["id"], vector["family"], "passed", "")


def run(path: Path, library: Path, jobs: int, family: str = "", prefix: str = "") -> list[Outcome]:
    """Runs the vectors of a file, several at a time, and judges them."""
    vectors = [
        vector
        for vector in load(path)
        if family in ("", vector["family"]) and vector["id"].startswith(prefix)
    ]
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(jobs) as pool:
        program = build(Path(directory))
        return list(pool.map(lambda vector: judge(vector, execute(program, library, vector)), vectors))


def counts(outcomes: list[Outcome]) -> dict[str, int]:
    """How many vectors passed, failed and were skipped."""
    names = ("passed", "failed", "skipped")
    numbers = {name: sum(outcome.status == name for outcome in outcomes) for name in names}
    return {**numbers, "total": len(outcomes)}


def show(outcomes: list[Outcome], as_json: bool) -> None:
    """Prints the outcomes for people or for programs."""
    if as_json:
        bad = [asdict(outcome) for outcome in outcomes if outcome.status != "passed"]
        print(json.dumps({**counts(outcomes), "not_passed": bad}))
        return
    for outcome in outcomes:
        if outcome.status == "failed":
            print(f"{outcome.id}: {outcome.detail}")
    print(", ".join(f"{number} {name}" for name, number in counts(outcomes).items()))


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Run conformance vectors against an ACL library.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--family", default="")
    parser.add_argument("--id", default="", metavar="PREFIX")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    outcomes = run(options.file, options.library.resolve(), options.jobs, options.family, options.id)
    show(outcomes, options.json)
    return 1 if any(outcome.status == "failed" for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
