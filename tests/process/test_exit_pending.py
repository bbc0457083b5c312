"""A process that ends with pending coroutines has the status of its program, in whatever phase they are finalized."""

from __future__ import annotations

import pytest

from tests.process.child import run
from tests.support import pending


@pytest.mark.parametrize("place", pending.PLACES)
@pytest.mark.parametrize("loop", pending.LOOPS)
def test_end_with_pending_coroutines_of_each_kind_keeps_the_status(loop: str, place: str) -> None:
    # The server of `run` has imported trio. On asyncio, a real process has not.
    program = pending.program([*pending.KINDS] * 2, place)
    status, out, errors = run(program, loop, strict=False, real=loop == "asyncio")
    assert (status, out) == (pending.STATUS, f"{pending.OUTPUT}\n"), errors
