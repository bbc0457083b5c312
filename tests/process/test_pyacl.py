"""The module `acl` in processes of its own: the import, `acl.init` and `acl.finalize`, forked children, callbacks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from aioacl._base.paths import PACKAGE
from tests.process.child import run

PATH = PACKAGE / "_pyacl" / "path"
BEGIN = f"""
import warnings
sys.path.insert(0, {str(PATH)!r})
warnings.simplefilter("ignore", DeprecationWarning)  # Python warns about a fork with several threads
use_library("simulator")
import acl
"""
INITIALIZED = BEGIN + "assert acl.init() == 0 and acl.rt.set_device(0) == 0\n"


def imported(program: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in a new Python that finds `acl` in the folder of the package."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIOACL_", "ASCEND_"))}
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**kept, "PYTHONPATH": str(PATH), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


# --- the import ---------------------------------------------------------------------------------------------------


def test_import_without_a_library_raises_import_error_with_the_cure() -> None:
    ended = imported("import acl", LD_LIBRARY_PATH="")
    assert ended.returncode == 1
    assert "ImportError: the module acl needs an ACL library: no ACL library could be loaded" in ended.stderr
    assert "To run without a card, set AIOACL_LIBRARY=simulator." in ended.stderr


def test_import_gives_the_same_objects_as_aioacl_pyacl() -> None:
    program = """
import acl, acl.rt, sys
from acl import mdl
import aioacl.pyacl
from aioacl.pyacl import rt
assert acl is aioacl.pyacl is sys.modules["acl"] and acl.rt is rt and acl.mdl is mdl is sys.modules["acl.mdl"]
print(acl.__name__, acl.rt.__name__)
"""
    ended = imported(program, AIOACL_LIBRARY="simulator")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "acl acl.rt\n", "")


def test_folder_on_the_path_holds_the_module_acl_only() -> None:
    assert [each.name for each in PATH.iterdir() if each.name != "__pycache__"] == ["acl"]


def test_library_of_an_older_release_makes_its_missing_functions_unsupported() -> None:
    program = """
import acl, aioacl, warnings
warnings.simplefilter("error")
try:
    acl.rt.create_notify(0)
except aioacl.AclWarning as warning:
    print(warning)
print(acl.rt.create_notify(0), acl.rt.get_device_count())
"""
    library = str(PACKAGE / "simulator" / "libascendcl-8.1.so")
    ended = imported(program, AIOACL_LIBRARY=library)
    warning = "acl.rt.create_notify returns 200006 (ACL_ERROR_FEATURE_UNSUPPORTED): the loaded ACL library has no aclr"
    assert ended.stdout == f"{warning}tCreateNotify\n(0, 200006) (2, 0)\n", ended.stderr


# --- acl.init and acl.finalize ------------------------------------------------------------------------------------


def test_finalize_of_a_program_alone_ends_acl_for_all_its_initialisations() -> None:
    program = """
say(acl.init(), acl.init(), acl.finalize(), acl.finalize(), acl.init(), acl.finalize())
"""
    assert run(BEGIN + program) == (0, "0 100002 0 100037 0 0\n", "")


def test_85_finalize_beside_aioacl_gives_back_one_initialisation_only() -> None:
    program = """
say("program", acl.init())
device = open_device(0).result()
stream = device.create_stream().result()
say("finalize", acl.finalize(), acl.finalize())
stream.record().result()  # ACL still works
stream.close().result(), device.close().result()
say("after", acl.finalize(), acl.finalize(), simulator.violations())
"""
    assert run(BEGIN + program) == (0, "program 0\nfinalize 0 100037\nafter 0 100037 []\n", "")


def test_init_beside_aioacl_returns_repeat_initialize_and_aioacl_finalizes() -> None:
    program = """
with open_device(0) as device:
    say(acl.init(), acl.rt.set_device(0), acl.rt.reset_device(0), acl.finalize())
    with device.create_stream() as stream:
        stream.record().result()
say(acl.init(), acl.finalize())
"""
    assert run(BEGIN + program) == (0, "100002 0 0 0\n0 0\n", "")


# --- forked children ----------------------------------------------------------------------------------------------


def test_child_of_a_program_that_has_only_imported_acl_uses_it() -> None:
    program = """
pid = os.fork()
if pid == 0:
    say(acl.init(), acl.rt.set_device(0), acl.rt.malloc(8, 0)[1], acl.rt.reset_device(0), acl.finalize())
    os._exit(0)
