"""The first calls of a new load, with zeros: `load_model(warm_up=True)`.

The runtime does work at a first execution that it does not repeat: for example, it allocates memory, or copies kernels
to the device. The load makes these executions before a call of the program can get a slot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioacl._base.errors import DeviceFault
from aioacl._base.ffi import Arguments
from aioacl._models.calls import ModelRun, ended_by_reset
from aioacl._wait.current import run_blocking

if TYPE_CHECKING:
    from aioacl._models.loading import Load


def warm_up(load: Load) -> None:
    """Calls the model with zeros, once for each slot and gear, one call after another. A part of the job of the load.

    Nothing else uses the slots yet, so each call gets the slot that has been free for the longest time.

    Raises:
        DeviceFault: a call failed. The code may select another subclass.
        DeviceReset: the device was reset.
        DeviceQuarantined: a reset has failed.
    """
    try:
        for gear in range(len(load.description.gears)):
            zeros = _zeros(load, gear)
            for _ in range(load.slots.all):
                _call(load, zeros)
    except DeviceFault as error:
        if error.action == "new_stream":
            error.hint = "The model was not loaded. Load it again, or with warm_up=False."
        raise


def _zeros(load: Load, gear: int) -> Arguments:
    """Returns arguments without bytes. The thread of the instance fills the inputs with zeros."""
    value = load.description.gears[gear].value
    rows = value if isinstance(value, int) else None
    return Arguments(load.spec, (memoryview(b""),) * len(load.description.inputs), gear, rows)


def _call(load: Load, zeros: Arguments) -> None:
    """Calls the model, and drops the results, because their memory has no bytes."""
    nowhere = (memoryview(bytearray()),) * len(load.description.outputs)
    run = ModelRun(load.slots, zeros, nowhere, nowhere, True, True)
    if run_blocking(lambda: run.within(None), None) is None:
        run.must_repeat(load)
        raise ended_by_reset(load)
