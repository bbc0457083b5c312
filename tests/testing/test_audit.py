"""The findings of an audit, and the objects that it does not count as leaks."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np
import pytest
import uvloop

import aioacl
from aioacl import lowlevel, simulator
from aioacl._base import origin
from aioacl._base.ffi import ffi, lib
from aioacl._base.paths import DATA
from aioacl.testing import AuditFailed, audit, origin_of, snapshot
from tests import kit
from tests.kit import held_fill, raises

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kit import OpenDevice

MODEL = DATA / "digits.om"


def found(body: Callable[[], object], *allowed: str) -> dict[str, str]:
    """Audits the body. Returns the text of each finding, by the name of the finding."""
    try:
        with audit(*allowed, patience=0.1):
            body()
    except AuditFailed as failed:
        return {finding.name: str(finding) for finding in failed.findings}
    return {}


def test_closed_handles_are_no_leak(open_device: OpenDevice) -> None:
    async def main() -> None:
        async with (
            open_device() as device,
            device.create_stream() as stream,
            device.allocate(64) as memory,
            device.pinned(64),
        ):
            await stream.fill(memory, 1)

    assert found(lambda: asyncio.run(main())) == {}
    assert found(lambda: uvloop.run(main())) == {}


@pytest.mark.parametrize(
    ("keep", "outer", "problem"),
    [
        (False, False, "was dropped without being closed"),
        (True, True, "is still open"),
        (True, False, "was still open when its device was closed"),
    ],
)
def test_model_that_is_not_closed_is_a_leak(
    open_device: OpenDevice, recwarn: pytest.WarningsRecorder, *, keep: bool, outer: bool, problem: str
) -> None:
    kept: list[aioacl.Model] = []
    around = open_device().result() if outer else None

    def body() -> None:
        with open_device() as device:
            model = device.load_model(MODEL).result()
            if keep:
                kept.append(model)

    warnings.simplefilter("always")  # of the drop
    findings = found(body)
    assert findings.keys() == {"offline_models"}
    assert re.match(
        rf"a model on device 0 {problem}; it was made\n    at \S+ in \S+body\n", findings["offline_models"]
    )
    assert [warning.category for warning in recwarn] == ([] if keep else [ResourceWarning])
    assert all(model._life.closed for model in kept)  # the audit has closed it
    if around is not None:
        around.close().result()


class Cycle:
    """Keeps a file open until the garbage collector runs."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w")
        self.me = self

    def __del__(self) -> None:
        self.file.close()


def test_cycle_that_is_dropped_after_a_collection_is_no_leak(tmp_path: Path) -> None:
    kept: list[Cycle] = []

    def drop(phase: str, _: object) -> None:
        if phase == "stop":
            kept.clear()

    gc.disable()  # only the audit collects
    try:
        with audit(patience=kit.PATIENCE_SECONDS):
            kept.append(Cycle(tmp_path / "file"))
            gc.callbacks.append(drop)
    finally:
        gc.callbacks.remove(drop)
        gc.enable()


def test_files_that_onnxruntime_keeps_open_are_no_leak(tmp_path: Path) -> None:
    folder = tmp_path / ".onnxruntime"
    folder.mkdir()
    with ExitStack() as files:

        def body() -> None:
            for name in ("onnxruntime.db", "onnxruntime.db-wal"):
                files.enter_context((folder / name).open("w"))

        assert found(body) == {}


@pytest.mark.parametrize("outer", [False, True])
def test_closed_buffer_with_references_is_no_leak_but_a_view_of_it_is_one(
    open_device: OpenDevice, *, outer: bool
) -> None:
    kept: list[object] = []
    around = open_device().result() if outer else None

    def body(look: Callable[[aioacl.PinnedBuffer], object]) -> None:
        device = open_device().result()
        buffer = device.pinned(10).result()
        kept.extend((buffer, look(buffer)))
        buffer.close().result()
        device.close().result()

    assert found(lambda: body(lambda buffer: buffer.size)) == {}
    reported = found(lambda: body(lambda buffer: buffer.view))
    assert reported.keys() == {"host_blocks"}
    assert (
        "of 10 bytes on device 0 was closed, but a view of it is still alive; it was made"
        in reported["host_blocks"]
    )
    assert "buffer = device.pinned(10).result()" in reported["host_blocks"]
    if around is not None:
        around.close().result()


def test_device_that_is_left_open_is_reported_and_closed(open_device: OpenDevice) -> None:
    kept: list[aioacl.Device] = []
    assert found(lambda: kept.append(open_device().result())).keys() == {"devices"}
    assert kept[0].state is aioacl.State.CLOSED


