"""Kernels that are Python functions, launched like any other kernel."""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

import aioacl
from aioacl import simulator
from aioacl.lowlevel import ffi, handle, on
from tests.simulator.rawacl import opened

if TYPE_CHECKING:
    from collections.abc import Generator

    from aioacl import Device, DeviceBuffer, Stream
    from aioacl._base.ffi import CData
    from tests.kit import OpenDevice

MAPPED = 0x2  # ACL_HOST_REG_MAPPED


@contextmanager
def loaded(device: Device) -> Generator[CData]:
    """A loaded binary. Its kernels are the registered kernels."""
    binary = ffi.new("aclrtBinHandle *")
    on(device).aclrtBinaryLoadFromData(b"code", 4, ffi.NULL, binary)
    try:
        yield binary[0]
    finally:
        on(device).aclrtBinaryUnLoad(binary[0])


def launch(device: Device, binary: CData, name: bytes, args: bytes, stream: Stream, blocks: int = 1) -> None:
    function = ffi.new("aclrtFuncHandle *")
    acl = on(device)
    acl.aclrtBinaryGetFunction(binary, name, function)
    given = ffi.new("char[]", args)
    acl.aclrtLaunchKernelWithHostArgs(function[0], blocks, stream, ffi.NULL, given, len(args), ffi.NULL, 0)


def pointed(buffer: DeviceBuffer) -> int:
    return int(ffi.cast("uintptr_t", handle(buffer)))


@pytest.mark.anyio
async def test_kernel_reads_its_arguments_and_writes_device_memory(open_device: OpenDevice) -> None:
    seen: list[simulator.Launch] = []

    def double(launched: simulator.Launch) -> None:
        seen.append(launched)
        address, count = launched.unpack("QQ")
        memory = launched.memory(address, count)
        memory[:] = bytes(2 * byte for byte in memory)

    async with open_device() as device, device.create_stream() as stream, device.allocate(4) as memory:
        with simulator.register_kernel("double", double) as kernel, loaded(device) as binary:
            stream.copy(memory, bytes([1, 2, 3, 4]))
            launch(device, binary, b"double", struct.pack("QQ", pointed(memory), 4), stream, blocks=8)
            await stream.record()
            found = bytearray(4)
            await stream.copy(found, memory)
        assert bytes(found) == bytes([2, 4, 6, 8])
        assert kernel.errors == []
        assert (seen[0].name, seen[0].num_blocks, seen[0].grid, seen[0].block) == (
            "double",
            8,
            (8, 1, 1),
            (1, 1, 1),
        )
        assert (seen[0].device, len(seen[0].args)) == (0, 16)


@pytest.mark.anyio
async def test_kernel_that_raises_fails_the_task_and_keeps_the_error(open_device: OpenDevice) -> None:
    def broken(_: simulator.Launch) -> None:
        raise ZeroDivisionError("of the test")

    async with open_device() as device, device.create_stream() as stream:
        with simulator.register_kernel("broken", broken) as kernel, loaded(device) as binary:
            launch(device, binary, b"broken", bytes(8), stream)
            with pytest.raises(aioacl.DeviceFault) as caught:
                await stream.record()
        assert caught.value.code == 507015
        assert "kernel broken: ZeroDivisionError: of the test" in caught.value.message
        assert [str(error) for error in kernel.errors] == ["of the test"]


@pytest.mark.uncached
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("offset", "size"), [(-1, 4), (0, 9), (8, 1), (1 << 40, 8), (0, -1), (-(1 << 70), 4)]
)
async def test_kernel_memory_outside_of_a_block_is_refused(
    open_device: OpenDevice, offset: int, size: int
) -> None:
    def outside(launched: simulator.Launch) -> None:
        launched.memory(launched.unpack("Q")[0] + offset, size)

    async with open_device() as device, device.create_stream() as stream, device.allocate(8) as memory:
        with simulator.register_kernel("outside", outside) as kernel, loaded(device) as binary:
            launch(device, binary, b"outside", struct.pack("Q", pointed(memory)), stream)
            with pytest.raises(
                aioacl.DeviceFault, match=r"kernel outside: ParameterError: .* one live block"
            ):
                await stream.record()
        (error,) = kernel.errors
        assert isinstance(error, aioacl.ParameterError)
        assert "at most the size of its buffer" in error.hint


@pytest.mark.anyio
async def test_kernel_reaches_memory_of_the_host_and_of_its_arguments(open_device: OpenDevice) -> None:
    seen: list[tuple[bytes, bool]] = []

    def look(launched: simulator.Launch) -> None:
        (pinned,) = launched.unpack("Q")
        launched.memory(pinned, 4)[:] = b"seen"
        view = launched.memory(launched._args_at + 8, 3)
        seen.append((bytes(view), view.readonly))

    async with open_device() as device, device.create_stream() as stream, device.pinned(4) as pinned:
        with simulator.register_kernel("look", look) as kernel, loaded(device) as binary:
            launch(device, binary, b"look", struct.pack("Q", pinned.address) + b"abc", stream)
            await stream.record()
        assert (kernel.errors, bytes(pinned.view)) == ([], b"seen")
    assert seen == [(b"abc", True)]


@contextmanager
def registered(device: Device, size: int) -> Generator[tuple[CData, CData]]:
    """Yields the host address and the device address of registered pinned memory."""
    acl, host, seen = on(device), ffi.new("void **"), ffi.new("void **")
    acl.aclrtMallocHost(host, size)
    acl.aclrtHostRegisterV2(host[0], size, MAPPED)
    acl.aclrtHostGetDevicePointer(host[0], seen, 0)
    try:
        yield host[0], seen[0]
    finally:
        acl.aclrtHostUnregister(host[0])
        acl.aclrtFreeHost(host[0])


