"""The child: `python -m aioacl._selftest FD ORDER` loads the library, and runs the checks that the order names.

The child writes JSON objects to the descriptor, one on each line: first the library that it loaded, then the start and
the result of each check. If a check does not return, or ends the process, the parent detects this. The child ends
without running the runtime's destructors, unless one of its checks is about the end of the process.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aioacl._base.errors import LibraryNotFound
from aioacl._base.ffi import ffi
from aioacl._library import detection, onnxruntime
from aioacl._library.load import LibraryInfo, library_info, use_library
from aioacl._selftest._bench import Bench, call, named
from aioacl._selftest._outcomes import Broken, NotTestable
from aioacl._selftest._records import Assumption, Needs
from aioacl._selftest._table import ASSUMPTIONS
from aioacl._selftest._threads import Helper, patience
from aioacl._selftest.process import absent, version


@dataclass(frozen=True, slots=True)
class Order:
    """The request of the parent."""

    library: str | None
    device: int
    ids: tuple[str, ...]
    limit_seconds: float  # the time limit of each check
    model: str | None  # the model to test, or None for the model of the package


class Report:
    """Sends lines to the parent."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "w", buffering=1)

    def send(self, **facts: Any) -> None:
        """Writes one line."""
        self._file.write(json.dumps(facts) + "\n")


def load(choice: str | None) -> LibraryInfo:
    """Returns the library of that choice, or the library that the usual search finds."""
    if choice is None:
        info = library_info()
    else:
        info = use_library(choice if choice == "simulator" else Path(choice).absolute())
    detection.begin()  # the checks call ACL directly, and some of them wait for reports
    return info


def devices() -> tuple[int, str]:
    """Returns the number of devices, and the reason if it is not known."""
    count = ffi.new("uint32_t *")
    code = call("aclrtGetDeviceCount", count)
    return (0, f"aclrtGetDeviceCount returned {named(code)}") if code else (int(count[0]), "")


def cannot(assumption: Assumption, order: Order, *, simulated: bool) -> str:
    """Returns why the assumption cannot be tested here, or an empty text if it can."""
    if Needs.OM_FILE in assumption.needs:
        if order.model is None and not simulated:
            return str(Needs.OM_FILE.value)
        if simulated and not onnxruntime.is_available():
            return "the package onnxruntime is not installed: pip install 'aioacl[onnx]'"
    for need in (Needs.FAULTS, Needs.NO_CARD, Needs.MODEL):
        if need in assumption.needs and not simulated:
            return str(need.value)
    lost = absent()
    lacking = [f"{name} (CANN {lost[name]})" for name in assumption.calls if name in lost]
    return f"the library lacks {', '.join(lacking)}" if lacking else ""


def attempt(assumption: Assumption, order: Order, *, simulated: bool) -> None:
    """Runs the check on the calling thread."""
    bench = Bench(order.device, simulated=simulated, model=order.model)
    if assumption.begins:
        bench.initialise()
    if not assumption.alone:
        bench.set_device()
    try:
        bench.run(assumption.check)
    except BaseException:
        bench.forget()
        raise
    bench.close()


def run(assumption: Assumption, order: Order, *, simulated: bool) -> tuple[str, str]:
    """Returns the outcome of the check, and its detail."""
    why_not = cannot(assumption, order, simulated=simulated)
    if why_not:
        return "not_testable", why_not
    helper = Helper(lambda: attempt(assumption, order, simulated=simulated))
    try:
        helper.outcome()
    except Broken as broken:
        return "broken", str(broken)
    except NotTestable as reason:
        return "not_testable", str(reason)
    except Exception as error:  # noqa: BLE001 - the user gets a result for every exception
        return "broken", f"the check raised {error!r}"
    return "held", ""


def main(arguments: list[str]) -> None:
    """Runs the checks of the order."""
    report = Report(int(arguments[0]))
    fields = json.loads(arguments[1])
    order = Order(**fields | {"ids": tuple(fields["ids"])})
    patience.fit(order.limit_seconds)
    try:
        info = load(order.library)
    except LibraryNotFound as error:
        report.send(message=error.message, candidates=error.candidates)
        return
    count, problem = devices()
    simulated = info.backend == "simulator"
    report.send(backend=info.backend, path=info.path, version=version(), devices=count, problem=problem)
    for name in order.ids:
        report.send(begin=name)
        outcome, detail = run(ASSUMPTIONS[name], order, simulated=simulated)
        report.send(id=name, outcome=outcome, detail=detail)
    if not any(ASSUMPTIONS[name].leaves for name in order.ids):
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
