"""The sequences that `report` plays on a card: scripts/card_sequences.py made them, and none of them does harm."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from scripts.card_sequences import MOST_BYTES, TARGET, content, is_gentle

STEP = {"t": 0, "call": "aclrtSetDevice", "args": [0], "rc": 0}
GENTLE: dict[str, Any] = {
    "id": "x",
    "family": "x",
    "devices": 1,
    "class": "host",
    "since": "8.1",
    "steps": [STEP],
}


def test_packaged_sequences_are_those_that_the_script_makes() -> None:
    assert gzip.decompress(TARGET.read_bytes()) == content(), "run scripts/card_sequences.py"
    assert TARGET.stat().st_size <= MOST_BYTES
    assert len(content()) <= MOST_BYTES


def test_packaged_sequences_do_no_harm() -> None:
    vectors = [json.loads(line) for line in content().splitlines()]
    assert len(vectors) > 50
    for vector in vectors:
        assert (vector["class"], vector["devices"]) == ("host", 1)
        assert not vector.keys() & {"needs", "versions"}
        for step in vector["steps"]:
            assert "async" not in step
            assert not any(
                word in step["call"] for word in ("Reset", "Abort", "Memcpy", "Launch", "Wait")
            ) or step["call"] in ("aclrtResetEvent", "aclrtQueryEventWaitStatus")


def test_gentle_vector_is_taken() -> None:
    assert is_gentle(GENTLE)


@pytest.mark.parametrize(
    "change",
    [
        {"class": "device"},
        {"devices": 2},
        {"needs": ["hold:event"]},
        {"versions": "master"},
        {"steps": [STEP] * 65},
        {"steps": [STEP, {**STEP, "async": 20}]},
        *(
            {"steps": [STEP, {**STEP, "call": call}]}
            for call in (
                "aclrtResetDevice",
                "aclrtResetDeviceForce",
                "aclrtMemcpyAsync",
                "aclrtLaunchCallback",
                "aclrtStreamAbort",
                "aclrtStreamWaitEvent",
                "sleep",
            )
        ),
    ],
    ids=str,
)
def test_vector_that_could_do_harm_is_not_taken(change: dict[str, Any]) -> None:
    assert not is_gentle({**GENTLE, **change})
