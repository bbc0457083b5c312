"""`python -m tests.sweep [--codes N] [--of N]` runs the sweep in two processes and prints a table.

The exit status is 1 if a check or a process failed, or if a fault never fired. `python -m tests.sweep --replay SCENARIO
RULE` repeats one injection, with the scenario and the rule as the table prints them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.sweep.sweep import CODES, Tally, as_tally, replay, work

PROCESSES: Final = 2
COLUMNS: Final = 3


def words(share: int, of: int, codes: int) -> list[str]:
    """Returns the arguments of the process that runs the share."""
    return ["--share", str(share), "--of", str(of), "--codes", str(codes)]


def shares(codes: int, of: int) -> tuple[Tally, list[str]]:
    """Runs the first PROCESSES of the `of` shares, each in its own process.

    Returns the joined tally of the processes, and one text for each process that failed.
    """
    whole, troubles = Tally(), list[str]()
    with tempfile.TemporaryDirectory(prefix="aioacl-sweep-") as folder:
        running = [
            (
                status,
                subprocess.Popen(
                    [sys.executable, "-m", "tests.sweep", *words(share, of, codes), "--status", status],
                    stdout=subprocess.PIPE,
                    text=True,
                ),
            )
            for share in range(PROCESSES)
            for status in [str(Path(folder, str(share)))]
        ]
        for status, process in running:
            output, _ = process.communicate()
            if process.returncode:
                last = Path(status).read_text() if Path(status).exists() else "nothing"
                troubles.append(
                    f"expected a process to end with status 0, got {process.returncode} during: {last}"
                )
            else:
                whole.add(as_tally(output.splitlines()[-1]))
    return whole, troubles


def table(tally: Tally, seconds: float) -> str:
    """Returns the result as text."""
    ended = f"{tally.fired} fired, {tally.raised} ended in an error, {tally.complained} found something"
    lines = [
        f"{tally.injections} injections in {seconds:.0f} s: {ended}",
        "errors: " + ", ".join(f"{name} {count}" for name, count in sorted(tally.errors.items())),
        f"{len(tally.functions)} functions, each with the number of faults that fired in it:",
    ]
    cells = [f"{name} {count}" for name, count in sorted(tally.functions.items())]
    width = max(map(len, cells), default=0) + 2
    lines += [
        "".join(cell.ljust(width) for cell in cells[row : row + COLUMNS]).rstrip()
        for row in range(0, len(cells), COLUMNS)
    ]
    lines += [f"never fired: {command}" for command in tally.vacuous]
    lines += [f"{complaint}\n    {command}" for command, complaint in tally.complaints]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if nothing was found and each fault fired."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--replay", nargs=2, metavar=("SCENARIO", "RULE"))
    parser.add_argument("--codes", type=int, default=len(CODES), help="use the first N codes")
    parser.add_argument(
        "--of", type=int, default=PROCESSES, help="divide the sweep into N shares and run two of them"
    )
    parser.add_argument("--share", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--status", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.replay:
        print("\n".join(replay(*options.replay)))
        return 0
    if options.share is not None:
        print(work(options.share, options.of, CODES[: options.codes], options.status).text())
        return 0
    began = time.monotonic()
    tally, troubles = shares(options.codes, options.of)
    print("\n".join([table(tally, time.monotonic() - began), *troubles]))
    return 1 if tally.complaints or tally.vacuous or troubles else 0


if __name__ == "__main__":
    sys.exit(main())
