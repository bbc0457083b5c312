"""The functions of `acl` about the whole process, which are written by hand.

`acl.finalize` beside aioacl. CANN's aclFinalize ends ACL for all its users in the process. So while aioacl uses ACL,
`acl.finalize` only gives back one initialisation of the program (aclFinalizeReference). Without one, it returns
ACL_ERROR_REPEAT_FINALIZE.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from aioacl._base.ffi import ffi, lib, text_of
from aioacl._library import runtime
from aioacl._pyacl.arguments import encoded

if TYPE_CHECKING:
    from collections.abc import Callable

_LEVELS: Final = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
_VERSION_SIZE_BYTES: Final = 128  # ACL_PKG_VERSION_MAX_SIZE
_log: Final = logging.getLogger("aioacl.pyacl")


def init(config: str | None = None) -> int:
    """Initialises ACL. While ACL is initialised, returns ACL_ERROR_REPEAT_INITIALIZE and counts the call."""
    code: int = lib.aio_u_aclInit(ffi.NULL if config is None else encoded(config))
    if code in (0, runtime.REPEAT_INITIALIZE):
        runtime.count_program()
    return code


def finalize() -> int:
    """Finalizes ACL, or gives back one initialisation while aioacl uses ACL."""
    return runtime.finalize_for_program()


def get_recent_err_msg() -> str | None:
    """Returns the runtime's text for the last failed call of this thread, once; then None."""
    kept = lib.aio_error_text()
    text = text_of(kept)
    if text:
        ffi.cast("char *", kept)[0] = b"\0"  # CANN clears the text when it is read
        return text
    return text_of(lib.aio_u_aclGetRecentErrMsg()) or None


def app_log(level: int, message: str) -> None:
    """Writes to Python's logger `aioacl.pyacl`, in place of CANN's log."""
    _log.log(_LEVELS[max(0, min(level, len(_LEVELS) - 1))], "%s", message)


def get_cann_attribute_list() -> tuple[list[int], int, int]:
    """Returns the attributes, their number and the code."""
    listed, number = ffi.new("const aclCannAttr **"), ffi.new("size_t *")
    code = lib.aio_u_aclGetCannAttributeList(listed, number)
    count = 0 if code else number[0]
    return [listed[0][index] for index in range(count)], count, code


def get_version_str(package: str) -> tuple[str, int]:
    """Returns the version of a package of CANN, and the code."""
    version = ffi.new("char[]", _VERSION_SIZE_BYTES)
    code = lib.aio_u_aclsysGetVersionStr(ffi.new("char[]", encoded(package)), version)
    return text_of(version), code


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "app_log": app_log,
    "finalize": finalize,
    "get_cann_attribute_list": get_cann_attribute_list,
    "get_recent_err_msg": get_recent_err_msg,
    "get_version_str": get_version_str,
    "init": init,
}
"""The functions of the table that are written here."""
