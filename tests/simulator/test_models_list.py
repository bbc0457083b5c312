"""`simulator.models()`: what it reports of loaded models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioacl import simulator
from aioacl._library import runtime
from tests.simulator import modelfiles
from tests.simulator.modelcalls import data, execute, load_code, loaded
from tests.simulator.modelfiles import GEAR_INPUT, INT64, Tensor
from tests.simulator.rawacl import DEVICE, device, rc

if TYPE_CHECKING:
    from pathlib import Path

    from aioacl.simulator import Execution

pytestmark = pytest.mark.usefixtures("models")

BYTES = 24


def test_no_loaded_model_gives_an_empty_tuple() -> None:
    runtime.load()
    assert simulator.models() == ()


def test_models_are_listed_by_their_ids_with_their_files_and_tensors(tmp_path: Path) -> None:
    path = tmp_path / 'a "model"\n.om'
    path.write_bytes(modelfiles.genuine())
    with device(), loaded(path) as first, loaded(modelfiles.genuine()) as second:
        one, other = simulator.models()
        assert (one.id, other.id) == (first, second)
        assert (one.path, other.path) == (str(path), None)
        assert one.inputs == (simulator.LoadedTensor("x", (2, 3), "float32", BYTES),)
        assert [tensor.name for tensor in one.outputs] == ["y"]
        assert (one.device, one.nbytes, one.executions) == (DEVICE, 1124, 0)
        assert (one.computed_by, one.state) == ("none", "loaded")
    assert simulator.models() == ()


def test_path_that_is_not_utf8_is_returned_as_it_was_passed(tmp_path: Path) -> None:
    path = tmp_path / "\udcff.om"
    path.write_bytes(modelfiles.genuine())
    with device(), loaded(path):
        (model,) = simulator.models()
        assert model.path == str(path)


def test_models_with_long_descriptions_are_listed_whole() -> None:
    names = [f"{'n' * 500}{number}" for number in range(100)]
    parts = {
        0: modelfiles.tensors(*(Tensor(name, (-1, 3)) for name in names), Tensor(GEAR_INPUT, (1,), INT64)),
        1: modelfiles.tensors(),
    }
    file = modelfiles.container({modelfiles.DESCRIPTION: modelfiles.description(parts)})
    with device(), loaded(file):
        (model,) = simulator.models()
        assert [tensor.name for tensor in model.inputs] == [*names, GEAR_INPUT]
        assert model.inputs[-1].dtype == "int64"


def test_executions_that_succeed_are_counted_and_the_function_is_named() -> None:
    codes = iter([0, 507011, 0])

    def function(execution: Execution) -> None:
        if next(codes):
            raise ValueError(execution.name)

    parts = {0: modelfiles.tensors(Tensor("x", (2, 3))), 1: modelfiles.tensors(Tensor("y", (2, 3)))}
    file = bytearray(modelfiles.container({modelfiles.DESCRIPTION: modelfiles.description(parts)}))
    file[84:87] = b"add"
    with (
        simulator.register_model("add", function),
        device(),
        loaded(bytes(file)) as model,
        data(BYTES) as inputs,
        data(BYTES) as outputs,
    ):
        assert [execute(model, inputs, outputs) for _ in range(3)] == [0, 507011, 0]
        (listed,) = simulator.models()
        assert (listed.name, listed.computed_by, listed.executions) == ("add", "function", 2)


def test_model_whose_context_has_ended_is_stale() -> None:
    with device():
        _, model = load_code(modelfiles.genuine())
    (listed,) = simulator.models()
    assert (listed.id, listed.state) == (model, "stale")
    with device():
        assert rc("aclmdlUnload", model) == 107017
    assert simulator.models() == ()
    simulator.forget()
