"""Runs tests, and runs each test that failed once more, alone.

python .ci/again.py UNSTABLE COMMAND...

The command runs pytest and accepts more options at its end: `./test --all`, for example. If each failed test passes
alone, the exit status is 0, and the ids of these tests are appended to the file UNSTABLE. In all other cases the exit
status is that of the command. A run is not excused if it ended early, or if a test could not be collected, a worker
died, or pytest itself failed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

PLUGIN: Final = ("-p", "tests.support.outcome")
TESTS_FAILED: Final = 1  # pytest's exit status if tests failed, and nothing else was wrong
MANY: Final = 10  # so many tests do not fail by chance; to run each of them alone would take long


def run(command: Sequence[str], *options: str) -> tuple[int, dict[str, Any]]:
    """Runs the command with these options. Returns its exit status, and its outcome or {} if it ended early."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "outcome.json"
        done = subprocess.run([*command, *PLUGIN, f"--outcome={path}", *options], check=False)
        outcome: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return done.returncode, outcome


def passes_alone(command: Sequence[str], test: str) -> bool:
    """Whether the test runs and passes in a process of its own. A test that is skipped has not passed."""
    print(f"\n.ci/again.py: once more, alone: {test}", flush=True)
    status, outcome = run(command, "-n", "0", f"--only={test}")
    return status == 0 and outcome.get("passed") == [test] and not outcome["problems"]


def to_repeat(status: int, outcome: dict[str, Any]) -> list[str]:
    """The failed tests, if they are all that was wrong in the run."""
    if status != TESTS_FAILED or outcome.get("problems", True):
        for problem in outcome.get("problems", ["pytest ended early"]):
            print(f".ci/again.py: {problem}", flush=True)
        return []
    failed: list[str] = outcome["failed"]
    return failed if len(failed) <= MANY else []


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status."""
    unstable, *command = arguments
    status, outcome = run(command)
    if status == 0:
        return 0
    tests = to_repeat(status, outcome)
    results = [passes_alone(command, test) for test in tests]
    if not tests or not all(results):
        return status
    with Path(unstable).open("a") as file:
        file.writelines(f"{test}\n" for test in tests)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
