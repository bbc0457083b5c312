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
from tests.kit import FAULT, TASK_FAULT, elsewhere, hanging, until
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
    lines.remove("True True")  # printed by the operator; the guard prints the other lines
    assert [line for line in lines if not line.startswith("revoked ")] == [
        "draining DRAINING 1 ",
        "resetting RESETTING 1 ",
        "reopened OPEN 2 ",
        "draining DRAINING 2 ",
        "resetting RESETTING 2 ",
        "closed CLOSED 3 ",
        "100 answers",
    ]


def test_guard_resets_the_device_after_a_fault(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service: dict[str, Any] = runpy.run_path(str(program))

    async def main() -> None:
        async with aioacl.open_device() as device:
            generation = device.generation
            guarding = asyncio.create_task(service["guard"](device))
            await asyncio.sleep(0)
            with simulator.fault("copy", nth=1, async_error=FAULT, sticky=FAULT):
                with pytest.raises(aioacl.DeviceFault):
                    await service["work"](device, b"request")
                await until(lambda: device.generation > generation and device.health.ready)
            assert await service["work"](device, b"request") == b"request"
            guarding.cancel()
            await asyncio.wait([guarding])
            assert device.generation == generation + 1

    asyncio.run(main())
    assert capsys.readouterr().out.startswith("fault OPEN ")


def test_guard_does_not_reset_a_device_of_other_code_where_the_policy_forbids_it(
    program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    service: dict[str, Any] = runpy.run_path(str(program))
    monkeypatch.setenv("AIOACL_RESETS", "never")
    elsewhere("aclrtSetDevice")
    resets = simulator.resets()

    async def main() -> None:
        async with aioacl.open_device() as device:
            guarding = asyncio.create_task(service["guard"](device))
            await asyncio.sleep(0)
            fault = simulator.fault("copy", nth=1, async_error=FAULT, sticky=FAULT)
            with fault, pytest.raises(aioacl.DeviceFault):
                await service["work"](device, b"request")
            await guarding  # the reset is refused, so the guard ends
            assert "device 0 was not reset, because other code" in capsys.readouterr().out
            assert (simulator.resets(), simulator.retain_count()) == (resets, 2)
            assert not device.health.ready
            assert (await device.force_reset(foreign=True)).ok
        assert simulator.retain_count() == 2

    asyncio.run(main())
    elsewhere("aclrtResetDevice", "aclrtResetDevice")


def test_guard_prints_a_failure_that_nothing_awaits_and_does_not_reset(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service: dict[str, Any] = runpy.run_path(str(program))

    async def main() -> None:
        async with aioacl.open_device() as device, device.allocate(64) as memory:
            generation, printed = device.generation, ""
            guarding = asyncio.create_task(service["guard"](device))
            await asyncio.sleep(0)
            async with device.create_stream() as stream:
                simulator.fail_next(stream, TASK_FAULT)
                stream.fill(memory, 1)
                while "fault OPEN" not in printed:
                    printed += capsys.readouterr().out
                    await asyncio.sleep(0)
                assert stream.error is not None
            guarding.cancel()
            await asyncio.wait([guarding])
            assert (device.generation, device.health.ready) == (generation, True)

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


def test_guard_tries_again_until_a_hung_call_returns(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service: dict[str, Any] = runpy.run_path(str(program))

    async def main() -> None:
        async with aioacl.open_device() as device:
            guarding = asyncio.create_task(service["guard"](device))
            await asyncio.sleep(0)
            simulator.hang_call("aclrtMalloc")
            request = asyncio.create_task(service["work"](device, b"request"))
            await until(hanging("aclrtMalloc"))
            # In real time, not that of a test's clock, because the guard resets too.
            report = await device.force_reset(grace=0, timeout=2)
            assert [stuck.function for stuck in report.stuck] == ["aclrtMalloc"]
            with pytest.raises(aioacl.DeviceQuarantined):
                await service["work"](device, b"request")
            simulator.release_all()
            await until(lambda: device.health.ready)
            with pytest.raises(aioacl.DeviceQuarantined):
                await request
            assert await service["work"](device, b"request") == b"request"
            guarding.cancel()
            await asyncio.wait([guarding])

    asyncio.run(main())
    assert "quarantined QUARANTINED " in capsys.readouterr().out


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
    assert caplog.records == []  # for example, asyncio logs an error that was never retrieved from its task
    simulator.release_all()
    aioacl.open_device().result().close().result()  # undoes the set that the failed close has left
