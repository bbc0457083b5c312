"""What a force reset leaves of offline models. Each check runs in its own process. No check runs without --reset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioacl._selftest._bench import expect, require
from aioacl._selftest._executions import Execution, load, om_file, room, sizes_of
from aioacl._selftest._records import Family, Needs

if TYPE_CHECKING:
    from aioacl._selftest._bench import Bench

MODEL_RESETS: Final = Family(
    "model-resets", "offline models and force resets", alone=True, needs=Needs.OM_FILE
)


def _leave_and_load_again(bench: Bench, *, unload: bool) -> tuple[int, int]:
    """Loads and runs the model, resets the device by force, and loads and runs it again. Returns both ids."""
    path, ids, outputs = om_file(bench), list[int](), list[bytes]()
    for _ in range(2):
        bench.set_device()
        sizes = sizes_of(path)
        model = load(path, sizes, room(bench, sizes.work), room(bench, sizes.weights))
        outputs.append(Execution(bench, model).reference(bench, bench.stream()))
        ids.append(model)
        if unload or len(ids) == 2:
            expect(0, "aclmdlUnload", model)
        expect(0, "aclrtResetDeviceForce", bench.device)
        bench.forget()
    require(outputs[0] == outputs[1], "the outputs differ after the reset")
    return ids[0], ids[1]


@MODEL_RESETS.assumes(
    "unloaded",
    "doc",
    "aclmdlUnload aclrtResetDeviceForce aclrtSetDevice aclmdlLoadFromFileWithMem",
    "_lifecycle/loaded_models _models/loading",
    needs=Needs.RESET,
)
def _(bench: Bench) -> None:
    """A model that was unloaded before a force reset can be loaded and executed after it."""
    _leave_and_load_again(bench, unload=True)


@MODEL_RESETS.assumes(
    "abandoned",
    "doc",
    "aclrtResetDeviceForce aclrtSetDevice aclmdlLoadFromFileWithMem",
    "_lifecycle/loaded_models _models/loading",
    needs=Needs.RESET,
)
def _(bench: Bench) -> None:
    """After a force reset, a model that was not unloaded does not prevent its file from being loaded and executed, and
    the new load has another id.
    """
    old, new = _leave_and_load_again(bench, unload=False)
    require(old != new, f"the model that was loaded after the reset has the id of the old model, {old}")
