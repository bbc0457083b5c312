"""The distributions are complete: sdist from the tree, wheel from the sdist, and the wheel works without the tree."""

from __future__ import annotations

import json
import os
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.utils import parse_wheel_filename

import build_ffi
import build_stubs
from tests import elf
from tests.support import wheel as wheel_files
from tests.support.command import finished

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.packaging

SDIST = """
import sys
from setuptools import build_meta
print(build_meta.build_sdist(sys.argv[1]))
"""

USE = """
import sys
from pathlib import Path

import aioacl

assert Path(aioacl.__file__).is_relative_to(sys.prefix), aioacl.__file__
aioacl.use_library("simulator")
devices = aioacl.list_devices()
device = aioacl.open_device(0).result(timeout=30)
print(len(devices), device.generation)
device.close().result()
"""

DIGITS = """
from aioacl import _digits

print(_digits.ONNX, _digits.MODEL, _digits.BATCH_MODEL, sep="\\n")
"""


def _run(*command: str | Path, cwd: Path) -> str:
    """Returns the output of the command."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AIOACL", "PYTHON"))}
    ran = finished(command, cwd=cwd, env=clean, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, built from a copy of the files that git tracks, with stubs of an earlier build beside them."""
    place = tmp_path_factory.mktemp("sdist")
    _run("git", "clone", "--quiet", ROOT, "tree", cwd=place)
    for name in build_ffi.STUBS:
        (place / "tree" / name).write_text("of an earlier build")
    return place / _run(sys.executable, "-c", SDIST, place, cwd=place / "tree").split()[-1]


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sdist in an isolated environment."""
    place = tmp_path_factory.mktemp("wheel")
    _run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", place, sdist, cwd=place)
    (built,) = place.glob("*.whl")
    return built


def _names(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def test_sdist_has_all_tracked_files(sdist: Path) -> None:
    left_out = {".gitignore"}
    assert wheel_files.tracked() - left_out <= _names(sdist)


def test_sdist_has_no_built_files(sdist: Path) -> None:
    names = _names(sdist)
    assert not {name for name in names if name.endswith((".so", ".o", ".pyc"))} | names & {*build_ffi.STUBS}


@pytest.mark.slow
def test_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if ".dist-info/" not in name} == wheel_files.files()
    for licence in ("LICENSE", "NOTICE"):
        assert any(name.endswith(f".dist-info/licenses/{licence}") for name in names), licence


@pytest.mark.slow
def test_wheel_has_the_stubs_of_the_tree(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    for name in build_ffi.STUBS:
        assert archive.read(name).decode() == build_stubs.stub(Path(name).name)


@pytest.mark.slow
def test_libraries_of_the_wheel_are_stripped_and_name_no_folder_of_this_machine(
    wheel: Path, tmp_path: Path
) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    for name in wheel_files.OBJECTS:
        assert elf.is_stripped(tmp_path / name), name
        assert set(elf.runpath(tmp_path / name)) <= {"$ORIGIN"}, name


@pytest.mark.slow
def test_tag_declares_one_wheel_for_all_versions(wheel: Path) -> None:
    tags = parse_wheel_filename(wheel.name)[3]
    assert {(tag.interpreter, tag.abi) for tag in tags} == {("cp311", "abi3")}


@pytest.mark.slow
def test_metadata_of_the_wheel_is_valid(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Metadata.from_email(archive.read(name), validate=True)
    assert (metadata.name, metadata.license_expression) == ("aioacl", "Apache-2.0 AND CC-BY-4.0 AND MIT")
    assert metadata.description_content_type == "text/markdown"
    assert metadata.description == (ROOT / "README.md").read_text()


@pytest.mark.slow
def test_installed_wheel_works_without_the_repository(wheel: Path, tmp_path: Path) -> None:
    _run(sys.executable, "-m", "venv", "there", cwd=tmp_path)
    python = tmp_path / "there" / "bin" / "python"
    _run(python, "-m", "pip", "install", "-c", ROOT / "constraints.txt", wheel, cwd=tmp_path)
    assert _run(python, "-W", "error", "-c", USE, cwd=tmp_path) == "2 1\n"
    digits = _run(python, "-W", "error", "-c", DIGITS, cwd=tmp_path).splitlines()
    assert [path.removeprefix(f"{tmp_path}/there/lib/").partition("/")[2] for path in digits] == [
        f"site-packages/aioacl/data/digits{name}" for name in (".onnx", ".om", "_batches.om")
    ]
    shown = json.loads(
        _run(python, "-m", "aioacl", "simulator", "inspect", digits[1], "--json", cwd=tmp_path)
    )
    assert (shown["simulated"], shown["onnx_bytes"]) == (True, Path(digits[0]).stat().st_size)
    tried = json.loads(
        _run(python, "-m", "aioacl", "selftest", "--library", "simulator", "--json", cwd=tmp_path)
    )
    assert (tried["broken"], tried["held"] > 100) == (0, True)
    vectors = ROOT / "tests" / "conformance" / "lifecycle.jsonl.gz"
    command = ("-m", "aioacl", "simulator", "conformance", vectors, "--id", "seed-", "--json")
    played = json.loads(_run(python, *command, cwd=tmp_path))
    assert (played["failed"], played["passed"] > 0) == (0, True)
