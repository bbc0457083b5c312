"""Shows a result: as a table, as JSON, and as the generated part of docs/performance.md."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from benchmarks.rows import Judged

BEGIN: Final = "<!-- begin: written by `python -m benchmarks --write` -->"
END: Final = "<!-- end -->"
COLUMNS: Final = ("suite", "measurement", "compared with", "median", "range", "must", "aim", "verdict")
STYLES: Final = {"aim": "green", "must": "cyan", "missed": "bold red", "noise": "yellow", "reported": "dim"}


def number(value: float) -> str:
    """Returns a value with three significant digits."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def cells(judged: Judged) -> list[str]:
    """Returns the row as the cells of a table."""
    row, gate = judged.row, judged.gate
    measurement = row.name if row.pinned else f"{row.name} (unpinned)"
    peer = row.peer and f"x {row.peer}"
    limits = [gate.shown(gate.must), gate.shown(gate.aim)] if gate else ["", ""]
    if row.spread is None:
        return [row.suite, measurement, peer, "", row.note, *limits, judged.verdict]
    unit = "" if row.unit == "x" else f" {row.unit}"
    spread = f"{number(row.spread.low)} to {number(row.spread.high)}"
    if row.note:
        spread = f"{spread}; {row.note}"
    return [
        row.suite, measurement, peer, f"{number(row.spread.median)}{unit}", spread, *limits, judged.verdict
    ]  # fmt: skip


def show(judged: Sequence[Judged], console: Console, *, everything: bool) -> None:
    """Prints the rows that have a gate, or all."""
    shown = [each for each in judged if everything or each.gate is not None]
    table = Table("measurement", *COLUMNS[3:], box=None)
    for each in shown:
        suite, measurement, peer, *others, verdict = cells(each)
        what = Text(f"{suite}: {measurement} {peer}".rstrip())
        table.add_row(what, *map(Text, others), Text(verdict, STYLES[verdict]))
    console.print(table)
    missed = sum(each.verdict == "missed" for each in judged)
    unclear = sum(each.verdict == "noise" for each in judged)
    hidden = len(judged) - len(shown)
    console.print(f"{missed} missed, {unclear} within the noise, {hidden} more rows (--rows, --json)")


def as_json(judged: Sequence[Judged], facts: Mapping[str, str], *, quick: bool) -> dict[str, Any]:
    """Returns the result as one JSON object."""
    return {"machine": dict(facts), "quick": quick, "rows": [each.as_json() for each in judged]}


def write_json(path: Path, found: Mapping[str, Any]) -> None:
    """Writes the JSON object to a file."""
    path.write_text(json.dumps(found, indent=1) + "\n")


def markdown(judged: Sequence[Judged], facts: Mapping[str, str], picture: str) -> str:
    """Returns the generated part of the page: the machine, the rows that have a gate, and the plot."""
    machine = ["| machine and versions | |", "|---|---|"]
    machine += [f"| {name} | {value} |" for name, value in facts.items()]
    head = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    rows = ["| " + " | ".join(cells(each)) + " |" for each in judged if each.gate is not None]
    plot = f"![The rate of each way to wait, by the number of concurrent waits]({picture})"
    return "\n".join([*machine, "", *head, *rows, "", plot])


def between_markers(page: str, text: str) -> str:
    """Returns the page with the text between its markers. ValueError if the page does not have both, once, in order."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in before + after:
        raise ValueError(
            f"expected one line {BEGIN} and then one line {END}, got another page; add both lines"
        )
    return f"{before}{BEGIN}\n{text}\n{END}{after}"
