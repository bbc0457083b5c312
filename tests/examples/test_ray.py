"""Ray on two simulated devices: the example, detection, a device that fails, the devices and errors of actors.

Each test runs a program with a cluster of its own in a new process, because Ray changes the process that uses it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support.command import finished

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Generator

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: .ci/slow cluster installs it"),
]
ROOT: Final = Path(__file__).parents[2]
RUN_SECONDS: Final = 1800  # ends a program that hangs
# Ray's processes give each other up after 5 to 60 s. On a busy machine, they may get no CPU for longer than that.
PATIENT_SECONDS: Final = 900
PATIENT: Final = {
    **{
        f"RAY_{name}": str(PATIENT_SECONDS)
        for name in (
            "gcs_rpc_server_connect_timeout_s",
            "gcs_rpc_server_reconnect_timeout_s",
            "gcs_server_request_timeout_seconds",
            "py_gcs_connect_timeout_s",
            "worker_register_timeout_seconds",
        )
    },
    **{
        f"RAY_{name}": str(PATIENT_SECONDS * 1000)
        for name in ("agent_register_timeout_ms", "health_check_timeout_ms", "grpc_keepalive_timeout_ms")
    },
}
# `ray.init` waits 30 s for the node, and this limit cannot be set. The program has not begun then, so it runs again.
NOT_STARTED: Final = "The current node timed out during startup"
STARTS: Final = 5

ACTORS: Final = """
import json
import os
import ray
import aioacl

@ray.remote(resources={"NPU": 1})
class Replica:
    def devices(self):
        return os.environ["ASCEND_RT_VISIBLE_DEVICES"], len(aioacl.list_devices())

    def open(self, index):
        with aioacl.open_device(index) as device, device.create_stream() as stream, device.allocate(64) as memory:
            stream.fill(memory, 7).result()
            return device.index

ray.init(num_cpus=2, resources={"NPU": 2}, include_dashboard=False, log_to_driver=False)
try:
    replicas = [Replica.remote() for _ in range(2)]
    found = {
        "devices": sorted(ray.get([each.devices.remote() for each in replicas])),
        "opened": ray.get([each.open.remote(0) for each in replicas]),
    }
    try:
        ray.get(replicas[0].open.remote(1))
    except aioacl.AclError as error:
        found["error"] = [error.code, error.call, error.device, str(error)]
    print("found", json.dumps(found))
finally:
    ray.shutdown()
"""

DETECTED: Final = """
import json
import os
import ray

@ray.remote(resources={"NPU": 1}, num_cpus=0)
class Actor:
    def devices(self):
        import acl
        return os.environ["ASCEND_RT_VISIBLE_DEVICES"], *acl.rt.get_device_count()

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
try:
    actors = [Actor.remote() for _ in range(2)]
    devices = sorted(ray.get([each.devices.remote() for each in actors]))
    found = {"devices": devices, "node": ray.cluster_resources()}
    print("found", json.dumps(found))
finally:
    ray.shutdown()
"""


def path_with_acl() -> str:
    """A PYTHONPATH with the folder of aioacl's module `acl`, as docs/cluster.md makes it."""
    printed = finished([sys.executable, "-m", "aioacl", "pyacl", "--path"], cwd=ROOT, check=True)
    return os.pathsep.join(filter(None, (printed.stdout.strip(), str(ROOT), os.environ.get("PYTHONPATH"))))


@pytest.fixture
def run() -> Generator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Runs a program on two simulated devices, with Ray's files and its token in a new folder."""
    with tempfile.TemporaryDirectory(
        prefix="r", ignore_cleanup_errors=True
    ) as folder:  # sockets need a short path
        environment = os.environ | {
            "AIOACL_LIBRARY": "simulator",
            "AIOACL_SIM_DEVICES": "2",
            "HOME": folder,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
            "RAY_TMPDIR": folder,
            "RAY_USAGE_STATS_ENABLED": "0",
            **PATIENT,
        }

        def run(*command: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
            program = [sys.executable, *command]
            for _ in range(STARTS - 1):
                ran = finished(program, cwd=Path(folder), env=environment | more, timeout=RUN_SECONDS)
                if NOT_STARTED not in ran.stderr:
                    return ran
            return finished(program, cwd=Path(folder), env=environment | more, timeout=RUN_SECONDS)

        yield run


def found_by(ran: subprocess.CompletedProcess[str]) -> Any:
    """What the program has found, in the line that begins with "found"."""
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (line,) = (line for line in ran.stdout.splitlines() if line.startswith("found "))
    return json.loads(line.removeprefix("found "))


def test_example_answers_all_requests(run) -> None:
    ran = run(ROOT / "examples" / "ray_serve.py", PYTHONPATH=path_with_acl())
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "197 of 200 digits are right\n" in ran.stdout


def test_ray_finds_the_devices_and_their_type(run) -> None:
    found = found_by(run("-c", DETECTED, PYTHONPATH=path_with_acl()))
    assert (found["node"]["NPU"], found["node"]["accelerator_type:Ascend910B1"]) == (2.0, 1.0)
    assert found["devices"] == [["0", 1, 0], ["1", 1, 0]]


def test_device_that_fails_loses_no_request_and_restarts_no_replica(run) -> None:
    ran = run("-m", "benchmarks.ray_faults", "repaired")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = json.loads(ran.stdout)["repaired"]
    assert found["requests"] == 5000
    assert (found["lost"], found["wrong"], found["restarts"], found["resets"]) == (0, 0, 0, 1), found


def test_actors_see_one_device_each_and_their_errors_arrive(run) -> None:
    found = found_by(run("-c", ACTORS))
    assert found["devices"] == [["0", 1], ["1", 1]]
    assert found["opened"] == [0, 0]
    code, call, device, text = found["error"]
    assert (code, call, device) == (107001, "aclrtSetDevice", 1)
    assert "the process sees 1 device, because ASCEND_RT_VISIBLE_DEVICES is '" in text
