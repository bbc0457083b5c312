"""What onnxruntime finds out about an ONNX model, in a child process with limits of processor time and memory.

A model can end onnxruntime, and with it the process, or take very long. So the package onnxruntime is imported in the
child only. The child reads one line of JSON and then the model from its standard input. It writes one line of JSON.

`fold` infers the shapes of the outputs as CANN's atc does: nodes whose inputs are constants, or shapes that are fixed,
are computed. No input has data, so a shape that depends on data stays unknown.

`padded` finds the outputs that depend on the rows that pad a batch. It runs the model with the same rows and two
paddings. The shapes of both runs are the same, so onnxruntime computes a row that does not depend on the padding with
the same operations, and its bits are the same.
"""

from __future__ import annotations

import importlib
import json
import resource
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from aioacl._base.child import command
from aioacl.simulator._onnx_shapes import set_shapes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

SECONDS: Final = 60  # of processor time, for each set of shapes
WAITS: Final = 10  # times as long as its processor time, because other processes may use the processor
MEMORY_BYTES: Final = 4 << 30  # and four times the size of the model
_FATAL: Final = 4  # the level of onnxruntime's log: the reasons are in the exceptions
_SCALES: Final = (1.0, 1 / 16)  # of random numbers: with large ones, many networks are saturated

Shape = tuple[int | None, ...]


class Unanswered(Exception):
    """The child has no answer; the text is the reason."""


def fold(model: bytes, gears: Sequence[Mapping[str, tuple[int, ...]]]) -> list[list[Shape | None]]:
    """Returns the shapes of the outputs for each set of shapes of the inputs; None is unknown.

    Args:
        model: the model, whose large weights may be inputs.
        gears: the sets of shapes by the names of the inputs, with -1 for unknown dimensions.

    Raises:
        Unanswered: onnxruntime is missing, refuses the model, or does not end within the limits.
    """
    answer = _ask({"task": "fold", "gears": [dict(each) for each in gears]}, model, len(gears))
    return [[None if shape is None else tuple(shape) for shape in shapes] for shapes in answer]


def padded(
    model: bytes, shapes: Mapping[str, tuple[int, ...]], order: Sequence[str], batched: Sequence[bool]
) -> list[int]:
    """Returns the places of the outputs that depend on the last row of a batch, if that row pads the batch.

    Args:
        model: the model.
        shapes: the shapes of the inputs, with a batch of at least two rows.
        order: the names of the inputs with a batch, which is their first dimension.
        batched: for each output, whether its first dimension is the batch. Its last row is left out.

    Raises:
        Unanswered: onnxruntime is missing, does not run the model, or does not end within the limits.
    """
    request = {"task": "padded", "shapes": dict(shapes), "order": [*order], "batched": [*batched]}
    return list(_ask(request, model, 1))


def because(reason: str) -> str:
    """Returns the part of a sentence that names the reason of onnxruntime; "" if there is none."""
    return f" (onnxruntime does not fold the shapes: {reason})" if reason else ""


