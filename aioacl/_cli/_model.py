"""What a `.om` file contains, as a table and as JSON; `simulator atc` and `simulator inspect` print it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioacl._base.dtypes import format_name, type_name
from aioacl._cli._screen import BOLD
from aioacl._models.description import batch_axis_of, open_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioacl._cli._screen import Screen
    from aioacl.simulator._om import Description, Model, Tensor

HEADINGS = ("", "name", "shape", "data type", "format", "bytes")


def described(model: Model, nbytes: int) -> dict[str, Any]:
    """Returns the contents for JSON."""
    found = model.description
    return {
        "name": model.name,
        "simulated": model.simulated,
        "dynamic": model.dynamic,
        "bytes": nbytes,
        "inputs": None if found is None else [_tensor(each) for each in found.inputs],
        "outputs": None if found is None else [_tensor(each) for each in _outputs(found)],
        "gears": None if found is None else _gears(found),
        "onnx_bytes": None if model.onnx is None else len(model.onnx),
        "onnx_sha256": None if model.onnx is None else hashlib.sha256(model.onnx).hexdigest(),
        "sha256": model.sha256,
    }


def _outputs(found: Description) -> list[Tensor]:
    """Returns the outputs, with -1 for each dimension that depends on the gear, as the inputs have it."""
    made: list[Tensor] = []
    for at, each in enumerate(found.outputs):
        shapes = found.gear_shapes(at)
        if not shapes:
            made.append(each)
            continue
        axis = batch_axis_of(shapes, found.batch_sizes) if found.batch_sizes else None
        shape = tuple(-1 if size is None else size for size in open_shape(shapes, axis))
        made.append(replace(each, shape=shape))
    return made


def _tensor(tensor: Tensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "shape": list(tensor.shape),
        "dtype": type_name(tensor.dtype),
        "format": format_name(tensor.format),
        "bytes": tensor.nbytes,
    }


def _gears(found: Description) -> dict[str, Any] | None:
    """Returns the kind of the gears, their values, and the shape of each output in each gear."""
    kinds = {
        "batch_size": [[size] for size in found.batch_sizes],
        "image_size": [list(size) for size in found.image_sizes],
        "dims": [list(dims) for dims in found.dims],
    }
    kind = next((kind for kind, values in kinds.items() if values), None)
    if kind is None:
        return None
    return {
        "kind": kind,
        "values": kinds[kind],
        "order": list(found.order),
        "output_shapes": list(found.output_shapes),
    }


def show(model: Model, nbytes: int, screen: Screen) -> None:
    """Writes the contents as a table."""
    screen.heading(printable(model.name) or "(no name)")
    made = "simulated: onnxruntime runs it" if model.simulated else "genuine: the simulator cannot execute it"
    rows = [("made for", made), ("file", f"{nbytes} bytes")]
    if model.onnx is not None and model.sha256 is not None:
        digest = hashlib.sha256(model.onnx).hexdigest()
        rows += [("ONNX model", f"{len(model.onnx)} bytes, SHA-256 {digest}"), ("checksum", model.sha256)]
    if model.dynamic:
        rows.append(("shapes", "known only when the model runs"))
    if model.description is None:
        rows.append(("description", "none in the file"))
    else:
        gears = _gears(model.description)
        rows.append(("gears", "none" if gears is None else _listed(gears)))
    screen.rows(rows)
    if model.description is not None:
        _table(model.description, screen)


def _listed(gears: dict[str, Any]) -> str:
    values = "; ".join(",".join(map(str, gear)) for gear in gears["values"])
    return f"{len(gears['values'])} of {gears['kind']}: {values}"


def _table(found: Description, screen: Screen) -> None:
    rows: list[tuple[str, ...]] = [HEADINGS]
    for what, tensors in (("input", found.inputs), ("output", _outputs(found))):
        for place, each in enumerate(tensors):
            shape = ",".join(map(str, each.shape)) or "scalar"
            rows.append(
                (
                    f"{what} {place}",
                    printable(each.name),
                    shape,
                    type_name(each.dtype),
                    format_name(each.format),
                    str(each.nbytes),
                )
            )
    aligned(rows, screen)


def aligned(rows: Sequence[tuple[str, ...]], screen: Screen) -> None:
    """Writes a table. The first row has the headings, and the last column has numbers."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [
            cell.rjust(width) if column == len(row) - 1 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        screen.line(screen.paint(f"  {'   '.join(cells)}", *([] if number else [BOLD])))


def printable(name: str) -> str:
    """Returns a name without control characters, which would change a terminal: a file may come from anywhere."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in name)
