"""The context that aioacl makes for a device that was opened with `context="own"` (aclrtCreateContext).

Such a context is not the device's primary context, so other code neither stops it nor resets it. A reset replaces it:
a new context is made, and then the old one is destroyed. In between, the device is not released, so the memory of the
old context still exists and can be freed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioacl._base.ffi import ffi, lib
from aioacl._base.states import RELEASED_ALREADY

if TYPE_CHECKING:
    from aioacl._base.ffi import CData

NO_CONTEXT: Final = 107002
# The codes of aclrtDestroyContext after which the context does not exist: 0, and two for a context that was destroyed
# before. After any other code, the call may have destroyed the context or not.
GONE: Final = (0, NO_CONTEXT, RELEASED_ALREADY)


class OwnContext:
    """The explicit contexts of one device that aioacl has made and not destroyed.

    The last one is current for the gate. The methods run on the control thread, except `choose`.

    Attributes:
        wanted: whether the device uses a context of its own; the first open sets it.
    """

    def __init__(self, index: int) -> None:
        self._index = index
        self._made: list[CData] = []
        self._keeper: CData | None = None
        self.wanted = False

    def choose(self, *, own: bool) -> None:
        """Sets which kind of context the next set makes."""
        self.wanted = own
        lib.aio_own_context(self._index, own)

    def make(self) -> int:
        """Makes a context, which also becomes current on this thread, and stores it for the gate."""
        code, made = self._create()
        if code == 0:
            self._made.append(made)
            lib.aio_set_context(self._index, made)
        return code

    def _create(self) -> tuple[int, CData]:
        made: Any = ffi.new("aclrtContext *")
        return lib.aio_u_aclrtCreateContext(made, self._index), made[0]

    def keep_device(self) -> None:
        """Makes a context that no work uses, so that the runtime does not release the device before `let_device_go`."""
        if self._keeper is not None:
            return
        current: Any = ffi.new("aclrtContext *")
        had_one = lib.aio_u_aclrtGetCurrentContext(current) == 0
        code, made = self._create()
        self._keeper = None if code else made
        if had_one:  # the new context became current on this thread
            lib.aio_u_aclrtSetCurrentContext(current[0])

    @property
    def keeps_device(self) -> bool:
        """Whether `keep_device` has succeeded."""
        return self._keeper is not None

    def let_device_go(self) -> None:
        """Destroys the context that `keep_device` has made."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            lib.aio_u_aclrtDestroyContext(keeper)

    def end(self) -> int:
        """Destroys the contexts. Returns the first code that is not 0, or 507007 if there is none."""
        return self.end_all_but(0) if self._made else RELEASED_ALREADY

    def end_all_but(self, kept: int) -> int:
        """Destroys the contexts except the newest `kept`. Returns the first code that is not 0."""
        while len(self._made) > kept:
            code = self._destroy(self._made[0])
            if code:
                return code
            del self._made[0]
        newest = self._made[-1] if self._made else ffi.NULL
        if self._made:
            lib.aio_u_aclrtSetCurrentContext(newest)
        lib.aio_set_context(self._index, newest)  # again: so the gate forgets the context before it
        return 0

    def _destroy(self, context: CData) -> int:
        """Destroys a context. Returns 0 if it does not exist any more, else the code.

        On a faulty device the call may return a code although it has destroyed the context. This thread has lost the
        context then. The handle is not passed again, because another context may have it.
        """
        is_current = lib.aio_u_aclrtSetCurrentContext(context) == 0
        code: int = lib.aio_u_aclrtDestroyContext(context)
        if code in GONE or (
            is_current and lib.aio_u_aclrtGetCurrentContext(ffi.new("aclrtContext *")) == NO_CONTEXT
        ):
            return 0
        return code

    def forget(self) -> None:
        """Called when other code has destroyed the context."""
        self._made.clear()
