"""Runs the quick tests of the wheel for aarch64 under qemu, on a machine of another processor.

python .ci/emulated.py [ARGUMENT OF pytest...]

This needs Debian. Python and qemu come from its packages, the rest from the package index; all of it is unpacked in
build/wheels/emulated. The run ends after 20 minutes, wherever it is. It is a smoke test: it shows that the code, the
sizes and the alignment fit the processor. It shows nothing about memory order, because the instructions run in the
stronger order of this machine.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.debian import run, unpacked  # noqa: E402 - it is not in a package

WHEELS: Final = ROOT / "build" / "wheels"
MADE: Final = WHEELS / "emulated"
SECONDS: Final = 20 * 60
# qemu 7.2, of Debian 12, crashes in `import onnxruntime`.
QEMU_SUITE: Final = "trixie"
PLATFORMS: Final = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux2014_aarch64")
LEFT_OUT: Final = ("tests/unit/wait/test_interrupts.py",)  # it takes minutes under qemu


def machine() -> tuple[Path, Path]:
    """The qemu, and the folder with the Python of the other processor. Both are kept for the next run."""
    qemu, root = MADE / "qemu", MADE / "root"
    if not qemu.exists():
        own = run("dpkg", "--print-architecture").strip()
        unpacked(qemu, own, [QEMU_SUITE], ["qemu-user"], alone=True)
    if not root.exists():
        unpacked(root, "arm64", ["bookworm"], ["python3.11", "libstdc++6"])  # numpy needs libstdc++
    return qemu / "usr" / "bin" / "qemu-aarch64", root


def packages(wheel: Path) -> Path:
    """Installs the wheel, and what its tests need, into a folder."""
    folder = MADE / "packages"
    shutil.rmtree(folder, ignore_errors=True)
    options = [
        "-c",
        str(ROOT / "constraints.txt"),
        "--no-compile",
        "--only-binary=:all:",
        "--python-version=3.11",
    ]
    options += [f"--platform={each}" for each in PLATFORMS]
    run(sys.executable, "-m", "pip", "install", "--quiet", *options, "--target", folder, f"{wheel}[dev]")
    return folder


def sources(archive: Path) -> Path:
    """Unpacks the tests of the source distribution, without the package, so that Python finds the installed one."""
    folder = MADE / "sources"
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    (tree,) = folder.iterdir()
    for path in (*tree.glob("aioacl/**/*.py"), tree / "pytest_aioacl.py"):
        path.unlink()
    return tree


def main(arguments: list[str]) -> int:
    """Runs the demo and the tests; 0 if none failed in the time."""
    (wheel,) = WHEELS.glob("*_aarch64.whl")
    (archive,) = WHEELS.glob("*.tar.gz")
    qemu, root = machine()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AIOACL", "PYTHON"))},
        "QEMU_LD_PREFIX": str(root),
        "PYTHONHOME": str(root / "usr"),
        "PYTHONPATH": str(packages(wheel)),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    python = [str(qemu), str(root / "usr" / "bin" / "python3.11")]
    tree = sources(archive)
    demo = subprocess.run([*python, "-P", "-m", "aioacl", "demo"], cwd=tree, env=environment, check=False)
    if demo.returncode:
        return demo.returncode
    ignored = [f"--ignore={name}" for name in LEFT_OUT]
    tests = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "quick", *ignored, *arguments)
    with subprocess.Popen([*python, *tests], cwd=tree, env=environment) as process:
        try:
            return process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # pytest then prints its counts
            print(f"ended after {SECONDS // 60} minutes", flush=True)
            return 0 if process.wait() == 2 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
