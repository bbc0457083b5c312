"""Logging in a new process: silence without a handler, the end of the process, a forked child."""

from __future__ import annotations

from tests.process.child import run

SILENT = """
import logging
use_library("simulator")
device = open_device(0).result()
simulator.fail_call("aclrtSetDevice", 507013, 100)
say(device.force_reset().result().ok)
simulator.clear()
device.force_reset().result()
device.close().result()
say([thread.name for thread in threading.enumerate() if thread.name == "aioacl-log"])
"""


def test_without_a_handler_nothing_is_printed_and_no_thread_starts() -> None:
    assert run(SILENT) == (0, "False\n[]\n", "")


LAST = """
import logging
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(levelname)s %(name)s %(message)s %(device)s")
use_library("simulator")
open_device(0).result().close().result()
"""


def test_last_records_are_written_when_the_process_ends() -> None:
    status, output, errors = run(LAST)
    assert (status, errors) == (0, "")
    assert output.splitlines()[-1] == "INFO aioacl.device device 0 closed 0"


FORKED = """
import logging
from aioacl._base import logs
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s", force=True)
use_library("simulator")
logs.log("device", logs.INFO, "parent")
pid = os.fork()
if pid == 0:
    logs.log("device", logs.INFO, "child")
    logs.flush()
    os._exit(0)
os.waitpid(pid, 0)
logs.flush()
"""


def test_forked_child_logs_its_own_records() -> None:
    status, output, _ = run(FORKED)
    assert status == 0
    assert sorted(output.splitlines()) == ["child", "parent"]
