"""Compiles every C file of the repository with one compiler. Each warning is an error.

    python .ci/c_warnings.py COMPILER          every C file
    python .ci/c_warnings.py COMPILER --rest   only those that tests/native/run.py does not compile

tests/native/run.py compiles with the same warnings, so .ci/run need not compile these files a second time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import build_ffi  # noqa: E402 - it is next to the package
from tests.native.run import HERE, WARNINGS  # noqa: E402 - the folder of the native tests

FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-fvisibility=hidden", *WARNINGS]
ELSEWHERE = ROOT / "tests" / "contract" / "programs"  # a test compiles these files, with the vendor's headers


def compiles(compiler: str, source: Path) -> bool:
    """Returns whether the file compiles, and shows the compiler's output."""
    folders = [*build_ffi.include_flags(), f"-I{source.parent}"]
    if source.parent == build_ffi.BINDING:
        # As system headers: Python's own headers do not compile without warnings.
        folders += ["-isystem", sysconfig.get_path("include"), build_ffi.LIMITED_API]
    command = [compiler, *FLAGS, *folders, "-c", str(source), "-o", "/dev/null"]
    return subprocess.run(command, check=False).returncode == 0


def has_sanitized_build(source: Path) -> bool:
    """Whether tests/native/run.py compiles the file."""
    built = (build_ffi.NATIVE, build_ffi.SIMULATOR, build_ffi.RUNTIME)
    return any(source.is_relative_to(folder) for folder in built) or source.parent in (HERE, HERE / "sim")


def main() -> int:
    """Returns 0 if every file compiles."""
    parser = argparse.ArgumentParser()
    parser.add_argument("compiler")
    parser.add_argument("--rest", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        made = Path(folder, "trampolines.c")
        made.write_text(build_ffi.trampolines())
        elsewhere = build_ffi.c_files(ELSEWHERE)
        folders = (
            build_ffi.NATIVE,
            build_ffi.BINDING,
            build_ffi.SIMULATOR,
            build_ffi.RUNTIME,
            ROOT / "benchmarks",
            ROOT / "tests",
        )
        found = [path for folder in folders for path in build_ffi.c_files(folder) if path not in elsewhere]
        if options.rest:
            found = [path for path in found if not has_sanitized_build(path)]
        sources = [made, *found]
        good = list(pool.map(partial(compiles, options.compiler), sources))
    print(f"{sum(good)} of {len(good)} files compile without a warning")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
