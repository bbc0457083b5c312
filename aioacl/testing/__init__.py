"""Testing code that uses aioacl, without a card: leaks told by their line, waiting without guesses, devices mended.

pytest has all of it as fixtures and checks: see docs/testing.md. These are the parts, for other test runners and for
helpers of your own. Importing this loads no library.
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
