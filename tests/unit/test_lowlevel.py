"""`aioacl.lowlevel`: ACL's functions called by hand, with and without a device."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import aioacl
import build_ffi
from aioacl import lowlevel, simulator
from aioacl.lowlevel import constants, ffi, functions, handle, on
from tests.kit import Raised, equipped, hanging, until, until_now

if TYPE_CHECKING:
    from tests.kit import OpenDevice

CONSTANTS = Path(str(constants.__file__)).with_suffix(".pyi")
TABLE = {row.name: row for row in build_ffi.table()}
CONTROL = [row.name for row in TABLE.values() if row.kind == "CONTROL"]


# --- the namespace ------------------------------------------------------------------------------------------------


def test_namespace_has_each_function_of_the_table_with_its_c_parameter_names() -> None:
    for row in TABLE.values():
        names = list(inspect.signature(getattr(functions, row.name)).parameters)
        arguments = [name.strip() for name in row.args.split(",") if name.strip()]
        assert names == arguments, row.name
        assert getattr(functions, row.name).__doc__.endswith(f"since CANN {row.since}.")
    assert set(TABLE) <= set(dir(functions))


def test_function_that_no_header_declares_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no function aclrtNothing"):
        functions.aclrtNothing  # type: ignore[attr-defined]  # noqa: B018 - the access is the test


def test_constants_match_the_stub_file() -> None:
    assert constants.ACL_MEMCPY_HOST_TO_DEVICE == 1
    assert constants.ACL_DT_UNDEFINED == -1
    assert constants.ACL_EVENT_TIME_LINE == 8
    assert all(isinstance(getattr(constants, name), int) for name in dir(constants))
    declared = re.findall(r"^(\w+): Final = (\S+)$", CONSTANTS.read_text(), re.MULTILINE)
    assert {name: int(value, 0) for name, value in declared} == {
        name: getattr(constants, name) for name in dir(constants)
    }
    for name in ("AIO_STALE", "aio_threads", "ACL_NOTHING"):
        with pytest.raises(AttributeError, match=name):
            getattr(constants, name)


@pytest.mark.parametrize("name", CONTROL)
def test_function_that_affects_the_whole_process_is_refused_with_an_alternative(name: str) -> None:
    with pytest.raises(aioacl.ParameterError, match="for the whole process") as caught:
        getattr(functions, name)(0)
    assert caught.value.call == name
    assert "Use " in caught.value.hint
    assert simulator.calls(name) == 0


# --- without a device ---------------------------------------------------------------------------------------------


def test_unguarded_call_returns_none_and_fills_its_output() -> None:
    count = ffi.new("uint32_t *")
    before = simulator.calls("aclrtGetDeviceCount")
    answer: object = functions.aclrtGetDeviceCount(count)  # type: ignore[func-returns-value]  # that is the test
    assert (answer, count[0]) == (None, 2)
    assert simulator.calls("aclrtGetDeviceCount") == before + 1


def test_function_without_an_error_code_returns_its_value() -> None:
    assert ffi.string(functions.aclrtGetSocName()).startswith(b"Ascend")
    assert isinstance(functions.aclFloatToFloat16(value=1.5), int)


def test_error_code_is_raised_as_the_exception_of_its_family() -> None:
    with pytest.raises(aioacl.ContextError) as caught:
        functions.aclrtGetCurrentContext(ffi.new("aclrtContext *"))
    assert caught.value.code == 107002
    assert caught.value.call == "aclrtGetCurrentContext"
    assert caught.value.device is None


def test_last_error_of_the_thread_is_returned_and_not_raised() -> None:
    with pytest.raises(aioacl.AclError) as caught:
        functions.aclrtSynchronizeDevice()
    assert functions.aclrtGetLastError(constants.ACL_RT_THREAD_LEVEL) == caught.value.code
    assert functions.aclrtPeekAtLastError(constants.ACL_RT_THREAD_LEVEL) == 0


# --- arguments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 8, b"x", 1, 0), "expected dst to be void \\*, got int"),
        ((ffi.NULL, "8", b"x", 1, 0), "expected destMax to be size_t, got str"),
        ((ffi.NULL, -1, b"x", 1, 0), "expected destMax to be size_t, got int"),
        ((ffi.NULL, 8, None, 1, 0), "expected src to be const void \\*, got None"),
        ((b"12345678", 8, b"x", 1, 0), "expected dst to be void \\*, got bytes"),
        ((ffi.NULL, 8, b"x", 1, 1 << 80), "expected kind to be aclrtMemcpyKind, got int"),
    ],
)
def test_argument_of_the_wrong_type_is_named_with_its_c_type(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(aioacl.ParameterError, match=words) as caught:
        functions.aclrtMemcpy(*arguments)
    assert "aclError aclrtMemcpy(void *dst" in caught.value.hint
    assert simulator.calls("aclrtMemcpy") == 0


def test_missing_argument_is_named() -> None:
    with pytest.raises(
        aioacl.ParameterError, match=r"aclrtGetMemInfo: missing: free, total\. The function is"
    ):
        functions.aclrtGetMemInfo(constants.ACL_HBM_MEM)  # type: ignore[call-arg]


# --- on a device --------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_call_on_a_device_uses_its_context_and_takes_handles(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(8) as memory:
        acl = on(device)
        number, again = ffi.new("int32_t *"), ffi.new("int32_t *")
        acl.aclrtStreamGetId(stream, number)
        acl.aclrtStreamGetId(handle(stream), streamId=again)
        assert number[0] == again[0]
        kind = constants.ACL_MEMCPY_HOST_TO_DEVICE
        acl.aclrtMemcpyAsync(memory, 8, b"12345678", 8, kind, stream)
        await stream.record()
        read = ffi.new("char[8]")
        acl.aclrtMemcpy(read, 8, memory, 8, constants.ACL_MEMCPY_DEVICE_TO_HOST)
        assert bytes(ffi.buffer(read)) == b"12345678"
        assert acl.aclrtGetSocName() == functions.aclrtGetSocName()  # this function needs no device


@pytest.mark.anyio
async def test_stream_created_by_hand_is_used_and_destroyed_by_hand(open_device: OpenDevice) -> None:
    async with open_device() as device:
        acl = on(device)
        made, done = ffi.new("aclrtStream *"), ffi.new("aclrtStreamStatus *")
        acl.aclrtCreateStream(made)
        acl.aclrtStreamQuery(made[0], done)
        assert done[0] == constants.ACL_STREAM_STATUS_COMPLETE
        acl.aclrtDestroyStream(made[0])


@pytest.mark.anyio
async def test_event_passed_to_a_call_is_its_newest_record(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream:
        event, status = stream.record(), ffi.new("aclrtEventRecordedStatus *")
        await event
        on(device).aclrtQueryEventStatus(event, status)
        assert status[0] == constants.ACL_EVENT_RECORDED_STATUS_COMPLETE
        async with device.create_event() as fresh:
            with pytest.raises(aioacl.ParameterError, match="never recorded"):
                on(device).aclrtQueryEventStatus(fresh, status)
        await event.close()


@pytest.mark.anyio
async def test_error_code_of_a_call_on_a_device_is_raised_with_the_device(open_device: OpenDevice) -> None:
    async with open_device(1) as device:
        simulator.fail_call("aclrtGetMemInfo", 507899)
        with pytest.raises(aioacl.DeviceFault) as caught:
            on(device).aclrtGetMemInfo(constants.ACL_HBM_MEM, ffi.new("size_t *"), ffi.new("size_t *"))
        assert (caught.value.code, caught.value.device) == (507899, 1)
        assert caught.value.generation == device.generation
        assert device.health.last_fault is not None


@pytest.mark.anyio
async def test_handle_of_the_wrong_kind_or_device_is_named(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        open_device(1) as other,
        device.create_stream() as stream,
        device.allocate(8) as memory,
        device.pinned(8) as pinned,
    ):
        number = ffi.new("int32_t *")
        with pytest.raises(
            aioacl.ParameterError, match="expected stream to be aclrtStream, got a device buffer"
        ):
            on(device).aclrtStreamGetId(memory, number)  # type: ignore[arg-type]
        with pytest.raises(aioacl.ParameterError, match="got a stream of another device"):
            on(other).aclrtStreamGetId(stream, number)
        with pytest.raises(aioacl.ParameterError, match="got a stream"):
            on(device).aclrtFree(stream)  # type: ignore[arg-type]
        on(other).aclrtMemcpy(pinned, 8, b"12345678", 8, constants.ACL_MEMCPY_HOST_TO_HOST)
        assert bytes(pinned.view) == b"12345678"


@pytest.mark.anyio
async def test_raw_pointer_of_a_closed_or_stale_handle_is_refused(open_device: OpenDevice) -> None:
    async with open_device() as device:
        stream = await device.create_stream()
        await stream.close()
        memory = await device.allocate(8)
        for refused, error in ((stream, aioacl.ParameterError), (b"bytes", aioacl.ParameterError)):
            with pytest.raises(error):
                handle(refused)  # type: ignore[arg-type]
        assert (await device.force_reset(grace=0)).ok
        with pytest.raises(aioacl.StaleHandleError):
            handle(memory)


@pytest.mark.anyio
async def test_on_without_an_open_device_is_refused(open_device: OpenDevice) -> None:
    async with open_device() as device:
        pass
    for refused in (device, 0):
        with pytest.raises(aioacl.ParameterError):
            on(refused)  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_arguments_that_do_not_match_the_parameters_raise_with_the_prototype(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream:
        number = ffi.new("int32_t *")
        acl: Any = on(device)
        calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
            "missing: streamId": ((stream,), {}),
            "expected 2 arguments, got 3": ((stream, number, 3), {}),
            r"missing: stream; unknown: strem \(did you mean stream\?\)": (
                (),
                {"strem": 1, "streamId": number},
            ),
            "given twice: stream": ((stream, number), {"stream": stream}),
        }
        for problem, (arguments, named) in calls.items():
            with pytest.raises(
                aioacl.ParameterError, match=f"aclrtStreamGetId: {problem}. The function is aclError aclrt"
            ):
                acl.aclrtStreamGetId(*arguments, **named)


@pytest.mark.anyio
async def test_argument_that_cannot_become_a_pointer_is_refused_with_what_to_pass(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(8) as memory:
        acl: Any = on(device)
        kind = lowlevel.constants.ACL_MEMCPY_HOST_TO_DEVICE
        source: Any = bytearray(5)
        with pytest.raises(
            aioacl.ParameterError, match=r"Pass lowlevel.ffi.from_buffer\(...\) of the bytearray."
        ):
            acl.aclrtMemcpy(memory, 8, source, 5, kind)
        acl.aclrtMemcpy(memory, 8, ffi.from_buffer("char[]", source), 5, kind)
        with pytest.raises(
            aioacl.ParameterError, match=r"expected streamId to be int32_t \*, got float \*. The function"
        ):
            acl.aclrtStreamGetId(stream, ffi.new("float *"))
        nothing: Any = None
        with pytest.raises(
            aioacl.ParameterError, match=r"got None. For the null pointer, pass lowlevel.ffi.NULL"
        ):
            acl.aclrtStreamGetId(nothing, ffi.new("int32_t *"))


def test_unknown_name_raises_attribute_error_with_the_closest_name() -> None:
    with pytest.raises(AttributeError, match=r"aclrtStreamGetID .*did you mean aclrtStreamGetId\?"):
        _ = functions.aclrtStreamGetID  # type: ignore[attr-defined]  # that is the test
    with pytest.raises(AttributeError, match=r"did you mean ACL_MEMCPY_HOST_TO_DEVICE\?"):
        _ = lowlevel.constants.ACL_MEMCPY_HOST_TO_DEVIC  # type: ignore[attr-defined]  # that is the test


@pytest.mark.anyio
async def test_call_on_a_closed_device_raises_that_it_is_closed(open_device: OpenDevice) -> None:
    async with open_device() as device:
        acl = on(device)
    with pytest.raises(
        aioacl.StaleHandleError, match=r"generation \d+: .* got one of a closed device. Open the device again"
    ):
        acl.aclrtSynchronizeDevice()
    with pytest.raises(aioacl.ParameterError, match=r"^device 0: the device is closed"):
        on(device)


# --- resets -------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_handles_made_before_a_reset_are_stale_and_refused_before_c(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream:
        acl, raw, number = on(device), handle(stream), ffi.new("int32_t *")
        assert (await device.force_reset(grace=0)).ok
        before = simulator.calls("aclrtStreamGetId")
        for dead in (raw, stream):
            with pytest.raises(aioacl.StaleHandleError):
                acl.aclrtStreamGetId(dead, number)
        assert simulator.calls("aclrtStreamGetId") == before
        with pytest.raises(aioacl.StaleHandleError):
            on(device).aclrtStreamGetId(stream, number)
        async with device.create_stream() as fresh:
            on(device).aclrtStreamGetId(fresh, number)


@pytest.mark.anyio
async def test_reset_waits_for_a_call_by_hand(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream:
        simulator.hang_call("aclrtMemsetAsync")
        acl = on(device)
        memory = await device.allocate(8)
        call = Raised(lambda: acl.aclrtMemsetAsync(memory, 8, 0, 8, stream))
        assert until_now(hanging("aclrtMemsetAsync"))
        resets = simulator.resets()
        reset = Raised(lambda: device.force_reset(grace=0, timeout=30).result())
        await until(lambda: device.state is aioacl.State.RESETTING)
        with pytest.raises(aioacl.DeviceResetting):
            acl.aclrtStreamQuery(stream, ffi.new("aclrtStreamStatus *"))
        assert simulator.resets() == resets
        simulator.release_call("aclrtMemsetAsync")
        call.join()
        assert reset.join().ok
        assert simulator.resets() == resets + 1


@pytest.mark.anyio
async def test_reset_does_not_wait_for_an_unguarded_call(open_device: OpenDevice) -> None:
    async with open_device() as device:
        call = Raised.hung_in("aclrtGetSocName", functions.aclrtGetSocName)
        assert (await device.force_reset(grace=0)).ok
        assert call.running
        simulator.release_call("aclrtGetSocName")
        call.join()


@pytest.mark.anyio
async def test_lease_holder_enqueues_by_hand_while_the_device_drains(open_device: OpenDevice) -> None:
    async with equipped(open_device, 8) as (device, stream, memory):
        acl = on(device)
        async with device.lease():
            reset = Raised(lambda: device.force_reset(grace=30).result())
            await until(lambda: device.state is aioacl.State.DRAINING)
            acl.aclrtMemsetAsync(memory, 8, 0, 8, stream)
            refused = Raised(lambda: acl.aclrtMemsetAsync(memory, 8, 0, 8, stream))
            with pytest.raises(aioacl.DeviceResetting):
                refused.join()
        assert reset.join().ok


def test_repr_of_functions_describes_them() -> None:
    assert repr(functions) == "<ACL's functions on no device>"
    assert "unguarded" in repr(functions.aclrtGetSocName)
    assert lowlevel.functions is functions
