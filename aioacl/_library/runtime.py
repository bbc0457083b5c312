"""Initialises ACL for its first user in this process, and finalizes it after the last user.

If ACL was already initialised when aioacl opens a device (code 100002; by torch_npu, onnxruntime or pyACL), aioacl
never finalizes it. Otherwise aioacl finalizes by reference count (aclFinalizeReference), if the library has that
function. It never calls aclFinalize, because that drops the counts of all callers.

Pinned memory outlives its device and must be freed before ACL is finalized. The last close of a device does not wait
until pinned memory is freed. If some pinned memory is left, that close does not finalize ACL. The close of the last
pinned buffer, or a later close of a device, finalizes ACL.

A call that initialises or finalizes may never return. The control thread of a device makes the call, so each device
waits no longer than its own timeout. `busy()` names the device whose thread is inside such a call.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from aioacl._base import logs, sync
from aioacl._base.errors import AclWarning, ForkedProcessError, error_for
from aioacl._base.ffi import ffi, lib, pinned_in_use, text_of
from aioacl._base.late import late
from aioacl._library import build, detection

if TYPE_CHECKING:
    from collections.abc import Generator

    from aioacl._library import load as library
else:
    library = late("aioacl._library.load")

REPEAT_INITIALIZE: Final = 100002
REPEAT_FINALIZE: Final = 100037
EXIT_GRACE_SECONDS: Final = 2.0

_lock = sync.lock()
_users: set[object] = set()
# Has one item while ACL is initialised or finalized: the user, or None if the last pinned buffer was freed.
_busy: list[object] = []
_owner = False
_program = 0  # the initialisations by the program through `acl`, which it has not given back
_debt = 0  # the number of finalizes that failed: ACL still counts these initialisations
_watching = False


def must_not_be_forked() -> None:
    """Raises ForkedProcessError in a forked child, and RuntimeError while the interpreter ends.

    In both cases the other threads of Python do not run, but may hold locks. So it is called before a lock is taken.
    """
    if lib.aio_forked():
        raise ForkedProcessError("this process was forked after its parent had used ACL")
    if sys.is_finalizing():
        raise RuntimeError(
            "expected a use of the device before the interpreter ends, got one while it ends; "
            "let each task end, or cancel it, before the program ends"
        )


def of_parent() -> str:
    """Returns the end of a repr: a text for an object that a forked child has from its parent, else ""."""
    return ", of the parent process" if lib.aio_forked() else ""


def _load() -> None:
    """Loads the library. Called without the lock, which a child that is forked meanwhile would never get."""
    library.ensure_loaded()
    if not _watching:
        lib.aio_exit_install(int(EXIT_GRACE_SECONDS * 1e6))  # from here on, a child counts as forked


def _watch() -> None:
    global _watching  # noqa: PLW0603 - there is one library in a process
    if not _watching:
        detection.begin()
        lib.aio_watch_foreign()
        lib.aio_watch_streams()
        lib.aio_watch_task_aborts()
        _watching = True


def load() -> None:
    """Loads the library, without initialising it."""
    must_not_be_forked()
    if _watching:
        return  # without taking the lock, which another thread may hold for a long time while that thread is in C
    _load()
    with _lock:
        _watch()


def busy() -> tuple[object, ...]:
    """Returns the user for which ACL is being initialised or finalized now, in a tuple that may be empty."""
    return tuple(_busy)


@contextmanager
def _call_for(user: object) -> Generator[None]:
    """Holds the lock, and makes `busy()` return the user."""
    with _lock:
        _busy.append(user)
        try:
            yield
        finally:
            _busy.clear()


def acquire(user: object) -> None:
    """Adds a user of ACL; the first one initialises it (aclInit)."""
    must_not_be_forked()
    _load()
    with _call_for(user):
        _watch()
        if not _users and not _owner:
            _initialize()
        _users.add(user)


def _initialize() -> None:
    global _owner, _debt  # noqa: PLW0603 - there is one library in a process
    code = lib.aio_u_aclInit(ffi.NULL)
    if code not in (0, REPEAT_INITIALIZE):
        raise error_for(code, "aclInit", message=text_of(lib.aio_error_text()))
    _debt = _debt if code else 0
    _owner = code == 0 or _debt > 0
    build.note(detection.look())


def _finalize() -> int:
    """Finalizes once for this initialisation, and once for each earlier one that could not be finalized.

    Returns the last code.
    """
    global _debt  # noqa: PLW0603 - there is one library in a process
    _debt += 1
    code = 0
    while _debt and code == 0:
        code = lib.aio_u_aclFinalizeReference(ffi.NULL)
        _debt = 0 if code in (REPEAT_FINALIZE, lib.AIO_ABSENT) else _debt - (code == 0)
    return code


def count_program() -> None:
    """Counts an initialisation by the program through `acl`."""
    global _program  # noqa: PLW0603 - there is one library in a process
    with _lock:
        _program += 1


def finalize_for_program() -> int:
    """Finalizes ACL for the program (`acl.finalize`), and returns the code.

    aclFinalize ends ACL for all its users. So while aioacl uses ACL, this gives back one initialisation of the program
    only. If the library lacks aclFinalizeReference, nothing is called.
    """
    global _program  # noqa: PLW0603 - there is one library in a process
    with _lock:
        if not (_users or pinned_in_use()):
            _program = 0
            return lib.aio_u_aclFinalize()
        if not _program:
            return REPEAT_FINALIZE
        _program -= 1
        code = lib.aio_u_aclFinalizeReference(ffi.NULL)
        return 0 if code == lib.AIO_ABSENT else code


def is_told_of_resets() -> bool:
    """Whether the library reports resets by other code (aclrtRegDeviceStateCallback)."""
    return bool(lib.aio_tells_of_resets())


def release(user: object) -> None:
    """Removes a user, if it was added. After the last user, finalizes ACL as `settle` does."""
    _users.discard(user)
    settle(user)


def _stays() -> bool:
    return bool(_users) or bool(pinned_in_use()) or not _owner


def settle(user: object = None) -> None:
    """Finalizes ACL (aclFinalizeReference) if aioacl initialised it and no user or pinned memory needs it any more."""
    global _owner  # noqa: PLW0603 - there is one library in a process
    if _stays():
        return  # without taking the lock, which a thread that opens a device may hold for a long time while it is in C
    with _call_for(user):
        if _stays():
            return
        _owner = False
        code = _finalize()
    if code not in (0, lib.AIO_ABSENT):
        logs.warning(f"aclFinalizeReference returned {code}", code=code, call="aclFinalizeReference")
        warnings.warn(f"aclFinalizeReference returned {code}", AclWarning, stacklevel=2)
