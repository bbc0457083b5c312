"""The programs of docs/services.md and docs/failures.md work as described there."""

from __future__ import annotations

import asyncio
import os
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from aioacl import simulator
from aioacl._library.locate import candidates
from aioacl._lifecycle.procedures import limits
from scripts.pages import one
from tests.kit import FAULT, TASK_FAULT, hanging, until
from tests.support.command import finished

if TYPE_CHECKING:
    import subprocess


def program_of(page: str) -> str:
    """Returns the program of a page."""
    return one(page, "tests/test_services.py").text


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "service.py"
    path.write_text(program_of("docs/services.md"))
    return path


def run(program: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    command, dropped = [sys.executable, "-W", "error", str(program)], ("AIOACL_LIBRARY", "ASCEND_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return finished(command, env=kept | environ, timeout=60)


@pytest.mark.process
def test_program_without_a_library_fails_and_names_the_remedy(program: Path) -> None:
    if any(Path(each.path).exists() for each in candidates({})):
        pytest.skip("CANN is installed: the program would use it")
    ran = run(program)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "set AIOACL_LIBRARY=simulator" in ran.stderr


@pytest.mark.process
def test_program_prints_the_expected_lines(program: Path) -> None:
    ran = run(program, AIOACL_LIBRARY="simulator")
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    lines.remove("True True")  # printed by the operator; the log prints the other lines
    assert [line for line in lines if not line.startswith("revoked ")] == [
        "draining DRAINING 1 ",
        "resetting RESETTING 1 ",
        "reopened OPEN 2 ",
        "draining DRAINING 2 ",
        "resetting RESETTING 2 ",
        "closed CLOSED 3 ",
        "100 answers",
    ]


def test_device_is_reset_after_a_fault_and_the_log_prints_the_events(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service: dict[str, Any] = runpy.run_path(str(program))

    async def main() -> None:
        async with aioacl.open_device() as device, device.supervise() as supervisor:
            logging = asyncio.create_task(service["log"](device))
            await asyncio.sleep(0)
            with simulator.fault("copy", nth=1, async_error=FAULT, sticky=FAULT):
                with pytest.raises(aioacl.DeviceFault):
                    await service["work"](device, b"request")
                await until(lambda: supervisor.reports and device.health.ready)
            assert await service["work"](device, b"request") == b"request"
            logging.cancel()
            await asyncio.wait([logging])

    asyncio.run(main())
    printed = capsys.readouterr().out
    assert "\nfault " in f"\n{printed}"
    assert "\nreopened OPEN " in printed


def test_log_prints_a_failure_that_nothing_awaits(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service: dict[str, Any] = runpy.run_path(str(program))

    async def main() -> None:
        async with aioacl.open_device() as device, device.allocate(64) as memory:
            printed = ""
            logging = asyncio.create_task(service["log"](device))
            await asyncio.sleep(0)
            async with device.create_stream() as stream:
                simulator.fail_next(stream, TASK_FAULT)
                stream.fill(memory, 1)
                while "fault OPEN" not in printed:
                    printed += capsys.readouterr().out
                    await asyncio.sleep(0)
                assert stream.error is not None
            logging.cancel()
            await asyncio.wait([logging])

    asyncio.run(main())


def test_shared_stream_is_renewed_once_for_all_requests(tmp_path: Path) -> None:
    path = tmp_path / "shared.py"
    path.write_text(program_of("docs/failures.md"))
    parts: dict[str, Any] = runpy.run_path(str(path))

    async def main() -> None:
        async with aioacl.open_device() as device, device.create_stream() as stream:
            shared = parts["Shared"](stream)
            memory = [await device.allocate(64) for _ in range(5)]
            requests = [bytes([number]) * 64 for number in range(5)]
            simulator.fail_next(stream, TASK_FAULT)
            answers = await asyncio.gather(*map(shared.work, memory, requests))
            assert answers == requests
            assert simulator.calls("aclrtDestroyStream") == 1
            for each in memory:
                await each.close()

    asyncio.run(main())


def test_requests_work_again_when_a_hung_call_has_returned(program: Path) -> None:
    service: dict[str, Any] = runpy.run_path(str(program))

    async def main() -> None:
        async with aioacl.open_device() as device, device.supervise():
            simulator.hang_call("aclrtMalloc")
            request = asyncio.create_task(service["work"](device, b"request"))
            await until(hanging("aclrtMalloc"))
            # In real time, not that of a test's clock, because the supervisor uses that clock too.
            report = await device.force_reset(grace=0, timeout=2)
            assert [stuck.function for stuck in report.stuck] == ["aclrtMalloc"]
            with pytest.raises(aioacl.DeviceQuarantined):
                await service["work"](device, b"request")
            simulator.release_all()
            await until(lambda: device.health.ready)
            with pytest.raises(aioacl.DeviceQuarantined):
                await request
            assert await service["work"](device, b"request") == b"request"

    asyncio.run(main())


@pytest.mark.thorough
def test_call_that_never_returns_ends_the_service_and_leaves_no_task(
    program: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "BARRIER_SECONDS", 0.2)
    monkeypatch.setattr(limits, "CLOSE_SECONDS", 0.2)
    service: dict[str, Any] = runpy.run_path(str(program))
    simulator.hang_call("aclrtMalloc")
    with (
        pytest.warns(aioacl.AclWarning, match="stays set: aclrtMalloc"),
        pytest.raises(ExceptionGroup) as caught,
    ):
        asyncio.run(service["main"]())
    assert [type(error) for error in caught.value.exceptions] == [aioacl.DeviceQuarantined]
    others = [record for record in caplog.records if not record.name.startswith("aioacl.")]
    assert others == []  # for example, asyncio logs an error that was never retrieved from its task
    simulator.release_all()
    aioacl.open_device().result().close().result()  # undoes the set that the failed close has left
