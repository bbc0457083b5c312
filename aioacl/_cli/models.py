"""`simulator models`: runs a program on the simulator, and lists the models that it has loaded.

The models of a process cannot be seen from outside. So the simulator in the program appends each model to a file when
it is unloaded, or when the process exits (`AIOACL_SIM_MODELS`), and this command prints the file.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from aioacl._cli import UserError
from aioacl._cli._model import aligned, printable
from aioacl._cli._screen import Screen, put_json
from aioacl._library import onnxruntime
from aioacl.simulator._models import loaded_model

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Sequence

    from aioacl.simulator._models import LoadedModel, LoadedTensor

HEADINGS = ("id", "file", "device", "state", "computed by", "inputs", "outputs", "executions", "bytes")
SIGNALLED = 128  # a shell's status of a program that a signal has ended, less the number of the signal


def add(actions: Any, folder: Callable[[], Path]) -> None:
    """Adds the action to the parser of the simulator. `folder` makes the folder for LD_LIBRARY_PATH."""
    parser = actions.add_parser(
        "models",
        usage="%(prog)s [--json] -- PROGRAM [ARGUMENT ...]",
        help="run a program on the simulator, and list the models that it has loaded",
        description="Run a program on the simulator, and list the offline models that it has loaded: their files, "
        "inputs, outputs, executions, and whether they were unloaded. The exit status is that of the program.",
    )
    parser.add_argument(
        "program", nargs="+", metavar="PROGRAM", help="the program, in any language, and its arguments"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object; the output of the program goes to stderr"
    )

    def start(arguments: Namespace) -> int:
        return run(arguments, folder())

    parser.set_defaults(run=start, parser=parser)


def run(arguments: Namespace, folder: Path) -> int:
    """Runs the program, and prints the models. Returns the exit status of the program."""
    with TemporaryDirectory(prefix="aioacl-models-") as scratch:
        report = Path(scratch, "models")
        status = _status_of(arguments.program, _environment(folder, report), to_stderr=arguments.json)
        models = [loaded_model(json.loads(line)) for line in _lines(report)]
    if arguments.json:
        put_json({"status": status, "models": [asdict(model) for model in models]})
    else:
        _show(models, Screen())
    return status


def _environment(folder: Path, report: Path) -> dict[str, str]:
    """Returns an environment in which the program finds the simulator and onnxruntime."""
    environ = {"AIOACL_LIBRARY": "simulator", **os.environ, "AIOACL_SIM_MODELS": str(report)}
    searched = environ.get("LD_LIBRARY_PATH")
    environ["LD_LIBRARY_PATH"] = f"{folder}:{searched}" if searched else str(folder)
    library = onnxruntime.installed()
    if library is not None:
        environ.setdefault("AIOACL_SIM_ONNXRUNTIME", library)
    return environ


def _status_of(program: Sequence[str], environ: dict[str, str], *, to_stderr: bool) -> int:
    """Runs the program. Ctrl-C ends a service, whose models are then listed, so this process ignores it meanwhile."""
    sys.stdout.flush()
    output = sys.stderr.fileno() if to_stderr else None
    try:
        started = subprocess.Popen(program, env=environ, stdout=output)  # noqa: S603 - the user names the program
    except OSError as error:
        raise UserError(
            f"{program[0]}: expected a program that can be started, got: {error.strerror or error}; correct the path"
        ) from error
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        status = started.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    return status if status >= 0 else SIGNALLED - status


def _lines(report: Path) -> list[str]:
    """Returns the lines of the report. There is none if the program has not loaded the simulator."""
    try:
        return os.fsdecode(report.read_bytes()).split("\n")[:-1]
    except FileNotFoundError:
        return []


def _show(models: Sequence[LoadedModel], screen: Screen) -> None:
    if not models:
        screen.line("The program has loaded no model.")
        return
    aligned([HEADINGS, *map(_row, models)], screen)


def _row(model: LoadedModel) -> tuple[str, ...]:
    return (
        str(model.id),
        "memory" if model.path is None else printable(model.path),
        str(model.device),
        model.state,
        model.computed_by,
        _tensors(model.inputs),
        _tensors(model.outputs),
        str(model.executions),
        str(model.nbytes),
    )


def _tensors(tensors: Iterable[LoadedTensor]) -> str:
    return "; ".join(
        f"{printable(each.name)} {each.dtype} [{','.join(map(str, each.shape))}]" for each in tensors
    )
