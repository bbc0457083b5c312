"""The gates: what a row must reach, and its aim. A gate selects its row by suite, name and peer."""

from __future__ import annotations

from typing import Final

from benchmarks.rows import Gate

GATES: Final = (
    Gate("enqueue", "copy", "raw call", 4, 3),
    Gate("enqueue", "record", "raw call", 4, 3),
    Gate("enqueue", "wait_event", "raw call", 4, 3),
    Gate("enqueue", "empty launch block", "record", 2.5, 2),
    Gate("enqueue", "await of finished work", "raw call", 6, 4),
    Gate("await", "empty task: added time", "asyncio.to_thread", 0.35, 0.2),
    Gate("await", "empty task: added time", "callback way", 0.7, 0.5),
    Gate("await", "100 us task: added time", "asyncio.to_thread", 0.35, 0.2),
    Gate("await", "100 us task: added time", "callback way", 0.7, 0.5),
    Gate("await", "1 ms task: CPU", "callback way", 1.2, 0.8),
    Gate("await", "20 ms task: CPU", "callback way", 1.2, 0.8),
    Gate("await", "1 ms task: added time", "callback way", 1.2, 1.0),
    Gate("await", "20 ms task: added time", "callback way", 1.2, 1.0),
    Gate("await", "first 1 ms task after 20 ms tasks: added time", "", 2, None),
    Gate("await", "first 5 ms task after 20 ms tasks: added time", "", 2, None),
    Gate("await", "empty task: time on uvloop", "aioacl", 1.0, None),
    Gate("await", "empty task: added time on trio", "trio.to_thread", 0.35, None),
    Gate("await", "empty task: added time on trio", "bare trio wake", None, 1.2),
    Gate("throughput", "64 waits: rate", "asyncio.to_thread", 4, 6, at_least=True),
    Gate("throughput", "64 waits: rate", "callback way", 1.3, 2, at_least=True),
    Gate("throughput", "1024 waits: rate", "asyncio.to_thread", 4, 6, at_least=True),
    Gate("throughput", "1024 waits: rate", "callback way", 1.3, 2, at_least=True),
    Gate("throughput", "64 waits: CPU per await", "callback way", 0.8, 0.6),
    Gate("lag", "p99 under 64 x 20 ms", "callback way", 1, 0.5),
    Gate("blocking", "idle stream behind 40 busy ones", "", 0.3, 0.1),
    Gate("scale", "memory per await beyond its task, 10,000", "", 1.5, 0.7),
    Gate("scale", "memory per await beyond its task, 100,000", "", 1.5, 0.7),
    Gate("scale", "set-up of an await among 100,000", "the same among 1,000", 1.3, 1.0),
    Gate("copy", "64 MiB pinned up", "memcpy", 0.9, 0.95, at_least=True),
    Gate("copy", "64 MiB pinned down", "memcpy", 0.9, 0.95, at_least=True),
    Gate("copy", "64 MiB pageable up", "memcpy", 0.6, 0.8, at_least=True),
    Gate("copy", "64 MiB pageable down", "memcpy", 0.6, 0.8, at_least=True),
    Gate("copy", "64 MiB pageable up: longest turn of the loop", "", 1, None),
    Gate("cache", "allocate", "await of an idle stream", 2, None),
    Gate("cache", "create_stream", "await of an idle stream", 2, None),
    Gate("cache", "request", "kept handles", 1.3, None),
    Gate("recorder", "record in C", "bare ring write", 1.5, 1.2),
    Gate("recorder", "record from Python", "bare ring write", 2, 1.6),
    Gate("recorder", "encoding of a trace", "json.dumps", 0.5, None),
    Gate("model", "call of a digit", "its ACL calls in a job", 0.7, 0.5),
    Gate(
        "model",
        "call of a digit, 1 at once: CPU",
        "model.enqueue with an awaited ticket, 1 at once",
        1.7,
        1.4,
    ),
    Gate(
        "model",
        "call of a digit, 16 at once: CPU",
        "model.enqueue with an awaited ticket, 16 at once",
        2,
        1.4,
    ),
    Gate("model", "call of a digit, 1024 at once: CPU", "call of a digit, 16 at once", 1.1, 1.0),
    Gate("model", "map, 16 at once: CPU", "call of a digit, 16 at once", 0.9, 0.7),
    Gate(
        "model", "call of a digit, 1 at once: CPU outside the library", "a bare thread and asyncio", 1.1, 1.0
    ),
    *(
        Gate(
            "model",
            f"call of {what}, {at_once} at once: CPU",
            f"OpenVINO, {rows}, {at_once} at once",
            0.9,
            0.7,
        )
        for what, rows in (("a digit", "1 row"), ("32 digits", "32 rows"))
        for at_once in (1, 16)
    ),
    Gate("model", "share of the slowest stage", "", 0.95, 0.98, at_least=True),
    Gate("metrics", "counting an await", "Histogram.observe", 0.1, 0.05),
    Gate("metrics", "counting a call of a model", "Histogram.observe", None, 0.1),
    Gate("pyacl", "memcpy", "cffi", 1.5, None),
    Gate("pyacl", "stream_query", "cffi", 1.5, None),
    Gate("pyacl", "synchronize_stream", "cffi", 1.5, None),
    Gate("pyacl", "get_dataset_num_buffers", "cffi", 1.5, None),
    *(
        Gate("batches", f"{loop}, {callers} callers: CPU per item", "floor", limit, aim)
        for loop in ("asyncio", "uvloop")
        for callers, limit, aim in ((1, 1.3, 1.1), (64, 1.5, 1.2), (1024, 1.5, 1.2))
    ),
    *(
        Gate("batches", f"asyncio, {callers} callers: CPU per item", "Ray's @serve.batch", 0.25, None)
        for callers in (1, 64, 1024)
    ),
    *(
        Gate(
            "batches",
            f"digits, {callers} callers: times less CPU than await model(x)",
            "floor",
            0.9,
            0.97,
            at_least=True,
        )
        for callers in (64, 256)
    ),
    Gate("batches", "1 caller: CPU added to await model(x)", "floor of nothing", 1.2, 1.0),
    Gate("batches", "32 items of 602 KB: longest turn of the loop", "numpy.concatenate", 0.25, 0.1),
    Gate("batches", "two devices: rate", "one device", 1.9, 1.97, at_least=True),
    Gate("http", "raw ASGI: CPU of a request", "echo", 1.5, 1.3),
    Gate("http", "FastAPI, bytes: CPU of a request", "echo", 1.4, 1.2),
    Gate("http", "FastAPI, JSON: CPU of a request", "echo", 1.2, 1.1),
    *(Gate("http", f"{way}: p99", "echo", 2, 1.3) for way in ("raw ASGI", "FastAPI, bytes", "FastAPI, JSON")),
    Gate(
        "http",
        "FastAPI, bytes: p99 from half a second after a reset on",
        "the same without resets",
        1.2,
        1.05,
    ),
    Gate("import", "import aioacl", "import asyncio, cffi", 1.3, None),
    Gate("reset", "10,000 waiters woken by a reset", "10,000 futures with their tasks", 4, 2),
)
