"""Compares the CPU time of the quick tests with the recorded one, and prints the tests that take most of it.

    ./test -p tests.support.cost --cost=FILE      writes the CPU times to FILE; also with --all
    .venv/bin/python .ci/cost.py FILE             prints the cost; the exit status is 1 if it is too high
    .venv/bin/python .ci/cost.py FILE --record    writes the cost to .ci/cost.toml

The cost is the CPU time of all quick tests, divided by that of a loop (tests/support/cost.py) in the same run. Unlike
seconds, this ratio depends little on the machine and on its other work.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

RECORDED: Final = Path(__file__).with_name("cost.toml")
HEAD: Final = (
    "# Written by .ci/cost.py --record. A commit that raises the number gives the reason in its body.\n"
)
AT_MOST: Final = 2.0
DEAREST: Final = 20


def too_high(cost: float, recorded: float) -> str:
    """Returns what to do about a cost that is too high, or ""."""
    if cost <= AT_MOST * recorded:
        return ""
    return (
        f"expected the quick tests to cost at most {AT_MOST * recorded:.0f} ({AT_MOST:g} times the number in "
        f".ci/cost.toml), got {cost:.0f}. Make the tests above cheaper, or mark a test that takes seconds with "
        "pytest.mark.thorough. If all tests have become dearer, find the change in aioacl or tests/conftest.py. "
        "If the cost is justified, record it: .venv/bin/python .ci/cost.py FILE --record"
    )


def main(arguments: Sequence[str]) -> int:
    """Returns 0 if the cost is at most twice the recorded one."""
    path, *options = arguments
    run = json.loads(Path(path).read_text())
    tests: dict[str, float] = run["tests"]
    if not tests or not run["pieces"]:
        print(f"expected the CPU times of quick tests in {path}, got none; the run of the tests ended early")
        return 1
    loop = median(run["pieces"])
    cost = sum(tests.values()) / loop
    for name in sorted(tests, key=tests.__getitem__, reverse=True)[:DEAREST]:
        print(f"{tests[name] / loop:8.1f}  {name}")
    if options == ["--record"]:
        RECORDED.write_text(f'{HEAD}"quick tests" = {cost:.0f}\n')
    recorded: float = tomllib.loads(RECORDED.read_text())["quick tests"]
    print(f"{cost:8.0f}  in all {len(tests)} quick tests, recorded: {recorded:.0f}, one loop: {loop:.3f} s")
    problem = too_high(cost, recorded)
    print(problem, end="\n" if problem else "")
    return int(bool(problem))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
