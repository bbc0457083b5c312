"""`device.load_model`: its arguments, files, failures of each step, memory, and cancellation."""

from __future__ import annotations

import contextlib
import re
import warnings
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.options import SHOWN_ITEMS
from aioacl._models import source as source_module
from tests.kit import (
    Raised,
    Waiting,
    drop_abandoned,
    hanging,
    hung_in,
    no_call,
    raises,
    reset_call,
    until,
    until_now,
)
from tests.simulator import modelfiles
from tests.support import offline
from tests.support.offline import WEIGHTS, rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kit import OpenDevice

DAMAGED = 145006
COUNT_HINT = "Two or three slots are enough to keep a device busy; omit instances for one."
PATH_HINT = "Pass the path of an .om file that this process can read."
KIND_HINT = 'Pass a str, a pathlib.Path or bytes: load_model("digits.om").'


def works(model: aioacl.Model) -> bool:
    return np.array_equal(model(rows()).result(), rows() @ WEIGHTS)


# --- arguments and files ----------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Any, dict[str, Any], str, str]] = {
    **{
        f"{name}={value!r}": (
            b"x",
            {name: value},
            f"{name} must be an int from 1 to 64, got {value!r}",
            COUNT_HINT,
        )
        for name in ("slots", "instances")
        for value in (0, 65, -1, 1.5, "3", None)
    },
    "reload": (b"x", {"reload": 1}, "reload must be a bool, got 1", "Pass True or False."),
    "warm_up": (b"x", {"warm_up": "no"}, "warm_up must be a bool, got 'no'", "Pass True or False."),
    **{
        f"label={value!r}": (
            b"x",
            {"label": value},
            f"label must be a str of printable characters, or None, got {value!r}",
            "Pass a short name, or omit label for the name of the file.",
        )
        for value in ("", 1, "a\nb", "\033[0m")
    },
    "number": (3, {}, "expected the path of a model, or its bytes, got 3", KIND_HINT),
    "None": (None, {}, "expected the path of a model, or its bytes, got None", KIND_HINT),
    "no bytes": (b"", {}, "expected a model, got 0 bytes", "Pass the contents of an .om file."),
    "missing": (
        "/no/model.om",
        {},
        "expected a file of a model, got '/no/model.om', which cannot be read: No such file or directory",
        PATH_HINT,
    ),
    "empty path": (
        "",
        {},
        "expected a file of a model, got '.', which cannot be read: it is not a regular file",
        PATH_HINT,
    ),
    "directory": (
        "/",
        {},
        "expected a file of a model, got '/', which cannot be read: it is not a regular file",
        PATH_HINT,
    ),
    "null byte": (
        "a\0b",
        {},
        "expected a file of a model, got 'a\\x00b', which cannot be read: the path contains a null byte",
        PATH_HINT,
    ),
}


@pytest.mark.parametrize(("source", "options", "message", "hint"), REFUSED.values(), ids=REFUSED)
def test_wrong_argument_is_refused_at_once(
    device: aioacl.Device, source: Any, options: dict[str, Any], message: str, hint: str
) -> None:
    with no_call(), pytest.raises(aioacl.ParameterError) as caught:
        device.load_model(source, **options)
    assert (caught.value.message, caught.value.hint) == (message, hint)


FILES: dict[str, Callable[[bytes], bytes]] = {
    "text": lambda _: b"hello",
    "zeros": lambda whole: bytes(len(whole)),
    "truncated": lambda whole: whole[:-1],
    "longer": lambda whole: whole + b"x",
    "changed": lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]),
    "header": lambda whole: whole[:256],
}


@pytest.mark.parametrize("as_path", [True, False], ids=["path", "bytes"])
@pytest.mark.parametrize("damage", FILES.values(), ids=FILES)
def test_damaged_file_is_refused_with_its_name(
    device: aioacl.Device, path: Path, damage: Callable[[bytes], bytes], as_path: bool
) -> None:
    content = damage(path.read_bytes())
    path.write_bytes(content)
    name = str(path) if as_path else f"a model of {len(content)} bytes"
    with pytest.raises(aioacl.ParameterError) as caught:
        device.load_model(path if as_path else content).result()
    assert caught.value.code == DAMAGED
    assert caught.value.message.startswith(f"{name}: ")
    assert simulator.models() == ()