def test_model_that_a_reset_has_abandoned_is_no_leak(open_device: OpenDevice) -> None:
    async def main() -> None:
        with simulator.register_model("digits", lambda _: None):
            async with open_device() as device, device.load_model(MODEL) as model:
                with simulator.fault("aclmdlExecuteAsync", late_complete=3600, nth=1) as execution:
                    async with asyncio.TaskGroup() as group:
                        call = group.create_task(raises_device_reset(model))
                        await kit.until(lambda: execution.hits)
                        assert (await device.force_reset(grace=0)).ok
                        await call
                assert device.health.abandoned_models > 0

    async def raises_device_reset(model: aioacl.Model) -> None:
        await raises(aioacl.DeviceReset, model(np.zeros((1, 64), np.float32)))

    assert found(lambda: asyncio.run(main())) == {}
    kit.drop_abandoned()


def test_handle_that_a_reset_made_stale_is_no_leak(open_device: OpenDevice) -> None:
    def body() -> None:
        device = open_device().result()
        stream = device.create_stream().result()
        device.force_reset(grace=0).result()
        assert stream.stale
        device.close().result()

    assert found(body) == {}


def test_event_that_is_not_closed_is_no_leak(open_device: OpenDevice) -> None:
    kept: list[aioacl.Event] = []

    def body() -> None:
        device = open_device().result()
        kept.append(device.create_event(timing=True).result())
        device.close().result()

    assert found(body) == {}


def test_lease_that_was_never_left_is_reported_and_revoked(open_device: OpenDevice) -> None:
    kept: list[aioacl.Lease] = []

    def body() -> None:
        device = open_device().result()
        kept.append(device.lease().__enter__())
        device.close().result()

    reported = found(body)
    assert reported.keys() == {"leases"}
    assert "a lease on device 0 was never left; it was made" in reported["leases"]
    device = open_device().result()
    device.allocate(64).result().close().result()  # no warning reports that the lease was revoked
    assert found(lambda: kept.append(device.lease().__enter__()), "leases") == {}
    assert kept[1].held
    kept[1].__exit__()
    device.close().result()


@pytest.mark.filterwarnings("ignore:a lease on device 0:ResourceWarning")
def test_lease_that_is_dropped_inside_its_block_is_reported(open_device: OpenDevice) -> None:
    def body() -> None:
        device = open_device().result()
        device.lease().__enter__()
        device.close().result()

    reported = found(body)
    assert reported.keys() == {"leases"}
    assert "a lease on device 0 was never left; it was made" in reported["leases"]
    assert "device.lease().__enter__()" in reported["leases"]


def test_lease_that_is_left_in_time_is_no_leak(open_device: OpenDevice) -> None:
    device = open_device().result()
    entered, leaving = threading.Event(), threading.Event()

    def hold() -> None:
        with device.lease():
            entered.set()
            leaving.wait()

    def body() -> None:
        device.lease()
        with device.lease() as lease, lease.share():
            pass
        holder.start()
        assert entered.wait(5)
        threading.Timer(0.02, leaving.set).start()

    holder = threading.Thread(target=hold)
    try:
        with audit():
            body()
    finally:
        holder.join()
        device.close().result()


def test_pools_of_a_device_that_stays_open_are_no_leak(open_device: OpenDevice) -> None:
    device = open_device().result()
    stream, memory = device.create_stream().result(), device.allocate(64).result()

    def body() -> None:
        events = [stream.record() for _ in range(100)]
        events[-1].result()

    assert found(body) == {}
    left: list[aioacl.Stream] = []
    assert found(lambda: left.append(device.create_stream().result())).keys() == {"streams"}
    for thing in (stream, memory, device):
        thing.close().result()


def test_audit_waits_for_a_closed_stream_whose_work_runs(open_device: OpenDevice) -> None:
    device = open_device().result()
    memory = device.allocate(64).result()
    released = threading.Timer(0.02, simulator.release_all)

    def body() -> None:
        stream = device.create_stream().result()
        held_fill(stream, memory)
        stream.close().result()  # the stream is destroyed when its work is done
        released.start()

    try:
        with audit():
            body()
    finally:
        released.join()
        memory.close().result()
        device.close().result()


def test_allowed_leak_is_not_reported_and_stays_open(open_device: OpenDevice) -> None:
    kept: list[aioacl.Device] = []
    assert found(lambda: kept.append(open_device().result()), "devices", "set_counts") == {}
    assert kept[0].state is aioacl.State.OPEN
    kept[0].close().result()


def test_report_of_a_thread_names_its_line() -> None:
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait, name="pump")
    text = found(lambda: thread.start())["threads"]  # noqa: PLW0108 - the first audit of a process replaces `start`
    go_on.set()
    thread.join()
    assert re.match(
        r"thread 'pump' is still running; it was started\n"
        r"    at tests/testing/test_audit.py:\d+ in \w+\.<locals>\.<lambda>",
        text,
    )


def test_report_of_a_set_count_names_the_acl_call() -> None:
    text = found(lambda: lowlevel.set_device(0))["set_counts"]
    lowlevel.reset_device(0)
    assert re.search(r"aclrtSetDevice\(0\), call \d+, on thread MainThread", text)
    assert "opened with keep=True or resets=False" in text


