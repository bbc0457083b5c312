"""`simulator dir`: makes a folder for LD_LIBRARY_PATH, in which any ACL program finds the simulator under CANN's names.

The folder's name contains the release of CANN that the simulator imitates, and a hash of the simulator. So each version
has its own folder. Each file is written under a temporary name and then renamed. So two processes may make the folder
at the same time, even while a program loads from it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioacl import __version__
from aioacl._cli import UserError, atc, conformance, inspect, models
from aioacl._cli._screen import Screen, put, put_json
from aioacl.simulator import include_dir, library_path
from aioacl.simulator._releases import NEWEST, RELEASES, functions, newer_than, runtime_path

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from aioacl.simulator._releases import Release

LIBRARY: Final = "libascendcl.so"
RUNTIME: Final = "libruntime.so"
HEADER: Final = "aclsim.h"
LINKS: Final = (
    "libacl_rt.so",
    "libacl_rt_impl.so",
    "libacl_mdl.so",
    "libacl_op_executor.so",
    "libacl_op_compiler.so",
    "libacl_tdt_channel.so",
    "libacl_tdt_queue.so",
    "libacl_cblas.so",
    "libmsprofiler.so",
    "libascend_dump.so",
    # torch_npu is linked with these libraries, and looks up a function only when it needs that function.
    "libhccl.so",
    "libge_runner.so",
    "libgraph.so",
)
HASH_DIGITS: Final = 12


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "simulator", help="use the simulator outside Python", description="Use the simulator outside Python."
    )
    parser.set_defaults(parser=parser)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    folder = actions.add_parser(
        "dir",
        help="print a folder for LD_LIBRARY_PATH that holds the simulator under CANN's names",
        description="Find or make a folder in the cache that holds the simulator under CANN's names, for the "
        "LD_LIBRARY_PATH of any ACL program. The last line of output is that folder.",
    )
    folder.add_argument(
        "--cann",
        choices=RELEASES,
        default=NEWEST,
        help="the release of CANN to imitate: functions of later releases are missing (default: %(default)s)",
    )
    folder.add_argument("--json", action="store_true", help="print one JSON object")
    folder.set_defaults(run=run, parser=folder)
    for action in (conformance, atc, inspect):
        action.add(actions)
    models.add(actions, lambda: _folder(NEWEST))


def run(arguments: Namespace) -> int:
    """Finds or makes the folder, and prints its path."""
    folder = _folder(arguments.cann)
    if arguments.json:
        put_json({"folder": str(folder), "library": LIBRARY, "links": LINKS, **_extent(arguments.cann)})
        return 0
    if sys.stdout.isatty():
        Screen().line("The folder for the LD_LIBRARY_PATH of any ACL program:")
    put(f"{folder}\n")
    return 0


def _folder(cann: Release) -> Path:
    try:
        return make_folder(cann, _cache())
    except OSError as error:
        raise UserError(f"{error.filename or 'the cache'}: {error.strerror or error}") from error


def _extent(cann: Release) -> dict[str, object]:
    """Returns the number of functions in a release, and the names of the functions of later releases."""
    known = functions()
    missing = sorted(name for name, since in known.items() if newer_than(cann, since))
    return {"cann": cann, "functions": len(known) - len(missing), "missing": missing}


def _cache() -> Path:
    """Returns the user's cache. A relative XDG_CACHE_HOME is ignored, as the XDG specification requires."""
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if chosen.is_absolute():
        return chosen / "aioacl"
    try:
        return Path.home() / ".cache" / "aioacl"
    except RuntimeError:
        raise UserError("there is no home folder: set XDG_CACHE_HOME to an absolute path") from None


def make_folder(cann: Release, cache: Path) -> Path:
    """Returns the folder for this release, and makes or repairs it if necessary."""
    files = _files(cann)
    digest = hashlib.sha256(b"".join(files.values())).hexdigest()[:HASH_DIGITS]
    folder = cache / f"simulator-{__version__}-cann-{cann}-{digest}"
    for each in (*reversed(cache.parents), cache, folder):
        with suppress(FileExistsError):
            each.mkdir(mode=0o755 if each == folder else 0o700)
    _must_be_ours(folder)
    for name, bytes_of in {**files, HEADER: (include_dir() / HEADER).read_bytes()}.items():
        if not _holds(folder / name, bytes_of):
            _put(folder, name, partial(_write, content=bytes_of))
    for name in LINKS:
        if not _leads(folder / name):
            _put(folder, name, lambda path: path.symlink_to(LIBRARY))
    return folder


def _files(cann: Release) -> dict[str, bytes]:
    """Returns the libraries of a release; libascendcl.so finds the libruntime.so that it needs in its own folder."""
    paths = {LIBRARY: library_path(cann)}
    runtime = runtime_path(cann)
    return {
        name: path.read_bytes() for name, path in {**paths, **({RUNTIME: runtime} if runtime else {})}.items()
    }


def _must_be_ours(folder: Path) -> None:
    """Raises UserError if other users can write to the folder: they could run code in programs that load from it."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise UserError(f"{folder}: it is not a folder that you own; remove it, or set XDG_CACHE_HOME")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UserError(f"{folder}: other users may write to it; remove it")


def _holds(path: Path, content: bytes) -> bool:
    try:
        return not path.is_symlink() and path.read_bytes() == content
    except FileNotFoundError:
        return False


def _leads(path: Path) -> bool:
    return path.is_symlink() and path.readlink() == Path(LIBRARY)


def _put(folder: Path, name: str, make: Callable[[Path], object]) -> None:
    temporary = folder / f".{name}.{secrets.token_hex(8)}"
    try:
        make(temporary)
        temporary.replace(folder / name)
    finally:
        temporary.unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
