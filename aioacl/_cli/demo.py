"""`demo`: many tasks copy real files through a device while the device is force-reset twice.

Then the demo measures the lag of the event loop.
"""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentTypeError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio

from aioacl._base.errors import AclError
from aioacl._cli import UserError
from aioacl._cli._demo_input import find_input
from aioacl._cli._demo_job import Job
from aioacl._cli._demo_lag import compare
from aioacl._cli._demo_report import Outcome, as_json, show
from aioacl._cli._demo_view import REFRESH_SECONDS, view_for
from aioacl._cli._library import add_option, load_or_explain
from aioacl._cli._screen import OutputError, Screen, put
from aioacl._device import open_device

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
LATENCY: Final = "AIOACL_SIM_COPY_LATENCY_US"
LATENCY_US: Final = 1000  # about the duration of a small copy on a busy card, from call to completion


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "demo",
        help="copy real files to a device and back, reset the device during the copies, and verify every byte",
        description="Copy real files to a device and back, reset the device twice during the copies, and verify every "
        "byte. Then measure how late timers of the event loop fire, with awaits and with blocking calls. The exit "
        "status is 1 if a task or a reset fails, or if a file comes back changed.",
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
    add_option(parser, default="simulator", otherwise="simulator")
    parser.add_argument("--json", action="store_true", help="print one JSON object on a line at the end")
    parser.set_defaults(run=run, parser=parser)


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


def run(arguments: Namespace) -> int:
    """Runs the demo and prints its report. Returns 0 if nothing failed and every file came back unchanged."""
    source = find_input(arguments.input)
    plan = Plan(_load(arguments.library), source, arguments.tasks, arguments.streams)
    with view_for(Screen(sys.stderr), Screen(), json=arguments.json) as view:
        outcome = _unwrapped(lambda: anyio.run(_demonstrate, plan, view))
    if arguments.json:
        put(f"{as_json(outcome)}\n")
    else:
        show(outcome, Screen())
    return 0 if outcome.well else 1


def _load(choice: str) -> LibraryInfo:
    """Loads the library. Sets the duration of a copy in the simulator, unless the environment has set it."""
    was_set = LATENCY in os.environ
    os.environ.setdefault(LATENCY, str(LATENCY_US))
    info = load_or_explain(choice)
    if info.backend != "simulator" and not was_set:
        del os.environ[LATENCY]
    return info


def _unwrapped(work: Callable[[], Outcome]) -> Outcome:
    """Runs `work`. If one line can report an error of an exception group, raises that error without the group."""
    try:
        return work()
    except BaseExceptionGroup as group:
        raise _first_reportable(group) or group from None


def _first_reportable(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    found: BaseException | None = group.subgroup((UserError, AclError, OutputError))
    while isinstance(found, BaseExceptionGroup):
        inner: tuple[BaseException, ...] = found.exceptions
        found = inner[0]
    return found


async def _demonstrate(plan: Plan, view: View) -> Outcome:
    begun = time.monotonic()
    async with open_device(0) as device:
        job = Job(device, plan.source.files, plan.tasks, plan.streams)
        async with anyio.create_task_group() as group:
            group.start_soon(_watch, job, view)
            await job.run()
            group.cancel_scope.cancel()
        view.moving(job, 0.0)
        lag = await _compare(device, plan, view) if not job.tally.failures else None
        generation = device.generation
    seconds = time.monotonic() - begun
    return Outcome(
        plan.library, plan.source.name, plan.tasks, plan.streams, generation, job.tally, lag, seconds
    )


async def _compare(device: Device, plan: Plan, view: View) -> Comparison:
    return await compare(device, plan.source.files, plan.tasks, plan.streams, view.measuring)


async def _watch(job: Job, view: View) -> None:
    lag_ms = 0.0
    while True:
        view.moving(job, lag_ms)
        begun = time.monotonic()
        await anyio.sleep(REFRESH_SECONDS)
        lag_ms = (time.monotonic() - begun - REFRESH_SECONDS) * 1000
