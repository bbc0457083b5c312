"""`demo`: many tasks copy real files through a device while the device is force-reset twice.

Then the demo measures the lag of the event loop, and classifies handwritten digits with a model.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentTypeError
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from aioacl._cli import UserError, inference
from aioacl._cli._demo_digits import Classifier, refusal
from aioacl._cli._demo_input import find_input
from aioacl._cli._demo_job import RESETS, Job
from aioacl._cli._demo_lag import compare
from aioacl._cli._demo_library import load, unwrapped
from aioacl._cli._demo_report import Outcome, as_json, show
from aioacl._cli._demo_view import REFRESH_SECONDS, view_for
from aioacl._cli._library import add_option
from aioacl._cli._screen import Screen, put
from aioacl._opening import open_device
from aioacl._trace.recording import trace

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from aioacl._cli._demo_input import Input
    from aioacl._cli._demo_lag import Comparison
    from aioacl._cli._demo_view import View
    from aioacl._device import Device
    from aioacl._library.load import LibraryInfo

TASKS: Final = 64
MOST_TASKS: Final = 1024
STREAMS: Final = 16
MOST_STREAMS: Final = 256


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "demo",
        help="copy real files to a device and back, reset the device during the copies, and verify every byte",
        description="Copy real files to a device and back, reset the device twice during the copies, and verify every "
        "byte. Then measure how late timers of the event loop fire, with awaits and with blocking calls. At the end, "
        "classify handwritten digits with a model. The exit status is 1 if a task or a reset fails, if a file comes "
        "back changed, or if a digit has no result or a wrong one.",
    )
    parser.add_argument("--input", metavar="PATH", help="a file or a folder (default: Python's own library)")
    parser.add_argument(
        "--tasks", type=_at_most(MOST_TASKS), default=TASKS, metavar="N", help="number of tasks (default: 64)"
    )
    parser.add_argument(
        "--streams",
        type=_at_most(MOST_STREAMS),
        default=STREAMS,
        metavar="N",
        help="number of streams (default: 16)",
    )
    parser.add_argument(
        "--no-reset",
        action="store_true",
        help="do not reset the device, and leave out the part with the model, which resets it too",
    )
    add_option(parser, default="simulator", otherwise="simulator")
    inference.add_model(parser)
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="write a trace for https://ui.perfetto.dev, and a page for a browser, FILE.html",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object on a line at the end")
    parser.set_defaults(run=run, parser=parser)
    inference.add(parser.add_subparsers(title="parts", metavar="PART"))


def _at_most(most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not (text.isascii() and text.isdigit() and 1 <= int(text) <= most):
            raise ArgumentTypeError(f"expected a whole number from 1 to {most}, got {text!r}")
        return int(text)

    return number


@dataclass(frozen=True, slots=True)
class Plan:
    """The arguments of the command."""

    library: LibraryInfo
    source: Input
    tasks: int
    streams: int
    model: str | None
    resets: bool


def run(arguments: Namespace) -> int:
    """Runs the demo and prints its report. Returns 0 if nothing failed and every result is right."""
    source = find_input(arguments.input)
    place: Path | None = arguments.trace
    if place is not None and (place.is_dir() or not place.absolute().parent.is_dir()):
        raise UserError(f"{place}: expected a file in a folder that exists; choose another file with --trace")
    plan = Plan(
        load(arguments.library),
        source,
        arguments.tasks,
        arguments.streams,
        arguments.model,
        resets=not arguments.no_reset,
    )
    with view_for(Screen(sys.stderr), Screen(), json=arguments.json) as view:
        outcome = unwrapped(lambda: anyio.run(_traced, plan, view, place))
    if arguments.json:
        put(f"{as_json(outcome)}\n")
    else:
        show(outcome, Screen())
    return 0 if outcome.well else 1


async def _traced(plan: Plan, view: View, place: Path | None) -> Outcome:
    if place is None:
        return await _demonstrate(plan, view)
    async with trace(place, html=place.with_name(f"{place.name}.html")):
        return await _demonstrate(plan, view)


async def _demonstrate(plan: Plan, view: View) -> Outcome:
    begun = time.monotonic()
    async with open_device(0) as device:
        job = Job(device, plan.source.files, plan.tasks, plan.streams, RESETS if plan.resets else ())
        async with anyio.create_task_group() as group:
            group.start_soon(_watch, job, view)
            await job.run()
            group.cancel_scope.cancel()
        view.moving(job, 0.0)
        lag = await _compare(device, plan, view) if not job.tally.failures else None
        generation = device.generation
    seconds = time.monotonic() - begun
    skipped = "the job failed" if job.tally.failures else _refusal(plan)
    found = None if skipped else await inference.classify(Classifier(plan.library, plan.model), view)
    return Outcome(
        plan.library,
        plan.source.name,
        plan.tasks,
        plan.streams,
        generation,
        job.tally,
        lag,
        seconds,
        found,
        skipped,
    )


def _refusal(plan: Plan) -> str | None:
    """Returns why the part with the model cannot run, or None if it can."""
    return refusal(plan.library, plan.model) if plan.resets else "it resets the device"


async def _compare(device: Device, plan: Plan, view: View) -> Comparison:
    return await compare(device, plan.source.files, plan.tasks, plan.streams, view.measuring)


async def _watch(job: Job, view: View) -> None:
    lag_ms = 0.0
    while True:
        view.moving(job, lag_ms)
        begun = time.monotonic()
        await anyio.sleep(REFRESH_SECONDS)
        lag_ms = (time.monotonic() - begun - REFRESH_SECONDS) * 1000
