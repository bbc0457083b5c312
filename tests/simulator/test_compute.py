"""Tasks that compute: reductions, random numbers, and marks without an effect."""

from __future__ import annotations

import math
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

import aioacl
from aioacl.lowlevel import constants, ffi, handle, on
from tests.simulator.rawacl import opened

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from aioacl import Device, DeviceBuffer, Stream
    from tests.kit import OpenDevice

SUM, MAX, MIN, EQUAL = 10, 11, 12, 13
INTEGERS = {
    "ACL_INT8": "b",
    "ACL_UINT8": "B",
    "ACL_INT16": "h",
    "ACL_UINT16": "H",
    "ACL_INT32": "i",
    "ACL_UINT32": "I",
}
REALS = {"ACL_FLOAT16": "e", "ACL_FLOAT": "f"}
DROPOUT, UNIFORM, NORMAL, TRUNCATED = range(4)
WHOLE_RANGE = (struct.pack("Q", 0), struct.pack("Q", 2**64 - 1))


def constant(name: str) -> int:
    return int(getattr(constants, name))


async def reduced(device: Device, stream: Stream, kind: int, name: str, left: bytes, right: bytes) -> bytes:
    async with device.allocate(len(left)) as to, device.allocate(len(right)) as source:
        stream.copy(to, left)
        stream.copy(source, right)
        acl = on(device)
        acl.aclrtReduceAsync(to, source, len(left), kind, constant(name), stream, ffi.NULL)
        await stream.record()
        found = bytearray(len(left))
        await stream.copy(found, to)
        return bytes(found)


@pytest.mark.anyio
@pytest.mark.parametrize("name", [*INTEGERS, *REALS])
async def test_reduction_of_every_kind_and_type_gives_the_expected_numbers(
    open_device: OpenDevice, name: str
) -> None:
    letter = {**INTEGERS, **REALS}[name]
    signed = letter.islower()
    left: list[Any] = [1, 5, 100, -3 if signed else 3]
    right: list[Any] = [2, 5, 27, 1]
    layout = f"={len(left)}{letter}"
    pairs = list(zip(left, right, strict=True))
    expected = {
        SUM: [a + b for a, b in pairs],
        MAX: [max(a, b) for a, b in pairs],
        MIN: [min(a, b) for a, b in pairs],
        EQUAL: [int(a == b) for a, b in pairs],
    }
    async with open_device() as device, device.create_stream() as stream:
        for kind, values in expected.items():
            found = await reduced(
                device, stream, kind, name, struct.pack(layout, *left), struct.pack(layout, *right)
            )
            assert list(struct.unpack(layout, found)) == values


@pytest.mark.anyio
async def test_sum_of_integers_that_overflows_wraps_around(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream:
        found = await reduced(device, stream, SUM, "ACL_INT8", struct.pack("b", 127), struct.pack("b", 1))
        assert struct.unpack("b", found) == (-128,)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "values", [(65504.0, 16.0), (1.0, 2**-11), (1.0, 3 * 2**-11), (2**-24, 2**-24), (-0.0, 2**-26)]
)
async def test_half_floats_round_as_python_does(open_device: OpenDevice, values: tuple[float, float]) -> None:
    left, right = (struct.unpack("e", struct.pack("e", value))[0] for value in values)
    try:
        expected = struct.pack("e", left + right)
    except OverflowError:
        expected = struct.pack("e", math.inf)
    async with open_device() as device, device.create_stream() as stream:
        found = await reduced(
            device, stream, SUM, "ACL_FLOAT16", struct.pack("e", left), struct.pack("e", right)
        )
    assert found == expected


@pytest.mark.anyio
async def test_brain_floats_keep_eight_bits(open_device: OpenDevice) -> None:
    one, tiny = struct.pack("<f", 1.0)[2:], struct.pack("<f", 2.0**-8)[2:]
    async with open_device() as device, device.create_stream() as stream:
        assert await reduced(device, stream, SUM, "ACL_BF16", one, tiny) == one
        assert await reduced(device, stream, SUM, "ACL_BF16", one, one) == struct.pack("<f", 2.0)[2:]


