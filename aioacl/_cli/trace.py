"""`trace`: shows what a file of the flight recorder contains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioacl._base import flight_ring
from aioacl._base.errors import ParameterError
from aioacl._cli import UserError
from aioacl._cli._screen import put, put_json
from aioacl._trace import page, perfetto
from aioacl._trace.recording import make_beside

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from aioacl._base.flight import FlightRecord
    from aioacl._base.flight_ring import Ring

SHOWN: Final = 64


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "trace",
        help="show what a file of the flight recorder contains",
        description="Show the records in a file of AIOACL_RECORDER in words. The process of the file may have "
        "crashed, or may still be running. Loads no ACL library.",
    )
    parser.add_argument(
        "--from", dest="source", required=True, metavar="FILE", help="the file that AIOACL_RECORDER named"
    )
    parser.add_argument(
        "--last",
        type=int,
        default=SHOWN,
        metavar="N",
        help="how many of the newest records are shown (default: %(default)s; 0: all)",
    )
    parser.add_argument("--device", type=int, metavar="N", help="only the records of this device")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE.pftrace",
        help="write a trace for https://ui.perfetto.dev instead",
    )
    parser.add_argument("--html", type=Path, metavar="FILE.html", help="write a page for a browser instead")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run, parser=parser)


def run(arguments: Namespace) -> int:
    """Prints the records; returns 0."""
    if arguments.last < 0:
        raise UserError(f"--last must be 0 or more, got {arguments.last}; pass 0 for all records")
    try:
        ring = flight_ring.of_file(arguments.source)
    except OSError as error:
        raise UserError(
            f"{arguments.source}: {error.strerror or error}; pass the file that AIOACL_RECORDER named"
        ) from error
    except ParameterError as error:
        raise UserError(error.message) from error
    written = _outputs(arguments)
    for path, encode in written.items():
        _write(path, encode(ring))
    found = [] if written else ring.records()
    if arguments.device is not None:
        found = [each for each in found if each.device == arguments.device]
    shown = found[-arguments.last :] if arguments.last else found
    if arguments.json:
        put_json(as_json(ring, shown))
    else:
        put("".join(f"{line}\n" for line in [f"process {ring.process}: {ring.summary()}", *map(str, shown)]))
    return 0


def _outputs(arguments: Namespace) -> dict[Path, Callable[[Ring], bytes]]:
    """Returns the files to write. None of them replaces the file that is read, which may be all that a crash left."""
    source = Path(arguments.source).resolve()
    found: dict[Path, Callable[[Ring], bytes]] = {}
    for option, given, encode in (
        ("--output", arguments.output, perfetto.encode),
        ("--html", arguments.html, page.encode),
    ):
        if given is None:
            continue
        path = given.absolute()
        if path.resolve() == source or path in found:
            other = "--output" if path in found else "--from"
            raise UserError(
                f"{option} must be another file than {other}, got {given} for both; choose another file"
            )
        found[path] = encode
    return found


def _write(path: Path, content: bytes) -> None:
    """Writes a file that only its owner can read. An existing file or link is replaced."""
    try:
        temporary = make_beside(path)
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}; choose another file") from error


def as_json(ring: Ring, records: list[FlightRecord]) -> dict[str, Any]:
    """Returns the object that `--json` prints."""
    return {
        "process": ring.process,
        "written": ring.written,
        "overwritten": ring.overwritten,
        "missing": ring.missing,
        "dropped": ring.dropped,
        "wall_ns": ring.wall_ns,
        "monotonic_ns": ring.monotonic_ns,
        "records": [
            {
                "number": each.number,
                "at": each.at,
                "kind": each.kind,
                "device": each.device,
                "id": each.id,
                "code": each.code,
                "value": each.value,
                "thread": each.thread,
            }
            for each in records
        ],
    }
