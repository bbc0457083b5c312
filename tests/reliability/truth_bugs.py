"""Bugs that are put into a copy of the engine. The truth part must notice each of them."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aioacl import _acl
from tests.reliability import rebuilt

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reliability.part import Outcome


@dataclass(frozen=True)
class Bug:
    """A description, the change to the code, and the mode of the part that must notice the bug."""

    what: str
    file: str
    find: str
    replace: str
    mode: str

    def apply(self, text: str) -> str:
        """Returns the changed text. Raises ValueError if the text to change does not occur exactly once."""
        if text.count(self.find) != 1:
            raise ValueError(
                f"{self.what}: expected the text to change once, got it {text.count(self.find)} times"
            )
        return text.replace(self.find, self.replace)


BUGS: Final = (
    Bug(
        "complete work counts as confirmed before the reports are attributed",
        "report.c",
        "return atomic_load(&reported) != atomic_load(&resolved);",
        "return atomic_load(&reported) > atomic_load(&resolved) + 8;",
        "acl",
    ),
    Bug(
        "a failure does not propagate to the streams that wait for an event after it",
        "attribution.c",
        "    aio_failures_propagate();\n    aio_reports_resolved(seen);",
        "    aio_reports_resolved(seen);",
        "runtime",
    ),
    Bug(
        "a failure is attributed to the entry after the failed one",
        "attribution.c",
        "return (int32_t)(id - failed) >= 0;",
        "return (int32_t)(id - failed) > 0;",
        "acl",
    ),
    Bug(
        "a slow wait for an event is not confirmed",
        "link.c",
        "    return stream->borrowed || atomic_load(&stream->synced) >= link->position ||",
        "    return true || stream->borrowed || atomic_load(&stream->synced) >= link->position ||",
        "runtime",
    ),
    Bug(
        "a launch block that is not reported is not confirmed",
        "link.c",
        "(link->source && link->done_us && link->done_us - link->since_us < SHORTEST_LIMIT_US)",
        "!link->source || (link->done_us && link->done_us - link->since_us < SHORTEST_LIMIT_US)",
        "runtime",
    ),
    Bug(
        "a failure in a launch block is attributed to the entry before the block",
        "enqueue.c",
        "    for (uint64_t at = first; at < last; at++) {\n",
        "    atomic_store(&stream->ids[(first - 1) % AIO_RING], id);\n"
        "    for (uint64_t at = first; at < last; at++) {\n",
        "runtime",
    ),
    Bug(
        "a failure in a launch block is attributed to the entry after the block",
        "enqueue.c",
        "    return count_at(stream, last, id, true);",
        "    return count_at(stream, last, before, true);",
        "acl",
    ),
    Bug(
        "without reports, complete work counts as confirmed",
        "link.c",
        "exact ? limit : least(limit, atomic_load(&stream->synced))",
        "limit",
        "confirmed",
    ),
)


def try_all(outcome: Outcome, found_by: Callable[[str, Path], bool]) -> None:
    """Builds the engine with each bug. `found_by` runs a mode with a package, and returns whether it has findings."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        library = Path(_acl.__file__ or "")
        engine = rebuilt.Engine(place / "objects", library, extension=True)
        noticed = [bug for bug in BUGS if _is_noticed(bug, engine, place, library, found_by)]
    outcome.figures["seeded bugs"] = [
        f"{bug.what}: {'noticed' if bug in noticed else 'MISSED'}" for bug in BUGS
    ]
    outcome.expect(len(noticed) == len(BUGS), f"expected {len(BUGS)} noticed bugs, got {len(noticed)}")


def _is_noticed(
    bug: Bug, engine: rebuilt.Engine, place: Path, library: Path, found_by: Callable[[str, Path], bool]
) -> bool:
    folder = place / f"bug{BUGS.index(bug)}"
    shutil.copytree(library.parent, folder / "aioacl")
    objects = engine.changed(bug.file, bug.apply((rebuilt.ENGINE / bug.file).read_text()), folder)
    target = folder / "aioacl" / library.name
    target.unlink()
    engine.extension(objects, target)
    return found_by(bug.mode, folder)
