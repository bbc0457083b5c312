"""Memory and copies: what may be copied, when the bytes have arrived, and what is refused."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from aioacl._base.ffi import ffi, lib
from aioacl._selftest._bench import (
    BLOCK_BYTES,
    NULL_REFUSED,
    REFUSED,
    call,
    download,
    expect,
    fill,
    named,
    pattern,
    read,
    require,
    write,
)
from aioacl._selftest._outcomes import Broken
from aioacl._selftest._records import SIMULATOR_ONLY, Family

if TYPE_CHECKING:
    from aioacl._base.ffi import CData
    from aioacl._selftest._bench import Bench, Memory, Pinned, Stream

COPIES: Final = Family("copies", "memory and copies")
UP: Final = lib.ACL_MEMCPY_HOST_TO_DEVICE
DOWN: Final = lib.ACL_MEMCPY_DEVICE_TO_HOST
ACROSS: Final = lib.ACL_MEMCPY_DEVICE_TO_DEVICE
LARGE_BYTES: Final = 3 << 20
TOO_MUCH_BYTES: Final = 1 << 50
NO_MEMORY: Final = 207001


def copy(stream: CData, target: CData, source: CData, size: int, kind: int) -> None:
    """Enqueues a copy."""
    expect(0, "aclrtMemcpyAsync", target, size, source, size, kind, stream)


def same(found: bytes, wanted: bytes, what: str) -> None:
    """Raises Broken for the first byte that differs."""
    if found != wanted:
        place = next(i for i, byte in enumerate(found) if byte != wanted[i])
        raise Broken(f"{what}: byte {place} is {found[place]}, expected {wanted[place]}")


@COPIES.assumes("sync", "H/D", "aclrtMalloc aclrtMemcpy aclrtFree", "_lifecycle/probe")
def _(memory: Memory) -> None:
    """aclrtMemcpy, to the device and back, has copied the bytes when it returns."""
    data = pattern(BLOCK_BYTES)
    expect(0, "aclrtMemcpy", memory, BLOCK_BYTES, ffi.new("char[]", data), BLOCK_BYTES, UP)
    same(download(memory, BLOCK_BYTES), data, "the copy to the device and back")


@COPIES.assumes(
    "pinned",
    "H/D",
    "aclrtMallocHost aclrtMemcpyAsync aclrtSynchronizeStreamWithTimeout",
    "_native/enqueue.c _native/stage.c",
)
def _(bench: Bench, stream: Stream) -> None:
    """Bytes copied on a stream between pinned and device memory have arrived after the wait."""
    data = pattern(LARGE_BYTES)
    memory, here = bench.memory(LARGE_BYTES), bench.pinned(LARGE_BYTES)
    write(here, data)
    copy(stream, memory, here, LARGE_BYTES, UP)
    bench.finish(stream)
    write(here, bytes(LARGE_BYTES))
    copy(stream, here, memory, LARGE_BYTES, DOWN)
    bench.finish(stream)
    same(read(here, LARGE_BYTES), data, "pinned memory")


@COPIES.assumes("parts", "H/D", "aclrtMemcpyAsync", "_native/stage.c _handles/stream")
def _(bench: Bench, stream: Stream, memory: Memory, here: Pinned) -> None:
    """Copies may start and end at any byte of a block."""
    data = pattern(BLOCK_BYTES)
    write(here, data)
    fill(stream, memory, 0)
    copy(stream, memory + 101, here + 7, 1003, UP)
    bench.finish(stream)
    same(download(memory, BLOCK_BYTES)[101:1104], data[7:1010], "the part")
    same(download(memory, BLOCK_BYTES)[1104:], bytes(BLOCK_BYTES - 1104), "the bytes after the part")


@COPIES.assumes("pageable", "H/D", "aclrtMemcpyAsync", SIMULATOR_ONLY)
def _(bench: Bench, stream: Stream, memory: Memory) -> None:
    """A copy on a stream may use pageable memory; it may be slower than a copy of pinned memory."""
    data = pattern(BLOCK_BYTES)
    there, back = ffi.new("char[]", data), ffi.new("char[]", BLOCK_BYTES)
    copy(stream, memory, there, BLOCK_BYTES, UP)
    copy(stream, back, memory, BLOCK_BYTES, DOWN)
    bench.finish(stream)
    same(read(back, BLOCK_BYTES), data, "pageable memory")


@COPIES.assumes("late", "H/D", "aclrtMallocHost aclrtMemcpyAsync", "_handles/memory _native/stage.c")
def _(bench: Bench, stream: Stream, memory: Memory, here: Pinned) -> None:
    """A copy from pinned memory reads it when the copy runs, so the source must not change until then."""
    write(here, bytes([1]) * BLOCK_BYTES)
    with bench.held(stream):
        copy(stream, memory, here, BLOCK_BYTES, UP)
        write(here, bytes([2]) * BLOCK_BYTES)
    same(download(memory, BLOCK_BYTES), bytes([2]) * BLOCK_BYTES, "the copy")


@COPIES.assumes("across", "H/D", "aclrtMemcpyAsync", "_handles/stream")
def _(bench: Bench, stream: Stream, first: Memory, second: Memory) -> None:
    """Device memory can be copied to device memory of the same device."""
    data = pattern(BLOCK_BYTES)
    expect(0, "aclrtMemcpy", first, BLOCK_BYTES, ffi.new("char[]", data), BLOCK_BYTES, UP)
    copy(stream, second, first, BLOCK_BYTES, ACROSS)
    bench.finish(stream)
    same(download(second, BLOCK_BYTES), data, "device to device")


@COPIES.assumes("fill", "H/D", "aclrtMemsetAsync", "_native/enqueue.c")
def _(bench: Bench, stream: Stream, memory: Memory) -> None:
    """A fill writes the given number of bytes, and no more."""
    fill(stream, memory, 0x5A)
    expect(0, "aclrtMemsetAsync", memory, BLOCK_BYTES, 0xA5, 1000, stream)
    bench.finish(stream)
    wanted = bytes([0xA5]) * 1000 + bytes([0x5A]) * (BLOCK_BYTES - 1000)
    same(download(memory, BLOCK_BYTES), wanted, "the fill")


@COPIES.assumes("too-small", "H", "aclrtMemcpy aclrtMemcpyAsync", "_native/enqueue.c")
def _(bench: Bench, stream: Stream, memory: Memory, here: Pinned) -> None:
    """A copy that does not fit into its target is refused with 107000, before it is enqueued."""
    write(here, bytes([1]) * 11)
    fill(stream, memory, 2)
    bench.finish(stream)
    expect(REFUSED, "aclrtMemcpy", memory, 10, here, 11, UP)
    expect(REFUSED, "aclrtMemcpyAsync", memory, 10, here, 11, UP, stream)
    bench.finish(stream)
    same(download(memory, 11), bytes([2]) * 11, "the target of the refused copies")


@COPIES.assumes("null", "H", "aclrtMemcpy aclrtMemcpyAsync", "_base/codes")
def _(bench: Bench, stream: Stream, memory: Memory) -> None:
    """A copy from or to NULL is refused with 100000."""
    expect(NULL_REFUSED, "aclrtMemcpy", memory, 10, ffi.NULL, 10, UP)
    expect(NULL_REFUSED, "aclrtMemcpyAsync", ffi.NULL, 10, memory, 10, DOWN, stream)
    bench.finish(stream)


@COPIES.assumes("empty", "H", "aclrtMemcpy aclrtMemcpyAsync", SIMULATOR_ONLY)
def _(stream: Stream, memory: Memory, here: Pinned) -> None:
    """A copy of no bytes returns 0 since CANN 9.1, and 107000 before."""
    codes = {
        call("aclrtMemcpy", memory, BLOCK_BYTES, here, 0, UP),
        call("aclrtMemcpyAsync", memory, BLOCK_BYTES, here, 0, UP, stream),
    }
    require(
        codes in ({0}, {REFUSED}),
        f"expected only 0 or only 107000, got {', '.join(map(named, sorted(codes)))}",
    )


@COPIES.assumes("no-memory", "H", "aclrtMalloc", "_base/codes _handles/memory")
def _(bench: Bench) -> None:
    """An allocation larger than the device's memory is refused with 207001, and the device remains usable."""
    made = ffi.new("void **")
    policy = lib.ACL_MEM_MALLOC_HUGE_FIRST
    expect(NO_MEMORY, "aclrtMalloc", made, TOO_MUCH_BYTES, policy)
    bench.memory()


