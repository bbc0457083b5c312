"""Calls of the module `acl`, beside the same call of cffi with arguments that are converted already."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from benchmarks import raw
from benchmarks.bench import Bench
from benchmarks.harness import Sample, Session, Suite, timed, walls
from benchmarks.rows import Row, Spread, ratio_row

if TYPE_CHECKING:
    from collections.abc import Callable

NAME: Final = "pyacl"
REPEATS: Final = 21
CALLS: Final = 20_000
ACL: Final = "acl"
CFFI: Final = "cffi"


def calls_of(call: Callable[[], object]) -> Sample:
    """Measures many calls."""
    with timed() as timer:
        for _ in range(CALLS):
            call()
    return timer.sample(CALLS)


def _with_result(new: Callable[[str], Any], c_type: str, call: Callable[[Any], int]) -> tuple[Any, int]:
    """Calls a function with one out-parameter, as a program does that uses cffi."""
    out = new(c_type)
    code = call(out)
    return out[0], code


def pairs_of(bench: Bench) -> dict[str, dict[str, Callable[[], object]]]:
    """Returns the two calls, by what they do: one that copies, one with a result, one that checks, one value."""
    import aioacl.pyacl as acl  # noqa: PLC0415 - the import needs the loaded library

    lib, new = bench.lib, bench.ffi.new

    def number(value: Any) -> int:
        return int(bench.ffi.cast("uintptr_t", value))

    raw.check(lib.aclrtSetCurrentContext(bench.context), "aclrtSetCurrentContext")
    stream, dataset = bench.raw_streams[0], lib.aclmdlCreateDataset()
    arguments = (bench.to, bench.nbytes, bench.of, bench.nbytes, bench.kind)
    numbers = [each if isinstance(each, int) else number(each) for each in arguments]
    return {
        "memcpy": {
            ACL: partial(acl.rt.memcpy, *numbers),
            CFFI: partial(lib.aclrtMemcpy, *arguments),
        },
        "stream_query": {
            ACL: partial(acl.rt.stream_query, number(stream)),
            CFFI: partial(_with_result, new, "aclrtStreamStatus *", partial(lib.aclrtStreamQuery, stream)),
        },
        "synchronize_stream": {
            ACL: partial(acl.rt.synchronize_stream, number(stream)),
            CFFI: partial(lib.aclrtSynchronizeStream, stream),
        },
        "get_dataset_num_buffers": {
            ACL: partial(acl.mdl.get_dataset_num_buffers, number(dataset)),
            CFFI: partial(lib.aclmdlGetDatasetNumBuffers, dataset),
        },
    }


def run(session: Session) -> list[Row]:
    """Measures each pair; the two alternate."""
    repeats = session.repeats(REPEATS, 5)
    rows: list[Row] = []
    with Bench(1) as bench:
        pairs = pairs_of(bench)
        session.plan(repeats * len(pairs))
        for what, pair in pairs.items():
            samples = {name: partial(calls_of, call) for name, call in pair.items()}
            found = session.interleave(samples, repeats, what)
            rows += [
                Row(NAME, f"{what}: {name}", "", "us", Spread.of(wall * 1e6 for wall in walls(each)))
                for name, each in found.items()
            ]
            rows.append(ratio_row(NAME, what, CFFI, walls(found[ACL]), walls(found[CFFI])))
    return rows


SUITE: Final = Suite(NAME, "calls of the module `acl`, beside the same call of cffi", run)
