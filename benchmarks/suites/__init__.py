"""The suites, in the order in which they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.suites import (
    await_,
    batches,
    blocking,
    cache,
    copy,
    enqueue,
    executor,
    http,
    import_,
    lag,
    metrics,
    model,
    pyacl,
    recorder,
    reset,
    scale,
    throughput,
)

if TYPE_CHECKING:
    from benchmarks.harness import Suite

SUITES: Final[dict[str, Suite]] = {
    suite.name: suite
    for suite in (
        await_.SUITE,
        throughput.SUITE,
        lag.SUITE,
        blocking.SUITE,
        cache.SUITE,
        scale.SUITE,
        enqueue.SUITE,
        copy.SUITE,
        reset.SUITE,
        import_.SUITE,
        executor.SUITE,
        model.SUITE,
        batches.SUITE,
        http.SUITE,
        metrics.SUITE,
        pyacl.SUITE,
        recorder.SUITE,
    )
}
