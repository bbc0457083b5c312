"""Measures how many turns an event loop makes while it waits for torch, beside the turns without the wait.

    python benchmarks/torch_turns.py --python PYTHON [--rounds N] [--seconds S] [--at-least SHARE]

PYTHON is a Python with torch and torch_npu. It runs this file on the simulator. Prints one JSON object with the share
of the turns in each round, and the median. Exits with 1 if the median is below `--at-least`.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# aioacl and cffi are not installed beside torch, so the child adds their folders to its path.
FOLDERS = (str(ROOT), sysconfig.get_path("purelib"))
WORK = "--work"
COPIES = 4000  # more than a stream has room for, so torch's queue keeps the rest


async def turns(seconds: float) -> int:
    """Returns how many turns the loop makes in that time."""
    count, until = 0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        await asyncio.sleep(0)
        count += 1
    return count


async def shares(rounds: int, seconds: float) -> list[float]:
    """Returns the turns beside the wait, divided by those without it, of each round."""
    torch: Any = importlib.import_module("torch")
    npu: Any = importlib.import_module("torch_npu").npu
    aioacl: Any = importlib.import_module("aioacl")
    beside: Any = importlib.import_module("aioacl.torch")
    simulator: Any = importlib.import_module("aioacl.simulator")
    aioacl.use_library("simulator")
    npu.set_device(0)
    theirs = npu.Stream()
    source = torch.zeros(1024, dtype=torch.int32).pin_memory()
    there = torch.empty(source.shape, dtype=source.dtype, device="npu")

    async def wait() -> None:
        await beside.synchronize(theirs)

    found: list[float] = []
    async with aioacl.open_device(0):
        with simulator.held(theirs.npu_stream):
            with npu.stream(theirs):
                for _ in range(COPIES):
                    there.copy_(source, non_blocking=True)
            for _ in range(rounds):
                alone = await turns(seconds)
                waiting = asyncio.create_task(wait())
                found.append(await turns(seconds) / alone)
                waiting.cancel()
        await wait()
    return found


def work(rounds: str, seconds: str, *folders: str) -> None:
    """Runs in the child, and skips the end of the interpreter, because torch's destructors may abort the process."""
    sys.path += folders
    print(json.dumps(asyncio.run(shares(int(rounds), float(seconds)))), flush=True)
    os._exit(0)


def measure(python: str, rounds: int, seconds: float) -> list[float]:
    """Runs the child, which finds the simulator by LD_LIBRARY_PATH."""
    command = [sys.executable, "-m", "aioacl", "simulator", "dir"]
    folder = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    child = [python, str(Path(__file__)), WORK, str(rounds), str(seconds), *FOLDERS]
    environ = {**os.environ, "LD_LIBRARY_PATH": folder}
    done = subprocess.run(child, env=environ, check=True, stdout=subprocess.PIPE, text=True)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if the loop makes the required share of its turns, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", required=True, help="a Python with torch and torch_npu")
    parser.add_argument("--rounds", type=int, default=51, help="rounds; the median is judged (51)")
    parser.add_argument("--seconds", type=float, default=0.2, help="the time of each count of turns (0.2)")
    parser.add_argument("--at-least", type=float, default=0.9, help="least share of the turns (0.9)")
    options = parser.parse_args(arguments)
    found = measure(options.python, options.rounds, options.seconds)
    share = statistics.median(found)
    reached = share >= options.at_least
    rounds = [round(each, 3) for each in found]
    print(json.dumps({"rounds": rounds, "share": round(share, 3), "reached": reached}, indent=2))
    return 0 if reached else 1


if __name__ == "__main__":
    if sys.argv[1:2] == [WORK]:
        work(*sys.argv[2:])
    sys.exit(main())
