"""The options of atc that state shapes and gears."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioacl.simulator._gears import Gears, parse_gears, parse_shapes, shape_of
from aioacl.simulator._om import BadModel

if TYPE_CHECKING:
    from aioacl.simulator._gears import Kind, Ranges

HUNDRED = ",".join(map(str, range(1, 101)))


def options(**given: str) -> dict[Kind, str | None]:
    kinds: tuple[Kind, ...] = ("batch_size", "image_size", "dims")
    return {kind: given.get(kind) for kind in kinds}


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("", {}),
        ("x:1,64", {"x": ((1, 1), (64, 64))}),
        ("x:-1,64;y:8;", {"x": ((0, -1), (64, 64)), "y": ((8, 8),)}),
        ("x:1~8, 0 ~ 2147483647", {"x": ((1, 8), (0, 2147483647))}),
        (" x : 1 , 64 ; y : ", {"x": ((1, 1), (64, 64)), "y": ()}),
        ("a:0:2", {"a:0": ((2, 2),)}),
        ("输入:0", {"输入": ((0, 0),)}),
    ],
)
def test_input_shape_is_parsed(text: str, shapes: dict[str, Ranges]) -> None:
    assert parse_shapes(text) == shapes


def test_dimension_with_more_than_one_value_is_minus_one() -> None:
    assert shape_of(parse_shapes("x:-1,1~8,4~4,7")["x"]) == (-1, -1, 4, 7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,64", 'expected "name:1,64"'),
        (":1,64", 'expected "name:1,64"'),
        ("x:1;x:2", "got 'x' twice"),
        ("x:8~1", "got '8~1'"),
        ("x:1~-1", "got '1~-1'"),
        ("x:1~2~3", "got '1~2~3'"),
        ("x:-2", "got '-2'"),
        ("x:1,,2", "got ''"),
        ("x:N", "got 'N'"),
        ("x:2147483648", "got '2147483648'"),
        ("x:٣", "got '٣'"),
    ],
)
def test_wrong_input_shape_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadModel, match=r"^--input_shape: expected ") as caught:
        parse_shapes(text)
    assert message in str(caught.value)
    assert "; " in str(caught.value)


@pytest.mark.parametrize(
    ("given", "text", "gears"),
    [
        ({}, "x:1,64", None),
        ({}, "x:-1,64", None),
        ({"batch_size": "1,2,4,8"}, "x:-1,64;y:8", Gears("batch_size", ((1,), (2,), (4,), (8,)), ("x",))),
        ({"batch_size": " 1, 2,"}, "x:-1;y:-1,3", Gears("batch_size", ((1,), (2,)), ("x", "y"))),
        ({"image_size": "1,2;3,4;"}, "x:8,3,-1,-1", Gears("image_size", ((1, 2), (3, 4)), ("x",))),
        (
            {"dims": "20,20,1,1;40,40,2,2"},
            "data:1,1,40,-1;label:1,-1;mask:-1,-1",
            Gears("dims", ((20, 20, 1, 1), (40, 40, 2, 2)), ("data", "label", "mask")),
        ),
    ],
)
def test_gears_are_parsed(given: dict[str, str], text: str, gears: Gears | None) -> None:
    assert parse_gears(options(**given), parse_shapes(text)) == gears


def test_hundred_gears_are_accepted() -> None:
    gears = parse_gears(options(batch_size=HUNDRED), parse_shapes("x:-1"))
    assert gears is not None
    assert len(gears.values) == 100


@pytest.mark.parametrize(
    ("given", "text", "message"),
    [
        ({"dims": "1,2;3,4"}, "x:-1;y:1~8", "got a range for 'y'"),
        ({"batch_size": "1,2", "dims": "1;2"}, "x:-1", "got --dynamic_batch_size and --dynamic_dims"),
        ({"batch_size": "1,2"}, "x:1", "--dynamic_batch_size: expected a -1 in --input_shape"),
        ({"batch_size": "4"}, "x:-1", "expected 2 to 100 gears, got 1"),
        ({"batch_size": ""}, "x:-1", "expected 2 to 100 gears, got 0"),
        ({"batch_size": HUNDRED + ",101"}, "x:-1", "expected 2 to 100 gears, got 101"),
        ({"batch_size": "1,2,1"}, "x:-1", "got 1 twice"),
        ({"dims": "1,2;3,4;1, 2"}, "x:-1,-1", "got 1,2 twice"),
        ({"batch_size": "0,1"}, "x:-1", "expected numbers from 1 to 2147483647, got '0'"),
        ({"batch_size": "1,-2"}, "x:-1", "got '-2'"),
        ({"batch_size": "1,2147483648"}, "x:-1", "got '2147483648'"),
        ({"batch_size": "1,2.5"}, "x:-1", "got '2.5'"),
        ({"batch_size": "1,2"}, "x:3,-1", "expected -1 as the first dimension only, got 3,-1 for 'x'"),
        ({"batch_size": "1,2"}, "x:-1;y:-1,-1", "got -1,-1 for 'y'"),
        ({"image_size": "1,2;3,4"}, "x:8,-1,-1,3", "got 8,-1,-1,3 for 'x'"),
        ({"image_size": "1,2;3,4"}, "x:8,3,-1,5", "got 8,3,-1,5 for 'x'"),
        ({"image_size": "1,2;3,4"}, "x:3,-1,-1", "got 3,-1,-1 for 'x'"),
        ({"image_size": "1,2;3"}, "x:8,3,-1,-1", "expected 2 numbers in each gear, got 3"),
        ({"dims": "1,2;3"}, "x:-1,-1", "expected 2 numbers in each gear, got 3"),
        ({"dims": "1,2;3,4"}, "x:-1", "expected 1 numbers in each gear, got 1,2"),
    ],
)
def test_wrong_gears_are_refused(given: dict[str, str], text: str, message: str) -> None:
    with pytest.raises(BadModel) as caught:
        parse_gears(options(**given), parse_shapes(text))
    for part in (message, "expected ", ", got ", "; "):
        assert part in str(caught.value)


def test_batch_size_replaces_the_first_dimension_of_each_dynamic_input() -> None:
    gears = Gears("batch_size", ((1,), (8,)), ("x", "y"))
    shapes = {"x": (-1, 64), "y": (-1,), "z": (3,)}
    assert gears.shapes(1, shapes) == {"x": (8, 64), "y": (8,), "z": (3,)}


def test_image_size_replaces_height_and_width_of_each_dynamic_input() -> None:
    gears = Gears("image_size", ((1, 2), (3, 4)), ("x", "y"))
    shapes = {"x": (8, 3, -1, -1), "y": (1, 1, -1, -1)}
    assert gears.shapes(1, shapes) == {"x": (8, 3, 3, 4), "y": (1, 1, 3, 4)}


def test_dims_are_given_in_the_order_of_the_inputs() -> None:
    gears = Gears("dims", ((1, 2, 3), (4, 5, 6)), ("b", "a"))
    assert gears.shapes(1, {"a": (-1,), "b": (-1, 9, -1)}) == {"b": (4, 9, 5), "a": (6,)}
