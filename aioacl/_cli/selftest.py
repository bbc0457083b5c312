"""`selftest`: checks every assumption that aioacl makes about an ACL runtime, and reports those that do not hold.

Run it on a new card, on a new release of CANN, and on the simulator. It opens devices only in child processes, so a
runtime that crashes or hangs is reported as a line in the table.
"""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioacl._base.errors import LibraryNotFound
from aioacl._cli import UserError
from aioacl._cli._library import add_option, in_one_line
from aioacl._cli._screen import BOLD, DIM, GREEN, RED, YELLOW, Bar, Screen, put_json
from aioacl._selftest._records import Assumption, Family, Verdict
from aioacl._selftest._runner import Library, Request, identify
from aioacl._selftest._runner import run as run_checks
from aioacl._selftest._table import FAMILIES

if TYPE_CHECKING:
    from argparse import Namespace

LIMIT_SECONDS: Final = 60.0
MOST_SECONDS: Final = 1_000_000
MANY: Final = 3
WORDS: Final = {
    "held": "held",
    "broken": "BROKEN",
    "known_trait": "known trait",
    "not_testable": "not testable",
}
STYLES: Final = {"held": (GREEN,), "broken": (RED, BOLD), "known_trait": (YELLOW,), "not_testable": (YELLOW,)}
MARKS: Final = (
    "H: decided on the host, and seen on the real runtime (H*: older releases have the same code). "
    "D: seen only on an emulated device. doc: taken from the vendor's documents."
)


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "selftest",
        help="check on a device every assumption that aioacl makes about the runtime",
        description="Check every assumption that aioacl makes about an ACL runtime, in child processes, and report "
        "which assumptions hold. Without --reset, it resets no device. It aborts only its own streams, and uses a few "
        "MiB of memory. The exit status is 1 if an assumption does not hold.",
    )
    add_option(parser, default=None, otherwise="the usual search")
    parser.add_argument("--device", type=int, default=0, metavar="N", help="the device to use (default: 0)")
    parser.add_argument(
        "--reset",
        action="store_true",
        help="also check the rules of set and reset; these checks force-reset the device",
    )
    parser.add_argument(
        "--family",
        action="append",
        choices=[family.name for family in FAMILIES],
        help="check only the assumptions of this family; may be given more than once",
    )
    parser.add_argument(
        "--limit",
        type=seconds,
        default=LIMIT_SECONDS,
        metavar="SECONDS",
        help=f"an assumption is broken if its check does not return within this time (default: {LIMIT_SECONDS:g})",
    )
    parser.add_argument(
        "--model",
        metavar="FILE.om",
        help="the model for the checks of offline models (default: the model of the package, on the simulator only)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run, parser=parser)


def seconds(text: str) -> float:
    """Returns the number of seconds that an option has. Raises ArgumentTypeError."""
    with suppress(ValueError):
        value = float(text)
        if 0 < value < MOST_SECONDS:
            return value
    raise ArgumentTypeError(
        f"expected a number of seconds, more than 0 and less than {MOST_SECONDS:,}, got {text!r}"
    )


def run(arguments: Namespace) -> int:
    """Runs the chosen checks; returns 1 if an assumption is broken."""
    model = readable(arguments.model)
    request = Request(arguments.library, arguments.device, arguments.reset, arguments.limit, model)
    families = [each for each in FAMILIES if each.name in (arguments.family or [each.name])]
    library = _identified(request)
    chosen = [each for family in families for each in family.members]
    if request.reset:
        warn(request.device)
    verdicts = _tried(request, chosen) if not library.problem else _not_loaded(library, chosen)
    if arguments.json:
        put_json(_record(library, request, verdicts))
    else:
        _show(library, request, families, verdicts, Screen())
    return 1 if _count(verdicts, "broken") else 0


def readable(model: str | None) -> str | None:
    """Returns the absolute path of the model, which must be a file that can be read."""
    if model is None:
        return None
    path = Path(model)
    try:
        if path.exists() and not path.is_file():  # to open a named pipe could take forever
            raise UserError(f"{model}: expected a file")
        with path.open("rb"):
            return str(path.absolute())
    except OSError as error:
        raise UserError(f"{model}: {error.strerror or error}") from error


def _identified(request: Request) -> Library:
    try:
        library = identify(request)
    except LibraryNotFound as error:
        raise in_one_line(error) from None
    if library.path and library.backend and library.problem:
        raise UserError(f"{library.problem}: run `python -m aioacl doctor` to find the reason")
    if library.backend and not 0 <= request.device < library.devices:
        raise UserError(
            f"there is no device {request.device}: the number of visible devices is {library.devices}"
        )
    return library


def warn(device: int) -> None:
    """Warns of the resets, before the first check."""
    print(
        f"aioacl: --reset: child processes will set device {device} and reset it many times, with and without force. "
        "Do not let other programs use this device during the checks. No other device is used.",
        file=sys.stderr,
        flush=True,
    )


def _tried(request: Request, chosen: list[Assumption]) -> list[Verdict]:
    verdicts: list[Verdict] = []
    with Bar() as bar:
        bar.draw("trying", 0, len(chosen))
        for verdict in run_checks(request, chosen):
            verdicts.append(verdict)
            bar.draw("trying", len(verdicts), len(chosen), verdict.assumption.id)
    return verdicts


def _not_loaded(library: Library, chosen: list[Assumption]) -> list[Verdict]:
    """The verdicts for a library that cannot be loaded: `loads` is broken, all other assumptions are not testable."""
    (loads,) = (each for each in FAMILIES[0].members if each.name == "loads")
    others = [each for each in chosen if each is not loads]
    reason = "the library cannot be loaded"
    return [
        Verdict(loads, "broken", library.problem),
        *(Verdict(each, "not_testable", reason) for each in others),
    ]


def _count(verdicts: list[Verdict], outcome: str) -> int:
    return sum(verdict.outcome == outcome for verdict in verdicts)


# --- for programs -------------------------------------------------------------------------------------------------


def _record(library: Library, request: Request, verdicts: list[Verdict]) -> dict[str, Any]:
    return {
        "library": library.path,
        "backend": library.backend,
        "version": library.version,
        "device": request.device,
        "reset": request.reset,
        **{outcome: _count(verdicts, outcome) for outcome in WORDS},
        "assumptions": [as_row(verdict) for verdict in verdicts],
    }


def as_row(verdict: Verdict) -> dict[str, Any]:
    """Returns the verdict for JSON."""
    assumption = verdict.assumption
    return {
        "id": assumption.id,
        "verdict": verdict.outcome,
        "detail": verdict.detail,
        "says": assumption.says,
        "calls": assumption.calls,
        "used_by": assumption.used_by,
        "mark": assumption.mark,
    }


# --- for people ---------------------------------------------------------------------------------------------------


def _show(
    library: Library, request: Request, families: list[Family], verdicts: list[Verdict], screen: Screen
) -> None:
    dot = "·" if screen.drawing else "-"
    what = "simulator: no card was used" if library.backend == "simulator" else library.path
    release = f" {dot} CANN {library.version}" if library.version else ""
    screen.heading(f"aioacl selftest {dot} {what}{release} {dot} device {request.device}")
    titles = {family.name: family.title for family in families}
    for name, group in groupby(verdicts, lambda verdict: verdict.assumption.family):
        screen.line()
        screen.wrapped("", f"{name}: {titles.get(name, name)}", body=[BOLD])
        for reason, alike in groupby(
            group, lambda verdict: (verdict.outcome == "not_testable", verdict.detail)
        ):
            _show_alike([*alike], reason[1], screen)
    screen.line()
    _show_sum(verdicts, screen)


def _show_alike(verdicts: list[Verdict], reason: str, screen: Screen) -> None:
    """Shows each verdict, or one entry for many verdicts that are not testable for the same reason."""
    if verdicts[0].outcome != "not_testable" or len(verdicts) < MANY:
        for verdict in verdicts:
            _show_verdict(verdict, screen)
        return
    names = ", ".join(verdict.assumption.name for verdict in verdicts)
    screen.wrapped(f"  {WORDS['not_testable']:<12}  ", f"{reason}:", *STYLES["not_testable"])
    screen.wrapped(" " * 16, names)


def _show_verdict(verdict: Verdict, screen: Screen) -> None:
    assumption = verdict.assumption
    word = screen.paint(f"{WORDS[verdict.outcome]:<12}", *STYLES[verdict.outcome])
    screen.line(f"  {word}  {assumption.id} {screen.paint(f'[{assumption.mark}]', DIM)}")
    screen.wrapped(" " * 16, assumption.says)
    if verdict.outcome != "held":
        screen.wrapped(f"{' ' * 16}-> ", verdict.detail)
    if verdict.outcome == "broken":
        screen.wrapped(" " * 19, f"relied on by: {', '.join(assumption.used_by)}")


def _show_sum(verdicts: list[Verdict], screen: Screen) -> None:
    broken = _count(verdicts, "broken")
    screen.wrapped("", MARKS, body=[DIM])
    counts = ", ".join(f"{_count(verdicts, outcome)} {word.lower()}" for outcome, word in WORDS.items())
    screen.line(screen.paint(f"{counts}.", RED if broken else GREEN, BOLD))