@COPIES.assumes("nothing", "H", "aclrtMalloc aclrtMallocHost", "_handles/memory")
def _() -> None:
    """An allocation of no bytes is refused."""
    made, policy = ffi.new("void **"), lib.ACL_MEM_MALLOC_HUGE_FIRST
    require(call("aclrtMalloc", made, 0, policy), "aclrtMalloc of no bytes returned 0")
    require(call("aclrtMallocHost", made, 0), "aclrtMallocHost of no bytes returned 0")


@COPIES.assumes("apart", "doc", "aclrtMalloc aclrtMallocHost", "_handles/memory")
def _(bench: Bench) -> None:
    """Blocks that exist at the same time do not overlap."""
    blocks = [bench.memory() for _ in range(16)] + [bench.pinned() for _ in range(16)]
    places = sorted(int(ffi.cast("uintptr_t", block)) for block in blocks)
    nearest = min(later - sooner for sooner, later in pairwise(places))
    require(nearest >= BLOCK_BYTES, f"two blocks of {BLOCK_BYTES} bytes start {nearest} bytes apart")


@COPIES.assumes("info", "doc", "aclrtGetMemInfo", "_device _models/loading")
def _() -> None:
    """The runtime reports free and total memory, and the free memory is at most the total."""
    free, total = ffi.new("size_t *"), ffi.new("size_t *")
    if call("aclrtGetMemInfo", lib.ACL_HBM_MEM, free, total):
        expect(0, "aclrtGetMemInfo", lib.ACL_DDR_MEM, free, total)
    require(
        0 < free[0] <= total[0],
        f"expected free memory from 1 byte to the total of {total[0]} bytes, got {free[0]} bytes",
    )
