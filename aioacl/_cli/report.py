"""`report`: collects evidence from a card, and writes it into one archive that its reader may publish.

Each step runs in processes of its own, within a time limit. So the command ends in bounded time whatever the card does,
and a hang or a crash is a result. The order of the steps is that of their risk.
"""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING, Any, Final

from aioacl._base import flight_ring
from aioacl._base.child import command
from aioacl._base.errors import ParameterError
from aioacl._cli import UserError
from aioacl._cli import _report_fields as fields
from aioacl._cli._doctor_visible import RUNTIME, leading_ids
from aioacl._cli._library import add_option
from aioacl._cli._report_archive import check_place, files_of, write
from aioacl._cli._report_process import LEAVE_SECONDS, Interrupted
from aioacl._cli._report_process import run as run_command
from aioacl._cli._report_summary import summary
from aioacl._cli._screen import Bar, put, put_json
from aioacl._cli.selftest import readable, seconds, warn
from aioacl._library.locate import is_simulator

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Mapping, Sequence

    from aioacl._cli._report_process import Ended

ARCHIVE: Final = "aioacl-report.zip"
CHECK_SECONDS: Final = 30.0  # the limit of one check of selftest
LIMITS: Final = {
    "doctor": 60.0,
    "device before": 60.0,
    "selftest": 900.0,
    "sequences": 300.0,
    "timing": 60.0,
    "demo": 300.0,
    "model": 300.0,
    "device after": 60.0,
}
SIMULATOR: Final = "simulator"
MANY_PROCESSES: Final = (
    "selftest",
    "sequences",
)  # a file of the flight recorder for each would take much room


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    most = math.ceil(sum(limit + LEAVE_SECONDS for limit in LIMITS.values()) / 60)
    parser = commands.add_parser(
        "report",
        help="collect evidence from a card in one archive, and print a summary for an issue",
        description="Run doctor, selftest, recorded sequences of calls, doctor --timing and the demo on one card. "
        "Write the results into one archive, and print a summary for an issue. The archive has versions, the chip, "
        "results, codes and durations. It has no names, paths, addresses or serial numbers. Nothing is sent. Without "
        f"--reset, nothing force-resets the device. The command ends after at most {most} minutes. The exit "
        "status is 1 if a step found a problem.",
    )
    add_option(parser, default=None, otherwise="the usual search, which never selects the simulator")
    parser.add_argument(
        "--reset",
        action="store_true",
        help="also run the checks and the parts of the demo that force-reset the device",
    )
    parser.add_argument(
        "--model", metavar="FILE.om", help="also load this model, and run it with inputs of zeros"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(ARCHIVE),
        metavar="FILE.zip",
        help=f"the archive (default: {ARCHIVE})",
    )
    parser.add_argument(
        "--limit", type=seconds, metavar="SECONDS", help="the time limit of each step (default: 60 to 900)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the summary")
    parser.set_defaults(run=run, parser=parser)


