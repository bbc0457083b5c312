"""Counts tests, branches and mutants and prints the counts. The exit status is 1 if one is below .ci/minimum.toml.

    .venv/bin/python .ci/counts.py            prints the counts, and compares them with the minimum
    .venv/bin/python .ci/counts.py --record   writes the present counts as the minimum

The comparison shows whether a change has dropped checks by mistake. A commit that lowers a minimum gives the reason in
its body.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import re
import sys
import tomllib
from pathlib import Path

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import build_ffi  # noqa: E402 - it is next to the package
from tests.reliability import mutants  # noqa: E402
from tests.reliability.mutation import Mutants  # noqa: E402

PACKAGE = ROOT / "aioacl"
MINIMUM = ROOT / ".ci" / "minimum.toml"
NATIVE = ROOT / "tests" / "native"
HEAD = "# Written by .ci/counts.py --record. A commit that lowers a number gives the reason in its body.\n"


class Collected:
    """A pytest plugin that collects the names of test functions, without their parameters."""

    def __init__(self) -> None:
        self.functions: set[str] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Stores the names of all test functions."""
        self.functions = {item.nodeid.partition("[")[0] for item in session.items}


def test_functions() -> int:
    """Returns the number of test functions that pytest collects, with any markers."""
    collected, said = Collected(), io.StringIO()
    with contextlib.redirect_stdout(said):
        status = pytest.main(
            ["--collect-only", "-q", "-p", "no:xdist", str(ROOT / "tests")], plugins=[collected]
        )
    if status:
        raise SystemExit(f"expected pytest to collect the tests, got:\n{said.getvalue()[-4000:]}")
    return len(collected.functions)


def native_tests() -> int:
    """Returns the number of native tests, plus the number of the simulator's test programs."""
    lists = [path.read_text() for path in sorted(NATIVE.glob("test_*.c"))]
    return sum(len(re.findall(r"\bTEST\(", text)) for text in lists) + len(build_ffi.c_files(NATIVE / "sim"))


def branches() -> int:
    """Returns the number of branches in the package, as coverage counts them."""
    measured = coverage.Coverage(data_file=None, branch=True, config_file=False)
    paths = [str(path) for path in sorted(PACKAGE.rglob("*.py"))]
    measured.get_data().add_arcs({path: [] for path in paths})
    return sum(ways for path in paths for ways, _ in measured.branch_stats(path).values())


def python_mutants() -> int:
    """Returns the number of mutants that mutmut makes of the modules in mutants.FIRST."""
    return sum(len(Mutants(name, (PACKAGE / f"{name}.py").read_text())) for name in mutants.FIRST)


def vectors() -> int:
    """Returns the number of recorded and derived sequences of calls."""
    folder = ROOT / "tests" / "conformance"
    texts = [gzip.decompress(path.read_bytes()) for path in folder.glob("*.jsonl.gz")]
    texts += [path.read_bytes() for path in folder.glob("*.jsonl")]
    return sum(len(text.splitlines()) for text in texts)


def counts() -> dict[str, int]:
    """Returns the present counts."""
    return {
        "test functions": test_functions(),
        "native tests": native_tests(),
        "branches": branches(),
        "Python mutants": python_mutants(),
        "C mutants": len(mutants.patches("mutant")),
        "seeded bugs": len(mutants.patches("bug")) + len(mutants.patches("small")),
        "conformance vectors": vectors(),
    }


def main(arguments: list[str]) -> int:
    """Returns 0 if every count reaches its minimum."""
    found = counts()
    if arguments == ["--record"]:
        MINIMUM.write_text(HEAD + "".join(f'"{name}" = {number}\n' for name, number in found.items()))
    minimum: dict[str, int] = tomllib.loads(MINIMUM.read_text())
    fewer = False
    for name in dict.fromkeys([*found, *minimum]):
        number, least = found.get(name, 0), minimum.get(name, 0)
        fewer = fewer or number < least
        print(f"{name:<20} {number:>6}, at least {least}{'  FEWER' if number < least else ''}")
    if fewer:
        print(
            "A count is below its minimum. Restore it, or lower .ci/minimum.toml in a commit that gives the reason."
        )
    return int(fewer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
