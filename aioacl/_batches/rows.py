"""The checks of an item for a model, before it is queued; how many rows an execution of the model can have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioacl._base.errors import NotSupported, ParameterError
from aioacl._base.ffi import Arguments
from aioacl._models.arguments import _shape, _view, in_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioacl._base.ffi import Spec
    from aioacl._models.description import Description, Gear, TensorInfo

Shape = tuple[tuple[int, ...], ...]
SPLIT: Final = "Call the model itself, or convert it so that each input and output has the rows first."
SMALLEST: Final = -1  # C selects the gear


class RowsOfModel:
    """What a batcher must know of a model.

    Attributes:
        description: its inputs, outputs and gears.
        spec: the same for C. The items of all models and loads of a batcher have this one, so that they can join.
        gears: the numbers of rows that an execution can have, in order.
        max_rows: the most rows of an item.
    """

    def __init__(self, description: Description, spec: Spec) -> None:
        self.description = description
        self.spec = spec
        self._gears: dict[Shape, dict[int, int]] = {}  # for each shape, the number of each gear by its rows
        for number, gear in enumerate(description.gears):
            self._gears.setdefault(_without_rows(gear), {})[_rows(description, gear)] = number
        sizes = {tuple(sorted(of_shape)) for of_shape in self._gears.values()}
        if len(sizes) != 1:
            raise NotSupported(
                "expected the same numbers of rows for all shapes of the gears, got different ones",
                hint=SPLIT,
            )
        (self.gears,) = sizes
        self.max_rows: int = self.gears[-1]
        self._shapes = {shape: shape for shape in self._gears}
        self._batches = (
            description.kind == "batch"
            and all(description.batched)
            and all(info.shape[0] is None for info in description.inputs)
        )

    @property
    def usual(self) -> tuple[Spec, Shape] | None:
        """What C must know to check the usual items of a model whose gears are batches."""
        return (self.spec, next(iter(self._gears))) if self._batches else None

    @property
    def zeros(self) -> Arguments:
        """A call of one row, whose numbers are zero: the thread of the model fills what is missing with zeros."""
        return Arguments(self.spec, (memoryview(b""),) * len(self.description.inputs), 0, 1)

    def gear_for(self, calls: Sequence[Arguments]) -> int:
        """Returns the number of the smallest gear that holds calls of the same shape."""
        if self._batches:
            return SMALLEST
        rows = sum(call.rows or 0 for call in calls)
        gears = self._gears[_without_rows(self.description.gears[calls[0].gear])]
        return gears[min(size for size in gears if size >= rows)]

    def check(self, x: Any) -> tuple[Arguments, int, Shape]:
        """Checks an item, and returns it with its rows and its shape.

        Raises:
            ParameterError: the item is wrong. The error names the input and both shapes.
        """
        inputs = self.description.inputs
        values = in_order(inputs, x, "input")
        views = tuple(_view(info, value, "input") for info, value in zip(inputs, values, strict=True))
        # One object for all equal shapes, so that a comparison of two items is quick.
        shape = self._shapes.get(tuple(_dims(view)[1:] for view in views))
        first = _dims(views[0])
        if shape is None or not first or any(_dims(view)[:1] != first[:1] for view in views):
            raise self._wrong_shape(inputs, views)
        if not 1 <= first[0] <= self.max_rows:
            raise ParameterError(
                f"expected an item of 1 to {self.max_rows} rows, got {first[0]}",
                hint="Split the item, or pass at least one row.",
            )
        gear = next(iter(self._gears[shape].values()))
        return Arguments(self.spec, views, gear, first[0]), first[0], shape

    def _wrong_shape(self, inputs: tuple[TensorInfo, ...], views: tuple[memoryview, ...]) -> ParameterError:
        wanted = [
            " or ".join(_shape((None, *shape[at])) for shape in self._gears) for at in range(len(inputs))
        ]
        names = ", ".join(f"{info.name!r} {each}" for info, each in zip(inputs, wanted, strict=True))
        return ParameterError(
            f"expected the shapes {names}, got {', '.join(_shape(_dims(view)) for view in views)}",
            hint="Reshape the arrays; ? is the number of rows, from 1, which is the same in all inputs.",
        )


def _dims(view: memoryview) -> tuple[int, ...]:
    return view.shape or ()


def _without_rows(gear: Gear) -> Shape:
    return tuple(shape[1:] for shape in gear.inputs)


def _rows(description: Description, gear: Gear) -> int:
    """Returns the rows of a gear. Raises NotSupported if an input or output does not have them first."""
    inputs = zip(description.inputs, gear.inputs, strict=True)
    outputs = zip(description.outputs, gear.outputs, strict=True)
    rows = gear.inputs[0][:1]
    for noun, pairs in (("input", inputs), ("output", outputs)):
        for info, shape in pairs:
            if not shape or shape[:1] != rows:
                raise NotSupported(
                    f"expected {noun}s with the same first dimension, got {noun} {info.name!r} of {_shape(shape)} "
                    f"for {_shape(rows)} rows",
                    hint=SPLIT,
                )
    return rows[0]
