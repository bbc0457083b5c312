"""Kernels in Python: functions that a launch calls in place of AI Core code.

The function runs on the simulated device's thread, in the order of the stream. The thread holds the GIL during the
call, so the function must not wait with the GIL held for a thread that needs the GIL. The thread holds no lock of the
simulator.
"""

from __future__ import annotations

import operator
import struct
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, SupportsIndex

from aioacl._base.errors import ParameterError
from aioacl._base.ffi import ffi
from aioacl._base.unique import record
from aioacl.simulator._control import control_function
from aioacl.simulator._registration import Registration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioacl._base.ffi import CData

FAILED: Final = 507015
READS: Final = 1
WRITES: Final = 2
ADDRESS_MOST: Final = (1 << 64) - 1
LAYOUT: Final = struct.Struct("@PPN7IxxxxNixxxxPP")  # aclsim_launch_t


@record
class Launch:
    """One launch of a kernel. While the kernel runs, it reads and writes device memory through `memory()`.

    Attributes:
        name: the name of the kernel.
        args: the arguments as bytes.
        num_blocks: the number of blocks.
        grid: the grid of a SIMT launch; otherwise `(num_blocks, 1, 1)`.
        block: the block of a SIMT launch; otherwise `(1, 1, 1)`.
        dynamic_bytes: the size of the dynamic memory, in bytes.
        device: the index of the device.
        stream: the raw handle of the stream.
    """

    name: str
    args: bytes
    num_blocks: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_bytes: int
    device: int
    stream: int
    _args_at: int

    def unpack(self, layout: str) -> tuple[Any, ...]:
        """Returns the arguments, unpacked from the start of `args` by a format of `struct`."""
        return struct.unpack_from(layout, self.args)

    def memory(self, address: SupportsIndex, size: SupportsIndex) -> memoryview:
        """Returns a view of memory whose address was an argument. It is valid while the kernel runs.

        The memory may belong to the device, or be pinned or registered memory of the host. Registered memory may be
        given by its host address or by its device address. The view is writable if copies may write the memory. Memory
        inside the arguments themselves, such as the data of placeholders, is read-only.

        Args:
            address: the address of the first byte.
            size: the number of bytes.

        Raises:
            ParameterError: the bytes are not all in one live block that the kernel's device can access.
        """
        address, size = operator.index(address), operator.index(size)
        offset = address - self._args_at
        if offset >= 0 and 0 <= size <= len(self.args) - offset:
            return memoryview(self.args)[offset : offset + size]
        access = _reach(self.device, address, size)
        if not access & READS:
            raise ParameterError(
                f"expected bytes in one live block of device {self.device}, got {size} bytes at {address:#x}",
                hint="Pass an address from the arguments of the launch, and at most the size of its buffer.",
            )
        view = memoryview(ffi.buffer(ffi.cast("char *", address), size))
        return view if access & WRITES else view.toreadonly()


class Kernel(Registration[Launch]):
    """A registration of a kernel. It ends with `close()`, or at the end of its `with` block.

    Attributes:
        name: the name of the kernel.
        errors: the exceptions that launches of the function have raised, oldest first.
    """

    __slots__ = ()
    _noun = "kernel"
    _failed = FAILED
    _control = "aclsim_register_kernel"
    _registered: ClassVar = {}

    def close(self) -> None:
        """Ends the registration. Launches that are still queued fail.

        A second close does nothing. If a newer registration has replaced this one, the close does nothing either.
        """
        self._end()


def register_kernel(
    name: str,
    function: Callable[[Launch], SupportsIndex | None],
    *,
    parameters: Sequence[SupportsIndex] | None = None,
) -> Kernel:
    """Registers a Python function as a kernel: each launch of the named kernel calls it.

    Args:
        name: the name of the kernel. An earlier function of that name is replaced.
        function: called once per launch, with a `Launch`. It returns None or 0 for success, or the error code with
            which the task fails. If it raises an exception or returns something else, the task fails with 507015, and
            the exception is added to the kernel's `errors`.
        parameters: the sizes of the kernel's parameters, in bytes, each from 1 to 512. Launches with an array of
            arguments need them.

    Returns:
        The registration: close it, or use it in a `with` block.

    Raises:
        ParameterError: `name` is empty or contains a null character, `function` is a coroutine function, or
            `parameters` has a size that is not from 1 to 512.
    """
    if not name:
        raise ParameterError("expected the name of a kernel, got ''", hint="Pass the name that launches use.")
    c_name = Kernel._c_name(name, function)
    kernel = Kernel(name, function)
    kernel._begin(c_name, _trampoline())
    if parameters is not None:
        _describe(c_name, parameters)
    return kernel


def _describe(name: CData, parameters: Sequence[SupportsIndex]) -> None:
    describe = control_function("aclsim_kernel_parameters", "int (*)(const char *, const size_t *, size_t)")
    if describe(name, ffi.new("size_t[]", [*map(operator.index, parameters)]), len(parameters)) != 0:
        raise ParameterError(
            f"expected sizes of parameters, got {list(parameters)}", hint="Pass sizes from 1 to 512 bytes."
        )


def _reach(device: int, address: int, size: int) -> int:
    """Returns the access that a kernel of the device has to the bytes: READS, WRITES, both, or 0 for no access."""
    if not (0 < address <= ADDRESS_MOST and 0 <= size <= ADDRESS_MOST):
        return 0
    reach = control_function("aclsim_reach", "int (*)(int32_t, void *, size_t)")
    return int(reach(device, ffi.cast("void *", address), size))


@cache
def _trampoline() -> CData:
    """The C function of all kernels. It is never freed."""
    return ffi.callback("int(void *)", _launched, error=FAILED)


def _launched(info: CData) -> int:
    fields = LAYOUT.unpack(bytes(ffi.buffer(ffi.cast("char *", info), LAYOUT.size)))
    name, args, size, blocks, *shape, dynamic_bytes, device, stream, key = fields
    kernel = Kernel._registered.get(key)
    if kernel is None:
        return FAILED
    x, y, z, *block = shape
    launch = Launch(
        name=ffi.string(ffi.cast("char *", name)).decode(),
        args=bytes(ffi.buffer(ffi.cast("char *", args), size)) if size else b"",
        num_blocks=blocks,
        grid=(x, y, z),
        block=(block[0], block[1], block[2]),
        dynamic_bytes=dynamic_bytes,
        device=device,
        stream=stream,
        _args_at=args,
    )
    return kernel._run(launch)