def test_reduction_with_bad_arguments_is_refused(open_device: OpenDevice) -> None:
    with (
        opened(open_device()) as device,
        opened(device.create_stream()) as stream,
        opened(device.allocate(16)) as memory,
    ):
        reduce = on(device).aclrtReduceAsync
        refused: list[tuple[int, int, str, Any, int]] = [
            (0, SUM, "ACL_FLOAT", ffi.NULL, 107000),
            (4, 9, "ACL_FLOAT", ffi.NULL, 107000),
            (4, 9, "ACL_INT64", ffi.NULL, 100000),
            (4, SUM, "ACL_DOUBLE", ffi.NULL, 100000),
            (4, SUM, "ACL_COMPLEX64", ffi.NULL, 100000),
            (4, SUM, "ACL_FLOAT", memory, 100000),
            (4, SUM, "ACL_INT4", ffi.NULL, 207000),
        ]
        for count, kind, name, reserve, code in refused:
            with pytest.raises(aioacl.AclError) as caught:
                reduce(memory, memory, count, kind, constant(name), stream, reserve)
            assert caught.value.code == code


@pytest.mark.anyio
async def test_reduction_leaves_bytes_that_are_not_a_whole_number(open_device: OpenDevice) -> None:
    left, right = struct.pack("=iH", 1, 7), struct.pack("=iH", 2, 9)
    async with open_device() as device, device.create_stream() as stream:
        found = await reduced(device, stream, SUM, "ACL_INT32", left, right)
    assert found == struct.pack("=iH", 3, 7)


# --- random numbers -----------------------------------------------------------------------------------------------


def put(parameter: Any, value: bytes, *, address: bool = False) -> None:
    parameter.isAddr = int(address)
    parameter.size = len(value)
    ffi.buffer(parameter.valueOrAddr)[0 : len(value)] = value


class Random:
    """A task that generates random numbers on a device, with its own counter."""

    def __init__(self, device: Device, stream: Stream, result: DeviceBuffer, counter: DeviceBuffer) -> None:
        self.device, self.stream, self.result, self.counter = device, stream, result, counter
        self.info = cast("Any", ffi.new("aclrtRandomNumTaskInfo *"))
        self.info.randomResultAddr = handle(result)
        self.info.randomCounterAddr = handle(counter)
        put(self.info.randomSeed, struct.pack("Q", 0))

    def ask(self, function: int, name: str, count: int, *parameters: bytes) -> None:
        self.info.dataType = constant(name)
        self.info.randomNumFuncParaInfo.funcType = function
        put(self.info.randomNum, struct.pack("Q", count))
        both = self.info.randomNumFuncParaInfo.paramInfo.uniformDisInfo
        for place, value in zip((both.min, both.max), parameters, strict=False):
            put(place, value)
        on(self.device).aclrtRandomNumAsync(self.info, self.stream, ffi.NULL)

    async def read(self, layout: str) -> Sequence[Any]:
        found = bytearray(struct.calcsize(layout))
        await self.stream.copy(found, self.result, nbytes=len(found))
        return struct.unpack(layout, found)


@asynccontextmanager
async def generating(open_device: OpenDevice, size: int) -> AsyncGenerator[Random]:
    """Yields a task whose counter is 0. Its result has `size` bytes, which are all 0xff."""
    async with (
        open_device() as device,
        device.create_stream() as stream,
        device.allocate(size) as result,
        device.allocate(16) as counter,
    ):
        await stream.fill(counter, 0)
        await stream.fill(result, 0xFF)
        yield Random(device, stream, result, counter)


async def numbers(
    open_device: OpenDevice, function: int, name: str, layout: str, *parameters: bytes, seed: int = 7
) -> Sequence[Any]:
    async with generating(open_device, struct.calcsize(layout)) as random:
        put(random.info.randomSeed, struct.pack("Q", seed))
        random.ask(function, name, int(layout[1:-1]), *parameters)
        return await random.read(layout)


