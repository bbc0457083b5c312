"""An audit reports the resources that a part of a program has left behind, and the line that made each of them.

An audit uses origins and counts. Origins cover every device, stream, buffer and model made through aioacl. An origin
has the line that made the object, and how the object was closed or dropped. Counts (of the simulator, of threads, of
descriptors) cover all resources, but have no lines. So the audit first checks the origins, and closes the objects that
are still open. If a count is still higher after that, no object of aioacl made the resource. On the simulator, the
audit then reports the newest calls that made such resources. An open device keeps pools that grow, so pooled resources
are not counted while a device is open.

Resources are not released at once: threads need time to end, and busy streams are destroyed when their work is done. So
a count that has grown is checked again, for a limited time, before it is reported.
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
from aioacl.testing._cleanup import close_left, do_notes_of_closed_devices, force_close
from aioacl.testing._origins import book, frames_of, is_held, is_open, is_viewed, problem_of, where
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
    "offline_models": "Load it with `async with device.load_model(path)`, or close it.",
    "devices": "Open it with `async with aioacl.open_device()`, or close it.",
    "leases": "Enter it with `async with device.lease()`, or with `with` on a thread without a loop.",
    "threads": "Join it before the test ends.",
    "descriptors": "Close it before the test ends.",
    "directories": "Make it with `with tempfile.TemporaryDirectory()`, or remove it before the test ends.",
    "files": "Make it with `with tempfile.NamedTemporaryFile()`, or remove it before the test ends.",
}

CURE_OF_SETS: Final = (
    "A close of a device that was opened with keep=True or resets=False, or with AIOACL_RESETS=never, leaves one set. "
    "Allow it with `aioacl_allow_leaks`, or undo it as other code does: call aclrtResetDevice of "
    "`ctypes.CDLL(aioacl.library_info().path)` before the test ends."
)


@dataclass(frozen=True)
class Finding:
    """One problem that an audit has found.

    Attributes:
        name: the kind of the problem: "devices", "leases", "threads", "descriptors", "directories", "files",
            "violations", "watchdog", or a name in `Snapshot.counts`.
        text: the problem, the line that caused it, and what to do.
    """

    name: str
    text: str

    def __str__(self) -> str:
        return self.text


class AuditFailed(AssertionError):
    """An audit found resources that were left behind, or violations of rules of ACL.

    Attributes:
        findings: the problems, each a Finding.
    """

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__(report(self.findings))


def report(findings: Iterable[Finding]) -> str:
    """Returns the findings as text."""
    return "\n".join(f"aioacl: {finding.text}" for finding in findings)


class Audit:
    """Checks the resources that all threads leave behind between `begin` and `end`. Use `audit()`, which calls both.

    Args:
        allowed: the names of the resources that may be left, as for `audit()`.
        patience: the time in seconds that threads and unfinished work may take to end.

    Attributes:
        allowed: the names of the resources that may be left.
        before: the Snapshot at the beginning.

    Raises:
        ParameterError: `allowed` contains a name that no audit counts.
    """

    _uvloop_met: ClassVar[bool] = False

    def __init__(self, *allowed: str, patience: Seconds = PATIENCE_SECONDS) -> None:
        refuse_unknown(allowed, "audit")
        self.allowed = frozenset(allowed)
        self._explained: Counter[str] = Counter()  # growth that the origins explain, by name
        self._patience = bound_of("patience", patience)
        self._book = book()
        self._wire = tripwire()

    def begin(self) -> None:
        """Begins the audit."""
        self._book.open()
        self._wire.open()
        self._known: set[object] = set(self._book.origins)
        self._violations = simulator.stats().violations if is_simulated() else 0
        self._forgotten = times_forgotten()
        self._resets = _force_resets()
        self.before = snapshot()

    def end(self) -> list[Finding]:
        """Ends the audit, closes the objects that were left open, and returns the findings."""
        return [*self.left(), *self.counted()]

    def left(self) -> list[Finding]:
        """Does the first half of `end`: closes aioacl's objects that were left open, and returns findings for them."""
        mine = [it for it in self._book.origins if it not in self._known and it.owner is None]
        self._let_views_go(mine)
        self._let_leases_go(mine)
        found = [(it, problem_of(it)) for it in mine if it.frames and it.name not in self.allowed]
        findings = [self.finding_of(origin, wrong) for origin, wrong in found if wrong]
        self._explained = Counter(finding.name for finding in findings)
        self._close(mine)
        self._book.remove(mine)
        return findings

    def _let_views_go(self, origins: list[Origin]) -> None:
        """Waits until no view of closed memory exists: a copy may still run, or a view may be in a reference cycle."""
        closed = [it for it in origins if it.memory is not None and it.name not in self.allowed]
        if any(map(is_viewed, closed)):
            gc.collect()
            holds_within(lambda: not any(map(is_viewed, closed)), self._patience)

    def _let_leases_go(self, origins: list[Origin]) -> None:
        """Waits until no lease is held, because a task on another loop may be about to leave its lease."""
        if "leases" not in self.allowed:
            holds_within(lambda: not any(map(is_held, origins)), self._patience)

    def counted(self, *allowed: str) -> list[Finding]:
        """Does the second half of `end`: returns findings for counts that have grown, and for violations."""
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

    # --- what outlives the audit -----------------------------------------------------------------------------

    def expect(self, grown: Growth) -> None:
        """Excludes this growth from the audit, because the owner of the resources outlives the audit."""
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
        """Includes the owner's resources in the audit again, and closes those that the owner did not close."""
        counts, kept = Counter(self.before.counts), dict(self.before.descriptors)
        threads, devices = self.before.threads, self.before.devices
        directories, files = self.before.directories, self.before.files
        for each in grown:
            counts.subtract(each.counts)
            kept = {number: it for number, it in kept.items() if each.descriptors.get(number) != it}
            threads, devices = threads - each.threads, devices - each.devices
            directories, files = directories - each.directories, files - each.files
        # A count must not become negative: a reset, for example, may already have released some of the resources.
        left_over = {name: max(0, count) for name, count in counts.items()}
        self.before = Snapshot(left_over, kept, threads, devices, directories, files)
        self._close(left)
        self._book.remove(left)

    # --- checks of origins -----------------------------------------------------------------------------------

    @staticmethod
    def finding_of(origin: Origin, wrong: str) -> Finding:
        """Returns the finding for an object that was not closed correctly, with the line that made it."""
        return Finding(
            origin.name, _described(f"{origin.what} {wrong}", "made", origin.frames, _CURES[origin.name])
        )

    def _close(self, origins: list[Origin]) -> None:
        things = [origin.thing() for origin in origins if origin.name not in self.allowed]
        left = [thing for thing in things if thing is not None and is_open(thing)]
        if left:
            close_left(left)
        do_notes_of_closed_devices()

    # --- checks of counts ------------------------------------------------------------------------------------

    def _growth(self) -> Growth:
        now = snapshot()
        names = set(self.allowed)
        if now.devices:
            names |= POOLED
        if _force_resets() > self._resets:  # after a fault the events of the pool are never destroyed
            names.add("events")
        found = growth(self.before, now).without(names, self._explained)
        return found if Audit._uvloop_met else found.without_pipe(pipe_of_uvloop(found))

    def _growth_that_stays(self) -> Growth:
        if not holds_within(lambda: not self._growth(), BEFORE_GC_SECONDS):
            # Each time, because a thread may drop a reference cycle later.
            holds_within(lambda: gc.collect() >= 0 and not self._growth(), self._patience)
        return self._growth()

    def _of_counts(self, found: Growth) -> Iterator[Finding]:
        for index in found.devices:
            yield Finding(
                "devices", _described(f"device {index} is still open", "opened", (), _CURES["devices"])
            )
        if found.devices:  # the resources of an open device are not separate leaks
            return
        for name, count in found.counts.items():
            lines = [f"{count} more {name} than before, not made by an object of aioacl"]
            if name == "set_counts":
                lines.append("  " + CURE_OF_SETS)
            if is_simulated() and (makers := makers_of(name)):
                lines += ["  The newest calls that made some:", *makers]
            yield Finding(name, "\n".join(lines))

    def _of_threads_and_descriptors(self, found: Growth) -> Iterator[Finding]:
        for thread in found.threads:
            started, what = self._wire.of_thread(thread), f"thread {thread.name!r} is still running"
            verb, frames = ("started", started) if started else ("last seen", _current_frames_of(thread))
            yield Finding("threads", _described(what, verb, frames, _CURES["threads"]))
        for number, target in found.descriptors.items():
            frames = self._wire.of_descriptor(number, target)
            what = f"descriptor {number} ({target}) is still open"
            yield Finding("descriptors", _described(what, "opened", frames, _CURES["descriptors"]))

    def _of_temporary(self, found: Growth) -> Iterator[Finding]:
        left = _temporary.left(())
        for path in sorted(found.directories):
            what = f"temporary directory {path} was not cleaned up"
            yield Finding("directories", _described(what, "made", left.get(path, ()), _CURES["directories"]))
        for path in sorted(found.files):
            what = f"temporary file {path} was not removed"
            yield Finding("files", _described(what, "made", left.get(path, ()), _CURES["files"]))

    def _of_violations(self) -> list[Finding]:
        if not is_simulated():
            return []
        simulator.check_memory()  # a write out of bounds is a violation too
        # simulator.forget() sets the count to 0.
        seen = self._violations if times_forgotten() == self._forgotten else 0
        new = max(0, simulator.stats().violations - seen)
        kept = simulator.violations()
        texts = [f"a rule of ACL was violated: {text}" for text in kept[max(0, len(kept) - new) :]]
        if new > len(kept):
            texts.insert(0, f"{new - len(kept)} older violations of rules of ACL are no longer recorded")
        return [Finding("violations", text) for text in texts]