@pytest.mark.anyio
async def test_kernel_memory_at_a_registered_device_address_is_reachable(open_device: OpenDevice) -> None:
    def shout(launched: simulator.Launch) -> None:
        memory = launched.memory(*launched.unpack("QQ"))
        memory[:] = bytes(memory).upper()

    async with open_device() as device, device.create_stream() as stream:
        with (
            registered(device, 4096) as (host, seen),
            simulator.register_kernel("shout", shout) as kernel,
            loaded(device) as binary,
        ):
            ffi.buffer(host, 11)[:] = b"zero copies"
            address = int(ffi.cast("uintptr_t", seen))
            launch(device, binary, b"shout", struct.pack("QQ", address, 4), stream)
            await stream.record()
            assert (kernel.errors, bytes(ffi.buffer(host, 11))) == ([], b"ZERO copies")
            launch(device, binary, b"shout", struct.pack("QQ", address, 4097), stream)
            with pytest.raises(aioacl.DeviceFault, match="one live block"):
                await stream.record()


@pytest.mark.anyio
@pytest.mark.parametrize("answer", [507014, np.int64(507014)])
async def test_kernel_that_returns_a_code_fails_with_it(open_device: OpenDevice, answer: Any) -> None:
    async with open_device() as device, device.create_stream() as stream:
        with simulator.register_kernel("late", lambda _: answer), loaded(device) as binary:
            launch(device, binary, b"late", bytes(8), stream)
            with pytest.raises(aioacl.DeviceFault) as caught:
                await stream.record()
        assert caught.value.code == 507014


@pytest.mark.anyio
@pytest.mark.parametrize(("answer", "kind"), [("x", TypeError), (1 << 40, OverflowError), (1.0, TypeError)])
async def test_kernel_that_returns_no_code_fails(
    open_device: OpenDevice, answer: Any, kind: type[Exception]
) -> None:
    async with open_device() as device, device.create_stream() as stream:
        with simulator.register_kernel("odd", lambda _: answer) as kernel, loaded(device) as binary:
            launch(device, binary, b"odd", bytes(8), stream)
            with pytest.raises(aioacl.DeviceFault) as caught:
                await stream.record()
    assert caught.value.code == 507015
    assert [type(error) for error in kernel.errors] == [kind]


def test_launch_of_an_unregistered_kernel_is_refused_with_a_hint(open_device: OpenDevice) -> None:
    with opened(open_device()) as device, opened(device.create_stream()) as stream, loaded(device) as binary:
        with pytest.raises(
            aioacl.NotSupported, match=r"softmax.*simulator\.register_kernel.*aclsim_register_kernel"
        ):
            launch(device, binary, b"softmax", bytes(8), stream)
        with simulator.register_kernel("softmax", lambda _: None) as kernel:
            launch(device, binary, b"softmax", bytes(8), stream)
            device.synchronize().result()
            kernel.close()
            kernel.close()
            with pytest.raises(aioacl.NotSupported):
                launch(device, binary, b"softmax", bytes(8), stream)


@pytest.mark.anyio
async def test_launch_after_a_new_registration_calls_the_newest_function(open_device: OpenDevice) -> None:
    ran: list[str] = []
    async with open_device() as device, device.create_stream() as stream:
        with loaded(device) as binary:
            old = simulator.register_kernel("same", lambda _: ran.append("old"))
            with simulator.register_kernel("same", lambda _: ran.append("new")):
                old.close()
                launch(device, binary, b"same", bytes(8), stream)
                await stream.record()
    assert ran == ["new"]


@pytest.mark.anyio
async def test_launch_with_an_array_needs_the_sizes_of_parameters(open_device: OpenDevice) -> None:
    found: list[tuple[int, ...]] = []

    def note(launched: simulator.Launch) -> None:
        found.append(launched.unpack("iq"))

    number, large = ffi.new("int32_t *", 7), ffi.new("int64_t *", 8)
    array = ffi.new("void *[]", [number, large])
    function = ffi.new("aclrtFuncHandle *")
    async with open_device() as device, device.create_stream() as stream:
        acl = on(device)
        with loaded(device) as binary, simulator.register_kernel("note", note, parameters=[4, 8]):
            acl.aclrtBinaryGetFunction(binary, b"note", function)
            acl.aclrtLaunchKernelWithArgsArray(function[0], 1, stream, ffi.NULL, array)
            await stream.record()
            with simulator.register_kernel("plain", note):
                acl.aclrtBinaryGetFunction(binary, b"plain", function)
                with pytest.raises(aioacl.NotSupported, match="aclsim_kernel_parameters"):
                    acl.aclrtLaunchKernelWithArgsArray(function[0], 1, stream, ffi.NULL, array)
    assert found == [(7, 8)]


def test_register_kernel_with_bad_arguments_raises_parameter_error() -> None:
    with pytest.raises(aioacl.ParameterError, match="expected the name of a kernel"):
        simulator.register_kernel("", lambda _: None)
    with pytest.raises(aioacl.ParameterError, match="sizes"):
        simulator.register_kernel("sized", lambda _: None, parameters=[0])

    async def kernel(_: simulator.Launch) -> int:
        return 0

    with pytest.raises(aioacl.ParameterError, match="coroutine function"):
        simulator.register_kernel("later", cast("Any", kernel))
