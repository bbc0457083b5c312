"""A batcher in a forked child, and at the end of the process."""

from __future__ import annotations

import pytest

from tests.process.child import run

BEGIN = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
import numpy as np
from aioacl import open_batcher
from aioacl._base.paths import DATA
use_library("simulator")
go_on = threading.Event()
def execute(execution):
    go_on.wait()
    execution.outputs[0].memory[:] = bytes(len(execution.outputs[0].memory))
registered = simulator.register_model("digits_batches", execute)
registered.__enter__()
x = np.zeros((1, 64), np.float32)
device = open_device().result()
model = device.load_model(DATA / "digits_batches.om").result()
infer = open_batcher(model).result()
"""


def test_forked_child_refuses_items_and_the_parent_goes_on() -> None:
    program = (
        BEGIN
        + """
go_on.set()
assert infer(x).result().shape == (1, 10)
item = infer(x)
pid = os.fork()
if not pid:
    for use in (lambda: infer(x), lambda: item.result(), lambda: infer.map([])):
        try:
            use()
        except ForkedProcessError:
            say("refused")
        else:
            say("no error")
    infer.close().result()
    del infer, item
    os._exit(3)
say("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
assert infer(x).result().shape == (1, 10)
infer.close().result(), model.close().result(), device.close().result()
"""
    )
    assert run(program) == (0, "refused\nrefused\nno error\nchild 3\n", "")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_exit_with_items_behind_an_execution_that_never_ends_is_silent(backend: str) -> None:
    program = (
        BEGIN
        + """
async def main():
    with anyio.move_on_after(0.05):
        await infer(x)
    threading.Thread(target=lambda: infer(x).result(), daemon=True).start()
    while not infer.waiting and len(infer._runner.core.models[0].running) < 2:
        await anyio.sleep(0.001)
start(main)
say("left")
sys.exit(7)
"""
    )
    assert run(program, backend, strict=False, stuck=True) == (7, "left\n", "")