@pytest.mark.anyio
async def test_random_task_uses_philox_and_advances_the_counter(open_device: OpenDevice) -> None:
    async with generating(open_device, 16) as random:
        random.ask(UNIFORM, "ACL_UINT64", 2, *WHOLE_RANGE)
        assert await random.read("=2Q") == (0x6627E8D5E169C58D, 0xBC57AC4C9B00DBD8)
        random.ask(UNIFORM, "ACL_UINT64", 2, *WHOLE_RANGE)
        assert await random.read("=2Q") != (0x6627E8D5E169C58D, 0xBC57AC4C9B00DBD8)
        left = bytearray(16)
        await random.stream.copy(left, random.counter)
        assert struct.unpack("QQ", left) == (2, 0)


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "letter"), [("ACL_FLOAT", "f"), ("ACL_FLOAT16", "e"), ("ACL_INT32", "i")])
async def test_uniform_numbers_fill_their_range(open_device: OpenDevice, name: str, letter: str) -> None:
    low, high = struct.pack(letter, -10), struct.pack(letter, 30)
    found = await numbers(open_device, UNIFORM, name, f"=8000{letter}", low, high)
    assert min(found) >= -10
    assert max(found) < 30
    middle = 9.5 if letter == "i" else 10
    assert abs(sum(found) / len(found) - middle) < 0.6  # within five standard errors
    quarters = [sum(-10 + 10 * part <= value < 10 * part for value in found) for part in range(4)]
    assert all(abs(quarter - 2000) < 200 for quarter in quarters)


@pytest.mark.anyio
async def test_normal_numbers_have_their_mean_and_deviation(open_device: OpenDevice) -> None:
    given = (struct.pack("f", 5), struct.pack("f", 2))
    found = await numbers(open_device, NORMAL, "ACL_FLOAT", "=8000f", *given)
    mean = sum(found) / len(found)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in found) / len(found))
    assert abs(mean - 5) < 0.12
    assert abs(deviation - 2) < 0.08
    beyond = sum(abs(value - 5) > 4 for value in found)
    assert 270 < beyond < 460  # 4.55 % of 8000 are expected


@pytest.mark.anyio
async def test_truncated_normal_numbers_stay_within_two_deviations(open_device: OpenDevice) -> None:
    given = (struct.pack("f", 5), struct.pack("f", 2))
    found = await numbers(open_device, TRUNCATED, "ACL_FLOAT", "=4000f", *given)
    assert all(1 <= value <= 9 for value in found)
    assert abs(sum(found) / len(found) - 5) < 0.14
    within = sum(abs(value - 5) < 2 for value in found) / len(found)
    assert 0.68 < within < 0.75  # 71.5 % are expected


@pytest.mark.anyio
async def test_bitmask_with_a_ratio_sets_the_remaining_share_of_bits(open_device: OpenDevice) -> None:
    async with generating(open_device, 1024) as random:
        random.ask(DROPOUT, "ACL_FLOAT", 8000, struct.pack("f", 0.25))
        mask = bytes(await random.read("=1024B"))
    kept = sum(byte.bit_count() for byte in mask[:1000])
    assert abs(kept - 6000) < 200
    assert mask[1000:] == b"\xff" * 24


@pytest.mark.anyio
async def test_random_task_with_the_same_seed_gives_the_same_numbers(open_device: OpenDevice) -> None:
    given = (struct.pack("f", 0), struct.pack("f", 1))
    first = await numbers(open_device, NORMAL, "ACL_FLOAT", "=64f", *given, seed=1)
    assert first == await numbers(open_device, NORMAL, "ACL_FLOAT", "=64f", *given, seed=1)
    assert first != await numbers(open_device, NORMAL, "ACL_FLOAT", "=64f", *given, seed=2)


