"""An audit: what a stretch of a program has left behind, and which line it was.

There are two witnesses. Origins know every device, stream and buffer made through aioacl, with its line, and what
became of it. Counts (of the simulator, of threads, of descriptors) know everything, but no lines. So origins are
asked first; what they find is closed; and whatever the counts still show after that was made by no object of aioacl,
and the call that made it is reported. An open device keeps pools, which grow: while one is open, pooled things are not
counted.

Nothing is given back at once: threads end, and busy streams are destroyed when their work is done. So a count that has
grown is looked at again, for a while, before it is told.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from aioacl import simulator
from aioacl._base.options import bound_of
from aioacl.simulator._control import times_forgotten
from aioacl.testing import _temporary
from aioacl.testing._below import makers_of
from aioacl.testing._cleanup import close_left, force_close
from aioacl.testing._origins import book, frames_of, is_held, is_open, is_viewed, verdict, where
from aioacl.testing._snapshot import (
    POOLED,
    Growth,
    Snapshot,
    growth,
    is_simulated,
    pipe_of_uvloop,
    refuse_unknown,
    snapshot,
)
from aioacl.testing._tripwire import tripwire
from aioacl.testing._waiting import holds_within

if TYPE_CHECKING:
    import threading
    from collections.abc import Generator, Iterable, Iterator

    from aioacl._base.options import Seconds
    from aioacl._base.origin import Frame, Origin

BEFORE_GC_SECONDS: Final = 0.2
PATIENCE_SECONDS: Final = 2.0
_CURES: Final = {
    "streams": "Make it with `async with device.create_stream()`, or close it.",
    "device_blocks": "Make it with `async with device.allocate(n)`, or close it.",
    "host_blocks": "Make it with `async with device.pinned(n)`, or close it.",
    "devices": "Open it with `async with aioacl.open_device()`, or close it.",
    "leases": "Enter it with `async with device.lease()`, or with `with` on a thread without a loop.",
    "threads": "Join it before the test ends.",
    "descriptors": "Close it before the test ends.",
    "directories": "Make it with `with tempfile.TemporaryDirectory()`, or remove it before the test ends.",
    "files": "Make it with `with tempfile.NamedTemporaryFile()`, or remove it before the test ends.",
}


@dataclass(frozen=True)
class Finding:
    """One thing that an audit objects to.

    Attributes:
        name: its kind: devices, threads, descriptors, violations, or one of `Snapshot.counts`.
        text: what, which line, and what to do.
    """

    name: str
    text: str

    def __str__(self) -> str:
        return self.text


class AuditFailed(AssertionError):
    """Something was left behind, or a rule of ACL was violated. `findings` has each."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__(report(self.findings))


def report(findings: Iterable[Finding]) -> str:
    """The findings as a text."""
    return "\n".join(f"aioacl: {finding.text}" for finding in findings)


