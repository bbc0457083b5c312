"""A sub-interpreter cannot import aioacl, and does not disturb the main interpreter when it tries."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
if sys.version_info >= (3, 13):
    import _interpreters
    def attempt(isolated):
        made = _interpreters.create("isolated" if isolated else "legacy")
        failed = _interpreters.exec(made, "import aioacl")
        print(failed.type.__name__, failed.msg)
        _interpreters.destroy(made)
else:
    import _xxsubinterpreters
    def attempt(isolated):
        made = _xxsubinterpreters.create(isolated=isolated)
        try:
            _xxsubinterpreters.run_string(made, "import aioacl")
        except _xxsubinterpreters.RunFailedError as failed:
            print(failed)
        _xxsubinterpreters.destroy(made)
{before}
import aioacl
{after}
aioacl.use_library("simulator")
with aioacl.open_device(0) as device, device.create_stream() as stream, device.allocate(4) as memory:
    answer = bytearray(4)
    stream.fill(memory, 7)
    stream.copy(answer, memory).result()
print(answer.hex())
"""


@pytest.mark.parametrize("isolated", [True, False])
@pytest.mark.parametrize("first", ["the main interpreter", "the sub-interpreter"])
def test_import_in_a_sub_interpreter_is_refused_and_the_main_interpreter_works(
    first: str, isolated: bool
) -> None:
    attempts = f"attempt({isolated})\n" * 2
    parts = ("", attempts) if first == "the main interpreter" else (attempts, "")
    program = PROGRAM.format(before=parts[0], after=parts[1])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    *refusals, answer = done.stdout.splitlines()
    assert answer == "07070707"
    assert len(refusals) == 2
    for refusal in refusals:
        assert "ImportError" in refusal
        assert "sub-interpreter; import aioacl in the main interpreter" in refusal
        assert "WSGIApplicationGroup %{GLOBAL}" in refusal
