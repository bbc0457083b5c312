"""Where the installed onnxruntime is, whose library executes models in the simulator. The package is not imported."""

import os
from importlib.util import find_spec
from pathlib import Path


def installed() -> str | None:
    """Return the path of the library in the installed package onnxruntime, or None."""
    try:
        spec = find_spec("onnxruntime")
    except (ImportError, ValueError):  # ValueError: a module of that name has no spec
        return None
    for package in (spec.submodule_search_locations or ()) if spec is not None else ():
        for path in sorted(Path(package, "capi").glob("libonnxruntime.so*")):
            return str(path.resolve())
    return None


def is_available() -> bool:
    """Return whether the simulator can execute models: with the installed package, or with AIOACL_SIM_ONNXRUNTIME."""
    return bool(os.environ.get("AIOACL_SIM_ONNXRUNTIME") or installed())


def offer() -> None:
    """Pass the path of the installed library to the simulator that this process has loaded."""
    # Not imported at the top: load.py, which imports this file, must work without the compiled module.
    from aioacl._base.ffi import ffi, lib  # noqa: PLC0415

    path = installed()
    control = lib.aio_library_symbol(b"aclsim_set_onnxruntime")
    if path is not None and control != ffi.NULL:  # the simulator of an older aioacl lacks the control
        ffi.cast("int (*)(const char *)", control)(ffi.new("char[]", os.fsencode(path)))
