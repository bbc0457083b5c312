"""The wheels that scripts/wheels has built have the right tags, objects, symbols and size."""

from __future__ import annotations

import re
import zipfile
from typing import TYPE_CHECKING

import pytest

import aioacl
from aioacl import simulator
from tests import elf
from tests.support import wheel as wheel_files
from tests.support.command import finished
from tests.support.wheel import OBJECTS, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WHEELS = sorted((ROOT / "build" / "wheels").glob("*.whl"))
GLIBC = (2, 28)
MOST_BYTES = 2_500_000
LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
LIBRARIES = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "libruntime.so"}


@pytest.fixture(scope="module", params=WHEELS, ids=lambda path: path.stem.rpartition("-")[2])
def wheel(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def objects(unpacked: Path) -> Iterator[tuple[str, Path]]:
    """Yields the name and the path of each shared object."""
    for name in sorted(OBJECTS):
        yield name, unpacked / name


def processor(wheel: Path) -> str:
    return wheel.stem.partition("manylinux_2_28_")[2]


@pytest.mark.wheels
def test_wheel_is_for_glibc_2_28_and_the_stable_abi_of_python_3_11(wheel: Path, unpacked: Path) -> None:
    tag = f"cp311-abi3-manylinux_2_28_{processor(wheel)}"
    assert wheel.name == f"aioacl-{aioacl.__version__}-{tag}.whl"
    assert processor(wheel) in LOADERS
    (metadata,) = unpacked.glob("*.dist-info/WHEEL")
    assert re.findall(r"^Tag: (.*)$", metadata.read_text(), flags=re.MULTILINE) == [tag]


@pytest.mark.wheels
def test_wheel_has_the_files_of_the_package_and_no_others(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == wheel_files.files()


@pytest.mark.wheels
def test_wheel_has_at_most_2_5_megabytes(wheel: Path) -> None:
    assert wheel.stat().st_size <= MOST_BYTES


@pytest.mark.wheels
def test_objects_are_stripped_and_for_the_processor_of_the_tag(wheel: Path, unpacked: Path) -> None:
    for name, path in objects(unpacked):
        assert (elf.machine(path), elf.is_stripped(path)) == (processor(wheel), True), name


@pytest.mark.wheels
def test_objects_need_no_newer_glibc_than_2_28_and_no_library_of_this_machine(
    wheel: Path, unpacked: Path
) -> None:
    for name, path in objects(unpacked):
        versions = elf.versions(path)
        assert versions, name
        assert {each for each in versions if not each.startswith("GLIBC_2.")} == set(), name
        newest = max(tuple(map(int, each.removeprefix("GLIBC_").split("."))) for each in versions)
        assert newest <= GLIBC, name
        assert set(elf.needed(path)) <= LIBRARIES | {LOADERS[processor(wheel)]}, name


@pytest.mark.wheels
def test_objects_search_libraries_only_beside_themselves(unpacked: Path) -> None:
    for name, path in objects(unpacked):
        beside = "libruntime.so" in elf.needed(path)
        assert elf.runpath(path) == (["$ORIGIN"] if beside else []), name


@pytest.mark.wheels
def test_objects_export_the_names_that_the_build_of_the_checkout_exports(unpacked: Path) -> None:
    """The build of the checkout has another compiler, and has passed the tests of its exports."""
    for name, path in objects(unpacked):
        built = ROOT / name
        assert elf.exports(path) == elf.exports(built), name
        assert elf.soname(path) == elf.soname(built), name


@pytest.mark.process
def test_wheel_of_an_unknown_processor_is_refused() -> None:
    done = finished([ROOT / "scripts" / "wheels", "x86_64", "riscv64"])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "scripts/wheels: expected x86_64 or aarch64, got riscv64\n"


def test_versions_of_symbols_and_processor_of_a_library_are_read() -> None:
    library = simulator.library_path()
    assert elf.machine(library) in LOADERS
    assert {version.partition("_")[0] for version in elf.versions(library)} == {"GLIBC"}