@dataclass
class Report:
    """The steps of one report, and what they have found so far.

    `library` is what the user gave, and then the path that a step has found. `absence` has the texts of `doctor` if it
    has found no library: they are for the terminal, not for the archive. `steps` has a result for each step that has
    ended, and `now` is the step that runs. `folder` takes the files of the flight recorder; None: there are none.
    """

    library: str | None
    model: str | None
    reset: bool
    limit: float | None
    backend: str | None = None
    absence: list[str] = field(default_factory=list[str])
    now: str = ""
    folder: Path | None = None
    steps: dict[str, fields.Fields] = field(default_factory=dict[str, fields.Fields])

    def run(self) -> None:
        """Runs all steps."""
        given = () if self.library is None else ("--library", self.library)
        self._step("doctor", command("aioacl", "doctor", "--json", *given), fields.doctor)
        self._step("device before", self._command("devices"), fields.device)
        self._step("selftest", self._order("selftest"), fields.selftest)
        self._step("sequences", self._order("sequences"), fields.sequences)
        self._step("timing", self._command("doctor", "--timing"), fields.timing)
        self._step("demo", self._command("demo", *(() if self.reset else ("--no-reset",))), fields.demo)
        if self.model is not None:
            self._step("model", self._order("model"), fields.model)
        self._step("device after", self._command("devices"), fields.device)

    @property
    def well(self) -> bool:
        """Whether each step has succeeded."""
        return all(each["result"] == "ok" for each in self.steps.values())

    def as_json(self) -> fields.Fields:
        """Returns everything that was found."""
        return {
            "backend": self.backend,
            "reset": self.reset,
            "model": self.model is not None,
            "machine": fields.machine(),
            "steps": self.steps,
        }

    def _command(self, *words: str) -> list[str] | None:
        """A command with the library that was found. Without the option, `demo` would use the simulator."""
        if self.library is None:
            return None
        return command("aioacl", *words, "--json", "--library", self.library)

    def _order(self, step: str) -> list[str] | None:
        """A step of `_report_steps`. Only `selftest` can search for the library."""
        if self.library is None and step != "selftest":
            return None
        limit = min(CHECK_SECONDS, self._limit(step))
        order = {"library": self.library, "reset": self.reset, "limit": limit, "model": self.model}
        return command("aioacl._cli._report_steps", step, json.dumps(order))

    def _limit(self, step: str) -> float:
        return LIMITS[step] if self.limit is None else self.limit

    def _step(
        self, name: str, words: Sequence[str] | None, look: Callable[[fields.Lines], fields.Fields]
    ) -> None:
        """Runs a step, and keeps what its output contains of the listed fields."""
        if not words or self.absence:
            self.steps[name] = {"result": "not run", "seconds": 0, "well": False}
            return
        self.now = name
        place, limit = len(self.steps) + 1, self._limit(name)
        total = len(LIMITS) - (self.model is None)
        put(f"step {place} of {total}: {name}, at most {limit:g} s\n", sys.stderr, flush=True)
        with Bar() as bar:
            ended = run_command(words, self.environ(name), limit, lambda lines: _draw(bar, name, lines))
        if ended.error is not None:
            _say(f"the step {name} could not be run: {ended.error}")
        self.keep(name, ended, look)

    def keep(self, name: str, ended: Ended, look: Callable[[fields.Lines], fields.Fields]) -> None:
        """Keeps the listed fields of a step's output, and the library that it names."""
        self._find_library(ended.lines)
        found = look(ended.lines)
        self.steps[name] = {
            "result": _result(ended, found),
            "seconds": round(ended.seconds, 1),
            "limit_seconds": self._limit(name),
            "ending": _ending(ended),
            "ran": ended.error is None,
            "process_left": ended.left,
            "evidence": fields.evidence(ended.errors),
            "recorder": fields.recorder(self._recorded()),
            **{key: value for key, value in found.items() if value != ""},
        }

    def environ(self, step: str) -> Mapping[str, str]:
        """Returns the environment of a step. All steps except the first one see at most one card.

        A variable that names no card hides all cards, and stays as it is. On the simulator it has no effect in any
        step: it is set for the cards of the machine.
        """
        hidden = RUNTIME if self.backend == SIMULATOR else ""
        inherited = {name: value for name, value in os.environ.items() if name != hidden}
        ids = leading_ids(inherited.get(RUNTIME, "0"))
        if self.folder is not None and step not in MANY_PROCESSES:
            inherited["AIOACL_RECORDER"] = str(self.folder / "{pid}")
        return inherited if step == "doctor" or not ids else {**inherited, RUNTIME: str(ids[0])}

    def _recorded(self) -> list[flight_ring.Ring]:
        """Returns what the processes of a step have recorded, and removes their files."""
        rings: list[flight_ring.Ring] = []
        for path in sorted(self.folder.iterdir()) if self.folder is not None else ():
            with suppress(OSError, ParameterError):  # the process was killed before the file was complete
                rings.append(flight_ring.of_file(path))
            path.unlink(missing_ok=True)
        return rings

    def _find_library(self, lines: fields.Lines) -> None:
        for line in lines:
            facts = fields.part(line, "library") or {"path": line.get("library"), **line}
            if facts.get("path") and facts.get("backend"):
                self.library, self.backend = str(facts["path"]), fields.word("backend", facts["backend"])
            elif tried := fields.objects(line, "candidates"):
                only = [f"{tried[0].get('path')!r}: {tried[0].get('reason')}"] if len(tried) == 1 else []
                self.absence = [*only, *map(str, fields.items(line, "problems"))]