def _force_resets() -> int:
    return simulator.calls("aclrtResetDeviceForce") if is_simulated() else 0


def _described(what: str, verb: str, frames: tuple[Frame, ...], cure: str) -> str:
    place = [f"; it was {verb}", where(frames)] if frames else [""]
    return "\n".join([what + place[0], *place[1:], f"  {cure}"])


def _current_frames_of(thread: threading.Thread) -> tuple[Frame, ...]:
    """Returns the lines that a thread runs now; used if the start of the thread was not recorded."""
    return frames_of(sys._current_frames().get(thread.ident or 0))


@contextmanager
def audit(*allowed: str, patience: Seconds = PATIENCE_SECONDS) -> Generator[Audit]:
    """Raises AuditFailed if the block leaves resources behind: devices, streams, memory, threads or descriptors.

    Use it as `with audit(): asyncio.run(main())`. The error names the line that made each resource. On the simulator,
    the error also reports violated rules of ACL. Resources that were left are closed. If the block raises an exception,
    the report is added to that exception as a note.

    Args:
        allowed: the names of the resources that may be left: "devices", "leases", "threads", "descriptors",
            "directories", "files", "violations", or a name in `Snapshot.counts`.
        patience: the time in seconds that threads and unfinished work may take to end.

    Yields:
        The Audit.

    Raises:
        AuditFailed: a resource was left behind, or a rule of ACL was violated.
        ParameterError: `allowed` contains a name that no audit counts.
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
