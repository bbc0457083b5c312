"""Controls for offline models: which are loaded, the library that executes them, and the time that they take."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

from aioacl._base.dtypes import type_name
from aioacl._base.errors import ParameterError
from aioacl._base.ffi import ffi
from aioacl._base.options import bound_of, repr_of
from aioacl._base.unique import record
from aioacl._library import onnxruntime
from aioacl.simulator._control import control_function

if TYPE_CHECKING:
    from aioacl._base.options import Seconds

TIME_MOST: Final = 1 << 60
MODEL_TEXT_BYTES: Final = 1 << 14


@record
class LoadedTensor:
    """One input or output of a loaded model.

    Attributes:
        name: the name.
        shape: the dimensions; -1 is a dimension that a gear or an execution determines.
        dtype: the name of the data type, for example "float32".
        nbytes: the size in bytes; 0 if it is not known.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int


@record
class LoadedModel:
    """An offline model that is loaded in the simulator.

    Attributes:
        id: the id that the load returned.
        device: the index of the device.
        name: the name in the header of the file; "" for an ONNX file.
        path: the path that the load was called with; None if the model was loaded from memory.
        inputs: the inputs, with the input that selects the gear.
        outputs: the outputs.
        computed_by: "onnxruntime"; "function" if a function is registered in place of the model; "none" if the model
            cannot be executed.
        executions: the number of executions that have succeeded.
        nbytes: the bytes of device memory that the model needs: work and weights.
        state: "loaded"; "stale" if the context of the load has ended; "unloaded" in the output of `simulator models`.
    """

    id: int
    device: int
    name: str
    path: str | None
    inputs: tuple[LoadedTensor, ...]
    outputs: tuple[LoadedTensor, ...]
    computed_by: str
    executions: int
    nbytes: int
    state: str


def models() -> tuple[LoadedModel, ...]:
    """Returns the offline models that are loaded in this process, by their ids.

    Another process cannot ask for them. `python -m aioacl simulator models -- PROGRAM` runs a program, and lists the
    models that it has loaded.
    """
    control = control_function("aclsim_models", "int64_t (*)(char *, size_t)")
    room = MODEL_TEXT_BYTES
    while True:
        text = ffi.new("char[]", room)
        length = control(text, room)
        if length < 0:
            raise MemoryError
        if length < room:
            break
        room = 2 * length
    listed = json.loads(os.fsdecode(bytes(ffi.buffer(text, length))))
    return tuple(sorted(map(loaded_model, listed), key=lambda model: model.id))


def loaded_model(entry: dict[str, Any]) -> LoadedModel:
    """Returns the record of an object in the simulator's JSON."""
    inputs, outputs = (
        tuple(
            LoadedTensor(each["name"], tuple(each["shape"]), type_name(each["dtype"]), each["nbytes"])
            for each in entry[side]
        )
        for side in ("inputs", "outputs")
    )
    attributes: dict[str, Any] = entry | {"inputs": inputs, "outputs": outputs}
    return LoadedModel(**attributes)


def set_onnxruntime(path: str | os.PathLike[str] | None = None) -> None:
    """Sets the library of onnxruntime, which executes the models.

    The simulator loads the library when it reads the first ONNX model of the process, and keeps it. A call after that
    has no effect. Without a call, the simulator uses the installed package onnxruntime. The environment variable
    `AIOACL_SIM_ONNXRUNTIME` takes precedence.

    Args:
        path: the absolute path of libonnxruntime.so. None: the library of the installed package onnxruntime.

    Raises:
        ParameterError: the path is not absolute, or the package onnxruntime is not installed.
    """
    chosen = onnxruntime.installed() if path is None else os.fspath(path)
    if chosen is None:
        raise ParameterError(
            "expected the package onnxruntime, but it is not installed",
            hint="Install aioacl[onnx], or pass the path of libonnxruntime.so.",
        )
    control = control_function("aclsim_set_onnxruntime", "int (*)(const char *)")
    if "\0" in chosen or control(ffi.new("char[]", os.fsencode(chosen))) < 0:
        raise ParameterError(
            f"expected an absolute path, got {repr_of(chosen)}",
            hint="Pass the absolute path of libonnxruntime.so.",
        )


def set_model_cost(*, base: Seconds = 0, per_row: Seconds = 0, per_byte: Seconds = 0) -> None:
    """Sets the time that each execution of a model takes on the device. The times are added.

    An execution ends when it is computed and its time is over. The times of executions on different streams overlap.

    Args:
        base: a fixed time, in seconds.
        per_row: the time for each row of the batch, in seconds. The first dimension of the first input is the number
            of rows.
        per_byte: the time for each byte of the inputs and outputs, in seconds.

    Raises:
        ParameterError: a time is negative, not a number, or too large.
    """
    times = (
        _whole("base", base, 1e9),
        _whole("per_row", per_row, 1e9),
        _whole("per_byte", per_byte, 1e12),
    )
    control_function("aclsim_set_model_cost", "int (*)(int64_t, int64_t, int64_t)")(*times)


def _whole(name: str, seconds: Seconds, units: float) -> int:
    """The time in whole units."""
    value = bound_of(name, seconds) * units
    if value >= TIME_MOST:
        raise ParameterError(
            f"{name} must be at most {TIME_MOST / units:g} seconds, got {repr_of(seconds)}",
            hint="Pass a shorter time.",
        )
    return round(value)
