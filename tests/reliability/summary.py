"""Repeats the findings at the end of a run, for readers who see only its last lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.reliability.part import Outcome

MOST_LINES: Final = 30  # .ci/run shows the last 40 lines of a step that failed


def _cut(lines: list[str], most: int) -> list[str]:
    """Keeps the first line, which describes the finding, and the last lines, where a traceback ends."""
    if len(lines) <= most:
        return lines
    if most < 3:
        return lines[:1]
    return [lines[0], f"({len(lines) - most + 1} more lines are above)", *lines[-(most - 2) :]]


def again(outcomes: dict[str, Outcome], *, with_not_run: bool) -> list[str]:
    """The names of the parts with findings, then the shortened findings. `with_not_run` adds parts that did not run."""
    found = {
        name: [line for finding in outcome.findings for line in finding.splitlines()]
        for name, outcome in outcomes.items()
        if outcome.findings
    }
    if with_not_run:
        found |= {
            name: [each.not_run] for name, each in outcomes.items() if each.not_run and name not in found
        }
    left, cut = MOST_LINES, dict[str, list[str]]()
    for done, name in enumerate(sorted(found, key=lambda name: len(found[name]))):
        cut[name] = _cut(found[name], left // (len(found) - done))
        left -= len(cut[name])
    lines = [f"  ! {name}: {line}" for name in found for line in cut[name]]
    return [f"found by {', '.join(found)}:", *lines] if found else []
