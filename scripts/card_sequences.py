"""Writes aioacl/data/card_sequences.jsonl.gz: the conformance vectors that `python -m aioacl report` plays on a card.

    .venv/bin/python scripts/card_sequences.py

The file is for cards that other people use too. So `is_gentle` takes only vectors whose results the host decides, and
that need one device, hold no queue, reset nothing, and enqueue nothing that could fail or block. Of these, `chosen`
takes a vector only if it has a call with a result that no shorter vector has.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = ROOT / "tests" / "conformance"
TARGET: Final = ROOT / "aioacl" / "data" / "card_sequences.jsonl.gz"
MOST_BYTES: Final = 100_000
MOST_STEPS: Final = 64
KEPT: Final = ("id", "family", "devices", "class", "since", "steps")
# The beginnings of the names of calls that reset or drop work, run tasks that may fail, or block a queue.
REFUSED: Final = (
    "aclrtResetDevice",
    "aclrtDestroyStreamForce",
    "aclrtStreamAbort",
    "aclrtStreamStop",
    "aclrtDeviceTaskAbort",
    "aclrtMemcpy",
    "aclrtMemset",
    "aclrtLaunch",
    "aclrtSubscribeReport",
    "aclrtProcessReport",
    "aclrtUnSubscribeReport",
    "aclrtStreamWaitEvent",
    "aclrtWaitAndResetNotify",
    "aclrtSetExceptionInfoCallback",
    "aclmdl",
    "sleep",
)


def is_gentle(vector: dict[str, Any]) -> bool:
    """Whether the vector may run on a card that other processes use."""
    steps = vector["steps"]
    return (
        vector.get("class") == "host"
        and vector.get("devices", 1) == 1
        and not vector.get("needs")
        and "versions" not in vector  # older releases return other results
        and len(steps) <= MOST_STEPS
        and not any("async" in step or step["call"].startswith(REFUSED) for step in steps)
    )


def chosen(vectors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns gentle vectors, the shortest first, until each call with each of its results is in one of them."""
    seen: set[tuple[str, int | None]] = set()
    found: list[dict[str, Any]] = []
    for vector in sorted(filter(is_gentle, vectors), key=lambda each: (len(each["steps"]), each["id"])):
        results = {(step["call"], step.get("rc")) for step in vector["steps"]}
        if results - seen:
            seen |= results
            found.append({key: vector[key] for key in KEPT if key in vector})
    return found


def recorded() -> list[dict[str, Any]]:
    """Returns the vectors that were recorded; those of derived.jsonl were not."""
    return [
        json.loads(line)
        for path in sorted(SOURCE.glob("*.jsonl.gz"))
        for line in gzip.decompress(path.read_bytes()).decode().splitlines()
    ]


def content() -> bytes:
    """Returns the lines of the file."""
    return b"".join(json.dumps(each).encode() + b"\n" for each in chosen(recorded()))


if __name__ == "__main__":
    TARGET.write_bytes(gzip.compress(content(), mtime=0))
