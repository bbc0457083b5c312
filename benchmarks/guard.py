"""Compares the instructions of one enqueue and one await with a baseline.

    python -m benchmarks.guard             exits with 1 if a number is more than 15 % above its baseline
    python -m benchmarks.guard --record    writes the numbers of this checkout as the new baseline

`instructions.json` has a baseline for each key: Python, C compiler, C library and machine. If the file has none for the
key of this machine, the guard also builds and measures the commit that changed the file last.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.instructions import KINDS, checkout, each, make_marks, measure, need_valgrind

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = Path(__file__).resolve().parents[1]
BASELINES: Final = ROOT / "benchmarks" / "instructions.json"
COUNT: Final = 128
AT_MOST: Final = 1.15

Numbers = dict[str, float]  # the instructions of one operation, by kind


def key() -> str:
    """Returns the parts of this machine that change the number of instructions."""
    compiler = os.environ.get("CC", "gcc")
    told = subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True).stdout
    version = re.search(r"\d+(\.\d+)+", told.splitlines()[0])
    python = f"{sys.implementation.name}-{platform.python_version()}"
    libc = "-".join(platform.libc_ver())
    return (
        f"{python} {Path(compiler).name}-{version[0] if version else 'unknown'} {libc} {platform.machine()}"
    )


def numbers_of(what: str) -> Numbers:
    """Builds and measures a checkout: a folder or a revision."""
    with tempfile.TemporaryDirectory() as folder, checkout(what) as root:
        return each(measure(root, make_marks(Path(folder)), COUNT), COUNT)


def last_change() -> str:
    """Returns the commit that changed the baselines last.

    Raises:
        RuntimeError: the checkout has no such commit.
    """
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%H", "--", str(BASELINES)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode or not done.stdout.strip():
        raise RuntimeError(
            f"expected a commit that changed {BASELINES.name}, got none; use a clone with its history, "
            "or write a baseline with --record"
        )
    return done.stdout.strip()


def baseline_of(baselines: Mapping[str, Numbers], ours: str) -> tuple[str, Numbers]:
    """Returns the baseline of the key, and where it comes from."""
    if ours in baselines:
        return BASELINES.name, baselines[ours]
    commit = last_change()
    return f"commit {commit[:8]}, measured now", numbers_of(commit)


def grown(old: Mapping[str, float], new: Mapping[str, float]) -> list[str]:
    """Returns the kinds whose number is too far above the baseline."""
    return [kind for kind in KINDS if new[kind] > AT_MOST * old[kind]]


def report(ours: str, source: str, old: Mapping[str, float], new: Mapping[str, float]) -> str:
    """Returns the table that is printed."""
    lines = [f"{ours}; baseline: {source}"]
    for kind in KINDS:
        ratio = new[kind] / old[kind]
        verdict = f"more than {AT_MOST}" if kind in grown(old, new) else "ok"
        lines.append(f"{kind:8} {new[kind]:8.0f} instructions, {ratio:.3f} x {old[kind]:.0f}: {verdict}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Measures this checkout, and compares or records the numbers. Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--record", action="store_true", help="write the numbers as the new baseline")
    options = parser.parse_args(arguments)
    need_valgrind()
    ours = key()
    baselines: dict[str, Any] = json.loads(BASELINES.read_text()) if BASELINES.exists() else {}
    new = numbers_of(str(ROOT))
    if options.record:
        baselines[ours] = {kind: round(new[kind]) for kind in KINDS}
        BASELINES.write_text(json.dumps(baselines, indent=2, sort_keys=True) + "\n")
        print(f"recorded {baselines[ours]} for {ours}; commit {BASELINES.relative_to(ROOT)}")
        return 0
    source, old = baseline_of(baselines, ours)
    print(report(ours, source, old, new))
    return int(bool(grown(old, new)))


if __name__ == "__main__":
    sys.exit(main())
