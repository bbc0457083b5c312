"""What the metrics report about the library: its kind, its release and the chip. Reading it calls no ACL function."""

from __future__ import annotations

from typing import Any, Final

from aioacl._base.ffi import ffi, lib, text_of

PACKAGE: Final = b"runtime"
VERSION_BYTES: Final = 128  # ACL_PKG_VERSION_MAX_SIZE
_known: Final = {"runtime": "", "soc": ""}


def version_text() -> str:
    """Returns the release of CANN as text (aclsysGetVersionStr), or "" if the library does not report it."""
    text: Any = ffi.new("char[]", VERSION_BYTES)
    code = lib.aio_u_aclsysGetVersionStr(ffi.new("char[]", PACKAGE), text)
    return "" if code else text_of(text)


def note(soc: str) -> None:
    """Notes the chip and the release of CANN. Called when ACL was initialised."""
    _known.update(runtime=version_text(), soc=soc)


def build() -> tuple[str, str, str]:
    """Returns "simulator" or "ascend", the release of CANN and the chip; "" for what is not known yet."""
    if lib.aio_library_key() < 0:
        return "", "", ""
    kind = "simulator" if lib.aio_library_is_simulator() else "ascend"
    return kind, _known["runtime"], _known["soc"]
