"""The messages that README.md and docs/real-card.md list for steps that fail are those that the steps print."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from scripts.pages import ROOT
from tests.support.command import finished

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (ROOT / "docs" / "real-card.md").read_text()
README = (ROOT / "README.md").read_text()
SIMULATOR = {"AIOACL_LIBRARY": "simulator"}
GONE = {"AIOACL_LIBRARY": "/opt/none/libascendcl.so"}
HIDDEN = {**SIMULATOR, "ASCEND_RT_VISIBLE_DEVICES": "7"}
OPEN = "import aioacl\nwith aioacl.open_device({}): pass"
LOAD = "import aioacl\nwith aioacl.open_device(0) as device, device.load_model({!r}): pass"


@dataclass(frozen=True)
class Step:
    """A step that fails, and the message on the page. `in_readme` is the part of the message that README.md has."""

    message: str
    words: tuple[str, ...]
    environ: dict[str, str] = field(default_factory=dict[str, str])
    in_readme: str = ""


STEPS = {
    "report without a library": Step(
        "aioacl report: no ACL library was found",
        ("-m", "aioacl", "report"),
        GONE,
        "no ACL library was found",
    ),
    "doctor without a library": Step(
        "problem: no ACL library could be loaded",
        ("-m", "aioacl", "doctor"),
        GONE,
        "no ACL library could be loaded",
    ),
    "a path that does not exist": Step(
        "/opt/none/libascendcl.so: no such file (from AIOACL_LIBRARY)", ("-m", "aioacl", "devices"), GONE
    ),
    "no card": Step(
        "207004 ACL_ERROR_RT_NO_DEVICE",
        ("-m", "aioacl", "devices"),
        HIDDEN,
        "207004 ACL_ERROR_RT_NO_DEVICE",
    ),
    "a program without a card": Step(
        "expected a visible device, got index 0: the process sees no device, because ASCEND_RT_VISIBLE_DEVICES is '7'",
        ("-c", OPEN.format(0)),
        HIDDEN,
        "the process sees no device",
    ),
    "a card that does not exist": Step(
        "expected a device index from 0 to 1, got 9: the process sees 2 devices",
        ("-c", OPEN.format(9)),
        SIMULATOR,
    ),
    "no file of a model": Step(
        "expected a file of a model, got 'gone.om', which cannot be read: No such file or directory",
        ("-c", LOAD.format("gone.om")),
        SIMULATOR,
    ),
    "another file": Step(
        "145006 ACL_ERROR_GE_EXEC_MODEL_DATA_SIZE_INVALID", ("-c", LOAD.format("other.om")), SIMULATOR
    ),
}


def failing(*words: str, cwd: Path, environ: dict[str, str]) -> str:
    """The output of a step that fails, as one line."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AIOACL", "ASCEND"))}
    ran = finished([sys.executable, *words], cwd=cwd, env={**own, **environ}, timeout=60)
    assert ran.returncode in (1, 2)
    return re.sub(r"\s+", " ", ran.stdout + ran.stderr)


@pytest.mark.process
@pytest.mark.parametrize("name", STEPS)
def test_step_that_fails_prints_the_message_of_the_pages(name: str, tmp_path: Path) -> None:
    step = STEPS[name]
    (tmp_path / "other.om").write_bytes(bytes(4096))
    assert f"`{step.message}`" in PAGE
    assert not step.in_readme or f"`{step.in_readme}`" in README
    assert step.in_readme in step.message
    assert step.message in failing(*step.words, cwd=tmp_path, environ=step.environ)


@pytest.mark.process
def test_library_without_the_driver_is_reported_with_the_message_of_the_pages(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler is not None, "the build needs a compiler too"
    for name, source, needed in (
        ("libascend_hal.so", "int hal(void) { return 0; }", ()),
        ("libascendcl.so", "int hal(void); int aclInit(const char *p) { (void)p; return hal(); }", ("hal",)),
    ):
        (tmp_path / "source.c").write_text(source)
        libraries = [f"-L{tmp_path}", "-lascend_hal"] if needed else []
        made = [compiler, "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", name, "source.c", *libraries]
        subprocess.run(made, cwd=tmp_path, check=True)
    (tmp_path / "libascend_hal.so").unlink()
    printed = failing(
        "-m", "aioacl", "devices", cwd=tmp_path, environ={"AIOACL_LIBRARY": str(tmp_path / "libascendcl.so")}
    )
    message = "libascend_hal.so: cannot open shared object file: No such file or directory"
    assert message in printed
    assert f"`{message}`" in PAGE
    assert f"`{message.rpartition(':')[0]}`" in README


@pytest.mark.process
def test_command_in_a_clone_that_is_not_built_prints_the_message_of_the_pages(tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "aioacl", tmp_path / "aioacl", ignore=shutil.ignore_patterns("*.so", "__pycache__", "_native")
    )
    message = "expected the compiled module aioacl._acl, found none; build and install aioacl"
    assert message in failing("-m", "aioacl", "doctor", cwd=tmp_path, environ={})
    assert f"`ImportError: {message}`" in PAGE
    assert "`expected the compiled module aioacl._acl`" in README