@pytest.mark.anyio
async def test_random_task_with_parameter_addresses_reads_them_on_the_device(open_device: OpenDevice) -> None:
    async with generating(open_device, 64) as random, random.device.allocate(8) as seed:
        await random.stream.fill(seed, 0)
        put(random.info.randomSeed, struct.pack("Q", int(ffi.cast("uintptr_t", handle(seed)))), address=True)
        random.ask(UNIFORM, "ACL_UINT64", 1, *WHOLE_RANGE)
        assert await random.read("=1Q") == (0x6627E8D5E169C58D,)


@pytest.mark.parametrize(
    ("function", "name", "size"),
    [(9, "ACL_FLOAT", 4), (NORMAL, "ACL_INT32", 4), (UNIFORM, "ACL_INT8", 1), (UNIFORM, "ACL_FLOAT", 2)],
)
def test_random_task_with_bad_arguments_is_refused(
    open_device: OpenDevice, function: int, name: str, size: int
) -> None:
    with (
        opened(open_device()) as device,
        opened(device.create_stream()) as stream,
        opened(device.allocate(64)) as memory,
    ):
        random = Random(device, stream, memory, memory)
        with pytest.raises(aioacl.AclError) as caught:
            random.ask(function, name, 1, bytes(size), bytes(size))
        assert caught.value.code == 107000


# --- marks --------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_cache_operation_or_mark_on_a_stream_runs_in_order(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        acl = on(device)
        size = ffi.new("size_t *")
        acl.aclrtCmoGetDescSize(size)
        assert size[0] == 64
        acl.aclrtCmoSetDesc(memory, memory, 64)
        acl.aclrtCmoAsync(memory, 64, constants.ACL_RT_CMO_TYPE_FLUSH, stream)
        acl.aclrtCmoAsyncWithBarrier(memory, 64, constants.ACL_RT_CMO_TYPE_INVALID, 1, stream)
        barriers = ffi.new("aclrtBarrierTaskInfo *", {"barrierNum": 1})
        acl.aclrtCmoWaitBarrier(barriers, stream, 0)
        acl.aclrtCmoAsyncWithDesc(memory, constants.ACL_RT_CMO_TYPE_PREFETCH, stream, ffi.NULL)
        mark = ffi.new("char[]", 18)
        acl.aclrtProfTrace(mark, 18, stream)
        address = ffi.new("void **")
        acl.aclrtGetHardwareSyncAddr(address)
        assert address[0] != ffi.NULL
        await stream.record()


def test_mark_with_bad_arguments_is_refused(open_device: OpenDevice) -> None:
    with (
        opened(open_device()) as device,
        opened(device.create_stream()) as stream,
        opened(device.allocate(64)) as memory,
    ):
        acl = on(device)
        mark = ffi.new("char[]", 19)
        refused = [
            (acl.aclrtProfTrace, (mark, 19, stream), 107000),
            (acl.aclrtCmoAsync, (memory, 0, 0, stream), 100000),
            (acl.aclrtCmoAsync, (memory, 64, 4, stream), 207000),
            (acl.aclrtCmoAsyncWithBarrier, (memory, 0, 0, 0, stream), 107000),
            (acl.aclrtCmoAsyncWithDesc, (ffi.NULL, 0, stream, ffi.NULL), 107000),
            (acl.aclrtCmoGetDescSize, (ffi.NULL,), 107000),
            (acl.aclrtCmoSetDesc, (ffi.NULL, memory, 64), 107000),
            (acl.aclrtCmoWaitBarrier, (ffi.new("aclrtBarrierTaskInfo *"), stream, 0), 107000),
            (acl.aclrtPersistentTaskClean, (stream,), 507000),
            (acl.aclrtCacheLastTaskOpInfo, (b"", 0), 100000),
            (acl.aclrtCacheLastTaskOpInfo, (b"info", 4), 507000),
            (acl.aclrtCacheLastTaskExtendInfo, (b"info", 4), 507000),
        ]
        for function, arguments, code in refused:
            with pytest.raises(aioacl.AclError) as caught:
                function(*arguments)  # type: ignore[operator]  # each with its own
            assert caught.value.code == code
