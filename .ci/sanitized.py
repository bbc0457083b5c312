"""Runs tests in Python with the C side under ASan, UBSan and LSan, in a copy of the tree in build/sanitized.

    .venv/bin/python .ci/sanitized.py [ARGUMENT OF pytest...]

Without arguments, runs the random test of views with 100,000 operations, 1,000,000 cancellations, 100,000 closes that
race with copies, the tests of buffers and DLPack tensors, and 10,000 random programs of `acl`.
The exit status is 1 if a test fails, if ASan or UBSan reports an error, or if memory that the C side of aioacl
allocated is leaked. Python itself and other libraries leak some memory at the end of a process; that is ignored.

The interpreter is not instrumented. So libasan is loaded first (LD_PRELOAD), and Python allocates with malloc.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TREE: Final = ROOT / "build" / "sanitized"
LOGS: Final = TREE / "build" / "reports"
COMPILER: Final = "gcc"  # its runtime of ASan is a shared library, which can be loaded first
SANITIZE: Final = "-fsanitize=address,undefined"
# initial-exec: as in tests/native/run.py.
C_FLAGS: Final = f"{SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -ftls-model=initial-exec"
BUILD: Final = ("-c", "from setuptools import setup; setup()", "--quiet", "build_ext", "--inplace")
HANDLES: Final = "tests/unit/handles"
RANDOM: Final = (  # several minutes, on two cores
    *("-n", "2"),
    *("-m", "slow", "-k", "asyncio"),
    *(f"{HANDLES}/test_{name}.py" for name in ("views_model", "close_races")),
)
# The tests that start processes run without ASan, except those of the consumer in C.
PROGRAMS: Final = ("-m", "slow", "tests/unit/pyacl/test_random_programs.py")  # two minutes
OTHERS: Final = (
    *("-m", "not slow", "-k", "not uvloop and not trio and not fork and not process"),
    *(f"{HANDLES}/test_{name}.py" for name in ("views", "views_model", "memory", "wrap_memory")),
    *(f"{HANDLES}/test_dlpack_{name}.py" for name in ("exports", "imports", "producers", "consumer")),
    f"{HANDLES}/test_host_tensors.py",
    *(f"{HANDLES}/test_refused_{name}.py" for name in ("memory", "copies", "tensors", "exports")),
)
# A thread that still exists at the end of the process has its port. There is one for each thread, not for each wait.
# The numbers of a model belong to the process: there is one record for each device and label.
KEPT: Final = ("aio_port_new", "aio_model_counts_new")
LEAK: Final = re.compile(r"^(?:Direct|Indirect) leak of .*?(?=^$|\Z)", re.MULTILINE | re.DOTALL)


def copy_tree() -> None:
    """Copies the files that git does not ignore. The objects of an earlier build are kept."""
    TREE.mkdir(parents=True, exist_ok=True)
    for path in TREE.iterdir():
        if path.is_dir() and path.name != "build":
            shutil.rmtree(path)
        elif path.name != "build":
            path.unlink()
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (TREE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, TREE / name)


def build() -> None:
    """Builds the extension and the simulator in the copy. Raises CalledProcessError if a file does not compile."""
    environment = {**os.environ, "CC": COMPILER, "CFLAGS": C_FLAGS, "LDFLAGS": SANITIZE}
    subprocess.run([sys.executable, *BUILD], cwd=TREE, env=environment, check=True)


def run(arguments: tuple[str, ...]) -> int:
    """Runs pytest in the copy, and returns its exit status. The sanitizers write their reports to LOGS."""
    command = [COMPILER, "-print-file-name=libasan.so"]
    library = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    environment = {
        **os.environ,
        "CC": COMPILER,
        "LD_PRELOAD": library,
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": f"detect_leaks=1:exitcode=97:malloc_context_size=30:log_path={LOGS / 'report'}",
        "LSAN_OPTIONS": "exitcode=0",  # `ours` decides which leaks are errors
        "UBSAN_OPTIONS": f"print_stacktrace=1:halt_on_error=1:log_path={LOGS / 'report'}",
    }
    pytest = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(pytest, cwd=TREE, env=environment, check=False).returncode


def ours(report: str) -> list[str]:
    """Returns the errors of ASan and UBSan, and the leaks of memory that the C side of aioacl allocated."""
    errors = [report] if "ERROR: AddressSanitizer" in report or "runtime error:" in report else []
    leaks = (leak for leak in LEAK.findall(report) if " aioacl/" in leak)
    return errors + [leak for leak in leaks if not any(f" in {name} " in leak for name in KEPT)]


def main(*arguments: str) -> int:
    """Returns 0 if all tests pass and no report has an error."""
    copy_tree()
    build()
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    runs = (arguments,) if arguments else (RANDOM, OTHERS, PROGRAMS)
    failed = [each for each in runs if run(each)]
    reports = sorted(LOGS.iterdir())
    found = [error for report in reports for error in ours(report.read_text(errors="replace"))]
    print("\n".join(found))
    print(
        f"{len(runs) - len(failed)} of {len(runs)} runs passed; {len(reports)} reports, {len(found)} errors"
    )
    return 1 if failed or found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
