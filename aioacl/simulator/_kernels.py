"""Kernels in Python: what a launch calls in the place of AI Core code.

The function runs on the simulated device's thread, in the order of the stream, with the interpreter's lock and none of
the simulator's. So it must not wait for what another thread does with the interpreter's lock held.
"""

from __future__ import annotations

import inspect
import itertools
import operator
import struct
import threading
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Self, SupportsIndex, cast

from aioacl._base.errors import ParameterError
from aioacl._base.ffi import ffi
from aioacl._base.unique import record
from aioacl.simulator._control import control_function
from aioacl.simulator._names import c_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioacl._base.ffi import CData

FAILED: Final = 507015
CODES: Final = 1 << 31
READS: Final = 1
WRITES: Final = 2
ADDRESS_MOST: Final = (1 << 64) - 1
EXPLAINED_BYTES: Final = 150
LAYOUT: Final = struct.Struct("@PPN7IxxxxNixxxxPP")  # aclsim_launch_t


@record
@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a kernel: what it was given. Device memory is reached through `memory()`, while it runs."""

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
        """The arguments, read by a format of `struct`."""
        return struct.unpack_from(layout, self.args)

    def memory(self, address: SupportsIndex, size: SupportsIndex) -> memoryview:
        """The memory at an address that was an argument; writable if copies may write it. Valid while the kernel runs.

        It is memory of the device, or pinned or registered memory of the host; the latter has an address of the
        device's as well. What lies in the arguments themselves, as the data of place holders does, can be read only.

        Raises:
            ParameterError: the bytes do not lie in one live block that the kernel's device reaches.
        """
        address, size = operator.index(address), operator.index(size)
        offset = address - self._args_at
        if offset >= 0 and 0 <= size <= len(self.args) - offset:
            return memoryview(self.args)[offset : offset + size]
        access = _reach(self.device, address, size)
        if not access & READS:
            raise ParameterError(
                f"{size} bytes at {address:#x} do not lie in one live block of device {self.device}",
                hint="Pass an address that the launch was given, and at most the size of its buffer.",
            )
        view = memoryview(ffi.buffer(ffi.cast("char *", address), size))
        return view if access & WRITES else view.toreadonly()


class Kernel:
    """A registration: ends with `close()` or with its `with` block. `errors` keeps what the function raised."""

    __slots__ = ("__weakref__", "_function", "_key", "errors", "name")

    def __init__(self, name: str, function: Callable[[Launch], SupportsIndex | None]) -> None:
        self.name: Final = name
        self.errors: Final[list[BaseException]] = []
        self._function = function
        self._key = next(_keys)

    def close(self) -> None:
        """Ends the registration; launches that are queued fail. Closing twice, or after a newer one, does nothing."""
        with _lock:
            mine = _registered.pop(self._key, None)
            newest = not any(kernel.name == self.name for kernel in _registered.values())
            if mine is not None and newest:
                control_function("aclsim_register_kernel", _REGISTER)(
                    c_text("the name of a kernel", self.name), ffi.NULL, ffi.NULL
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _run(self, launch: Launch) -> int:
        try:
            return _code_of(self._function(launch))
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever looks at errors, not to the device's thread
            self.errors.append(error)
            _explain(error)
            return FAILED


def _code_of(answer: object) -> int:
    if answer is None:
        return 0
    if inspect.iscoroutine(answer):
        answer.close()
    try:
        code = int(operator.index(cast("SupportsIndex", answer)))
    except TypeError:
        text = f"a kernel answered {answer!r}; want None, 0, or the code of a failure"
        raise TypeError(text) from None
    if not -CODES <= code < CODES:
        raise OverflowError(f"a kernel answered {code}, which is no code of ACL: it has more than 32 bits")
    return code


_REGISTER: Final = "int (*)(const char *, void *, void *)"
_lock: Final = threading.Lock()
_keys: Final = itertools.count(1)
_registered: Final[dict[int, Kernel]] = {}


def register_kernel(
    name: str,
    function: Callable[[Launch], SupportsIndex | None],
    *,
    parameters: Sequence[SupportsIndex] | None = None,
) -> Kernel:
    """Launches of the named kernel call the function; None or 0 is success, another answer the code of a failure.

    An exception, or an answer that is no code, fails the task with 507015 and is kept in the kernel's `errors`. The
    name's earlier function is replaced. `parameters` are the sizes of the kernel's parameters, for launches with an
    array of arguments.
    """
    if not name:
        raise ParameterError("a kernel needs a name", hint="Pass the name that the client asks for.")
    if inspect.iscoroutinefunction(function):
        raise ParameterError(
            f"the kernel {name!r} is a coroutine function, which no loop would run",
            hint="Pass a plain function: it runs on the simulated device's thread.",
        )
    c_name = c_text("the name of a kernel", name)
    kernel = Kernel(name, function)
    with _lock:
        _registered[kernel._key] = kernel
        user = ffi.cast("void *", kernel._key)
        control_function("aclsim_register_kernel", _REGISTER)(c_name, _trampoline(), user)
        for key in [key for key, other in _registered.items() if other.name == name and other is not kernel]:
            del _registered[key]
    if parameters is not None:
        _describe(c_name, parameters)
    return kernel


def _describe(name: CData, parameters: Sequence[SupportsIndex]) -> None:
    describe = control_function("aclsim_kernel_parameters", "int (*)(const char *, const size_t *, size_t)")
    if describe(name, ffi.new("size_t[]", [*map(operator.index, parameters)]), len(parameters)) != 0:
        raise ParameterError(f"{list(parameters)} are no sizes of parameters", hint="Pass sizes of 1 to 512.")


def _reach(device: int, address: int, size: int) -> int:
    """What a kernel of the device may do with the bytes: READS, WRITES, both or nothing."""
    if not (0 < address <= ADDRESS_MOST and 0 <= size <= ADDRESS_MOST):
        return 0
    reach = control_function("aclsim_reach", "int (*)(int32_t, void *, size_t)")
    return int(reach(device, ffi.cast("void *", address), size))


def _explain(error: BaseException) -> None:
    """The task's failure tells of the exception."""
    text = " ".join(f"{type(error).__name__}: {error}".split()).replace("\0", "")
    cut = text.encode("utf-8", "replace")[:EXPLAINED_BYTES].decode("utf-8", "ignore")
    control_function("aclsim_explain", "void (*)(const char *)")(c_text("a text", cut))


@cache
def _trampoline() -> CData:
    """The one C function that all kernels are; it lives as long as the process."""
    return ffi.callback("int(void *)", _launched, error=FAILED)


def _launched(told: CData) -> int:
    fields = LAYOUT.unpack(bytes(ffi.buffer(ffi.cast("char *", told), LAYOUT.size)))
    name, args, size, blocks, *shape, dynamic_bytes, device, stream, key = fields
    kernel = _registered.get(key)
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
