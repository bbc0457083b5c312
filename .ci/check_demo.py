"""Reads the output of `./demo --json` and checks its figures."""

from __future__ import annotations

import json
import sys
from typing import Any

NAMES = [
    *("backend", "files", "bytes", "tasks", "streams", "awaits", "mismatches", "resets", "generation"),
    *("stale_refused", "loop_lag_p99_ms", "blocking_loop_lag_p99_ms", "inference"),
]
DIGITS, HELD_OUT = 1797, 359
LEAST_ACCURACY = 0.95
# Both are lower than on a quiet machine, where they are at least 1.6 and 0.9.
LEAST_OVERLAP = 1.3  # the rate with all slots, divided by the rate of one call at a time
LEAST_SHARE = 0.5  # of the rate that the slowest stage of a call allows


def of_inference(found: dict[str, Any] | None) -> dict[str, bool]:
    """Returns what is promised about the part that classifies digits, and whether it holds."""
    if found is None:
        return {"the digits were classified": False}
    return {
        "each digit has one result": found["results"] == found["digits"] == DIGITS,
        "no result is lost or came twice": (found["lost"], found["duplicates"]) == (0, 0),
        "no result differs from NumPy's": found["wrong"] == 0,
        f"at least {LEAST_ACCURACY:.0%} of the held-out digits are recognized": found["held_out"] == HELD_OUT
        and found["accuracy"] >= LEAST_ACCURACY,
        "a reset was made while digits were classified": found["resets"] >= 1,
        "no call failed": not found["failures"],
        f"with several slots, at least {LEAST_OVERLAP} times as many digits are classified": found["overlap"]
        >= LEAST_OVERLAP,
        f"at least {LEAST_SHARE:.0%} of the highest rate are reached": found["share_of_bound"] >= LEAST_SHARE,
    }


def main() -> int:
    """Returns 0 if all figures are as documented, else 1."""
    found = json.loads(sys.stdin.read().splitlines()[-1])
    complaints = [f"{name} is missing" for name in NAMES if name not in found]
    if not complaints:
        lag, blocking = found["loop_lag_p99_ms"], found["blocking_loop_lag_p99_ms"]
        promises = {
            "the backend is the simulator": found["backend"] == "simulator",
            "files were copied": found["files"] > 0 and found["bytes"] > 0,
            "the number of mismatches is 0": found["mismatches"] == 0,
            "a reset was made": found["resets"] >= 1 and found["generation"] > found["resets"],
            "every task finished": found.get("finished", found["tasks"]) == found["tasks"],
            "each file was awaited": found["awaits"] >= found["files"],
            "the loop's lag is at most half of the lag with blocking calls": lag <= blocking / 2,
            **of_inference(found["inference"]),
        }
        complaints = [
            f"expected that {promise}, got other figures" for promise, holds in promises.items() if not holds
        ]
    print("\n".join(complaints) or "the demo's figures are as documented")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
