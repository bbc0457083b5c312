"""Unpacks packages of Debian into a folder. This needs Debian's apt, and changes nothing outside the folder.

    python scripts/debian.py FOLDER ARCHITECTURE SUITE PACKAGE...

The packages that they need are not unpacked; `unpacked` can do that too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

KEYRING: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"


def run(*command: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """Runs a command and returns its output. SystemExit with that output if the command fails."""
    environment = {**os.environ, "LC_ALL": "C", **variables}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


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


def apt_of(folder: Path, suites: Iterable[str], architecture: str) -> Path:
    """The configuration of an apt of its own: it has these suites as its sources, and no installed package."""
    for name in ("etc/apt.conf.d", "etc/preferences.d", "state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "state" / "status").touch()
    sources = "".join(f"deb [signed-by={KEYRING}] {mirror()} {suite} main\n" for suite in suites)
    (folder / "etc" / "sources.list").write_text(sources)
    configuration = folder / "apt.conf"
    # The indices are signed. A mirror may have older ones, which apt would refuse because of their age.
    configuration.write_text(
        f'Dir::Etc "{folder}/etc";\nDir::State "{folder}/state";\nDir::State::status "{folder}/state/status";\n'
        f'Dir::Cache "{folder}/cache";\nAPT::Sandbox::User "root";\nAcquire::Check-Valid-Until "false";\n'
        f'APT::Architecture "{architecture}";\nAPT::Architectures {{ "{architecture}"; }};\n'
    )
    return configuration


def unpacked(
    target: Path, architecture: str, suites: Iterable[str], names: Iterable[str], *, alone: bool = False
) -> Path:
    """Unpacks packages and, unless they are to be `alone`, all packages that they need. Returns the folder."""
    shutil.rmtree(target, ignore_errors=True)
    begun = target.with_name(f"{target.name}.begun")
    shutil.rmtree(begun, ignore_errors=True)
    archives = begun / "apt" / "cache" / "archives"
    configuration = str(apt_of(begun / "apt", suites, architecture))
    run("apt-get", "update", "-qq", APT_CONFIG=configuration)
    if alone:
        run("apt-get", "download", "-qq", *names, cwd=archives, APT_CONFIG=configuration)
    else:
        install = ("apt-get", "install", "-qq", "-y", "--no-install-recommends", "--download-only")
        run(*install, *names, APT_CONFIG=configuration)
    for package in archives.glob("*.deb"):
        run("dpkg-deb", "-x", package, begun)
    shutil.rmtree(begun / "apt")
    return begun.rename(target)


def main(folder: str, architecture: str, suite: str, *names: str) -> None:
    """Unpacks the packages, without those that they need."""
    unpacked(Path(folder).resolve(), architecture, [suite], names, alone=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