say("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), acl.init())
"""
    assert run(BEGIN + program) == (0, "0 0 0 0 0\nchild 0 0\n", "")


def test_85_each_call_in_a_child_of_a_program_that_has_used_acl_returns_a_code_and_warns_once() -> None:
    program = """
pointer, _ = acl.rt.malloc(8, 0)
pid = os.fork()
if pid == 0:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        say(acl.init(), acl.rt.malloc(8, 0), acl.rt.free(pointer), acl.mdl.create_dataset(), acl.get_soc_name())
        say(acl.mdl.load_from_file("m.om"), acl.mdl.get_input_dims(0, 0), acl.rt.launch_callback(print, 1, 0, 0))
        say(acl.create_tensor_desc(0, [1], 0), acl.finalize(), acl.op.create_attr())
    [of_fork] = [str(each.message) for each in caught if "forked" in str(each.message)]
    say(of_fork)
    os._exit(0)
say("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
say(acl.rt.free(pointer), acl.rt.reset_device(0), acl.finalize(), simulator.violations())
"""
    code, output, errors = run(INITIALIZED + program)
    assert (code, errors) == (0, "")
    *results, warning, child, parent = output.splitlines()
    assert results == ["100001 (0, 100001) 100001 0 None", "(0, 100001) ({}, 100001) 100001", "0 100001 0"]
    assert warning.startswith(
        "acl.init: this process was forked after its parent had used ACL, so each call returns 1"
    )
    assert 'start processes with multiprocessing.get_context("spawn")' in warning
    assert (child, parent) == ("child 0", "0 0 0 []")


# --- the end of the process ---------------------------------------------------------------------------------------


def test_objects_that_call_acl_while_the_interpreter_ends_work() -> None:
    program = """
class Net:
    def __init__(self):
        self.context, _ = acl.rt.create_context(0)
    def __del__(self):
        say(acl.rt.destroy_context(self.context), acl.rt.reset_device(0), acl.finalize())
net = Net()
"""
    assert run(INITIALIZED + program, real=True) == (0, "0 0 0\n", "")


@pytest.mark.parametrize("how", ["pass", "acl.finalize()"])
def test_process_ends_while_a_thread_of_start_thread_is_inside_c(how: str) -> None:
    program = f"""
stream, _ = acl.rt.create_stream()
simulator.hold(stream)
acl.rt.memset_async(acl.rt.malloc(8, 0)[0], 8, 1, 8, stream)
acl.util.start_thread(lambda handle: acl.rt.synchronize_stream(handle), stream)
while not simulator.calls("aclrtSynchronizeStream"):
    time.sleep(0.001)
{how}
"""
    assert run(INITIALIZED + program, stuck=True, real=True)[0] == 0


# --- AIOACL_PYACL_TRACE -------------------------------------------------------------------------------------------


def test_trace_prints_one_line_for_each_failing_call() -> None:
    program = """
os.environ["AIOACL_PYACL_TRACE"] = "1"
pointer, _ = acl.rt.malloc(8, 0)
acl.rt.memcpy(pointer, 8, pointer, 16, 3)
acl.mdl.load_from_file("nowhere.om")
acl.rt.peek_at_last_error(0)
acl.rt.free(pointer), acl.rt.reset_device(0), acl.finalize()
"""
    code, _, errors = run(INITIALIZED + program)
    first, second = errors.splitlines()
    assert code == 0
    assert first.startswith("aioacl: acl.rt.memcpy(0x")
    assert "returned 107000 ACL_ERROR_RT_PARAM_INVALID; EE10" in first
    assert "[FUNC:aclrtMemcpy]; Check the arguments of the call." in first
    assert second.startswith("aioacl: acl.mdl.load_from_file('nowhere.om') returned ")


def test_trace_names_functions_of_acl_as_the_cure() -> None:
    trace = 'os.environ["AIOACL_PYACL_TRACE"] = "1"\n'
    _, _, errors = run(BEGIN + trace + "acl.init(), acl.rt.malloc(8, 0)\nos._exit(0)\n")
    assert errors.endswith("; Call acl.rt.set_device or acl.rt.set_context on this thread first.\n")


def test_without_trace_a_failing_call_prints_nothing() -> None:
    assert run(INITIALIZED + "acl.rt.free(1)\nos._exit(0)\n") == (0, "", "")
