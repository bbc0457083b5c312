"""The suites, in the order in which they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.suites import await_, enqueue, lag, throughput

if TYPE_CHECKING:
    from benchmarks.harness import Suite

SUITES: Final[dict[str, Suite]] = {
    suite.name: suite for suite in (await_.SUITE, throughput.SUITE, lag.SUITE, enqueue.SUITE)
}
