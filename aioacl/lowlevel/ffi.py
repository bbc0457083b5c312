"""C values for the calls: functions of cffi, with all types of ACL's headers declared.

`new("int32_t *")` makes a value that `value[0]` reads. `cast("aclrtStream", 0)` makes a handle from a number. NULL is
the null pointer. `string(pointer)` copies a C string into bytes, and `buffer(pointer, size)` gives access to memory.
The program must keep a reference to the result of `new` or `callback` for as long as C uses that result.
"""

from __future__ import annotations

from typing import Final

from aioacl._base.ffi import ffi as _ffi

__all__ = ["NULL", "buffer", "callback", "cast", "from_buffer", "gc", "new", "sizeof", "string", "unpack"]

NULL: Final = _ffi.NULL
new: Final = _ffi.new
cast: Final = _ffi.cast
string: Final = _ffi.string
unpack: Final = _ffi.unpack
buffer: Final = _ffi.buffer
from_buffer: Final = _ffi.from_buffer
sizeof: Final = _ffi.sizeof
callback: Final = _ffi.callback
gc: Final = _ffi.gc
