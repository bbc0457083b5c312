"""C programs that execute a model: that of docs/c-programs.md, and one with the calls of the vendor's sample.

Both use the model that the page makes. They are compiled with the vendor's headers and the folder of the simulator.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from aioacl._library import onnxruntime
from scripts.pages import one
from tests.contract import vendor
from tests.contract.test_programs import HERE, LANGUAGES, PAGE_NAME, RUN_SECONDS, WARNINGS
from tests.simulator.modelfiles import needs_onnxruntime
from tests.support.command import finished

THIS: Final = "tests/contract/test_model_programs.py"
OUTPUT: Final = "x: 256 bytes, y: 40 bytes\nclass 7\n"
ROOT: Final = Path(__file__).parents[2]

pytestmark = needs_onnxruntime


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model of the page, which is made and converted as the page describes."""
    folder = tmp_path_factory.mktemp("models")
    text = one(PAGE_NAME, THIS, lambda text: "onnx" in text).text
    (folder / "digits.py").write_text(text)
    _ran([sys.executable, "-W", "error", "digits.py"], folder)
    _aioacl(folder, "atc", "--model", "digits.onnx", "--framework", "5", "--output", "digits")
    return folder


@pytest.fixture(scope="module")
def libraries(home: Path) -> Path:
    """The folder of `simulator dir`."""
    return Path(_aioacl(home, "dir").splitlines()[-1])


def _environ(folder: Path, **more: str) -> dict[str, str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AIOACL")}
    return {**environ, "XDG_CACHE_HOME": str(folder), **more}


def _ran(command: list[str], folder: Path, **more: str) -> str:
    done = finished(command, cwd=folder, env=_environ(folder, **more), timeout=RUN_SECONDS)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout


def _aioacl(folder: Path, *arguments: str) -> str:
    return _ran([sys.executable, "-m", "aioacl", "simulator", *arguments], folder)


def _on_simulator(command: list[str], home: Path, libraries: Path) -> str:
    """Runs a program with the variables that the page sets."""
    library = onnxruntime.installed()
    assert library is not None
    return _ran(command, home, LD_LIBRARY_PATH=str(libraries), AIOACL_SIM_ONNXRUNTIME=library)


def _compiled(command: list[str], source: Path, libraries: Path, target: Path) -> Path:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    flags = [f"-isystem{vendor.include_folder()}", f"-I{libraries}", f"-I{HERE}"]
    links = [f"-L{libraries}", "-lascendcl", "-lpthread"]
    subprocess.run([*command, *flags, source, "-o", target, *links], check=True)
    return target


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_calls_of_the_asynchronous_sample_classify_each_picture(
    compiler: str, home: Path, libraries: Path, tmp_path: Path
) -> None:
    names, flags = LANGUAGES[".c"]
    command = [names[compiler], *flags, *WARNINGS, "-O1"]
    program = _compiled(command, HERE / "models" / "async.c", libraries, tmp_path / "async")
    assert _on_simulator([str(program), "digits.om"], home, libraries) == ""


def _page_program(compiler: str, suffix: str, libraries: Path, folder: Path) -> Path:
    text = one(PAGE_NAME, THIS, lambda text: "aclmdl" in text, language="c").text
    source = folder / f"classify.{suffix}"
    source.write_text(text)
    return _compiled([compiler, "-Wall", "-Werror"], source, libraries, folder / "classify")


@pytest.mark.parametrize(("compiler", "suffix"), [("gcc", "c"), ("g++", "cpp")])
def test_model_program_of_the_page_prints_the_output_on_the_page(
    compiler: str, suffix: str, home: Path, libraries: Path, tmp_path: Path
) -> None:
    program = _page_program(compiler, suffix, libraries, tmp_path)
    printed = _on_simulator([str(program), "digits.om", "7"], home, libraries)
    assert printed == OUTPUT
    assert printed in (ROOT / PAGE_NAME).read_text()
    assert _on_simulator([str(program), "digits.om", "0"], home, libraries).endswith("class 0\n")


def test_command_models_runs_the_program_and_prints_the_table_of_the_page(
    home: Path, libraries: Path
) -> None:
    _page_program("gcc", "c", libraries, home)
    printed = _aioacl(home, "models", "--", "./classify", "digits.om", "7")
    assert printed in (ROOT / "docs" / "simulated-models.md").read_text()
    command = [
        sys.executable,
        "-m",
        "aioacl",
        "simulator",
        "models",
        "--json",
        "--",
        "./classify",
        "digits.om",
        "7",
    ]
    done = finished(command, cwd=home, env=_environ(home), timeout=RUN_SECONDS, check=True)
    assert done.stderr == OUTPUT
    found = json.loads(done.stdout)
    (model,) = found["models"]
    assert (found["status"], model["path"], model["state"]) == (0, "digits.om", "unloaded")
    assert model["executions"] == 1
