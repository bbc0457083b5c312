"""Reads the output of `./demo --json` and checks its figures."""

from __future__ import annotations

import json
import sys

NAMES = [
    *("backend", "files", "bytes", "tasks", "streams", "awaits", "mismatches", "resets", "generation"),
    *("stale_refused", "loop_lag_p99_ms", "blocking_loop_lag_p99_ms"),
]


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
        }
        complaints = [
            f"expected that {promise}, got other figures" for promise, holds in promises.items() if not holds
        ]
    print("\n".join(complaints) or "the demo's figures are as documented")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