def _draw(bar: Bar, name: str, lines: fields.Lines) -> None:
    total = next((fields.code(line["total"]) for line in lines if "total" in line), 0)
    bar.draw(name, sum("id" in line for line in lines), total or 0)


def _result(ended: Ended, found: fields.Fields) -> str:
    if ended.error is not None:
        return "problem"
    if ended.status is None:
        return "hang"
    if ended.status < 0:
        return "crash"
    return "ok" if found["well"] else "problem"


def _ending(ended: Ended) -> str:
    if ended.error is not None:
        return f"could not be run: {errno.errorcode.get(ended.error.errno or 0, 'no code')}"
    if ended.status is None:
        return "killed at the limit"
    if ended.status >= 0:
        return f"status {ended.status}"
    try:
        return signal.Signals(-ended.status).name
    except ValueError:  # a real-time signal
        return f"signal {-ended.status}"


def run(arguments: Namespace) -> int:
    """Runs the steps, writes the archive and prints the summary. Returns 1 if a step found a problem."""
    place = _whole(arguments.output)
    check_place(place)
    try:
        gettempdir()  # the steps write their output to temporary files
    except FileNotFoundError as error:
        raise UserError("no folder can take temporary files; free some space, or set TMPDIR") from error
    model = readable(arguments.model)
    report = Report(arguments.library, model, arguments.reset, arguments.limit, _backend(arguments.library))
    if report.reset:
        warn(0)
    try:
        with TemporaryDirectory(prefix="aioacl-report-") as folder:
            report.folder = Path(folder)
            report.run()
    except KeyboardInterrupt as interrupt:
        left = isinstance(interrupt, Interrupted) and interrupt.left
        _say(
            f"interrupted in the step {report.now}: "
            + (
                "a process of it has not ended although it was killed"
                if left
                else "its processes were killed"
            )
            + "; no archive was written"
        )
        raise
    found = report.as_json()
    text = summary(found)
    try:
        write(place, files_of(found, text))
    except UserError as error:
        error.results = {"archive": None, **found}
        if not arguments.json:
            put(text)
        raise
    if arguments.json:
        put_json({"archive": str(place), **found})
    else:
        put(text)
    _say(f"{place} was written, and nothing was sent. {_next(report)}")
    return 0 if report.well else 1


def _whole(output: Path) -> Path:
    """Returns the path of the archive from the root, because the current folder may be removed during the steps."""
    try:
        return output.absolute()
    except FileNotFoundError as error:
        raise UserError(
            "the current folder was removed; change to another folder, or give --output a whole path"
        ) from error


def _next(report: Report) -> str:
    """What to do with the archive. If there is no library, the reason is printed first."""
    if not report.absence:
        return (
            "To publish the report, open an issue, paste the summary, and attach the archive: "
            'see the page "Reports from cards" of the documentation.'
        )
    for text in report.absence:
        _say(text)
    return (
        "Remove it, and start the report again; `python -m aioacl doctor` lists the places that were tried."
    )


def _backend(choice: str | None) -> str | None:
    """Returns "simulator" if the simulator was asked for: steps that hang do not report which library they loaded."""
    asked = choice or os.environ.get("AIOACL_LIBRARY")
    if asked == SIMULATOR:
        return SIMULATOR
    try:
        return SIMULATOR if asked and is_simulator(asked) else None
    except OSError:
        return None


def _say(text: str) -> None:
    put(f"aioacl: {text}\n", sys.stderr, flush=True)
