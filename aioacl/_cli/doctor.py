"""`doctor`: reports the library that is found, the functions that it lacks, and problems in the environment.

With --timing it also measures what waiting costs on a device.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from aioacl._base.errors import LibraryNotFound
from aioacl._cli import UserError
from aioacl._cli._doctor_facts import Facts, ask_runtime, look_at_library, look_at_limits, look_at_python
from aioacl._cli._doctor_ray import look_as_ray
from aioacl._cli._doctor_ray import rows as ray_rows
from aioacl._cli._doctor_timing import measure
from aioacl._cli._doctor_visible import meaning, mistakes
from aioacl._cli._doctor_waits import advise
from aioacl._cli._library import add_option, load
from aioacl._cli._screen import BOLD, DIM, GREEN, RED, YELLOW, Screen, put_json

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable

VARIABLES = (
    "AIOACL_LIBRARY",
    "AIOACL_STRICT",
    "AIOACL_PLAIN_AWAITS",
    "AIOACL_RECORDER",
    "ASCEND_HOME_PATH",
    "ASCEND_TOOLKIT_HOME",
    "ASCEND_LAUNCH_BLOCKING",
    "ASCEND_GLOBAL_LOG_LEVEL",
    "LD_LIBRARY_PATH",
)


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "doctor",
        help="report which library is found, and which functions and features it lacks",
        description="Report which ACL library is found, which functions and features it lacks, and other problems of "
        "this environment. Opens no device without --timing.",
    )
    add_option(parser, default=None, otherwise="the usual search")
    parser.add_argument(
        "--timing",
        action="store_true",
        help="also open a device, measure for a few seconds, and report which waits= suits it",
    )
    parser.add_argument(
        "--device", type=int, metavar="N", help="the device to measure with --timing (default: 0)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run, parser=parser)


def run(arguments: Namespace) -> int:
    """Prints the report; returns 0 if devices can be used, else 1."""
    if arguments.device is not None and not arguments.timing:
        arguments.parser.error("--device needs --timing")
    facts = examine(arguments.library)
    if arguments.timing and not facts.problems:
        measure_waits(facts, arguments.device or 0)
    if arguments.json:
        put_json({"ok": not facts.problems, **asdict(facts)})
    else:
        _show(facts, Screen())
    return 1 if facts.problems else 0


def examine(choice: str | None) -> Facts:
    """Collects all facts."""
    facts, visible = Facts(), None
    try:
        look_at_library(facts, load(choice))
    except LibraryNotFound as error:
        facts.candidates = [{"path": path, "reason": reason} for path, reason in error.candidates]
        facts.problems.append(f"{error.message}. {error.hint}")
    else:
        visible = ask_runtime(facts)
    simulated = facts.library is not None and facts.library["backend"] == "simulator"
    facts.environment = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    facts.environment |= meaning(os.environ)
    facts.warnings += mistakes(os.environ, None if simulated else visible)
    look_at_limits(facts)
    look_at_python(facts)
    facts.ray = look_as_ray(os.environ)
    return facts


def measure_waits(facts: Facts, index: int) -> None:
    """Measures on a device what waiting costs. If no step succeeds, this is a problem."""
    devices = facts.runtime["devices"]
    if not devices:
        facts.problems.append("nothing was measured, because no device is visible")
        return
    if not 0 <= index < devices:
        raise UserError(f"there is no device {index}: the number of visible devices is {devices}")
    found = measure(index)
    rows = found.rows
    suits, reason = advise(rows)
    facts.timing = {"device": index, "rows": [asdict(row) for row in rows], "suits": suits, "reason": reason}
    if all(row.median is None for row in rows):
        facts.problems.append(f"device {index} could not be measured: {rows[0].error}")
    elif facts.library is not None and facts.library["backend"] == "simulator":
        facts.warnings.append("the figures are those of the simulator, not of a card")
    if found.unclosed:
        facts.warnings.append(found.unclosed)


# --- for people --------------------------------------------------------------------------------------------------


def _show(facts: Facts, screen: Screen) -> None:
    screen.heading("aioacl doctor")
    if facts.library is None:
        _section(
            screen,
            "no library: these places were tried",
            [(each["path"], each["reason"]) for each in facts.candidates],
        )
    else:
        show_library(facts.library, screen)
        _section(screen, "runtime", _runtime_rows(facts.runtime))
    _section(screen, "environment", facts.environment.items())
    _section(screen, "limits", _limit_rows(facts.limits))
    _section(screen, "python", facts.python.items())
    _section(screen, "what Ray would see", ray_rows(facts.ray))
    if facts.timing is not None:
        _show_timing(facts.timing, screen)
    _show_advice(facts, screen)


def _section(screen: Screen, title: str, rows: Iterable[tuple[str, str]]) -> None:
    screen.line(screen.paint(title, BOLD))
    screen.rows(rows)
    screen.line()


def show_library(library: dict[str, Any], screen: Screen) -> None:
    """Writes the path of the library, and the functions that it lacks."""
    simulated = library["backend"] == "simulator"
    rows = [
        ("path", library["path"]),
        ("found by", library["origin"]),
        ("backend", "simulator: no card is used" if simulated else library["backend"]),
        *(("also used", path) for path in library["extra_paths"]),
        ("functions", f"{library['functions']} of {library['functions'] + len(library['missing'])}"),
    ]
    _section(screen, "library", rows)
    if library["missing"]:
        screen.line(screen.paint("missing functions, and what is lost without each", BOLD))
        for each in library["missing"]:
            screen.line(f"  {each['name']} (CANN {each['since']})")
            screen.wrapped(" " * 6, each["cost"], body=[DIM])
        screen.line()


def _runtime_rows(runtime: dict[str, Any]) -> list[tuple[str, str]]:
    number = "" if runtime["version_number"] is None else f" ({runtime['version_number']})"
    devices = runtime["devices"]
    return [
        ("aclInit", "ok" if runtime["aclInit"] == 0 else f"returned {runtime['aclInit']}"),
        ("CANN", f"{runtime['version']}{number}" if runtime["version"] else "unknown"),
        ("chip", runtime["soc"] or "unknown"),
        ("devices", f"returned {runtime['aclrtGetDeviceCount']}" if devices is None else _numbered(devices)),
        ("failed tasks", f"{runtime['failure_detection']}: {runtime['failure_detection_means']}"),
    ]


def _numbered(devices: int) -> str:
    return f"{devices} visible, numbered from 0" if devices else "none visible"


def _limit_rows(limits: dict[str, Any]) -> list[tuple[str, str]]:
    def bound(name: str) -> str:
        return f"{_limit(limits[name])} (at most {_limit(limits[name + '_hard'])})"

    return [
        ("open files (ulimit -n)", bound("open_files")),
        ("processes and threads (ulimit -u)", bound("processes")),
        ("threads now", str(limits["threads"])),
        ("processors", str(limits["cpus"])),
    ]


def _limit(value: int) -> str:
    return "unlimited" if value < 0 else f"{value:,}"


def _show_timing(timing: dict[str, Any], screen: Screen) -> None:
    _section(screen, f"timing on device {timing['device']}", [_timing_row(row) for row in timing["rows"]])
    screen.wrapped(f'waits="{timing["suits"]}" suits: ', f"{timing['reason']}.", BOLD)
    screen.line()


def _timing_row(row: dict[str, Any]) -> tuple[str, str]:
    if row["error"] is not None:
        return row["step"], f"error: {row['error']}"
    unit, spread = row["unit"], f"from {row['low']:,.1f} to {row['high']:,.1f}"
    behaviour = f", {row['behaviour']}" if row["behaviour"] else ""
    figure = f"{row['median']:,.1f} {unit}{behaviour}"
    return row["step"], f"{figure}  (median of {row['samples']:,}, {spread}; {row['what']})"


def _show_advice(facts: Facts, screen: Screen) -> None:
    for style, word, texts in ((RED, "problem", facts.problems), (YELLOW, "note", facts.warnings)):
        for text in texts:
            screen.wrapped(f"{word}: ", text, style, BOLD)
    if not facts.problems:
        screen.line(screen.paint("Devices can be used.", GREEN, BOLD))
