"""Shared libraries that a test compiles."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def compiled(text: str, library: Path, *options: str) -> Path:
    """Compiles C to a library that only its owner may write to; returns the library's path."""
    source = library.with_suffix(".c")
    source.write_text(text)
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    subprocess.run([compiler, "-shared", "-fPIC", str(source), *options, "-o", str(library)], check=True)
    library.chmod(0o755)
    return library
