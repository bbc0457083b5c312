"""Runs a command in a new process."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def finished(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Runs the command until it ends. Returns its status and its output as text."""
    return subprocess.run(
        command, cwd=cwd, env=env, timeout=timeout, check=check, capture_output=True, text=True
    )
