"""python -m tests.reliability [--quick|--slow] [--json] [PART ...]: runs the reliability tests.

Exits with 1 if a part found an error. In a default or a slow run, also exits with 1 if a part could not run.

Two parts run at a time, each in a process of its own. A part is killed at its time limit. Everything runs on the
simulator and uses the installed aioacl: the checkout comes last on the path.
"""

from __future__ import annotations

import sys

sys.path.append(sys.path.pop(0))  # `python -m` puts the checkout first on the path

import argparse
import json
import os
import random
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tests.reliability import setting
from tests.reliability.part import PARTS, Outcome, Scale
from tests.reliability.summary import again

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.reliability.part import Part

SCALES: Final = {
    Scale.QUICK: "a sample of each part: all parts together take half a minute",
    Scale.DEFAULT: "what CI runs; the default",
    Scale.SLOW: "everything",
}
AT_ONCE: Final = 2
WITH_CONTEXTS: Final = ("truth", "machine", "cancel", "chaos", "models", "interrupts")
REQUIRED: Final = (Scale.DEFAULT, Scale.SLOW)  # at these scales, a part that cannot run is a failure


def module(name: str) -> Part:
    """Returns the part with that name."""
    found: Any = import_module(f"tests.reliability.{name}")
    return found  # type: ignore[no-any-return]  # the module provides what the protocol describes


# --- in the part's own process ------------------------------------------------------------------------------------


def run_here(name: str, scale: Scale, seed: int) -> int:
    """Runs one part, and prints its outcome as the last line."""
    began = time.monotonic()
    outcome = module(name).run(scale, seed)
    outcome.seconds = round(time.monotonic() - began, 2)
    print(json.dumps(outcome.plain()), flush=True)
    return 0


# --- in the parent process -------------------------------------------------------------------------------------------


def _outcome_of(stdout: str, stderr: str, status: int, name: str) -> Outcome:
    """Reads the outcome from the output of a process that has ended."""
    try:
        outcome = Outcome(**json.loads(stdout.splitlines()[-1]))
    except (IndexError, TypeError, ValueError):
        return Outcome(
            findings=[
                f"expected figures from {name}, got none and status {status}: {(stdout + stderr)[-4000:]}"
            ]
        )
    outcome.expect(status == 0, f"expected {name} to end with status 0, got {status}: {stderr[-4000:]}")
    return outcome


def run_apart(name: str, scale: Scale, seed: int) -> Outcome:
    """Runs one part in a process of its own. If it fails, its stderr is part of the finding."""
    limit = module(name).LIMIT_SECONDS[scale]
    command = [sys.executable, "-m", "tests.reliability", "--run", name, f"--{scale.value}", f"--seed={seed}"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={key: value for key, value in os.environ.items() if not key.startswith("AIOACL_")},
    )
    try:
        stdout, stderr = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        return Outcome(
            findings=[
                f"expected {name} to end within {limit:.0f} s, but it was still running: {(stdout + stderr)[-4000:]}"
            ]
        )
    return _outcome_of(stdout, stderr, process.returncode, name)


def lines(name: str, outcome: Outcome) -> Iterable[str]:
    """The lines that the table shows for an outcome."""
    result = "FOUND" if outcome.findings else "not run" if outcome.not_run else "ok"
    yield f"{name:<14} {result:<8} {outcome.seconds:6.1f} s  {(module(name).__doc__ or '').splitlines()[0]}"
    for figure, value in outcome.figures.items():
        rows = value if isinstance(value, list) else [value]
        yield f"    {figure}: {rows[0] if len(rows) == 1 else ''}".rstrip()
        if len(rows) > 1:
            yield from (f"        {row}" for row in rows)
    if outcome.not_run:
        yield f"    {outcome.not_run}"
    for finding in outcome.findings:
        yield from (f"  ! {line}" for line in finding.splitlines())


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if nothing was found, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.reliability", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of: {', '.join(PARTS)}")
    for each in Scale:
        parser.add_argument(
            f"--{each.value}", dest="scale", action="store_const", const=each, help=SCALES[each]
        )
    parser.set_defaults(scale=Scale.DEFAULT)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument(
        "--context",
        choices=("primary", "own"),
        default="primary",
        help=f"the context with which these parts open devices: {', '.join(WITH_CONTEXTS)}",
    )
    parser.add_argument("--run", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"expected parts of {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    scale: Scale = options.scale
    without = set(options.parts) - set(WITH_CONTEXTS)
    if options.context != "primary" and without:
        parser.error(f"expected parts of {', '.join(WITH_CONTEXTS)}, got {', '.join(sorted(without))}")
    if options.run:
        return run_here(options.run, scale, options.seed)

    os.environ[setting.VARIABLE] = options.context  # for the processes of the parts
    names = options.parts or (PARTS if options.context == "primary" else WITH_CONTEXTS)
    outcomes: dict[str, Outcome] = {}
    for name in names:  # on one thread: if two threads import, one can see a half-imported package
        module(name)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = {name: pool.submit(run_apart, name, scale, options.seed) for name in names}
        for name, run in runs.items():
            outcomes[name] = run.result()
            if not options.json:
                print("\n".join(lines(name, outcomes[name])), flush=True)
    failed = any(outcome.findings or (outcome.not_run and scale in REQUIRED) for outcome in outcomes.values())
    if options.json:
        parts = {name: outcome.plain() for name, outcome in outcomes.items()}
        print(json.dumps({"ok": not failed, "scale": scale.value, "seed": options.seed, "parts": parts}))
    else:
        for line in again(outcomes, with_not_run=scale in REQUIRED):
            print(line)
        print(f"{'something was found' if failed else 'nothing was found'}, --seed={options.seed}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
