"""Tools for testing code that uses aioacl, without a card.

`audit()` reports leaks with the line that made them. `wait_until()` waits for a condition instead of a guessed time.
`recover_device()` tests a device and resets it if it does not work. The pytest plugin offers all of this as fixtures
and checks: see the page "Test without a card" of the documentation. This module is for other test runners and for your
own helpers. Importing it loads no ACL library.
"""

import aioacl as _aioacl  # noqa: F401  # pyright: ignore[reportUnusedImport] - waits for another thread's import
from aioacl._base.public import publish as _publish
from aioacl.testing._audit import Audit, AuditFailed, Finding, audit
from aioacl.testing._cleanup import force_close, recover_device, release_everything
from aioacl.testing._origins import origin_of
from aioacl.testing._snapshot import Snapshot, snapshot
from aioacl.testing._waiting import wait_until, wait_until_blocking

__all__ = [
    "Audit",
    "AuditFailed",
    "Finding",
    "Snapshot",
    "audit",
    "force_close",
    "origin_of",
    "recover_device",
    "release_everything",
    "snapshot",
    "wait_until",
    "wait_until_blocking",
]

_publish(__name__, __all__)
