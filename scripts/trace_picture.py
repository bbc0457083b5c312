"""Writes docs/assets/trace.png: the page of a trace, as headless Chromium shows it.

    .venv/bin/python scripts/trace_picture.py

A program on the simulator makes the trace: copies, calls of a model, a batcher, a failed task and a force reset. Tasks
of the simulator take a fixed time here, so that their slices are long enough to be seen. Needs chromium
(apt-get install chromium).
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import aioacl
from aioacl import _digits, simulator

TARGET: Final = Path(__file__).resolve().parents[1] / "docs" / "assets" / "trace.png"
WIDTH, HEIGHT = 1000, 760
OPTIONS: Final = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")


async def run(page: Path) -> None:
    """Writes the page of a program that uses a device in several ways."""
    x = _digits.inputs(_digits.digits().images[0])
    async with (
        aioacl.open_device(0) as device,
        device.create_stream() as stream,
        device.allocate(1 << 16) as memory,
        device.load_model(_digits.MODEL) as model,
        aioacl.open_batcher(model) as infer,
    ):
        simulator.set_model_cost(base=0.001)
        async with aioacl.trace(page.with_suffix(".pftrace"), html=page):
            await asyncio.gather(*(model(x) for _ in range(4)))
            for _ in range(3):
                await stream.fill(memory, 1)
            await asyncio.gather(*(infer(x) for _ in range(6)))
            simulator.fail_next(stream, 507015)
            try:
                await stream.fill(memory, 0)
            except aioacl.DeviceFault:
                await device.force_reset(grace=0)
            await asyncio.gather(*(infer(x) for _ in range(6)))


def main() -> None:
    """Makes the picture."""
    aioacl.use_library("simulator")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "run.html"
        asyncio.run(run(page))
        subprocess.run(
            [
                shutil.which("chromium") or "chromium",
                *OPTIONS,
                f"--window-size={WIDTH},{HEIGHT}",
                f"--screenshot={TARGET}",
                page.as_uri(),
            ],
            check=True,
            stderr=subprocess.DEVNULL,
        )
    sys.stdout.write(f"{TARGET}: {TARGET.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
