"""The programs of docs/cluster.md for Dask and Celery, each with its own worker processes on simulated devices."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from scripts.pages import one
from tests.support.command import finished

if TYPE_CHECKING:
    from collections.abc import Generator

pytestmark = pytest.mark.slow
ROOT: Final = Path(__file__).parents[2]
RUN_SECONDS: Final = 300


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        find_spec(package) is None, reason=f"needs {package}: .ci/slow cluster installs it"
    )


def block(begin: str) -> str:
    return one("docs/cluster.md", "tests/examples/test_workers.py", lambda text: begin in text).text


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    fixed = {"AIOACL_LIBRARY": "simulator", "AIOACL_SIM_DEVICES": "2", "PYTHONPATH": path}
    return os.environ | fixed | more


@needs("distributed")
def test_tasks_of_dask_are_right(tmp_path: Path) -> None:
    program = tmp_path / "digits.py"
    program.write_text(block("WorkerPlugin"))
    ran = finished([sys.executable, program], cwd=tmp_path, env=environment(), timeout=RUN_SECONDS)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "197 of 200 digits are right\n"


SETTINGS: Final = """
broker_url = "filesystem://"
broker_transport_options = {"data_folder_in": "messages", "data_folder_out": "messages"}
result_backend = "file://results"
result_serializer = "pickle"
accept_content = ["json", "pickle"]
"""
CLIENT: Final = """
import numpy as np
from celery import group
import aioacl
import digits

data = np.load(digits.DATA / "digits.npz")
rows = (data["images"][:100].reshape(-1, 64).astype(np.float32) / 16).tolist()
found = group(map(digits.classify.s, rows))().get(timeout=200)
print(int(np.sum(found == data["labels"][:100])), "of 100 digits are right")
try:
    digits.lost.delay().get(timeout=200)
except aioacl.ParameterError as error:
    print(error.code, error.call, error.device)
"""
LOST: Final = """

@app.task
def lost():
    aioacl.open_device(1).result()
"""


@contextmanager
def worker(folder: Path, *options: str) -> Generator[None]:
    """A worker with the card 1. It ends by SIGTERM with the status 0."""
    command = [sys.executable, "-m", "celery", "-A", "digits", "worker", "--loglevel=warning", *options]
    environ = environment(ASCEND_RT_VISIBLE_DEVICES="1", C_FORCE_ROOT="1")
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, cwd=folder, env=environ, stderr=log) as one,
    ):
        try:
            yield
        finally:
            one.send_signal(signal.SIGTERM)
        assert one.wait(RUN_SECONDS) == 0, (folder / "log").read_text()


@needs("celery")
@pytest.mark.parametrize("pool", ["threads", "solo", "prefork"])
def test_tasks_of_celery_are_right_and_their_errors_arrive(tmp_path: Path, pool: str) -> None:
    program = block("from celery import") + LOST
    if pool == "prefork":
        for signal_name in ("worker_init", "worker_shutdown"):
            program = program.replace(signal_name, signal_name.replace("worker_", "worker_process_"))
    (tmp_path / "digits.py").write_text(program)
    (tmp_path / "celeryconfig.py").write_text(SETTINGS)
    for name in ("messages", "results"):
        (tmp_path / name).mkdir()
    concurrency = "32" if pool == "threads" else "1"
    with worker(tmp_path, f"--pool={pool}", f"--concurrency={concurrency}"):
        ran = finished([sys.executable, "-c", CLIENT], cwd=tmp_path, env=environment(), timeout=RUN_SECONDS)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "98 of 100 digits are right\n107001 aclrtSetDevice 1\n"
