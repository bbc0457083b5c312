"""Writes the archive of `report`: a ZIP file with JSON, which appears complete or not at all."""

from __future__ import annotations

import io
import json
import os
import secrets
import signal
import sys
import zipfile
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Final

from aioacl._cli import UserError
from aioacl._cli._screen import ENDING, put

if TYPE_CHECKING:
    from pathlib import Path

    from aioacl._cli._report_fields import Fields

EARLIEST: Final = (1980, 1, 1, 0, 0, 0)  # the time of each file in the archive
PRIVATE: Final = 0o600


def check_place(place: Path) -> None:
    """Raises UserError if the archive cannot be written there."""
    try:
        place.lstat()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise UserError(f"{place}: {error.strerror or error}; choose another file with --output") from error
    else:
        raise UserError(f"{place} exists; move it away, or choose another file with --output")
    try:
        with TemporaryFile(dir=place.parent):  # os.access() does not know which files a file system refuses
            pass
    except OSError as error:
        raise UserError(
            f"{place.parent}: expected a folder that can be written to, got: {error.strerror}; choose a file with "
            "--output"
        ) from error


def files_of(found: Fields, summary: str) -> dict[str, bytes]:
    """Returns the files of the archive: the summary, one for each step, and the rest."""
    made = {"summary.txt": summary.encode()}
    whole = {key: value for key, value in found.items() if key != "steps"}
    for name, value in {"report": whole, **found["steps"]}.items():
        made[f"{name.replace(' ', '-')}.json"] = f"{json.dumps(value, indent=1)}\n".encode()
    return made


def write(place: Path, files: dict[str, bytes]) -> None:
    """Lists the files, writes the archive under a temporary name, and then gives it its name.

    A signal that ends the report waits meanwhile, because it could leave the file with the temporary name.
    """
    put(f"{place.name} will contain these files:\n", sys.stderr)
    for name, content in files.items():
        put(f"  {name:<20} {len(content):>8,} bytes\n", sys.stderr, flush=True)
    temporary = place.with_name(f".aioacl-report.{secrets.token_hex(8)}")
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (*ENDING, signal.SIGINT))
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as file:
            file.write(_zipped(files))
            file.flush()
            os.fsync(file.fileno())
        _publish(temporary, place)
    except OSError as error:
        raise UserError(f"{place}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _publish(temporary: Path, place: Path) -> None:
    """Gives the file its name. A link never replaces an archive that another report has written in the meantime."""
    try:
        os.link(temporary, place)
    except OSError:  # the name is taken, or the file system has no hard links
        check_place(place)
        temporary.rename(place)


def _zipped(files: dict[str, bytes]) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, EARLIEST)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = PRIVATE << 16
            archive.writestr(entry, content)
    return memory.getvalue()
