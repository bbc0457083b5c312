"""What docs/services.md states about several processes."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import aioacl
from tests.kit import until_now

pytest.importorskip("numpy")
pytest.importorskip("onnxruntime", reason="models need onnxruntime: pip install 'aioacl[onnx]'")
pytest.importorskip("fastapi", reason="the service needs fastapi: pip install 'aioacl[dev]'")
pytest.importorskip("uvicorn", reason="the service needs uvicorn: pip install 'aioacl[dev]'")

if TYPE_CHECKING:
    from collections.abc import Generator

FOLDER: Final = Path(__file__).parents[2] / "examples" / "service"
HOST: Final = "127.0.0.1"
PATIENCE: Final = 60


def get(port: int, path: str) -> tuple[int, str]:
    """Sends one request on a connection of its own. The status is 0 if no process listens."""
    connection = HTTPConnection(HOST, port, timeout=PATIENCE)
    with suppress(OSError):
        connection.request("GET", path)
        answer = connection.getresponse()
        status, text = answer.status, answer.read().decode()
        connection.close()
        return status, text
    return 0, ""


@contextmanager
def running(*options: str, **variables: str) -> Generator[tuple[subprocess.Popen[bytes], int]]:
    """Runs the service with uvicorn until the block ends, and then checks that it ends well."""
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    environ = {**os.environ, "AIOACL_LIBRARY": "simulator", "SERVICE_STOP_SECONDS": "0", **variables}
    command = [sys.executable, "-m", "uvicorn", "service:app", "--app-dir", str(FOLDER), "--port", str(port)]
    with subprocess.Popen([*command, *options], env=environ, stderr=subprocess.PIPE) as process:
        try:
            assert until_now(lambda: get(port, "/readyz")[0] == 200, PATIENCE)
            yield process, port
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert b"Traceback" not in errors, errors.decode()


def test_process_sees_its_card_as_index_0_and_its_metrics_name_the_card() -> None:
    with running(ASCEND_RT_VISIBLE_DEVICES="1") as (_, port):
        assert 'aioacl_device_ready{device="0",id="1"} 1' in get(port, "/metrics")[1]


def workers_of(process: subprocess.Popen[bytes]) -> set[str]:
    """The children of the process, except the resource tracker of multiprocessing."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return {child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()}


def test_uvicorn_with_two_workers_serves_from_both_and_ends_well() -> None:
    with running("--workers", "2") as (process, port):
        assert len(workers_of(process)) == 2
        scrapes = [get(port, "/metrics")[1] for _ in range(20)]
        # Each worker has opened the device for the first time.
        assert {
            line
            for text in scrapes
            for line in re.findall(r"^aioacl_device_generation.*", text, re.MULTILINE)
        } == {'aioacl_device_generation{device="0",id="0"} 1'}


def generation_after_open(_: int) -> tuple[int, int]:
    """Runs in a worker of the pool."""
    aioacl.use_library("simulator")
    with aioacl.open_device(0) as device:
        return os.getpid(), device.generation


def test_workers_of_a_pool_that_are_spawned_open_the_device_themselves() -> None:
    with (
        aioacl.open_device(0),
        ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        found = list(pool.map(generation_after_open, range(4)))
    assert os.getpid() not in {pid for pid, _ in found}
    assert min(generation for _, generation in found) == 1
