"""Resources that the system refuses to a process."""

from __future__ import annotations

from tests.process.child import run

# A limit on threads has no effect for root, so the process runs as an unprivileged user while the limit is set.
FEW_THREADS = """
import resource
user, (soft, hard) = os.getuid(), resource.getrlimit(resource.RLIMIT_NPROC)

def opening():
    try:
        open_device(0, "watch").result()
    except aioacl.ResourceExhausted as error:
        say(error.call, "ulimit -u" in error.hint)

use_library("simulator")
simulator.hang_call("aclrtGetCurrentContext")  # the device is set, and all Python threads exist
thread = threading.Thread(target=opening)
thread.start()
while not simulator.hung("aclrtGetCurrentContext"):
    time.sleep(0.001)
if user == 0:
    os.setresuid(65534, 65534, 0)
resource.setrlimit(resource.RLIMIT_NPROC, (0, hard))
simulator.release_all()
thread.join()
resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
os.setresuid(user, user, user)
say(simulator.retain_count(), simulator.violations())
device = open_device(0).result()
say(device.state)
device.close().result()
say(simulator.retain_count(), simulator.violations())
"""


def test_open_without_a_native_thread_fails_cleanly_and_the_next_open_works() -> None:
    assert run(FEW_THREADS) == (0, "pthread_create True\n0 []\nOPEN\n0 []\n", "")
