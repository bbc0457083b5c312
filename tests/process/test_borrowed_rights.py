"""In a set-group-id program, the library search and the simulator ignore their environment variables."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aioacl.simulator import library_path
from tests.support.command import finished

SOURCE = """
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/auxv.h>

typedef int (*of_path)(const char *);
typedef int (*of_count)(uint32_t *);

int main(void) {
    void *library = dlopen(SIMULATOR, RTLD_NOW);
    uint32_t count = 0;
    if (!library || ((of_path)dlsym(library, "aclInit"))(NULL) ||
        ((of_count)dlsym(library, "aclrtGetDeviceCount"))(&count))
        return 1;
    printf("%d %u", getauxval(AT_SECURE) != 0, count);
    return 0;
}
"""


# Drops the rights of the group. After that, the ids of the process no longer show the rights with which it started.
DROPS_RIGHTS = """
import ctypes, os, sys
own = os.getgid()
os.setresgid(own, own, own)
getauxval = ctypes.CDLL(None).getauxval
getauxval.restype, getauxval.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
sys.path[:] = {path!r}
import aioacl
try:
    origin = aioacl.library_info().origin
except aioacl.LibraryNotFound:
    origin = "none"
print(getauxval(23), os.getgid() == os.getegid(), origin)  # 23: AT_SECURE
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A copy of this Python that finds its modules in the same folders."""
    interpreter = Path(sys.executable).resolve()
    (tmp_path / "bin").mkdir()
    (tmp_path / "pyvenv.cfg").write_text(f"home = {interpreter.parent}\n")
    return Path(shutil.copy(interpreter, tmp_path / "bin" / "python3"))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    source, target = tmp_path / "count.c", tmp_path / "count"
    source.write_text(SOURCE)
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    command = [compiler, f'-DSIMULATOR="{library_path()}"', str(source), "-o", str(target), "-ldl"]
    subprocess.run(command, check=True)
    return target


def give_group_rights(program: Path) -> None:
    """Makes the program set-group-id, with a group that is not the group of this process."""
    others = {1} if os.geteuid() == 0 else set(os.getgroups())
    group = next(iter(others - {os.getegid(), os.getgid()}), None)
    if group is None:
        pytest.skip("needs root, or a user that belongs to a second group")
    os.chown(program, -1, group)
    program.chmod(0o2755)


def run(program: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AIOACL_")}
    return finished([str(program), *arguments], env={**clean, **environ}, timeout=60)


def test_simulator_in_a_set_group_id_process_ignores_its_variables(program: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    variables = {
        "AIOACL_SIM_DEVICES": "7",
        "AIOACL_SIM_TRACE": str(trace),
        "AIOACL_SIM_FAULTS": "aclInit: rc=500000",
        "AIOACL_SIM_LIMITS": "nonsense",
        "AIOACL_SIM_SEED": "nonsense",
        "AIOACL_SIM_CANN": "nonsense",
        "AIOACL_SIM_CLOCK": "nonsense",
        "AIOACL_SIM_NONSENSE": "1",
    }
    give_group_rights(program)
    done = run(program, **variables)
    if done.stdout.startswith("0"):
        pytest.skip("the folder of the test is on a file system that is mounted with nosuid")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 2", "")
    assert not trace.exists()


def test_search_in_a_set_group_id_process_that_dropped_its_rights_ignores_the_environment(
    python: Path,
) -> None:
    give_group_rights(python)
    done = run(python, "-c", DROPS_RIGHTS.format(path=sys.path), AIOACL_LIBRARY="simulator")
    if done.returncode == 127:
        pytest.skip("this Python finds libpython by a path that a set-group-id process ignores")
    assert (done.returncode, done.stderr) == (0, "")
    secure, same, origin = done.stdout.split()
    if secure == "0":
        pytest.skip("the folder of the test is on a file system that is mounted with nosuid")
    assert same == "True"
    assert origin in {"none", "installation", "linker"}


@pytest.mark.parametrize("to", ["file", "nothing", "folder"])
def test_trace_to_a_link_is_refused(program: Path, tmp_path: Path, to: str) -> None:
    target, link = tmp_path / to, tmp_path / "trace"
    if to == "file":
        target.write_text("precious")
    elif to == "folder":
        target.mkdir()
    link.symlink_to(target)
    done = run(program, AIOACL_SIM_TRACE=str(link))
    assert done.returncode < 0
    assert f"AIOACL_SIM_TRACE={link}: expected a file, got a symbolic link" in done.stderr
    assert to != "file" or target.read_text() == "precious"
    assert to != "nothing" or not target.exists()


def test_trace_of_a_process_with_its_own_rights_is_written(program: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    done = run(program, AIOACL_SIM_TRACE=str(trace), AIOACL_SIM_DEVICES="7")
    assert (done.returncode, done.stdout) == (0, "0 7")
    assert "aclrtGetDeviceCount" in trace.read_text()