class Audit:
    """What happens between `begin` and `end`, on all threads."""

    _uvloop_met: ClassVar[bool] = False

    def __init__(self, *allowed: str, patience: Seconds = PATIENCE_SECONDS) -> None:
        refuse_unknown(allowed, "audit")
        self.allowed = frozenset(allowed)
        self._explained: Counter[str] = Counter()  # by name, what origins have accounted for
        self._patience = bound_of("patience", patience)
        self._book = book()
        self._wire = tripwire()

    def begin(self) -> None:
        """From here on."""
        self._book.open()
        self._wire.open()
        self._known: set[object] = set(self._book.origins)
        self._violations = simulator.stats().violations if is_simulated() else 0
        self._forgotten = times_forgotten()
        self._resets = _force_resets()
        self.before = snapshot()

    def end(self) -> list[Finding]:
        """Up to here. What was left open is closed, so that it troubles nobody."""
        return [*self.left(), *self.counted()]

    def left(self) -> list[Finding]:
        """The first half of `end`: what was made through aioacl and not closed, which is closed now."""
        mine = [it for it in self._book.origins if it not in self._known and it.owner is None]
        self._let_views_go(mine)
        self._let_leases_go(mine)
        found = [(it, verdict(it)) for it in mine if it.frames and it.name not in self.allowed]
        findings = [self.objection(origin, wrong) for origin, wrong in found if wrong]
        self._explained = Counter(finding.name for finding in findings)
        self._close(mine)
        self._book.remove(mine)
        return findings

    def _let_views_go(self, origins: list[Origin]) -> None:
        """Closed memory may wait for a copy that is under way, or for a view in a cycle."""
        closed = [it for it in origins if it.memory is not None and it.name not in self.allowed]
        if any(map(is_viewed, closed)):
            gc.collect()
            holds_within(lambda: not any(map(is_viewed, closed)), self._patience)

    def _let_leases_go(self, origins: list[Origin]) -> None:
        """A task on another loop may be about to leave its own."""
        if "leases" not in self.allowed:
            holds_within(lambda: not any(map(is_held, origins)), self._patience)

    def counted(self, *allowed: str) -> list[Finding]:
        """The second half: what has grown all the same, and violations."""
        self.allowed |= frozenset(allowed)
        found = self._growth_that_stays()
        Audit._uvloop_met |= pipe_of_uvloop(growth(self.before, snapshot())) is not None
        findings = [
            *self._of_counts(found),
            *self._of_threads_and_descriptors(found),
            *self._of_temporary(found),
            *self._of_violations(),
        ]
        if found.devices:
            force_close(but=self.before.devices)
        self._book.shut()
        self._wire.shut()
        return [finding for finding in findings if finding.name not in self.allowed]

    # --- what outlives it ------------------------------------------------------------------------------------

    def expect(self, grown: Growth) -> None:
        """This much was made meanwhile by somebody who keeps it."""
        counts = Counter(self.before.counts)
        counts.update(grown.counts)
        self.before = Snapshot(
            counts,
            {**self.before.descriptors, **grown.descriptors},
            self.before.threads | grown.threads,
            self.before.devices | grown.devices,
            self.before.directories | grown.directories,
            self.before.files | grown.files,
        )

    def expect_no_more(self, grown: Iterable[Growth], left: list[Origin]) -> None:
        """He is gone; what he has left is closed."""
        counts, kept = Counter(self.before.counts), dict(self.before.descriptors)
        threads, devices = self.before.threads, self.before.devices
        directories, files = self.before.directories, self.before.files
        for each in grown:
            counts.subtract(each.counts)
            kept = {number: it for number, it in kept.items() if each.descriptors.get(number) != it}
            threads, devices = threads - each.threads, devices - each.devices
            directories, files = directories - each.directories, files - each.files
        # What is gone already, by a reset for instance, cannot go once more.
        left_over = {name: max(0, count) for name, count in counts.items()}
        self.before = Snapshot(left_over, kept, threads, devices, directories, files)
        self._close(left)
        self._book.remove(left)

    # --- what origins know -----------------------------------------------------------------------------------

    @staticmethod
    def objection(origin: Origin, wrong: str) -> Finding:
        """Says that a thing ended wrongly, and where it was made."""
        return Finding(
            origin.name, _told(f"{origin.what} {wrong}", "made", origin.frames, _CURES[origin.name])
        )

    def _close(self, origins: list[Origin]) -> None:
        things = [origin.thing() for origin in origins if origin.name not in self.allowed]
        left = [thing for thing in things if thing is not None and is_open(thing)]
        if left:
            close_left(left)

    # --- what counts know ------------------------------------------------------------------------------------

    def _growth(self) -> Growth:
        now = snapshot()
        names = set(self.allowed)
        if now.devices:
            names |= POOLED
        if _force_resets() > self._resets:  # after a fault the pool's events are abandoned, for good
            names.add("events")
        found = growth(self.before, now).without(names, self._explained)
        return found if Audit._uvloop_met else found.without_pipe(pipe_of_uvloop(found))

    def _growth_that_stays(self) -> Growth:
        if not holds_within(lambda: not self._growth(), BEFORE_GC_SECONDS):
            gc.collect()
            holds_within(lambda: not self._growth(), self._patience)
        return self._growth()

    def _of_counts(self, found: Growth) -> Iterator[Finding]:
        for index in found.devices:
            yield Finding("devices", _told(f"device {index} stays open", "opened", (), _CURES["devices"]))
        if found.devices:  # what it keeps is not a leak of its own
            return
        for name, count in found.counts.items():
            lines = [f"{count} more {name} than before, made by no object of aioacl"]
            if is_simulated() and (makers := makers_of(name)):
                lines += ["  The newest calls that have made some:", *makers]
            yield Finding(name, "\n".join(lines))

    def _of_threads_and_descriptors(self, found: Growth) -> Iterator[Finding]:
        for thread in found.threads:
            started, what = self._wire.of_thread(thread), f"thread {thread.name!r} still runs"
            verb, frames = ("started", started) if started else ("seen now", _stands_at(thread))
            yield Finding("threads", _told(what, verb, frames, _CURES["threads"]))
        for number, target in found.descriptors.items():
            frames = self._wire.of_descriptor(number, target)
            what = f"descriptor {number} ({target}) stays open"
            yield Finding("descriptors", _told(what, "opened", frames, _CURES["descriptors"]))

    def _of_temporary(self, found: Growth) -> Iterator[Finding]:
        left = _temporary.left(())
        for path in sorted(found.directories):
            what = f"temporary directory {path} is not cleaned up"
            yield Finding("directories", _told(what, "made", left.get(path, ()), _CURES["directories"]))
        for path in sorted(found.files):
            what = f"temporary file {path} is not removed"
            yield Finding("files", _told(what, "made", left.get(path, ()), _CURES["files"]))

    def _of_violations(self) -> list[Finding]:
        if not is_simulated():
            return []
        simulator.check_memory()  # what was written outside its bounds is a violation too
        seen = (
            self._violations if times_forgotten() == self._forgotten else 0
        )  # forgotten: counted from nothing
        new = max(0, simulator.stats().violations - seen)
        kept = simulator.violations()
        texts = [f"a rule of ACL was violated: {text}" for text in kept[max(0, len(kept) - new) :]]
        if new > len(kept):
            texts.insert(0, f"{new - len(kept)} older violations of rules of ACL were not kept")
        return [Finding("violations", text) for text in texts]


