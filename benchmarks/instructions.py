"""Counts the instructions that the calling thread executes for one enqueue and for one await of finished work.

    python benchmarks/instructions.py [OLD] NEW [--runs N] [--count N] [--at-most RATIO]

OLD and NEW are each a checkout (a folder) or a git revision of this repository. A revision is built in a temporary
clone with a .venv of its own. Under valgrind's callgrind, each operation runs `count` times, and then `2 * count`
times. The difference is divided by `count`, and the cost of the counting itself is subtracted. Instructions of other
threads and of the simulator's library are left out. Prints one JSON object. If OLD is given, the object has the ratios
of NEW to OLD, and the exit status is 1 if a ratio is more than `--at-most`.

If valgrind is missing, the program installs Debian's package. It also needs a C compiler, to build the library that
switches the counting on and off, and that writes the counts to files.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent
WORK: Final = HERE / "instructions_work.py"
NOT_OURS: Final = "libascendcl*.so*"
KINDS: Final = ("enqueue", "await", "call")
NOTHING: Final = "nothing"  # the kind that measures the cost of the counting itself
COUNT: Final = 128
RUNS: Final = 3
AT_MOST: Final = 1.03
MAIN_THREAD: Final = "01"

# Instructions by kind and factor: 1 for `count` operations, 2 for `2 * count`.
Counts = dict[tuple[str, int], int]

MARKS: Final = """
#include <valgrind/callgrind.h>

void toggle(void) {
    CALLGRIND_TOGGLE_COLLECT;
}

void write_counts(const char *label) {
    CALLGRIND_DUMP_STATS_AT(label);
}
"""
ENVIRONMENT: Final = 'set -eu; root=$1; . "$root/scripts/environment.sh"; cd "$root"; environment ""'


# --- callgrind's files -----------------------------------------------------------------------------------------------

_OBJECT: Final = re.compile(r"(c?)ob=\((\d+)\)(?: (.*))?$")
_COST: Final = re.compile(r"(?:[+-]?\d+|0x[0-9a-f]+|\*) (\d+)$")
_LABEL: Final = re.compile(r"desc: Trigger: Client Request: (\w+) ([12])$")


def instructions_by_object(lines: Iterable[str]) -> dict[str, int]:
    """Returns the instructions of each object (program or library), from a file of callgrind with the event Ir only.

    Raises:
        ValueError: the file has other events, or has a line that cannot be parsed.
    """
    names: dict[str, str] = {}
    counts: dict[str, int] = {}
    current, inclusive = "", False
    for number, line in enumerate(map(str.strip, lines), 1):
        if line.startswith("events:") and line.split()[1:] != ["Ir"]:
            raise ValueError(
                f"line {number}: expected the event Ir, got {line!r}; run callgrind without other events"
            )
        if found := _OBJECT.match(line):
            name = names.setdefault(found[2], found[3] or "")
            current = current if found[1] else name  # a line with a c names the object of the called function
        elif line.startswith("calls="):
            inclusive = True  # the next line repeats the cost of the callee, which has lines of its own
        elif found := _COST.match(line):
            if not inclusive:
                counts[current] = counts.get(current, 0) + int(found[1])
            inclusive = False
        elif line[:1] in "0123456789+-*" and line:
            raise ValueError(
                f"line {number}: expected a position and a cost, got {line!r}; use another version of valgrind"
            )
    return counts


def label_of(lines: Iterable[str]) -> tuple[str, int] | None:
    """Returns the kind and the factor of a file of callgrind; None for the file that callgrind writes at the exit."""
    for line in lines:
        if found := _LABEL.match(line.strip()):
            return found[1], int(found[2])
    return None


def ours(counts: Mapping[str, int]) -> int:
    """Returns the number of instructions outside the simulator's library."""
    return sum(count for name, count in counts.items() if not fnmatch(Path(name).name, NOT_OURS))


# --- one checkout ----------------------------------------------------------------------------------------------------


def measure(root: Path, marks: Path, count: int) -> Counts:
    """Measures a built checkout once. Returns the instructions of `count` and of `2 * count` operations, by kind.

    All kinds run in one process, because the start of Python under valgrind takes longer than the operations.
    """
    python = root / ".venv" / "bin" / "python"
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "valgrind",
            "--tool=callgrind",
            "--collect-atstart=no",
            "--separate-threads=yes",
            f"--callgrind-out-file={folder}/out",
            str(python),
            str(WORK),
            str(marks),
            str(count),
        ]
        environ = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=root, env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(
                f"expected the status 0 of {WORK.name} in {root}, got {done.returncode}; {done.stderr}"
            )
        files = [path.read_text().splitlines() for path in Path(folder).glob(f"out.*-{MAIN_THREAD}")]
        return {label: ours(instructions_by_object(lines)) for lines in files if (label := label_of(lines))}