def _ask(request: dict[str, Any], model: bytes, parts: int) -> Any:
    seconds = SECONDS * parts
    limits = {"seconds": seconds, "bytes": MEMORY_BYTES + 4 * len(model)}
    try:
        done = subprocess.run(  # noqa: S603 - aioacl's own module
            command("aioacl.simulator._onnx_child"),
            input=json.dumps(request | limits).encode() + b"\n" + model,
            capture_output=True,
            timeout=WAITS * seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unanswered(f"it did not end within {WAITS * seconds} seconds") from None
    except OSError as error:
        raise Unanswered(f"no process could be started: {error}") from error
    if done.returncode == -signal.SIGXCPU:
        raise Unanswered(f"it needed more than {seconds} seconds of processor time")
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise Unanswered(f"its process ended with the status {done.returncode}") from None
    if "error" in answer:
        raise Unanswered(answer["error"])
    return answer["found"]


# --- in the child -------------------------------------------------------------------------------------------------


def main() -> None:
    """Reads a request and a model, and writes the answer."""
    request = json.loads(sys.stdin.buffer.readline())
    _limit(resource.RLIMIT_AS, request["bytes"])
    _limit(resource.RLIMIT_CPU, request["seconds"])
    _limit(resource.RLIMIT_CORE, 0)
    try:
        model = sys.stdin.buffer.read()
        if request["task"] == "fold":
            found: Any = [_folded(model, shapes) for shapes in request["gears"]]
        else:
            found = _padded(model, request["shapes"], request["order"], request["batched"])
        answer = {"found": found}
    except ImportError as error:
        answer = {"error": f"{error}; install the package with `pip install 'aioacl[onnx]'`"}
    except MemoryError:
        answer = {"error": "it needed too much memory"}
    except Exception as error:  # noqa: BLE001 - onnxruntime's exceptions have no common base
        answer = {"error": " ".join(str(error).split())}
    sys.stdout.write(json.dumps(answer) + "\n")


def _limit(what: int, most: int) -> None:
    """Sets the soft limit, which may not be above the hard limit."""
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _opened(model: bytes, level: str) -> Any:
    # onnxruntime has no types, and only the child may import it
    onnxruntime: Any = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _folded(content: bytes, shapes: Mapping[str, Sequence[int]]) -> list[list[int | None] | None]:
    import onnx  # noqa: PLC0415 - it takes a second

    model = onnx.ModelProto.FromString(content)
    set_shapes(model, shapes)
    session = _opened(model.SerializeToString(), "ORT_ENABLE_BASIC")
    # onnxruntime returns [] for a scalar, and also for a tensor whose number of dimensions is unknown.
    return [
        [dim if isinstance(dim, int) and dim >= 0 else None for dim in port.shape] or None
        for port in session.get_outputs()
    ]


def _padded(
    content: bytes, shapes: Mapping[str, Sequence[int]], order: Sequence[str], batched: Sequence[bool]
) -> list[int]:
    session = _opened(content, "ORT_ENABLE_ALL")
    found: set[int] = set()
    for scale in _SCALES:
        inputs = _random_inputs(session.get_inputs(), shapes, scale)
        zeros, again = (session.run(None, _with_last_row(inputs, order, 0)) for _ in range(2))
        ones = session.run(None, _with_last_row(inputs, order, 1))
        for place, rows in enumerate(batched):
            kept = slice(-1) if rows else ...
            first, same, other = (each[place][kept].tobytes() for each in (zeros, again, ones))
            if first == same != other:  # otherwise its results are random
                found.add(place)
    return sorted(found)


def _random_inputs(
    ports: Iterable[Any], shapes: Mapping[str, Sequence[int]], scale: float
) -> dict[str, NDArray[Any]]:
    """Returns inputs that are the same in each run. Integers are 0 or 1, which are valid as indices."""
    import numpy as np  # noqa: PLC0415 - only the child needs it

    draw = np.random.default_rng(1)
    made: dict[str, NDArray[Any]] = {}
    for port in ports:
        name = port.type.removeprefix("tensor(").removesuffix(")")
        dtype = np.dtype({"float": "float32", "double": "float64"}.get(name, name))
        shape = shapes[port.name]
        values = draw.normal(0, scale, shape) if dtype.kind == "f" else draw.integers(0, 2, shape)
        made[port.name] = np.asarray(values).astype(dtype)
    return made


def _with_last_row(
    inputs: Mapping[str, NDArray[Any]], order: Sequence[str], value: int
) -> dict[str, NDArray[Any]]:
    """Returns the inputs with a padding of a value in place of the last row of each batch."""
    made = dict(inputs)
    for name in order:
        made[name] = made[name].copy()
        made[name][-1] = value
    return made


if __name__ == "__main__":
    main()
