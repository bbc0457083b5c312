"""Arguments of `model(x)`: what is accepted, and the message for each mistake, which is raised by the call itself."""

from __future__ import annotations

import array
import gc
import sys
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import aioacl
from aioacl import simulator
from tests.kit import no_call
from tests.support import offline
from tests.support.offline import WEIGHTS, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

F32, BF16 = np.float32, 16
BUFFER_HINT = "Pass an array of NumPy, another object with a contiguous buffer, or a tensor in host memory."
FORMS_HINT = (
    "Pass an array, a list or tuple with one array for each, or a dict of arrays by name. "
    "`numpy.asarray(values, dtype)` makes an array of a list of numbers."
)
CONTIGUOUS_HINT = "Pass `numpy.ascontiguousarray(x)`."
FIXED_HINT = "Reshape the array, or convert the model for that shape."


def zeros(*shape: int, dtype: Any = F32) -> Any:
    return np.zeros(shape, dtype)


def read_only(*shape: int) -> Any:
    made = zeros(*shape)
    made.flags.writeable = False
    return made


def called(x: Any, **options: Any) -> Callable[[aioacl.Model], object]:
    return lambda model: model(x, **options)


THREE_ROWS: Any = zeros(3, 3)
# The key is the name of the row; the values are the model, the call, the message and the hint.
ROWS: dict[str, tuple[Callable[[], bytes], Callable[[aioacl.Model], object], str, str]] = {
    "wrong dtype": (
        offline.product,
        called(zeros(2, 3, dtype=np.float64)),
        "input 'x': expected float32 [2, 3], got float64 [2, 3]",
        "Convert it first, for example with `x.astype('float32')`.",
    ),
    "other byte order": (
        offline.product,
        called(zeros(2, 3, dtype=">f4")),
        "input 'x': expected float32 [2, 3], got items of format '>f' [2, 3]",
        "Convert it first, for example with `x.astype('float32')`.",
    ),
    "bytes": (
        offline.product,
        called(bytes(24)),
        "input 'x': expected float32 [2, 3], got uint8 [24]",
        "Make an array of it first, for example with `numpy.frombuffer(x, 'float32').reshape(shape)`.",
    ),
    "structured array": (
        offline.product,
        called(zeros(2, 3, dtype=[("a", F32)])),
        "input 'x': expected float32 [2, 3], got items of format 'T{f:a:}' [2, 3]",
        "Convert it first, for example with `x.astype('float32')`.",
    ),
    "objects": (
        offline.product,
        called(zeros(2, 3, dtype=object)),
        "input 'x': expected float32 [2, 3], got items of format 'O' [2, 3]",
        "Convert it first, for example with `x.astype('float32')`.",
    ),
    "int32 for int64": (
        lambda: offline.identity(7),
        called(zeros(4, dtype=np.int32)),
        "input 'x': expected int64 [4], got int32 [4]",
        "Convert it first, for example with `x.astype('int64')`.",
    ),
    "uint8 for bool": (
        lambda: offline.identity(9),
        called(zeros(4, dtype=np.uint8)),
        "input 'x': expected bool [4], got uint8 [4]",
        "Convert it first, for example with `x.astype('bool')`.",
    ),
    "float16 for bfloat16": (
        lambda: offline.identity(BF16),
        called(zeros(4, dtype=np.float16)),
        "input 'x': expected bfloat16 (as uint16) [4], got float16 [4]",
        "Convert it first, for example with `x.astype('uint16')`.",
    ),
    "wrong shape": (
        offline.product,
        called(zeros(3, 2)),
        "input 'x': expected the shape [2, 3], got [3, 2]",
        FIXED_HINT,
    ),
    "wrong rank": (
        offline.product,
        called(zeros(6)),
        "input 'x': expected the shape [2, 3], got [6]",
        FIXED_HINT,
    ),
    "no rows for a fixed shape": (
        offline.product,
        called(zeros(0, 3)),
        "input 'x': expected the shape [2, 3], got [0, 3]",
        FIXED_HINT,
    ),
    "array for a scalar": (
        lambda: offline.identity(1, ()),
        called(zeros(1)),
        "input 'x': expected the shape [], got [1]",
        FIXED_HINT,
    ),
    "wrong columns of a batch": (
        lambda: offline.product("2,4"),
        called(zeros(2, 4)),
        "input 'x': expected the shape [?, 3], got [2, 4]",
        "Reshape the array; ? is any size that the model's gears have.",
    ),
    "one row of a batch": (
        lambda: offline.product("2,4"),
        called(zeros(3)),
        "input 'x': expected the shape [?, 3], got [3]",
        "The first dimension is missing: pass `x.reshape(1, 3)`.",
    ),
    "one row for a fixed shape of one row": (
        lambda: offline.identity(1, (1, 4)),
        called(zeros(4)),
        "input 'x': expected the shape [1, 4], got [4]",
        "The first dimension is missing: pass `x.reshape(1, 4)`.",
    ),
    "row for a fixed shape of two rows": (
        offline.product,
        called(zeros(3)),
        "input 'x': expected the shape [2, 3], got [3]",
        FIXED_HINT,
    ),
    "batch above the largest gear": (
        lambda: offline.product("2,4"),
        called(zeros(5, 3)),
        "expected a batch of 1 to 4 rows, got 5; the gears are 2, 4",
        "Split the batch, or convert the model with a larger --dynamic_batch_size.",
    ),
    "batch without rows": (
        lambda: offline.product("2,4"),
        called(zeros(0, 3)),
        "expected a batch of 1 to 4 rows, got 0; the gears are 2, 4",
        "Pass at least one row.",
    ),
    "different rows": (
        lambda: offline.sums("2,4"),
        called([zeros(2, 3), zeros(3, 3)]),
        "expected the same number of rows in all inputs, got 'a' 2, 'b' 3",
        "Pass the same batch in each input.",
    ),
    "image of another size": (
        offline.negated_image,
        called(zeros(1, 2, 4, 4)),
        (
            "expected shapes of one of the model's gears, got [1, 2, 4, 4]; the gears are "
            "[1, 2, 2, 4]; [1, 2, 4, 2]"
        ),
        "Resize the arrays to a gear; only batches are padded.",
    ),
    "dims of no gear": (
        offline.dims,
        called(zeros(2, 5)),
        "expected shapes of one of the model's gears, got [2, 5]; the gears are [2, 3]; [4, 5]",
        "Resize the arrays to a gear; only batches are padded.",
    ),
    "transposed": (
        offline.product,
        called(zeros(3, 2).T),
        "input 'x': expected float32 [2, 3], got float32 [2, 3], which is not contiguous",
        CONTIGUOUS_HINT,
    ),
    "every second column": (
        offline.product,
        called(zeros(2, 6)[:, ::2]),
        "input 'x': expected float32 [2, 3], got float32 [2, 3], which is not contiguous",
        CONTIGUOUS_HINT,
    ),
    "list of lists": (
        offline.product,
        called([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        "expected 1 input ('x'), got 2",
        FORMS_HINT,
    ),
    "list in a list": (
        offline.product,
        called([[1.0, 2.0]]),
        "input 'x': expected float32 [2, 3], got a list",
        BUFFER_HINT,
    ),
    "tuple in a tuple": (
        offline.product,
        called(((1.0, 2.0),)),
        "input 'x': expected float32 [2, 3], got a tuple",
        BUFFER_HINT,
    ),
    "number": (
        offline.product,
        called(1.5),
        "input 'x': expected float32 [2, 3], got 1.5",
        BUFFER_HINT,
    ),
    "nothing": (
        offline.product,
        called(None),
        "input 'x': expected float32 [2, 3], got None",
        BUFFER_HINT,
    ),
    "empty list": (
        offline.product,
        called([]),
        "expected 1 input ('x'), got 0",
        FORMS_HINT,
    ),
    "one array for two inputs": (
        offline.sums,
        called(zeros(2, 3)),
        "expected 2 inputs ('a', 'b'), got 1",
        FORMS_HINT,
    ),
    "three arrays for two inputs": (
        offline.sums,
        called([zeros(2, 3)] * 3),
        "expected 2 inputs ('a', 'b'), got 3",
        FORMS_HINT,
    ),
    "wrong name": (
        offline.sums,
        called({"a": zeros(2, 3), "c": zeros(2, 3)}),
        "expected inputs named 'a', 'b', got 'a', 'c'",
        "Pass one array for each name, and nothing else; the model lists them in `model.inputs`.",
    ),
    "name missing": (
        offline.sums,
        called({"a": zeros(2, 3)}),
        "expected inputs named 'a', 'b', got 'a'",
        "Pass one array for each name, and nothing else; the model lists them in `model.inputs`.",
    ),
    "no names": (
        offline.product,
        called({}),
        "expected inputs named 'x', got none",
        "Pass one array for each name, and nothing else; the model lists them in `model.inputs`.",
    ),
    "the input that selects the gear": (
        lambda: offline.product("2,4"),
        called({"x": zeros(2, 3), "ascend_mbatch_shape_data": zeros(1, dtype=np.int64)}),
        "expected inputs named 'x', got 'x', 'ascend_mbatch_shape_data'",
        "Pass one array for each name, and nothing else; the model lists them in `model.inputs`.",
    ),
    "out: read-only": (
        offline.product,
        called(zeros(2, 3), out=read_only(2, 4)),
        "output 'y': expected a writable array, got a read-only one",
        "Pass an array that can be written to, for example one of `numpy.empty`.",
    ),
    "out: bytes": (
        lambda: offline.identity(2),
        called(zeros(4, dtype=np.uint8), out=bytes(4)),
        "output 'y': expected a writable array, got a read-only one",
        "Pass an array that can be written to, for example one of `numpy.empty`.",
    ),
    "out: wrong shape": (
        offline.product,
        called(zeros(2, 3), out=zeros(2, 3)),
        "output 'y': expected the shape [2, 4], got [2, 3]",
        "Make the array with `numpy.empty((2, 4), 'float32')`.",
    ),
    "out: the shape of the gear instead of the rows": (
        lambda: offline.product("4,8"),
        called(zeros(3, 3), out=zeros(4, 4)),
        "output 'y': expected the shape [3, 4], got [4, 4]",
        "Make the array with `numpy.empty((3, 4), 'float32')`.",
    ),
    "out: wrong dtype": (
        offline.product,
        called(zeros(2, 3), out=zeros(2, 4, dtype=np.float64)),
        "output 'y': expected float32 [2, 4], got float64 [2, 4]",
        "Make the array with `numpy.empty(shape, 'float32')`.",
    ),
    "out: not contiguous": (
        offline.product,
        called(zeros(2, 3), out=zeros(4, 2).T),
        "output 'y': expected float32 [2, 4], got float32 [2, 4], which is not contiguous",
        "Pass a contiguous array, for example one of `numpy.empty`.",
    ),
    "out: a list": (
        offline.product,
        called(zeros(2, 3), out=[[0.0]]),
        "output 'y': expected float32 [2, 4], got a list",
        BUFFER_HINT,
    ),
    "out: too few": (
        offline.sums,
        called([zeros(2, 3)] * 2, out=[zeros(2, 3)]),
        "expected 2 outputs ('plus', 'minus'), got 1",
        FORMS_HINT,
    ),
    "out: one array for two outputs": (
        offline.sums,
        called([zeros(2, 3)] * 2, out=[zeros(2, 3)] * 2),
        "expected an array of its own for each output, got one with memory of both 'minus' and 'plus'",
        "Make each array with `numpy.empty`.",
    ),
    "out: two arrays that share a row": (
        offline.sums,
        called([zeros(2, 3)] * 2, out=[THREE_ROWS[:2], THREE_ROWS[1:]]),
        "expected an array of its own for each output, got one with memory of both 'plus' and 'minus'",
        "Make each array with `numpy.empty`.",
    ),
    "out: wrong name": (
        offline.sums,
        called([zeros(2, 3)] * 2, out={"plus": zeros(2, 3), "times": zeros(2, 3)}),
        "expected outputs named 'plus', 'minus', got 'plus', 'times'",
        "Pass one array for each name, and nothing else; the model lists them in `model.outputs`.",
    ),
}
every_row = pytest.mark.parametrize(("source", "call", "message", "hint"), ROWS.values(), ids=ROWS)


@every_row
def test_wrong_argument_is_refused_by_the_call_without_a_call_of_acl(
    device: aioacl.Device,
    source: Callable[[], bytes],
    call: Callable[[aioacl.Model], object],
    message: str,
    hint: str,
) -> None:
    with device.load_model(source()) as model:
        with no_call(), pytest.raises(aioacl.ParameterError) as caught:
            call(model)
        assert (caught.value.message, caught.value.hint) == (message, hint)
        assert offline.all_free(model)


def test_call_that_was_not_awaited_is_refused_as_an_argument(device: aioacl.Device) -> None:
    with device.load_model(offline.product()) as model:
        unawaited = model(rows(2))
        with pytest.raises(
            aioacl.ParameterError, match=r"expected float32 \[2, 3\], got <Call model"
        ) as caught:
            model(unawaited)
        assert caught.value.hint == "Await it first, and pass the result."
        unawaited.result()


@pytest.fixture
def product(device: aioacl.Device) -> Generator[aioacl.Model]:
    with device.load_model(offline.product()) as model:
        yield model


def unaligned(values: Any) -> Any:
    """A copy as deserialisers of messages make it: its memory does not begin at a multiple of the item size."""
    memory = bytearray(values.nbytes + 1)
    copy = np.frombuffer(memory, values.dtype, offset=1).reshape(values.shape)
    copy[...] = values
    assert copy.data.format == "=" + values.data.format
    return copy


X = rows(2)
ACCEPTED: dict[str, Any] = {
    "array": X,
    "list of one array": [X],
    "tuple of one array": (X,),
    "dict": {"x": X},
    "read-only array": np.frombuffer(X.tobytes(), F32).reshape(2, 3),
    "memoryview": memoryview(X.tobytes()).cast("f", (2, 3)),
    "memoryview of array.array": memoryview(array.array("f", X.ravel())).cast("B").cast("f", (2, 3)),
    "Fortran order of one row and column": np.ascontiguousarray(X),
    "part of a larger array": np.concatenate([rows(9), X, rows(9)])[2:4],
    "unaligned array": unaligned(X),
}


@pytest.mark.parametrize("x", ACCEPTED.values(), ids=ACCEPTED)
def test_each_form_of_the_argument_is_accepted(product: aioacl.Model, x: Any) -> None:
    assert np.array_equal(product(x).result(), X @ WEIGHTS)


@pytest.mark.parametrize("form", [lambda y: y, lambda y: [y], lambda y: (y,), lambda y: {"y": y}])
def test_each_form_of_out_is_written_and_returned(
    product: aioacl.Model, form: Callable[[Any], object]
) -> None:
    y = zeros(2, 4)
    out = form(y)
    assert product(X, out=out).result() is out
    assert np.array_equal(y, X @ WEIGHTS)


def test_out_may_be_unaligned(product: aioacl.Model) -> None:
    y = unaligned(zeros(2, 4))
    product(X, out=y).result()
    assert np.array_equal(y, X @ WEIGHTS)


def test_unaligned_array_of_another_type_is_named(product: aioacl.Model) -> None:
    with pytest.raises(aioacl.ParameterError, match=r"expected float32 \[2, 3\], got float64 \[2, 3\]"):
        product(unaligned(X.astype(np.float64)))


def test_out_may_be_a_memoryview(product: aioacl.Model) -> None:
    memory = bytearray(32)
    product(X, out=memoryview(memory).cast("f", (2, 4))).result()
    assert np.array_equal(np.frombuffer(memory, F32).reshape(2, 4), X @ WEIGHTS)


class Shrinking:
    """Returns an array of one model's input at the first request of its buffer, and later a smaller one."""

    def __init__(self, whole: Any) -> None:
        self.whole = whole
        self.requests = 0

    def __buffer__(self, _flags: int) -> memoryview:
        self.requests += 1
        return memoryview(self.whole if self.requests == 1 else bytearray(4))


@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="before 3.12, only types of C have the buffer protocol"
)
def test_call_requests_the_buffer_of_each_argument_once(device: aioacl.Device) -> None:
    count = offline.LARGE
    x, y = Shrinking(zeros(count) + 3), Shrinking(zeros(count))
    with device.load_model(offline.identity(shape=(count,))) as model:
        model(x, out=y).result()
    assert (x.requests, y.requests) == (1, 1)
    assert y.whole.tolist() == [3] * count


def test_arguments_in_a_cycle_with_their_memoryview_are_collected(product: aioacl.Model) -> None:
    for _ in range(3):
        view = memoryview(bytearray(24)).cast("f", (2, 3))
        operation = product(view)
        operation._state = "awaited"  # an operation that is dropped unused warns
        cycle: list[Any] = [view, operation]
        cycle.append(cycle)
        alive = weakref.ref(view)
        del view, cycle, operation
        gc.collect()
        assert alive() is None


def test_call_with_an_invalid_timeout_is_refused(product: aioacl.Model) -> None:
    operation: Any = product(X, timeout=-1)
    with pytest.raises(aioacl.ParameterError, match="must be a number of seconds, at least 0, or None"):
        operation.result()


def test_closed_model_refuses_a_call_before_it_looks_at_the_argument(device: aioacl.Device) -> None:
    with device.load_model(offline.product()) as model:
        pass
    for use in (lambda: model(1), lambda: model.map(1), lambda: model.enqueue(1, 1), lambda: model.memory):  # type: ignore[arg-type]
        with pytest.raises(aioacl.ParameterError) as caught:
            use()
        assert (caught.value.message, caught.value.device) == ("the model is closed", 0)
        assert caught.value.hint == "Load it again with load_model()."
    assert simulator.models() == ()
