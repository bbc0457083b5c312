"""Processes that fork or end while the thread of a model is inside a call of ACL."""

from __future__ import annotations

from aioacl._base.paths import DATA
from tests.process.child import run

BEGIN = f"""
import gc, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of the fork with several threads
use_library("simulator")
def executes(execution):
    output = execution.outputs[0].memory
    output[:] = execution.inputs[0].memory[: len(output)]
registered = simulator.register_model("digits", executes)
registered.__enter__()
x = memoryview(bytes(256)).cast("f", (1, 64))
device = open_device(0, os.environ["TEST_WAITS"]).result()
model = device.load_model({str(DATA / "digits.om")!r}, slots=2).result()
def call():
    out = memoryview(bytearray(40)).cast("f", (1, 10))
    return model(x, out=out).result()
def hung_call():
    simulator.hang_call("aclmdlExecuteAsync")
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    while not simulator.hung("aclmdlExecuteAsync"):
        time.sleep(0.001)
    return thread
"""


def test_fork_while_the_thread_of_a_model_is_in_c_leaves_both_processes_usable() -> None:
    program = """
thread = hung_call()
operation = model(x)
pid = os.fork()
if pid == 0:
    refused = 0
    for use in (operation.result, call):
        try:
            use()
        except ForkedProcessError:
            refused += 1
    say("refused", refused)
    del operation, model
    gc.collect()
    os._exit(0)
say("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
simulator.release_call("aclmdlExecuteAsync")
thread.join()
say(operation.result().shape, bytes(call()) == bytes(40))
model.close().result(), device.close().result()
say("closed", simulator.violations())
"""
    expected = "refused 2\nchild 0\n(1, 10) True\nclosed []\n"
    assert run(BEGIN + program) == (0, expected, "")


def test_process_ends_with_its_own_status_while_the_thread_of_a_model_is_in_c() -> None:
    program = """
hung_call()
sys.exit(3)
"""
    assert run(BEGIN + program, stuck=True) == (3, "", "")