def _force_resets() -> int:
    return simulator.calls("aclrtResetDeviceForce") if is_simulated() else 0


def _told(what: str, verb: str, frames: tuple[Frame, ...], cure: str) -> str:
    place = [f"; it was {verb}", where(frames)] if frames else [""]
    return "\n".join([what + place[0], *place[1:], f"  {cure}"])


def _stands_at(thread: threading.Thread) -> tuple[Frame, ...]:
    """Where a thread is now, when it is not known who started it."""
    return frames_of(sys._current_frames().get(thread.ident or 0))


@contextmanager
def audit(*allowed: str, patience: Seconds = PATIENCE_SECONDS) -> Generator[Audit]:
    """Raises AuditFailed if the block leaves something behind: devices, streams, memory, threads, descriptors.

    `with audit(): asyncio.run(main())` The error says which line made what was left. A rule of ACL that was violated
    on the simulator is told too. What was left is closed. If the block raises, its error gets the report as a note.

    Args:
        allowed: what may be left: devices, threads, descriptors, directories, files, violations, or one of
            `Snapshot.counts`.
        patience: seconds that threads and unfinished work get to end.

    Raises:
        AuditFailed: something was left, or a rule violated.
        ParameterError: a name in `allowed` is nothing that is counted.
    """
    this = Audit(*allowed, patience=patience)
    this.begin()
    try:
        yield this
    except BaseException as error:
        findings = this.end()
        if findings:
            error.add_note(report(findings))
        raise
    findings = this.end()
    if findings:
        raise AuditFailed(findings)
