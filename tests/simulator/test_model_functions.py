"""Python functions that are registered in place of models."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from aioacl import ParameterError, simulator
from tests.simulator import modelfiles
from tests.simulator.modelcalls import data, error_text, execute, execute_on, loaded
from tests.simulator.rawacl import device, good, new_stream, rc

if TYPE_CHECKING:
    from aioacl.simulator import Execution

pytestmark = pytest.mark.usefixtures("models")

FAILED, BYTES = 507011, 24
NUMBERS = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def named(name: str) -> bytes:
    """A genuine model with that name."""
    file = bytearray(modelfiles.genuine())
    file[84 : 84 + len(name)] = name.encode()
    return bytes(file)


def halve(execution: Execution) -> None:
    numbers = execution.inputs[0].memory.cast("f")
    execution.outputs[0].memory.cast("f")[:] = memoryview(
        bytes(struct.pack(f"{len(numbers)}f", *(number / 2 for number in numbers)))
    ).cast("f")


def test_function_computes_the_executions_of_its_model() -> None:
    seen: list[Execution] = []

    def function(execution: Execution) -> None:
        seen.append(execution)
        halve(execution)

    with device(), simulator.register_model("half", function) as registered:
        with loaded(named("half")) as model, data(BYTES) as inputs, data(BYTES) as outputs:
            inputs.write(0, NUMBERS)
            assert execute(model, inputs, outputs) == 0
            assert outputs.read(0) == [number / 2 for number in NUMBERS]
        assert registered.errors == []
    (execution,) = seen
    assert (execution.name, execution.model, execution.device) == ("half", model, 1)
    (tensor,) = execution.inputs
    assert (tensor.shape, tensor.dtype, tensor.memory.readonly) == ((2, 3), modelfiles.FLOAT, True)


def test_function_that_raises_fails_the_execution_with_its_text() -> None:
    def function(_: Execution) -> None:
        raise ValueError("wrong weather")

    with device(), simulator.register_model("half", function) as registered:
        stream = new_stream()
        with loaded(named("half")) as model, data(BYTES) as inputs, data(BYTES) as outputs:
            inputs.write(0, NUMBERS)
            assert execute_on(stream, model, inputs, outputs) == 0
            assert rc("aclrtSynchronizeStream", stream) == FAILED
            assert "ValueError: wrong weather" in error_text()
        good("aclrtDestroyStream", stream)
        assert [type(error) for error in registered.errors] == [ValueError]


@pytest.mark.parametrize(
    ("answer", "code"), [(0, 0), (None, 0), (1, FAILED), (507015, 507015), ("x", FAILED)]
)
def test_answer_of_the_function_is_the_code_of_the_execution(answer: Any, code: int) -> None:
    registered = simulator.register_model("half", lambda _: answer)
    with device(), registered, loaded(named("half")) as model, data(BYTES) as inputs, data(BYTES) as outputs:
        inputs.write(0, NUMBERS)
        assert execute(model, inputs, outputs) == code


def test_newer_registration_replaces_an_older_one() -> None:
    def other(execution: Execution) -> None:
        execution.outputs[0].memory[:] = bytes(BYTES)

    with device(), loaded(named("half")) as model, data(BYTES) as inputs, data(BYTES) as outputs:
        inputs.write(0, NUMBERS)
        first = simulator.register_model("half", halve)
        with simulator.register_model("half", other):
            first.close()
            assert execute(model, inputs, outputs) == 0
            assert outputs.read(0) == [0.0] * 6
        assert execute(model, inputs, outputs) == 207000


def test_execution_of_a_queue_fails_if_its_function_is_no_longer_registered() -> None:
    with device(), loaded(named("half")) as model, data(BYTES) as inputs, data(BYTES) as outputs:
        stream = new_stream()
        simulator.hold(stream)
        with simulator.register_model("half", halve):
            assert execute_on(stream, model, inputs, outputs) == 0
        simulator.release(stream)
        assert rc("aclrtSynchronizeStream", stream) == FAILED
        assert "no longer registered" in error_text()
        good("aclrtDestroyStream", stream)


@pytest.mark.parametrize("name", ["", "n" * 33, "a\0b"])
def test_name_of_a_model_must_fit_the_header(name: str) -> None:
    with pytest.raises(ParameterError):
        simulator.register_model(name, halve)


def test_coroutine_function_in_place_of_a_model_is_refused() -> None:
    async def function(_: Execution) -> None: ...

    with pytest.raises(ParameterError, match="coroutine"):
        simulator.register_model("half", function)  # type: ignore[arg-type]  # the wrong type is the test