def test_report_of_reserved_addresses_names_the_acl_call() -> None:
    found_at = ffi.new("void **")
    text = found(lambda: lib.aio_u_aclrtReserveMemAddress(found_at, 4096, 0, ffi.NULL, 0))["reservations"]
    assert lib.aio_u_aclrtReleaseMemAddress(found_at[0]) == 0
    assert re.search(r"aclrtReserveMemAddress\(.*\), call \d+, on thread MainThread", text)


def test_error_in_the_body_gets_the_report_as_a_note(open_device: OpenDevice) -> None:
    kept: dict[str, aioacl.Device] = {}

    def body() -> None:
        kept["it"] = open_device().result()
        kept.pop("other")

    with pytest.raises(KeyError) as caught:
        found(body)
    assert caught.value.__notes__[0].startswith("aioacl: device 0 is still open; it was made\n")


def destroy_a_dead_event() -> None:
    with pytest.raises(aioacl.AclError):
        lowlevel.functions.aclrtDestroyEvent(ffi.cast("void *", 0x1234))


def findings_of(body: Callable[[], object]) -> list[str]:
    with pytest.raises(AuditFailed) as caught, audit(patience=0.1):
        body()
    return [str(finding) for finding in caught.value.findings]


def test_audit_counts_violations_that_are_no_longer_recorded() -> None:
    def body() -> None:
        for _ in range(300):
            destroy_a_dead_event()

    destroy_a_dead_event()
    first, *rest = findings_of(body)
    assert first == "44 older violations of rules of ACL are no longer recorded"
    assert len(rest) == len(simulator.violations()) == 256
    assert len(findings_of(destroy_a_dead_event)) == 1
    simulator.forget()


def test_simulator_forget_does_not_hide_later_violations() -> None:
    def body() -> None:
        simulator.forget()
        destroy_a_dead_event()

    destroy_a_dead_event()
    destroy_a_dead_event()
    assert len(findings_of(body)) == 1
    simulator.forget()


def test_leak_that_an_inner_audit_reports_is_not_reported_by_the_outer_audit(open_device: OpenDevice) -> None:
    kept: list[aioacl.Device] = []

    def inner() -> None:
        with pytest.raises(AuditFailed), audit():
            kept.append(open_device().result())

    assert found(inner) == {}


# --- origins of handles --------------------------------------------------------------------------------------------


def test_origins_are_not_recorded_without_an_audit(open_device: OpenDevice) -> None:
    assert origin.keeper is None
    device = open_device().result()
    assert origin_of(device) == ""
    device.close().result()
    assert origin.keeper is None


def test_origin_is_the_line_of_the_request(open_device: OpenDevice) -> None:
    with audit():
        device = open_device().result()
        opening = device.create_stream()
        stream = opening.result()
        assert re.fullmatch(r"tests/kit.py:\d+ in opener.<locals>.open_it", origin_of(device))
        assert re.fullmatch(
            r"tests/testing/test_audit.py:\d+ in test_origin_is_the_line_of_the_request", origin_of(stream)
        )
        stream.close().result()
        device.close().result()


@pytest.mark.leaves("streams")
def test_resource_warning_names_the_origin(open_device: OpenDevice) -> None:
    with audit("streams"):
        device = open_device().result()
        stream = device.create_stream().result()
        place = re.escape(origin_of(stream))
        kept = [stream]
        del stream
        with pytest.warns(ResourceWarning, match=rf"a stream was not closed: .* \(made at {place}\)"):
            kept.clear()
        device.close().result()


# --- snapshots -------------------------------------------------------------------------------------------------------


def test_snapshot_calls_no_acl_function(open_device: OpenDevice) -> None:
    device = open_device().result()
    before = simulator.stats().calls
    then = snapshot()
    assert simulator.stats().calls == before
    stream = device.create_stream().result()
    assert snapshot().more_than(then) == {"streams": (0, 1)}
    assert snapshot().more_than(then, "streams") == {}
    assert then.devices == {0}
    stream.close().result()
    device.close().result()


class Equipping(kit.Engine):
    """Equips a device between the first look at the equipped devices and the second."""

    def __init__(self) -> None:
        self.looks = 0

    def aio_equipped(self) -> int:
        self.looks += 1
        return int(lib.aio_equipped()) - (self.looks == 1)


def test_snapshot_counts_again_if_a_device_gets_its_own_stream_meanwhile(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Equipping()
    with open_device() as device, device.create_stream():
        monkeypatch.setattr("aioacl.testing._snapshot.lib", engine)
        assert snapshot().counts["streams"] == 1
    assert engine.looks >= 3


def test_audit_of_an_unknown_name_is_refused() -> None:
    with (
        pytest.raises(
            aioacl.ParameterError, match=r"'thread' .*did you mean 'threads'.* Pass one of .*streams"
        ),
        audit("thread"),
    ):
        pass
