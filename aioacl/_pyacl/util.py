"""`acl.util`: addresses of Python objects, and threads.

The functions that take an address read or make an array of any memory: the program must pass an address of memory that
it may use.
"""

from __future__ import annotations

import errno
import math
import threading
import warnings
from typing import TYPE_CHECKING, Any, Final, cast

from aioacl._base.ffi import ffi, pointer
from aioacl._base.options import repr_of

if TYPE_CHECKING:
    from collections.abc import Callable

_LEVEL: Final = 4  # of the program's line, above the caller


def bytes_to_ptr(data: bytes) -> int:
    """Returns the address of the bytes. It is valid while the program refers to the object."""
    return pointer(ffi.from_buffer("char[]", data))


def ptr_to_bytes(address: int, size: int) -> bytes:
    """Returns a copy of host memory."""
    if size and not address:
        raise ValueError(f"expected the address of {size} bytes, got 0")
    return bytes(ffi.buffer(ffi.cast("char *", address), size)) if size else b""


def _warn(name: str, instead: str) -> None:
    text = f"acl.util.{name} will be deprecated. Please use acl.util.{instead} instead."
    warnings.warn(text, Warning, stacklevel=_LEVEL)


def _array(value: Any) -> Any:
    import numpy as np  # noqa: PLC0415 - only programs that use arrays need numpy

    if not isinstance(value, np.ndarray):
        raise TypeError(f"expected an ndarray, got {repr_of(value)}; pass numpy.asarray(...) of it")
    return cast("Any", value)


def numpy_to_ptr(array: Any) -> int:
    """Returns the address of an array. It is valid while the program refers to the array."""
    _warn("numpy_to_ptr", "bytes_to_ptr")
    array = _array(array)
    if not array.flags.c_contiguous:
        warnings.warn(
            "The input ndarray is discontiguous. Please use acl.util.bytes_to_ptr instead.",
            Warning,
            stacklevel=_LEVEL - 1,
        )
    address: int = array.ctypes.data
    return address


def numpy_contiguous_to_ptr(array: Any) -> tuple[int, Any]:
    """Returns the address of a contiguous copy of an array, and the copy."""
    import numpy as np  # noqa: PLC0415 - only programs that use arrays need numpy

    _warn("numpy_contiguous_to_ptr", "bytes_to_ptr")
    copy = np.ascontiguousarray(_array(array))
    return copy.ctypes.data, copy


def ptr_to_numpy(address: int, shape: tuple[Any, ...], data_type: int) -> Any:
    """Returns an array on host memory. It is valid while the memory is. The type is a number of numpy's types."""
    import numpy as np  # noqa: PLC0415 - only programs that use arrays need numpy

    _warn("ptr_to_numpy", "ptr_to_bytes")
    if not all(isinstance(each, int) for each in shape):
        raise TypeError(f"expected the shape to be a tuple of ints, got {shape!r}")
    types = {np.dtype(code).num: np.dtype(code) for code in np.typecodes["All"] if code not in "SUVO"}
    if data_type not in types:
        raise ValueError(
            f"expected a number of numpy's types, such as numpy.dtype('f4').num, got {data_type}"
        )
    if min(shape, default=0) < 0:
        raise ValueError(f"expected dimensions of at least 0, got {shape}")
    size = math.prod(shape) * types[data_type].itemsize
    if not size:
        return np.empty(shape, types[data_type])
    if not address:
        raise ValueError(f"expected the address of {size} bytes, got 0")
    memory = ffi.buffer(ffi.cast("char *", address), size)
    return np.frombuffer(memory, types[data_type]).reshape(shape)


class _Thread(threading.Thread):
    """A thread of start_thread. It is a daemon: pyACL's threads do not keep the process alive."""

    def __init__(self, function: Callable[..., object], arguments: Any) -> None:
        super().__init__(name="acl.util.start_thread", daemon=True)
        self._function, self._arguments = function, arguments
        self.error: BaseException | None = None

    def run(self) -> None:
        """Calls the function with one argument, or without one if that is None."""
        _threads[threading.get_ident()] = self  # here too, because the function may call stop_thread
        try:
            self._function() if self._arguments is None else self._function(self._arguments)
        except BaseException as error:
            self.error = error
            raise  # threading.excepthook prints it


_threads: Final[dict[int, _Thread]] = {}


def start_thread(function: Callable[..., object], arguments: Any) -> tuple[int, int]:
    """Starts a thread that calls `function(arguments)`, or `function()` for None. Returns its pthread id, and 0."""
    thread = _Thread(function, arguments)
    thread.start()
    assert thread.ident is not None, "the thread has started"
    _threads[thread.ident] = thread
    return thread.ident, 0


def stop_thread(thread_id: int) -> int:
    """Waits until a thread of start_thread ends. Returns 0, or ESRCH for an unknown id.

    Raises RuntimeError if the function raised.
    """
    thread = _threads.get(thread_id)
    if thread is None:
        return errno.ESRCH
    if thread is threading.current_thread():
        return errno.EDEADLK
    thread.join()
    _threads.pop(thread_id, None)
    if thread.error is not None:
        raise RuntimeError(
            f"exception={type(thread.error).__name__},msg=thread call failed: {thread.error}"
        ) from thread.error
    return 0


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "bytes_to_ptr": bytes_to_ptr,
    "numpy_contiguous_to_ptr": numpy_contiguous_to_ptr,
    "numpy_to_ptr": numpy_to_ptr,
    "ptr_to_bytes": ptr_to_bytes,
    "ptr_to_numpy": ptr_to_numpy,
    "start_thread": start_thread,
    "stop_thread": stop_thread,
}
"""The functions of the table that are written here."""
