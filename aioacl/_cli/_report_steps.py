"""The child side of `report`: this module runs a step, with the arguments STEP ORDER.

Each result is written to stdout as soon as it is known, as a JSON object on a line. So the results before a hang are
not lost. The steps `selftest` and `sequences` load no library in this process.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aioacl._base.errors import AclError, LibraryNotFound
from aioacl._base.paths import DATA
from aioacl._cli._library import load
from aioacl._cli.conformance import failure_of
from aioacl._cli.selftest import as_row
from aioacl._conformance._runner import run as run_vectors
from aioacl._conformance._runner import trial
from aioacl._conformance._vectors import load as load_vectors
from aioacl._opening import open_device
from aioacl._selftest._records import Needs
from aioacl._selftest._runner import Request, identify
from aioacl._selftest._runner import run as run_checks
from aioacl._selftest._table import ASSUMPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

SEQUENCES: Final = DATA / "card_sequences.jsonl.gz"


def put(**found: Any) -> None:
    """Writes one result."""
    print(json.dumps(found), flush=True)


def selftest(order: dict[str, Any]) -> None:
    """Checks the assumptions, as the command `selftest` does."""
    request = Request(order["library"], 0, order["reset"], order["limit"], order["model"])
    try:
        library = identify(request)
    except LibraryNotFound:
        put(total=0, problem=True)
        return
    chosen = [each for each in ASSUMPTIONS.values() if request.reset or Needs.RESET not in each.needs]
    found = bool(library.backend)
    put(total=len(chosen), problem=not found or not library.devices)
    if found:
        put(library=library.path, backend=library.backend)
    if found and library.devices:
        for verdict in run_checks(request, chosen):
            put(**as_row(verdict))


def sequences(order: dict[str, Any]) -> None:
    """Plays the sequences of the package, one at a time."""
    vectors = load_vectors(SEQUENCES)
    problem = trial(order["library"])
    put(total=len(vectors), problem=bool(problem))
    for outcome in () if problem else run_vectors(vectors, order["library"], 1):
        put(**({"id": outcome.vector.id} if outcome.status == "passed" else failure_of(outcome)))


def model(order: dict[str, Any]) -> None:
    """Loads the user's model, and executes it twice with inputs of zeros."""
    load(order["library"])
    try:
        with open_device(0) as device, ExitStack() as stack:
            loaded = _timed("load", lambda: stack.enter_context(device.load_model(order["model"])))
            put(inputs=len(loaded.inputs), outputs=len(loaded.outputs), gears=len(loaded.gears))
            if not loaded.gears:  # `enqueue` takes models with fixed shapes only
                buffers = [
                    [stack.enter_context(device.allocate(max(each.nbytes, 1))) for each in tensors]
                    for tensors in (loaded.inputs, loaded.outputs)
                ]
                for buffer in buffers[0]:
                    loaded.stream.fill(buffer, 0).result()
                for phase in ("first call", "second call"):
                    _timed(phase, lambda: loaded.enqueue(*buffers).result())
    except AclError as error:
        put(error=type(error).__name__, code=error.code, call=error.call)
    else:
        put(closed=True)


def _timed(phase: str, work: Callable[[], T]) -> T:
    put(begun=phase)
    begun = time.monotonic()
    result = work()
    put(phase=phase, ms=(time.monotonic() - begun) * 1000)
    return result


STEPS: Final = {"selftest": selftest, "sequences": sequences, "model": model}

if __name__ == "__main__":
    STEPS[sys.argv[1]](json.loads(sys.argv[2]))
