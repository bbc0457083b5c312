"""Controls for offline models: the library that executes them, and the time that they take."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from aioacl._base.errors import ParameterError
from aioacl._base.ffi import ffi
from aioacl._base.options import bound_of
from aioacl._library import onnxruntime
from aioacl.simulator._control import control_function

if TYPE_CHECKING:
    from aioacl._base.options import Seconds

TIME_MOST: Final = 1 << 60


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
            f"expected an absolute path, got {chosen!r}", hint="Pass the absolute path of libonnxruntime.so."
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
            f"{name} must be at most {TIME_MOST / units:g} seconds, got {seconds!r}",
            hint="Pass a shorter time.",
        )
    return round(value)
