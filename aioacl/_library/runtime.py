"""Initialising and finalizing ACL, counted per process.

If ACL was already initialised when aioacl opens a device (100002: by torch_npu, onnxruntime or pyACL), aioacl never
finalizes it. Otherwise aioacl finalizes by reference count, where the library can. It never calls aclFinalize, because
that drops the counts of all callers. Pinned memory outlives its device and must be freed before ACL is finalized: the
last close waits for no view of it, and leaves the finalizing to the close of the last buffer, or to a later close.

A call that initialises or finalizes may not return. Devices make it on their control threads, so each of them waits for
its own time only; `busy()` names the device whose thread is in it.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from aioacl._base import sync
from aioacl._base.errors import AclWarning, ForkedProcessError, error_for
from aioacl._base.ffi import ffi, lib, text_of
from aioacl._library import detection
from aioacl._library.load import ensure_loaded

if TYPE_CHECKING:
    from collections.abc import Generator

REPEAT_INITIALIZE: Final = 100002
REPEAT_FINALIZE: Final = 100037
EXIT_GRACE_SECONDS: Final = 2.0

_lock = sync.lock()
_users: set[object] = set()
_busy: list[object] = []  # who is in such a call, if not only for pinned memory
_owner = False
_debt = 0  # finalizes that have failed: ACL counts our initialisations still
_watching = False
_kept: set[object] = set()  # pinned memory: finalizers take of it, so it is guarded by no lock


def must_not_be_forked() -> None:
    """Raises in a forked child, before it takes a lock that a thread of the parent may have held."""
    if lib.aio_forked():
        raise ForkedProcessError("devices belong to the process that was forked")


def of_parent() -> str:
    """For the repr of what a forked child has of its parent."""
    return ", of the process that was forked" if lib.aio_forked() else ""


def _load() -> None:
    global _watching  # noqa: PLW0603 - there is one library in a process
    ensure_loaded()
    if not _watching:
        lib.aio_exit_install(int(EXIT_GRACE_SECONDS * 1e6))
        lib.aio_watch_foreign()
        _watching = True


def load() -> None:
    """Loads the library, without initialising it."""
    must_not_be_forked()
    if _watching:
        return  # at once: another thread may be in C for long, with the lock
    with _lock:
        _load()


def busy() -> tuple[object, ...]:
    """For whom ACL is being initialised or finalized now."""
    return tuple(_busy)


@contextmanager
def _call_for(user: object) -> Generator[None]:
    """With the lock held."""
    with _lock:
        _busy.append(user)
        try:
            yield
        finally:
            _busy.clear()


def acquire(user: object) -> None:
    """Initialises ACL for one more user (aclInit)."""
    must_not_be_forked()
    with _call_for(user):
        _load()
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
    detection.look()


def _finalize() -> int:
    """Gives this initialisation back, and those whose finalize has failed before."""
    global _debt  # noqa: PLW0603 - there is one library in a process
    _debt += 1
    code = 0
    while _debt and code == 0:
        code = lib.aio_u_aclFinalizeReference(ffi.NULL)
        _debt = 0 if code in (REPEAT_FINALIZE, lib.AIO_ABSENT) else _debt - (code == 0)
    return code


def keep(memory: object) -> None:
    """ACL is not to be finalized while there is this memory."""
    _kept.add(memory)


def let_go(memory: object) -> None:
    """The memory was given back. For finalizers too."""
    _kept.discard(memory)


def release(user: object) -> None:
    """Gives a use back, if there is one; the last of an owner finalizes (aclFinalizeReference)."""
    _users.discard(user)
    settle(user)


def _stays() -> bool:
    return bool(_users) or bool(_kept) or not _owner


def settle(user: object = None) -> None:
    """Finalizes, if nothing needs ACL any more and it is ours."""
    global _owner  # noqa: PLW0603 - there is one library in a process
    if _stays():
        return  # at once: who opens may be in C for long, with the lock
    with _call_for(user):
        if _stays():
            return
        _owner = False
        code = _finalize()
    if code not in (0, lib.AIO_ABSENT):
        warnings.warn(f"aclFinalizeReference answered {code}", AclWarning, stacklevel=2)
