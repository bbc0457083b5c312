"""Snapshots of the resources that exist now: objects in the simulator, and threads and descriptors of the process."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping  # noqa: TC003 - the annotations of public classes are evaluated
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aioacl import simulator
from aioacl._base.errors import ParameterError
from aioacl._base.ffi import lib
from aioacl._base.states import State
from aioacl._library import load
from aioacl._lifecycle import manager as _lifecycle
from aioacl._lifecycle.cache import NAMES
from aioacl._wait.current import thread_ports
from aioacl.testing import _temporary

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

# Counters of calls, and the sizes of blocks: the number of blocks is counted instead.
NOT_LIVING: Final = frozenset({"calls", "tasks", "violations", "inside", "device_bytes", "host_bytes"})
# An open device keeps a pool of each of these resources, which may grow.
POOLED: Final = frozenset({"events", "host_blocks", "native_threads"})
LIVING: Final = frozenset(field.name for field in fields(simulator.Stats)) - NOT_LIVING
KNOWN: Final = LIVING | {
    "set_counts",
    "native_threads",
    "descriptors",
    "threads",
    "devices",
    "directories",
    "files",
    "leases",
    "violations",
    "watchdog",
}
STDERR: Final = 2  # pytest replaces the descriptors 0 to 2, and restores them
# onnxruntime opens the files of a database in this folder when it is imported, and never closes them.
FOLDER_OF_ONNXRUNTIME: Final = ".onnxruntime"
OUR_THREADS: Final = "aioacl-"
# The names of the idle workers of event loops. The loops end these threads.
THEIR_THREADS: Final = ("asyncio_", "Trio thread", "AnyIO worker thread")


def refuse_unknown(names: Iterable[object], place: str) -> None:
    """Raises ParameterError for a name that no audit counts, because such a name has no effect."""
    for name in names:
        if not isinstance(name, str) or name not in KNOWN:
            like = get_close_matches(str(name), KNOWN, n=1)
            raise ParameterError(
                f"{place}: expected the name of something that is counted, got {name!r}"
                + (f" (did you mean {like[0]!r}?)" if like else ""),
                hint=f"Pass one of {', '.join(sorted(KNOWN))}.",
            )


@dataclass(frozen=True)
class Snapshot:
    """The resources that exist at one moment, from `snapshot()`.

    Attributes:
        counts: the number of resources of each kind in the simulator, by name: "streams", "events", "notifies",
            "device_blocks", "host_blocks", "contexts", and so on. "set_counts" are the counts of aclrtSetDevice.
            "native_threads" are the threads of the engine. On a card there is only "native_threads".
        descriptors: the open descriptors by number, each with its target, without the descriptors that aioacl
            keeps until the process ends.
        threads: the Python threads, without idle workers of event loops.
        devices: the indices of the devices that are not closed.
        directories: the paths of directories that `tempfile` made during an audit and that were not removed.
        files: the paths of files that `tempfile` made during an audit and that were closed but not removed.
    """

    counts: Mapping[str, int]
    descriptors: Mapping[int, str]
    threads: frozenset[threading.Thread]
    devices: frozenset[int]
    directories: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()

    def more_than(self, other: Snapshot, *allowed: str) -> dict[str, tuple[int, int]]:
        """Returns which counts are higher than in an earlier snapshot.

        Args:
            other: the earlier snapshot.
            allowed: the names that may have grown.

        Returns:
            A dict of names, each with the count in the earlier snapshot and in this one.
        """
        then, now = other._numbers(), self._numbers()
        return {
            name: (then.get(name, 0), count)
            for name, count in now.items()
            if count > then.get(name, 0) and name not in allowed
        }

    def _numbers(self) -> dict[str, int]:
        lengths = {
            name: len(getattr(self, name)) for name in ("descriptors", "threads", "directories", "files")
        }
        return {**self.counts, **lengths}


@dataclass(frozen=True)
class Growth:
    """The growth from an earlier snapshot to a later one."""

    counts: Mapping[str, int]
    descriptors: Mapping[int, str]
    threads: frozenset[threading.Thread]
    devices: frozenset[int]
    directories: frozenset[str]
    files: frozenset[str]

    def __bool__(self) -> bool:
        named = (self.descriptors, self.threads, self.devices, self.directories, self.files)
        return any((self.counts, *named))

    def without(self, names: Collection[str], explained: Mapping[str, int]) -> Growth:
        """Returns the growth without these names, and without counts that are at most as high as in `explained`."""
        descriptors_matter = "descriptors" not in names and is_simulated()  # a card's driver keeps some open
        return Growth(
            {
                name: count
                for name, count in self.counts.items()
                if name not in names and count > explained.get(name, 0)
            },
            self.descriptors if descriptors_matter else {},
            self.threads if "threads" not in names else frozenset(),
            self.devices if "devices" not in names else frozenset(),
            self.directories if "directories" not in names else frozenset(),
            self.files if "files" not in names else frozenset(),
        )

    def without_pipe(self, pipe: str | None) -> Growth:
        """Returns the growth without the two ends of this pipe."""
        kept = {number: target for number, target in self.descriptors.items() if target != pipe}
        return replace(self, descriptors=kept)


def growth(before: Snapshot, now: Snapshot) -> Growth:
    """Returns the growth from one snapshot to the other."""
    more = {name: count - before.counts.get(name, 0) for name, count in now.counts.items()}
    new = {
        number: target
        for number, target in now.descriptors.items()
        if before.descriptors.get(number) != target and number > STDERR
    }
    return Growth(
        {name: count for name, count in more.items() if count > 0},
        new if len(now.descriptors) > len(before.descriptors) else {},
        frozenset(thread for thread in now.threads - before.threads if thread.is_alive()),
        now.devices - before.devices,
        now.directories - before.directories,
        now.files - before.files,
    )


def pipe_of_uvloop(found: Growth) -> str | None:
    """Returns the pipe that the first loop of uvloop makes and keeps until the process ends, or None."""
    if "uvloop" not in sys.modules:
        return None
    pipes = [target for target in found.descriptors.values() if target.startswith("pipe:")]
    return next((target for target in pipes if pipes.count(target) == 2), None)


def snapshot() -> Snapshot:
    """Returns the resources that exist now. Calls no ACL function.

    Returns:
        The snapshot, which `Snapshot.more_than()` compares with an earlier one.
    """
    devices = frozenset(manager.index for manager in open_devices())
    numbers = descriptors()
    paths = _temporary.left(numbers.values())
    directories = frozenset(path for path in paths if Path(path).is_dir())
    files = frozenset(paths) - directories
    return Snapshot(_counts(), numbers, _threads(ours=not devices), devices, directories, files)


def is_simulated() -> bool:
    """Returns whether this process has loaded the simulator."""
    info = load._process._info  # library_info() would load a library
    return info is not None and info.backend == "simulator"


def _counts() -> dict[str, int]:
    found = {"native_threads": int(lib.aio_threads())}
    if not is_simulated():
        return found
    stats, equipped = stats_and_equipped()
    living = {name: getattr(stats, name) for name in LIVING}
    living["streams"] -= equipped
    managers = tuple(_lifecycle._managers.values())
    for kind, name in NAMES.items():  # what is cached belongs to no handle
        living[name] -= sum(manager.cache.counts[kind] for manager in managers)
    # A program cannot unload a model that a reset has abandoned.
    living["offline_models"] -= sum(manager.models.abandoned for manager in managers)
    return {**living, "set_counts": _set_counts(), **found}


def stats_and_equipped() -> tuple[simulator.Stats, int]:
    """Returns the objects in the simulator, and how many of their streams open devices use to wake the runtime.

    If a maintenance thread makes such a stream meanwhile, both numbers are read again.
    """
    equipped = lib.aio_equipped()
    while True:
        stats, before, equipped = simulator.stats(), equipped, lib.aio_equipped()
        if equipped == before:
            return stats, equipped


def _set_counts() -> int:
    """Returns the sum of the counts of aclrtSetDevice over all devices; ends at the first index without a device."""
    total = 0
    with suppress(ParameterError):
        for index in range(_lifecycle.DEVICES):
            total += simulator.retain_count(index)
    return total


def open_devices() -> list[_lifecycle.Manager]:
    """Returns the managers whose device is not closed, or for which a procedure is running."""
    managers = list(_lifecycle._managers.values())
    return [
        m
        for m in managers
        if m.admission.state is not State.CLOSED or m.procedure is not None or m.admission.opens
    ]


def _threads(*, ours: bool) -> frozenset[threading.Thread]:
    """Returns the threads, without workers of event loops. aioacl's own threads are included only if `ours` is True."""
    passed = THEIR_THREADS if ours else (*THEIR_THREADS, OUR_THREADS)
    return frozenset(thread for thread in threading.enumerate() if not thread.name.startswith(passed))


def _kept_for_life() -> set[int]:
    """Returns the descriptors that wake device threads and plain threads, and those of multiprocessing."""
    managers = list(_lifecycle._managers.values())
    workers = [worker._port for manager in managers for worker in (manager.control, manager.maintenance)]
    ports = {port.fd for port in (*workers, *thread_ports()) if port is not None}
    eventfds = {manager.stuck_calls.eventfd for manager in managers}
    return ports | eventfds | _kept_by_multiprocessing()


def _kept_by_multiprocessing() -> set[int]:
    """Returns the descriptors of the resource tracker and the fork server, which run until the process ends."""
    tracker = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    server = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    found = (getattr(tracker, "_fd", None), getattr(server, "_forkserver_alive_fd", None))
    return {number for number in found if number is not None}


def descriptors() -> dict[int, str]:
    """Returns the open descriptors by number, each with its target, without those that stay until the process ends."""
    kept = _kept_for_life()
    found: dict[int, str] = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - an iterator would have one more descriptor open
        with suppress(OSError):  # the descriptor of the listing itself is already closed
            number = int(name)
            target = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115 - most are not paths
            if number not in kept and Path(target).parent.name != FOLDER_OF_ONNXRUNTIME:
                found[number] = target
    return found
