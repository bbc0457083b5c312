"""The options of atc that state the shapes of the inputs, and the gears of a model.

A gear is a set of shapes, and a model can switch between its gears. `--input_shape` may have the value -1 for a
dimension. Each gear then gives these dimensions a value. There are three kinds of gears. Batch sizes replace a -1 that
is the first dimension, image sizes replace the height and the width, and dims replace all -1 in the order of
`--input_shape`. Without gears, such a dimension is known only when the model runs, and may have a range.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from aioacl.simulator._om import BadModel

if TYPE_CHECKING:
    from collections.abc import Mapping

LEAST, MOST = 2, 100
LARGEST: Final = 2**31 - 1
HEIGHT_AND_WIDTH: Final = 2
ENDS: Final = 2  # of a range
IMAGE_RANK: Final = 4  # N, C, height, width

Shapes = dict[str, tuple[int, ...]]
Ranges = tuple[tuple[int, int], ...]
UNLIMITED: Final = -1
Kind = Literal["batch_size", "image_size", "dims"]


@dataclass(frozen=True, slots=True)
class Gears:
    """The gears of one kind, and the inputs whose dimensions they replace, in order."""

    kind: Kind
    values: tuple[tuple[int, ...], ...]
    order: tuple[str, ...]

    def shapes(self, gear: int, shapes: Mapping[str, tuple[int, ...]]) -> Shapes:
        """Returns the shapes of the inputs in a gear."""
        values = self.values[gear]
        made = dict(shapes)
        taken = 0
        for name in self.order:
            count = shapes[name].count(-1)
            rest = iter(values[taken : taken + count] if self.kind == "dims" else values)
            made[name] = tuple(next(rest) if dim == -1 else dim for dim in shapes[name])
            taken += count
        return made


# --- --input_shape ------------------------------------------------------------------------------------------------


def parse_shapes(text: str) -> dict[str, Ranges]:
    """Returns the ranges of all dimensions in a value of `--input_shape`, such as "x:-1,64;y:1~8". "y:" is a scalar."""
    shapes: dict[str, Ranges] = {}
    for part in text.split(";"):
        if not part.strip():
            continue
        name, colon, dims = part.rpartition(":")
        name = name.strip()
        if not colon or not name:
            raise BadModel(
                f'--input_shape: expected "name:1,64", got {part!r}; put the name and a colon before the shape'
            )
        if name in shapes:
            raise BadModel(f"--input_shape: expected each input once, got {name!r} twice; remove one")
        shapes[name] = tuple(_dimension(name, dim) for dim in dims.split(",")) if dims.strip() else ()
    return shapes


def _dimension(name: str, text: str) -> tuple[int, int]:
    """Returns the least and the largest value. -1 has no largest value."""
    if text.strip() == "-1":
        return 0, UNLIMITED
    ends = [
        int(each) if re.fullmatch(r"\s*\d{1,10}\s*", each, re.ASCII) else LARGEST + 1
        for each in text.split("~")
    ]
    least, largest = ends[0], ends[-1]
    if len(ends) > ENDS or not least <= largest <= LARGEST:
        raise BadModel(
            f"--input_shape: expected numbers from 0 to {LARGEST}, ranges such as 1~8, or -1 for {name!r}, "
            f"got {text!r}; correct the dimension"
        )
    return least, largest


def shape_of(ranges: Ranges) -> tuple[int, ...]:
    """Returns the shape, with -1 for each dimension that has more than one value."""
    return tuple(least if least == largest else -1 for least, largest in ranges)


# --- gears --------------------------------------------------------------------------------------------------------


def parse_gears(options: Mapping[Kind, str | None], inputs: Mapping[str, Ranges]) -> Gears | None:
    """Returns the gears that the options state, or None if there are none.

    Args:
        options: the value of `--dynamic_batch_size`, `--dynamic_image_size` and `--dynamic_dims`.
        inputs: the ranges of all inputs, in the order of `--input_shape`.
    """
    shapes = {name: shape_of(ranges) for name, ranges in inputs.items()}
    given: list[tuple[Kind, str]] = [(kind, text) for kind, text in options.items() if text is not None]
    order = tuple(name for name, shape in shapes.items() if -1 in shape)
    if not given:
        return None
    if len(given) > 1:
        flags = " and ".join(_flag(kind) for kind, _ in given)
        raise BadModel(f"expected one kind of gears, got {flags}; remove all but one")
    kind, text = given[0]
    if not order:
        raise BadModel(
            f"{_flag(kind)}: expected a -1 in --input_shape, got none; put -1 for each dimension that varies"
        )
    ranged = next((name for name in order if any(0 <= least < most for least, most in inputs[name])), None)
    if ranged is not None:
        raise BadModel(
            f"{_flag(kind)}: expected -1 for each dimension of a gear, got a range for {ranged!r}; use -1"
        )
    gears = Gears(kind, _values(kind, text), order)
    _check_pattern(gears, shapes)
    return gears


def _flag(kind: Kind) -> str:
    return f"--dynamic_{kind}"


def _values(kind: Kind, text: str) -> tuple[tuple[int, ...], ...]:
    separator = "," if kind == "batch_size" else ";"
    parts = [part for part in text.split(separator) if part.strip()]
    gears = [tuple(_value(kind, each) for each in part.split(",") if each.strip()) for part in parts]
    if not LEAST <= len(gears) <= MOST:
        raise BadModel(
            f"{_flag(kind)}: expected {LEAST} to {MOST} gears, got {len(gears)}; separate gears by {separator!r}"
        )
    repeated = next((gear for place, gear in enumerate(gears) if gear in gears[:place]), None)
    if repeated is not None:
        raise BadModel(
            f"{_flag(kind)}: expected gears that differ, got {_listed(repeated)} twice; remove one"
        )
    return tuple(gears)


def _value(kind: Kind, text: str) -> int:
    number = int(text) if re.fullmatch(r"\s*\d{1,10}\s*", text, re.ASCII) else 0
    if not 1 <= number <= LARGEST:
        raise BadModel(
            f"{_flag(kind)}: expected numbers from 1 to {LARGEST}, got {text.strip()!r}; correct the number"
        )
    return number


def _listed(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))


def _check_pattern(gears: Gears, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raises BadModel unless each -1 is where this kind of gears allows it, and each gear has the right length."""
    for name in gears.order:
        shape = shapes[name]
        if gears.kind == "batch_size" and [place for place, dim in enumerate(shape) if dim == -1] != [0]:
            raise BadModel(
                f"--dynamic_batch_size: expected -1 as the first dimension only, got {_listed(shape)} for {name!r}; "
                "use --dynamic_dims for other dimensions"
            )
        # ONNX models have the format NCHW.
        if gears.kind == "image_size" and (
            len(shape) != IMAGE_RANK or shape[2:] != (-1, -1) or -1 in shape[:2]
        ):
            raise BadModel(
                "--dynamic_image_size: expected -1 as the height and the width of a shape N,C,H,W only, "
                f"got {_listed(shape)} for {name!r}; use --dynamic_dims for other dimensions"
            )
    expected = {"batch_size": 1, "image_size": HEIGHT_AND_WIDTH}.get(
        gears.kind, sum(shapes[name].count(-1) for name in gears.order)
    )
    for gear in gears.values:
        if len(gear) != expected:
            raise BadModel(
                f"{_flag(gears.kind)}: expected {expected} numbers in each gear, got {_listed(gear)}; "
                "give one number for each -1 in --input_shape"
            )


def largest(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Returns the shape with most elements, which decides the size of a tensor."""
    return max(shapes, key=math.prod)
