"""A pool in a forked child, and after Ctrl-C."""

from __future__ import annotations

import pytest

from tests.process.child import run

BEGIN = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
import numpy as np
from aioacl import open_pool
from aioacl._base.paths import DATA
use_library("simulator")
def execute(execution):
    execution.outputs[0].memory[:] = bytes(len(execution.outputs[0].memory))
registered = simulator.register_model("digits_batches", execute)
registered.__enter__()
x = np.zeros((1, 64), np.float32)
"""


def test_forked_child_refuses_items_and_closes_nothing_and_the_parent_goes_on() -> None:
    program = (
        BEGIN
        + """
infer = open_pool(DATA / "digits_batches.om").result()
assert infer(x).result().shape == (1, 10)
pid = os.fork()
if not pid:
    try:
        infer(x)
    except ForkedProcessError:
        say("refused")
    infer.close().result()
    del infer
    os._exit(3)
say("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
assert infer(x).result().shape == (1, 10)
infer.close().result()
"""
    )
    assert run(program) == (0, "refused\nchild 3\n", "")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_interrupt_closes_the_devices_of_a_pool(backend: str) -> None:
    program = (
        BEGIN
        + """
devices = []
async def main():
    async with open_pool(DATA / "digits_batches.om") as infer:
        devices.extend(infer.devices)
        os.kill(os.getpid(), signal.SIGINT)
        await anyio.sleep(60)
try:
    start(main)
except KeyboardInterrupt:
    say([device.state.name for device in devices])
"""
    )
    assert run(program, backend) == (0, "['CLOSED', 'CLOSED']\n", "")