def test_empty_file_is_refused(device: aioacl.Device, path: Path) -> None:
    path.write_bytes(b"")
    with pytest.raises(aioacl.ParameterError, match=re.escape(str(path))):
        device.load_model(path).result()


def test_changed_file_is_refused_at_the_next_call_after_a_reset(device: aioacl.Device, path: Path) -> None:
    with device.load_model(path) as model:
        before = path.read_bytes()
        path.write_bytes(offline.identity())
        assert works(model)
        assert device.force_reset().result().ok
        for _ in range(2):
            with pytest.raises(aioacl.ParameterError) as caught:
                model(rows()).result()
            assert caught.value.message == (
                f"expected the file that was loaded before the reset, got a changed {str(path)!r}"
            )
            assert caught.value.hint == "Close the model, and load the new file with load_model()."
        path.unlink()
        with pytest.raises(aioacl.ParameterError, match="which cannot be read: No such file"):
            model(rows()).result()
        path.write_bytes(before)
        assert works(model)


def test_simulated_model_is_refused_on_another_library_before_c(
    device: aioacl.Device, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Info:
        backend = "runtime"

    monkeypatch.setattr(source_module, "library_info", Info)
    for source, name in ((path, str(path)), (path.read_bytes(), f"a model of {path.stat().st_size} bytes")):
        with no_call(), pytest.raises(aioacl.NotSupported) as caught:
            device.load_model(source)
        assert caught.value.message == (
            f"expected a model for this chip, got {name}, which `simulator atc` made"
        )


@pytest.mark.parametrize(
    "form",
    [
        str,
        lambda path: path,
        lambda path: path.read_bytes(),
        lambda path: bytearray(path.read_bytes()),
        lambda path: memoryview(path.read_bytes()),
    ],
    ids=["str", "Path", "bytes", "bytearray", "memoryview"],
)
def test_path_and_bytes_are_loaded(device: aioacl.Device, path: Path, form: Callable[[Path], Any]) -> None:
    with device.load_model(form(path)) as model:
        assert works(model)
        (loaded,) = simulator.models()
        assert loaded.path in (None, str(path))
        assert model.name in (str(path), f"a model of {path.stat().st_size} bytes")
        assert repr(model) == f"<Model {model.name!r}, device 0, loaded>"
    assert repr(model) == f"<Model {model.name!r}, device 0, closed>"


class TestPlainOnnx:
    @pytest.fixture
    def plain(self, tmp_path: Path) -> Path:
        path = tmp_path / "m.onnx"
        path.write_bytes(modelfiles.doubling_onnx())
        return path

    @pytest.mark.parametrize("form", ["str", "path", "bytes"])
    def test_onnx_model_is_loaded_with_a_warning_at_the_line_of_the_call(
        self, device: aioacl.Device, plain: Path, form: str
    ) -> None:
        content = plain.read_bytes()
        given: Any = {"str": str(plain), "path": plain, "bytes": content}[form]
        name = f"a model of {len(content)} bytes" if form == "bytes" else str(plain)
        with pytest.warns(aioacl.AclWarning) as caught, device.load_model(given) as model:
            assert np.array_equal(model(rows()).result(), 2 * rows())
        assert [each.filename for each in caught] == [__file__]
        assert str(caught[0].message) == (
            f"expected an .om file, got the ONNX model {name!r}, which the simulator executes, and a card refuses; "
            "convert it with CANN's atc, or with `python -m aioacl simulator atc` for the simulator"
        )

    def test_warning_is_shown_once_for_a_line_and_a_file(self, device: aioacl.Device, plain: Path) -> None:
        other = plain.with_name("other.onnx")
        other.write_bytes(plain.read_bytes())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            for path in (plain, plain, other):
                device.load_model(path).result().close().result()
        assert len(caught) == 2
        assert plain.name in str(caught[0].message)
        assert other.name in str(caught[1].message)

    def test_warning_that_is_an_error_leaves_no_model(self, device: aioacl.Device, plain: Path) -> None:
        with pytest.raises(aioacl.AclWarning):
            device.load_model(plain).result()
        until_now(lambda: simulator.models() == ())

    def test_load_after_a_reset_warns_no_more(self, device: aioacl.Device, plain: Path) -> None:
        with pytest.warns(aioacl.AclWarning):
            model = device.load_model(plain).result()
        device.force_reset(grace=1.0).result()
        assert np.array_equal(model(rows()).result(), 2 * rows())  # a warning would be an error
        model.close().result()

    def test_file_that_is_no_model_is_refused_without_the_warning(
        self, device: aioacl.Device, tmp_path: Path
    ) -> None:
        path = tmp_path / "m.onnx"
        path.write_bytes(b"not a model")
        with pytest.raises(aioacl.AclError):  # the warning would be an AclWarning, which is no AclError
            device.load_model(path).result()


def test_description_is_of_the_model(model: aioacl.Model) -> None:
    assert model.inputs == (aioacl.TensorInfo("x", (2, 3), "float32", "ND", 24),)
    assert model.outputs == (aioacl.TensorInfo("y", (2, 4), "float32", "ND", 32),)
    assert model.gears == ()
    (loaded,) = simulator.models()
    assert model.memory.workspace + model.memory.weights == loaded.nbytes
    assert model.memory.weights >= WEIGHTS.nbytes


# --- failures of each step --------------------------------------------------------------------------------------

STEPS = (
    "aclmdlQuerySizeFromMem",
    "aclmdlLoadFromMemWithMem",
    "aclmdlGetDesc",
    "aclmdlSetDynamicBatchSize",
    "aclrtMalloc",
    "aclrtMallocHost",
    "aclrtCreateStream",
)
OF_FILES = ("aclmdlQuerySize", "aclmdlLoadFromFileWithMem")


@pytest.mark.uncached
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("step", STEPS)
def test_step_that_fails_raises_its_code_and_leaves_nothing(
    device: aioacl.Device, step: str, nth: int
) -> None:
    with simulator.fault(step, nth=nth, rc=107002) as fault:
        error = None
        try:
            device.load_model(offline.product("2,4,8"), instances=2).result().close().result()
        except aioacl.AclError as caught:
            error = caught.with_traceback(None)
        if fault.hits:
            assert error is not None
            assert (error.code, error.call, error.device) == (107002, step, 0)
        else:
            assert error is None
            assert nth > 1, "each step is a call of the function"
    assert simulator.models() == ()
    with device.load_model(offline.product()) as model:
        assert works(model)


@pytest.mark.parametrize("step", ["aclmdlGetInputDims", "aclmdlGetOutputDims", "aclmdlGetCurOutputDims"])
def test_shape_that_cannot_be_read_ends_the_load(device: aioacl.Device, step: str) -> None:
    simulator.fail_call(step, 100000)
    with pytest.raises(aioacl.ParameterError) as caught:
        device.load_model(offline.product()).result()
    assert (caught.value.code, caught.value.call) == (100000, step)
    assert simulator.models() == ()


@pytest.mark.parametrize("step", OF_FILES)
def test_step_of_a_file_that_fails_raises_its_code(device: aioacl.Device, path: Path, step: str) -> None:
    simulator.fail_call(step, DAMAGED)
    with pytest.raises(aioacl.ParameterError) as caught:
        device.load_model(path).result()
    assert (caught.value.code, caught.value.call) == (DAMAGED, step)
    assert caught.value.message.startswith(str(path))


@pytest.mark.parametrize("step", ["aclmdlGetDesc", "aclmdlSetDynamicBatchSize", "aclmdlLoadFromMemWithMem"])
def test_fault_of_the_device_during_a_load_is_stored(device: aioacl.Device, step: str) -> None:
    simulator.fail_call(step, 507899)
    with pytest.raises(aioacl.DeviceFault):
        device.load_model(offline.product("2,4")).result()
    assert device.health.status == "poisoned"
    assert device.force_reset().result().ok
    if simulator.models():
        drop_abandoned()


@pytest.mark.parametrize("step", ["aclmdlGetDesc", "aclmdlLoadFromMemWithMem", "aclmdlExecuteAsync"])
def test_model_that_cann_refuses_is_no_fault_of_the_device(device: aioacl.Device, step: str) -> None:
    simulator.fail_call(step, 500002)
    with pytest.raises(aioacl.AclError) as caught, device.load_model(offline.product()) as model:
        model(rows()).result()
    assert not isinstance(caught.value, aioacl.DeviceFault)
    assert (caught.value.code, caught.value.call, caught.value.action) == (500002, step, "fix_code")
    assert device.health.ready
    with device.load_model(offline.product()) as model:
        assert works(model)


@pytest.mark.parametrize("step", ["aclmdlSetDynamicBatchSize", "aclmdlExecuteAsync"])
def test_step_of_a_call_that_fails_raises_its_code_and_frees_the_slot(
    device: aioacl.Device, step: str
) -> None:
    with device.load_model(offline.product("2,4"), slots=1) as model:
        simulator.fail_call(step, 145013)
        with pytest.raises(aioacl.AclError) as caught:
            model(rows()).result()
        assert (caught.value.code, caught.value.call) == (145013, step)
        assert until_now(lambda: offline.all_free(model))
        assert works(model)


def test_unload_that_fails_raises_at_the_close_and_counts_an_abandoned_model(device: aioacl.Device) -> None:
    abandoned = device.health.abandoned_models
    model = device.load_model(offline.product()).result()
    simulator.fail_call("aclmdlUnload", 500002)
    with pytest.raises(aioacl.AclError) as caught:
        model.close().result()
    assert (caught.value.code, caught.value.call) == (500002, "aclmdlUnload")
    assert device.health.abandoned_models == abandoned + 1
    model.close().result()
    drop_abandoned()


# --- memory -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "slots", "instances"), [(1000, 3, 1), (3000, 64, 1), (3000, 1, 3)])
def test_load_that_runs_out_of_memory_names_the_needed_and_the_free_bytes(
    device: aioacl.Device, limit: int, slots: int, instances: int
) -> None:
    device.empty_cache().result()
    with device.load_model(offline.product()) as model:
        memory = model.memory
    device.empty_cache().result()
    total = memory.weights + instances * memory.workspace
    loads = simulator.calls("aclmdlLoadFromMemWithMem")
    simulator.set_limits(f"mem={limit}")
    try:
        with pytest.raises(aioacl.OutOfMemoryError) as caught:
            device.load_model(offline.product(), slots=slots, instances=instances).result()
    finally:
        simulator.set_limits()
    size = len(offline.product())
    assert re.fullmatch(
        f"a model of {size} bytes needs {total} bytes of device memory \\({memory.weights} of weights, "
        f"{instances} x {memory.workspace} of work memory\\), and memory for its slots; "
        f"\\d+ of {limit} bytes are free; loaded on this device by this process: none",
        caught.value.message,
    )
    fits = total <= limit  # then the memory for the slots was too little
    assert caught.value.code == (207001 if fits else None)
    assert (simulator.calls("aclmdlLoadFromMemWithMem") > loads) == fits
    assert "load fewer instances or slots" in caught.value.hint
    assert simulator.models() == ()


def test_load_that_does_not_fit_names_the_models_that_are_loaded(device: aioacl.Device, path: Path) -> None:
    device.empty_cache().result()
    with (
        device.load_model(path, label="first", slots=1) as first,
        device.load_model(offline.identity(), slots=1, instances=2) as second,
    ):
        sizes = [offline.load_of(each).nbytes for each in (first, second)]
        simulator.set_limits("mem=100")
        try:
            with pytest.raises(aioacl.OutOfMemoryError) as caught:
                device.load_model(path).result()
        finally:
            simulator.set_limits()
        named = {f"first ({sizes[0]} bytes)", f"{second.name} ({sizes[1]} bytes)"}
        found = caught.value.message.partition("loaded on this device by this process: ")[2]
        assert {*found.split(", ")} == named
        assert caught.value.retryable


def test_load_that_does_not_fit_names_a_few_of_many_models(device: aioacl.Device) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(SHOWN_ITEMS + 2):
            stack.enter_context(device.load_model(offline.product(), slots=1))
        simulator.set_limits("mem=100")
        try:
            with pytest.raises(aioacl.OutOfMemoryError, match=r", and 2 more\."):
                device.load_model(offline.product()).result()
        finally:
            simulator.set_limits()


def test_cached_memory_counts_as_free_before_a_load(device: aioacl.Device) -> None:
    device.empty_cache().result()
    with device.load_model(offline.identity(shape=(4096,)), slots=1) as model:
        needed = model.memory.workspace + model.memory.weights
    device.empty_cache().result()
    simulator.set_limits("mem=100K")
    try:
        device.allocate(80 << 10).result().close().result()
        info = device.memory_info().result()
        assert info.free < needed < info.free + info.cached
        device.load_model(offline.identity(shape=(4096,)), slots=1).result().close().result()
    finally:
        simulator.set_limits()


def test_load_is_tried_if_the_free_memory_is_not_known(device: aioacl.Device) -> None:
    simulator.fail_call("aclrtGetMemInfo", 207000, 1)
    with device.load_model(offline.product()) as model:
        assert works(model)
    assert simulator.calls("aclrtGetMemInfo")


def test_load_without_pinned_memory_does_not_blame_the_device(device: aioacl.Device) -> None:
    device.empty_cache().result()
    simulator.set_limits("host=1K")
    try:
        with pytest.raises(aioacl.OutOfMemoryError) as caught:
            device.load_model(offline.product(), slots=64).result()
    finally:
        simulator.set_limits()
    assert caught.value.call == "aclrtMallocHost"
    assert "of device memory" not in str(caught.value)


def test_instances_share_the_weights(device: aioacl.Device) -> None:
    with device.load_model(offline.product(), instances=3) as model:
        loads = [each for each in simulator.journal() if each["call"] == "aclmdlLoadFromMemWithMem"][-3:]
        assert len(simulator.models()) == 3
        assert len({each.id for each in simulator.models()}) == 3
        assert offline.load_of(model).nbytes < 3 * (model.memory.weights + model.memory.workspace) + 9 * 512
        assert loads
        assert works(model)


# --- cancellation -------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.every_loop_in_ci
class TestOnALoop:
    async def test_cancelled_load_unloads_what_it_loads(self, open_device: OpenDevice) -> None:
        async with open_device() as device, anyio.create_task_group() as group:
            simulator.hang_call("aclmdlLoadFromMemWithMem")
            waiting = Waiting(group, lambda: device.load_model(offline.product()))
            await until(hanging("aclmdlLoadFromMemWithMem"))
            await waiting.cancel_and_wait()
            assert waiting.cancelled
            simulator.release_call("aclmdlLoadFromMemWithMem")
            loads = simulator.calls("aclmdlLoadFromMemWithMem")
            await until(lambda: simulator.calls("aclmdlUnload") > 0 and not simulator.models())
            assert simulator.calls("aclmdlLoadFromMemWithMem") == loads

    async def test_cancelled_load_that_fails_ends_its_thread(self, open_device: OpenDevice) -> None:
        async with open_device() as device, anyio.create_task_group() as group:
            simulator.hang_call("aclmdlQuerySizeFromMem")
            simulator.fail_call("aclmdlLoadFromMemWithMem", DAMAGED)
            waiting = Waiting(group, lambda: device.load_model(offline.product()))
            await until(hanging("aclmdlQuerySizeFromMem"))
            await waiting.cancel_and_wait()
            simulator.release_call("aclmdlQuerySizeFromMem")
            await until(lambda: not device._manager.jobs._of_models)

    async def test_timeout_of_a_load_raises_device_timeout(self, open_device: OpenDevice) -> None:
        async with open_device() as device:
            simulator.hang_call("aclmdlLoadFromMemWithMem")
            with pytest.raises(aioacl.DeviceTimeout, match="the model was not loaded in time"):
                await device.load_model(offline.product(), timeout=0.02)
            await until(hanging("aclmdlLoadFromMemWithMem"))
            simulator.release_call("aclmdlLoadFromMemWithMem")
            async with device.load_model(offline.product()) as model:
                assert np.array_equal(await model(rows()), rows() @ WEIGHTS)

    async def test_load_during_a_reset_waits_or_is_refused(self, open_device: OpenDevice) -> None:
        async with open_device() as device, anyio.create_task_group() as group:
            reset = await hung_in(reset_call(), group, device.force_reset)
            loading = Waiting(group, lambda: device.load_model(offline.product()))
            await raises(aioacl.DeviceResetting, device.load_model(offline.product(), wait=False))
            simulator.release_call(reset_call())
            assert (await reset.outcome()).ok
            await (await loading.outcome()).close()


def test_load_on_a_closed_device_is_refused(open_device: OpenDevice) -> None:
    device = open_device().result()
    device.close().result()
    with pytest.raises(aioacl.ParameterError):
        device.load_model(offline.product())


def test_load_that_hangs_ends_with_the_last_close(open_device: OpenDevice) -> None:
    device = open_device().result()
    loading = Raised.hung_in("aclmdlQuerySizeFromMem", lambda: device.load_model(offline.product()).result())
    closing = Raised(lambda: device.close().result())
    assert until_now(lambda: device.state is not aioacl.State.OPEN)
    simulator.release_call("aclmdlQuerySizeFromMem")
    closing.join()
    with pytest.raises(aioacl.AclError):
        loading.join()
