"""Testing code that uses aioacl, without a card: leaks told by their line, waiting without guesses, devices mended.

pytest has all of it as fixtures and checks: see docs/testing.md. These are the parts, for other test runners and for
helpers of your own. Importing this loads no library.
"""

from aioacl.testing._audit import Audit, AuditFailed, Finding, audit
from aioacl.testing._cleanup import force_close, mend, release_everything
from aioacl.testing._origins import origin_of
from aioacl.testing._snapshot import Snapshot, snapshot
from aioacl.testing._waiting import until, until_now

__all__ = [
    "Audit",
    "AuditFailed",
    "Finding",
    "Snapshot",
    "audit",
    "force_close",
    "mend",
    "origin_of",
    "release_everything",
    "snapshot",
    "until",
    "until_now",
]