def each(counts: Counts, count: int) -> dict[str, float]:
    """Returns the instructions of one operation, by kind."""
    cost = {kind: (counts[kind, 2] - counts[kind, 1]) / count for kind in (NOTHING, *KINDS)}
    return {kind: cost[kind] - cost[NOTHING] for kind in KINDS}


def build(root: Path) -> None:
    """Makes the checkout's .venv and installs the package into it."""
    subprocess.run(["sh", "-c", ENVIRONMENT, "sh", str(root)], check=True, stdout=sys.stderr)


@contextmanager
def checkout(what: str) -> Generator[Path]:
    """Yields a built checkout: the folder itself, or a temporary clone at that revision."""
    if Path(what).is_dir():
        root = Path(what).resolve()
        build(root)
        yield root
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "clone"
        revision = subprocess.run(
            ["git", "-C", str(ROOT), "rev-parse", "--verify", f"{what}^{{commit}}"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        subprocess.run(["git", "clone", "--quiet", "--no-checkout", str(ROOT), str(root)], check=True)
        subprocess.run(["git", "-C", str(root), "checkout", "--quiet", revision], check=True)
        build(root)
        yield root


# --- both ------------------------------------------------------------------------------------------------------------


def need_valgrind() -> None:
    """Installs valgrind if it is missing.

    Raises:
        RuntimeError: valgrind cannot be installed.
    """
    if shutil.which("valgrind"):
        return
    install = "apt-get update -qq && apt-get install -qq -y --no-install-recommends valgrind"
    if subprocess.run(["sh", "-c", install], check=False, stdout=sys.stderr).returncode:
        raise RuntimeError(
            "expected valgrind, got no program of that name; install Debian's package valgrind"
        )


def make_marks(folder: Path) -> Path:
    """Builds the library whose function switches the counting on and off, and returns its path."""
    source, library = folder / "marks.c", folder / "marks.so"
    source.write_text(MARKS)
    compiler = os.environ.get("CC", "gcc")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    return library


def summary(runs: list[Counts], count: int) -> dict[str, dict[str, float]]:
    """Returns the instructions of one operation by kind, and the spread of the runs as a share of that number.

    A disturbance of a run, such as a wait for the GIL, can only raise its counts. Therefore the lowest count is used.
    """
    lowest = each({key: min(run[key] for run in runs) for key in runs[0]}, count)
    values = [each(run, count) for run in runs]
    spreads = {kind: max(run[kind] for run in values) - min(run[kind] for run in values) for kind in KINDS}
    return {
        kind: {"instructions": round(lowest[kind], 1), "spread": round(spreads[kind] / lowest[kind], 5)}
        for kind in KINDS
    }


def ratios(
    old: Mapping[str, Mapping[str, float]], new: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """Returns the instructions of `new` divided by the instructions of `old`, by kind."""
    return {kind: round(new[kind]["instructions"] / old[kind]["instructions"], 4) for kind in KINDS}


def compare(whats: list[str], runs: int, count: int) -> dict[str, Any]:
    """Returns the numbers of each checkout, and the ratios if there are two checkouts."""
    need_valgrind()
    with tempfile.TemporaryDirectory() as folder:
        marks = make_marks(Path(folder))
        tables: list[dict[str, dict[str, float]]] = []
        for what in whats:
            with checkout(what) as root:
                tables.append(summary([measure(root, marks, count) for _ in range(runs)], count))
    if len(tables) == 1:
        return {"new": tables[0]}
    old, new = tables
    return {"old": old, "new": new, "ratios": ratios(old, new)}


def main(arguments: list[str] | None = None) -> int:
    """Measures the checkouts and prints the result. Returns 1 if a ratio is too high, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "checkouts", nargs="+", metavar="CHECKOUT", help="[OLD] NEW: folders or git revisions"
    )
    parser.add_argument("--runs", type=int, default=RUNS, help="measurements of each checkout (%(default)s)")
    parser.add_argument("--count", type=int, default=COUNT, help="operations of a measurement (%(default)s)")
    parser.add_argument("--at-most", type=float, default=AT_MOST, help="the highest ratio (%(default)s)")
    options = parser.parse_args(arguments)
    if len(options.checkouts) > 2:
        parser.error(f"expected one or two checkouts, got {len(options.checkouts)}; compare them in pairs")
    told = compare(options.checkouts, options.runs, options.count)
    print(json.dumps(told, indent=2))
    return int(any(ratio > options.at_most for ratio in told.get("ratios", {}).values()))


if __name__ == "__main__":
    sys.exit(main())
