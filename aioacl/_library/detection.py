"""How failed tasks are found: by the runtime's callback for each of them, or by synchronizing.

aioacl relies on the callback only if the runtime calls it before the next work of the stream starts. The runtime does
so on chips with the hardware scheduler STARS. On older chips, an event may be complete before the callback runs.
"""

from __future__ import annotations

import re
import warnings
from typing import Final, Literal

from aioacl._base import logs
from aioacl._base.errors import AclWarning
from aioacl._base.ffi import lib, text_of

Detection = Literal["exact", "confirmed"]

# "910B" without a digit is an older chip than 910B1 to 910B4.
_KEEPS_ORDER: Final = re.compile(r"Ascend(910B\d|910_9\d|310B|950)")
_EVERY_WAY: Final = lib.AIO_EXACT_ACL | lib.AIO_EXACT_RUNTIME
_NAMES: Final = {
    lib.AIO_EXACT_ACL: "aclrtExceptionInfoCallbackRegister",
    lib.AIO_EXACT_RUNTIME: "rtRegTaskFailCallbackByModule",
}
_allowed = _EVERY_WAY
_begun = False
_warned = False


def keeps_order(soc: str) -> bool:
    """Whether a chip of this name (aclrtGetSocName) reports a failed task before the next work of the stream starts."""
    return _KEEPS_ORDER.match(soc) is not None


def allow(ways: int) -> None:
    """Sets which registrations may be used (flags `lib.AIO_EXACT_*`). For tests, before the library is used."""
    global _allowed  # noqa: PLW0603 - there is one library in a process
    _allowed = ways


def begin() -> None:
    """Registers for reports of failed tasks, once, when the loaded library is first used.

    A library that was only loaded can be used in a forked child. After the registration it cannot, because the
    registration starts the runtime.
    """
    global _begun  # noqa: PLW0603 - there is one library in a process
    if not _begun:
        lib.aio_failures_register(_allowed)
        look()
        _begun = True


def look() -> str:
    """Decides whether the reports are reliable. Returns the name of the chip.

    Called again after aclInit, because the chip may have no name before aclInit.
    """
    soc = text_of(lib.aio_u_aclrtGetSocName())
    lib.aio_failures_trust(keeps_order(soc))
    return soc


def detection() -> Detection:
    """Returns how failed tasks are found in this process, whose library is loaded."""
    begin()
    return "exact" if lib.aio_failure_detection() != lib.AIO_CONFIRMED else "confirmed"


def reported_by() -> str:
    """Returns the name of the function that registers for the reports, or "" if there is none."""
    return _NAMES.get(lib.aio_failure_reports(), "")


def explanation() -> str:
    """Returns what `detection()` means, in a sentence."""
    if detection() == "exact":
        return f"the runtime reports each failed task ({reported_by()}), so no await misses a failure"
    return (
        "failed tasks are found by synchronizing, so an await may miss a failure if other code of the process "
        "synchronizes the same stream or device"
    )


def warn_of_limit() -> None:
    """Emits an AclWarning, once in a process, if failed tasks are found by synchronizing."""
    global _warned  # noqa: PLW0603 - there is one library in a process
    if _warned or detection() == "exact":
        return
    _warned = True
    logs.warning(explanation())
    warnings.warn(explanation(), AclWarning, stacklevel=2)
