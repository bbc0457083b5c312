"""`simulator inspect`: prints what a `.om` file contains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from aioacl._base.container import HEADER_BYTES, MAGIC_BYTES
from aioacl._cli import UserError
from aioacl._cli._model import described, show
from aioacl._cli._screen import Screen, put_json
from aioacl.simulator._om import BadModel, read

if TYPE_CHECKING:
    from argparse import Namespace


def add(actions: Any) -> None:
    """Adds the action to the parser of the simulator."""
    parser = actions.add_parser(
        "inspect",
        help="print the inputs, outputs and gears of a .om file",
        description="Print what a .om file contains: inputs, outputs, gears, and whether the simulator can execute it. "
        "Files for a chip can be inspected too.",
    )
    parser.add_argument("model", type=Path, metavar="MODEL.om", help="the file")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run, parser=parser)


def run(arguments: Namespace) -> int:
    """Reads the file, and prints its contents."""
    path: Path = arguments.model
    try:
        content = _content(path)
        model = read(content)
    except OSError as error:
        raise UserError(
            f"{path}: expected a file that can be read, got: {error.strerror or error}; correct the path"
        ) from error
    except BadModel as error:
        raise UserError(f"{path}: {error}") from error
    if arguments.json:
        put_json({"path": str(path), **described(model, len(content))})
    else:
        show(model, len(content), Screen())
    return 0


def _content(path: Path) -> bytes:
    """Returns the bytes of a file; of other files than models only the beginning, because a device may have no end."""
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
        return header + file.read() if header.startswith(MAGIC_BYTES) else header
