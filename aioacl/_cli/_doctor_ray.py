"""What Ray would see on this machine. `ray start` and `ray.init` import CANN's Python module `acl` to find NPUs.

A new process does the same, with the same environment. So neither the module nor the library that it loads is in the
process of `doctor`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioacl._cli._doctor_visible import RUNTIME

if TYPE_CHECKING:
    from collections.abc import Mapping

LIMIT_SECONDS: Final = 30.0
DEVICES: Final = Path("/dev")
PROGRAM: Final = """
import importlib.util, json
found = {}
try:
    spec = importlib.util.find_spec("acl")
    found["acl"] = spec and spec.origin
    import acl
    found["devices"], found["code"] = acl.rt.get_device_count()
    found["soc"] = acl.get_soc_name()
except Exception as error:
    found["error"] = " ".join(f"{type(error).__name__}: {error}".split())
print("\\n" + json.dumps(found))
"""


def look_as_ray(environ: Mapping[str, str]) -> dict[str, Any]:
    """Imports `acl` in a new process, and counts devices as Ray 2.60 does.

    Returns a dictionary with these keys:

    acl: the file of the module that Ray would import, or None.
    error: why the module does not give the number of devices, or "".
    npus: the number of NPUs, which is the resource `NPU` of the node.
    counted_by: where the number comes from.
    accelerator_type: the name of the chip, or None.
    """
    found = _found_in_child(environ)
    error, code = found.get("error", ""), found.get("code")
    if code == 0:
        count, counted_by = int(found["devices"]), "acl.rt.get_device_count()"
    else:
        count, counted_by = len(list(DEVICES.glob("davinci[0-9]*"))), "/dev/davinci*"
        error = error or f"acl.rt.get_device_count() returned {code}"
    listed = _listed(environ.get(RUNTIME))
    if listed is not None and listed < count:
        count, counted_by = listed, RUNTIME
    return {
        "acl": found.get("acl"),
        "error": error,
        "npus": count,
        "counted_by": counted_by,
        "accelerator_type": found.get("soc") if count else None,
    }


def _found_in_child(environ: Mapping[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-P", "-c", PROGRAM]  # -P: `ray start` does not import from the current folder
    try:
        done = subprocess.run(  # noqa: S603 - this Python, with a program of this file
            command, env=environ, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"`import acl` did not end within {LIMIT_SECONDS:.0f} s"}
    if done.returncode:
        return {"error": f"`import acl` ended the process with the status {done.returncode}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _listed(value: str | None) -> int | None:
    """How many devices Ray reads from ASCEND_RT_VISIBLE_DEVICES. None: it is not set."""
    if value is None:
        return None
    return 0 if value in ("", "NoDevFiles") else len(value.split(","))


def rows(view: dict[str, Any]) -> list[tuple[str, str]]:
    """The lines of the report."""
    return [
        ("import acl", view["acl"] or view["error"]),
        *((("devices", view["error"]),) if view["acl"] and view["error"] else ()),
        ("NPU", f"{view['npus']}, by {view['counted_by']}"),
        ("accelerator type", view["accelerator_type"] or "unknown"),
    ]
