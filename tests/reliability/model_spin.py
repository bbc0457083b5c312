"""Explores a model by spin: takes the model and its parameters, returns states and errors. Used by the part `model`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MODELS: Final = Path(__file__).resolve().parent / "models"
COMPILER: Final = os.environ.get("CC", "gcc")
MEBIBYTES: Final = 1900
DEEPEST: Final = 50_000
LIMIT_SECONDS: Final = 900.0
TRAIL_LINES: Final = 40

#: The macros that a mode adds to a model. Time limits and cancellations end waits that would otherwise last for ever.
#: So only a mode without time limits and without cancellations shows a lost wake-up.
MODES: Final[dict[str, tuple[str, ...]]] = {
    "bounded": (),  # time limits may run out, no wait is cancelled
    "cancelled": ("CANCEL",),  # time limits may run out, and each wait may be cancelled
    "patient": ("PATIENT",),  # no time limit runs out, and no wait is cancelled
    "live": ("PATIENT", "LIVE"),  # like "patient"; also checks that with fair scheduling every process ends
}


def missing() -> str:
    """Returns which tools are missing, and how to install them; "" if none is missing."""
    tools = {"spin": "spin", COMPILER: "gcc"}
    return "; ".join(
        f"{tool} is missing: apt-get install {package}"
        for tool, package in tools.items()
        if shutil.which(tool) is None
    )


@dataclass(frozen=True, slots=True)
class Exploration:
    """A model, its parameters ("ENQUEUERS=2", "BUG_lost_wake") and a mode."""

    model: str
    parameters: tuple[str, ...]
    mode: str
    optimise: str = "-O0"

    @property
    def defines(self) -> list[str]:
        """Options for the preprocessor."""
        return [f"-D{each}" for each in (*self.parameters, *MODES[self.mode])]

    def __str__(self) -> str:
        return f"{self.model} {' '.join(self.parameters).lower()} ({self.mode})"


@dataclass(slots=True)
class Explored:
    """The result. `error` is pan's message about the error that it found, `trail` the steps that led to the error."""

    states: int = 0
    depth: int = 0
    seconds: float = 0.0
    mebibytes: float = 0.0
    error: str = ""
    trail: str = ""

    def __str__(self) -> str:
        speed = self.states / self.seconds if self.seconds else 0.0
        return (
            f"{self.states:>10,} states, depth {self.depth}, {self.seconds:.1f} s, "
            f"{self.mebibytes:.0f} MiB, {speed:,.0f} states/s"
        )


class SpinError(Exception):
    """Spin, the compiler or the search itself failed."""


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    if done.returncode:
        raise SpinError(
            f"expected {' '.join(command)} to end with status 0, got {done.returncode}:\n{done.stdout[-3000:]}"
        )
    return done.stdout


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    return float(found[1]) if found else 0.0


def _search(exploration: Exploration, folder: Path) -> Explored:
    live = exploration.mode == "live"
    kind = ["-DNFAIR=3"] if live else ["-DSAFETY"]
    made = ["-w", "-DCOLLAPSE", f"-DMEMLIM={MEBIBYTES}", "-o", "pan", "pan.c"]
    _run([COMPILER, exploration.optimise, *kind, *made], folder)
    begun = time.monotonic()
    output = _run(["./pan", *(["-a", "-f"] if live else []), f"-m{DEEPEST}"], folder)
    found = re.search(r"^pan:1: (.*)$", output, re.MULTILINE)
    explored = Explored(
        states=int(_number(r"(\d+) states, stored", output)),
        depth=int(_number(r"depth reached (\d+)", output)),
        seconds=time.monotonic() - begun,
        mebibytes=_number(r"([\d.]+)\s+total actual memory usage", output),
        error=found[1] if found else "",
    )
    broken_off = "not completed" in output or "max search depth too small" in output
    if not explored.error and (not explored.states or "errors: 0" not in output or broken_off):
        raise SpinError(f"expected to explore {exploration} to the end, got\n{output[-3000:]}")
    return explored


def _end_of_trail(exploration: Exploration, folder: Path) -> str:
    path = str(MODELS / exploration.model)
    trail = folder / f"{exploration.model}.trail"
    output = _run(["spin", "-t", "-k", str(trail), "-p", "-g", *exploration.defines, path], folder)
    return "\n".join(output.splitlines()[-TRAIL_LINES:])


def explore(exploration: Exploration) -> Explored:
    """Visits every reachable state, or stops at the first error. Raises SpinError if the search failed."""
    with tempfile.TemporaryDirectory(prefix="aioacl-model-") as name:
        folder = Path(name)
        try:
            _run(["spin", "-a", *exploration.defines, str(MODELS / exploration.model)], folder)
            explored = _search(exploration, folder)
            if explored.error:
                explored.trail = _end_of_trail(exploration, folder)
        except subprocess.TimeoutExpired as late:
            raise SpinError(
                f"expected to explore {exploration} in {LIMIT_SECONDS:.0f} s, but the search still runs"
            ) from late
        return explored
