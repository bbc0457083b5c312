"""The machine and the versions that a result belongs to."""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path
from typing import Final

import aioacl
from aioacl import simulator

CPU_INFO: Final = Path("/proc/cpuinfo")


def cpu_model(text: str) -> str:
    """Returns the model of the first processor in the text of /proc/cpuinfo, or the architecture."""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    named = {name.strip(): value.strip() for name, value in fields.items()}
    return named.get("model name") or named.get("CPU part") or platform.machine()


def release() -> str:
    """Returns the release of CANN that the simulator imitates."""
    function = ctypes.CDLL(str(simulator.library_path())).aclsim_cann
    function.restype = ctypes.c_char_p
    name: bytes = function()
    return name.decode()


def facts() -> dict[str, str]:
    """Returns what a reader needs to know of the machine and the versions."""
    return {
        "CPU": cpu_model(CPU_INFO.read_text()) if CPU_INFO.exists() else platform.machine(),
        "cores": str(os.cpu_count()),
        "kernel": f"{platform.system()} {platform.release()}",
        "aioacl": aioacl.__version__,
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "simulator": f"of aioacl {aioacl.__version__}, as CANN {release()}",
    }
