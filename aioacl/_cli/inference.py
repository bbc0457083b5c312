"""`demo inference`: the last part of the demo alone, in which a model classifies handwritten digits."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

import anyio

from aioacl._cli import UserError
from aioacl._cli._demo_digits import Classifier, refusal
from aioacl._cli._demo_library import load, unwrapped
from aioacl._cli._demo_report import digits_as_json, show_digits
from aioacl._cli._demo_view import REFRESH_SECONDS, view_for
from aioacl._cli._library import add_option
from aioacl._cli._screen import Screen, put

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from aioacl._cli._demo_digits import Inference
    from aioacl._cli._demo_view import View


def add(parts: Any) -> None:
    """Adds the part to the parser of `demo`."""
    parser = parts.add_parser(
        "inference",
        help="only classify handwritten digits with a model, and reset the device meanwhile",
        description="Classify 1,797 handwritten digits with a model, reset the device meanwhile, and compare each "
        "result with the result of NumPy. Before that, measure how many digits per second the model classifies, one at "
        "a time and with several slots. The exit status is 1 if a result is missing or wrong, or if the reset fails.",
    )
    # argparse sets the defaults of the part after it has read the options of `demo`, and would replace these.
    add_option(parser, default=argparse.SUPPRESS, otherwise="simulator")
    add_model(parser, default=argparse.SUPPRESS)
    parser.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,
        help="print one JSON object on a line at the end",
    )
    parser.set_defaults(run=run, parser=parser)


def add_model(parser: ArgumentParser, *, default: str | None = None) -> None:
    """Adds `--model`."""
    parser.add_argument(
        "--model",
        default=default,
        metavar="FILE.om",
        help="the model of digits to run (default: the model of the package, which only the simulator can run)",
    )


def run(arguments: Namespace) -> int:
    """Runs this part and prints its report. Returns 0 if each digit has one result, and each result is right."""
    if arguments.no_reset:
        arguments.parser.error("this part always resets the device; omit --no-reset")
    library = load(arguments.library)
    reason = refusal(library, arguments.model)
    if reason is not None:
        raise UserError(reason)
    with view_for(Screen(sys.stderr), Screen(), json=arguments.json) as view:
        found = unwrapped(lambda: anyio.run(classify, Classifier(library, arguments.model), view))
    if arguments.json:
        put(f"{digits_as_json(library, found)}\n")
    else:
        show_digits(library, found, Screen())
    return 0 if found.well else 1


async def classify(classifier: Classifier, view: View) -> Inference:
    """Runs this part, and shows its progress."""
    async with anyio.create_task_group() as group:
        group.start_soon(_watch, classifier, view)
        await classifier.run()
        group.cancel_scope.cancel()
    view.classifying(classifier.progress)
    return classifier.result()


async def _watch(classifier: Classifier, view: View) -> None:
    while True:
        view.classifying(classifier.progress)
        await anyio.sleep(REFRESH_SECONDS)
