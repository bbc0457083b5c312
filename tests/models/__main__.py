"""`python -m tests.models [--kind KIND] [--every N] [--convert]` compares the simulator with onnxruntime.

The models are those of onnx's backend tests. Each is converted by the simulated atc and executed by the simulator. The
outputs must equal those of onnxruntime bit for bit. The exit status is 1 if a model differs. `--name` selects models
for a closer look.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time
import warnings
from typing import TYPE_CHECKING, Final

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # onnx computes its cases with NumPy, which warns about overflows
    from tests.models.corpus import KINDS, cases
from tests.models.check import STATUSES, Tally, check
from tests.models.execution import Simulator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.models.corpus import Case

SHOWN: Final = 40


def selected(options: argparse.Namespace) -> Iterator[Case]:
    """Yields the cases that the options select."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in options.kind or KINDS:
            for place, case in enumerate(cases((kind,))):
                if place % options.every == 0 and fnmatch.fnmatch(case.name, options.name):
                    yield case


def table(tally: Tally, seconds: float) -> str:
    """Returns the result as text."""
    lines = [f"{len(tally.verdicts)} models in {seconds:.0f} s"]
    for kind in dict.fromkeys(verdict.kind for verdict in tally.verdicts):
        counts = ", ".join(f"{tally.count(status, kind)} {status}" for status in STATUSES)
        lines.append(f"  {kind}: {counts}")
    lines.append("left out:")
    lines += [f"  {count} {reason}" for reason, count in tally.reasons().most_common()]
    wrong = [each for each in tally.verdicts if each.status == "wrong"]
    lines += [f"wrong: {each.kind}/{each.name}: {each.reason}" for each in wrong[:SHOWN]]
    if len(wrong) > SHOWN:
        lines.append(f"{len(wrong) - SHOWN} more are wrong")
    return "\n".join(lines)


def listed(tally: Tally) -> str:
    """Returns the models that were left out, one a line."""
    return "\n".join(
        f"{each.kind}/{each.name}: {each.reason}" for each in tally.verdicts if each.status == "left out"
    )


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if no model differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kind", action="append", choices=KINDS, help="only models of this kind")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth model of each kind")
    parser.add_argument(
        "--name", default="*", metavar="PATTERN", help="only models whose name fits the pattern"
    )
    parser.add_argument("--convert", action="store_true", help="convert the models, and do not execute them")
    parser.add_argument("--list", action="store_true", help="also list the models that are left out")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    if options.convert:
        tally = check(selected(options), None)
    else:
        with Simulator() as simulator:
            tally = check(selected(options), simulator)
    print(table(tally, time.monotonic() - began))
    if options.list:
        print(listed(tally))
    return 1 if tally.count("wrong") else 0


if __name__ == "__main__":
    sys.exit(main())
