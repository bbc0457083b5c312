"""examples/service over real sockets: formats, statuses, probes, the admin, clients that go away, the end."""

from __future__ import annotations

import asyncio
import gc
import http.client
import importlib.util
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from contextlib import contextmanager, suppress
from functools import partial
from io import BytesIO
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

import pytest

import aioacl
from aioacl import simulator
from aioacl._base import flight_ring
from aioacl._base.ffi import ffi, flight_note, lib
from aioacl._base.paths import DATA
from tests.kit import FAULT, TASK_FAULT, Raised, until_now
from tests.unit.test_trace import Decoded
from tests.unit.test_trace_device_time import AHEAD_SECONDS, ERROR, device_slices, virtual_clock

np = pytest.importorskip("numpy")
pytest.importorskip("onnxruntime", reason="models need onnxruntime: pip install 'aioacl[onnx]'")
pytest.importorskip("fastapi", reason="the service needs fastapi: pip install 'aioacl[dev]'")
uvicorn = pytest.importorskip("uvicorn", reason="the service needs uvicorn: pip install 'aioacl[dev]'")

if TYPE_CHECKING:
    from collections.abc import Generator

FOLDER: Final = Path(__file__).parents[2] / "examples" / "service"
HOST: Final = "127.0.0.1"
TOKEN: Final = "t" * 32
RAW: Final = "application/octet-stream"
EXECUTE: Final = "aclmdlExecuteAsync"
PATIENCE: Final = 30

digits: Final = np.load(DATA / "digits.npz")
IMAGES: Final = (digits["images"].reshape(-1, 64) / 16).astype("<f4")


class Answer:
    """The status, the headers and the body of an answer."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = answer.status, answer.headers, answer.read()

    @property
    def error(self) -> str:
        return str(json.loads(self.body)["error"])


class Client:
    """Requests to one server, each on a connection of its own."""

    def __init__(self, port: int) -> None:
        self.port = port

    def __call__(
        self, method: str, path: str, body: bytes = b"", *, source: str = HOST, **headers: str
    ) -> Answer:
        connection = http.client.HTTPConnection(HOST, self.port, PATIENCE, source_address=(source, 0))
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        answer = Answer(connection.getresponse())
        connection.close()
        return answer

    def classify(self, body: bytes, kind: str = RAW, **headers: str) -> Answer:
        return self("POST", "/classify", body, content_type=kind, **headers)


@contextmanager
def served(monkeypatch: pytest.MonkeyPatch, token: str = "", **changes: Any) -> Generator[tuple[Client, Any]]:
    """Runs the service on a thread of this process, so that the test can control the simulator."""
    monkeypatch.setenv("AIOACL_ADMIN_TOKEN", token)
    spec = importlib.util.spec_from_file_location("service", FOLDER / "service.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, value in changes.items():
        setattr(module, name, value)
    listening = socket.create_server((HOST, 0))
    # By default, uvicorn closes a connection that sends nothing for 5 seconds. A machine that is so slow could lose the
    # next request. But uvicorn also keeps a connection for as long that its client has closed, and so needs memory.
    server = uvicorn.Server(uvicorn.Config(module.app, log_level="warning", timeout_keep_alive=15))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        assert until_now(lambda: server.started or not thread.is_alive(), PATIENCE)
        yield Client(listening.getsockname()[1]), module
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Generator[Client]:
    with served(monkeypatch) as (made, _):
        yield made


@pytest.fixture(scope="module")
def expected() -> Any:
    """The digits that the model finds in IMAGES."""
    with aioacl.open_device() as device, device.load_model(DATA / "digits_batches.om") as model:
        return np.concatenate([model(IMAGES[at : at + 32]).result() for at in range(0, 96, 32)]).argmax(1)


# --- requests ---------------------------------------------------------------------------------------------------------


def test_each_format_gets_its_digits_in_the_same_format(client: Client, expected: Any) -> None:
    raw = client.classify(IMAGES[:3].tobytes())
    assert (raw.status, list(raw.body)) == (200, list(expected[:3]))
    file = BytesIO()
    np.save(file, IMAGES[:3])
    npy = client.classify(file.getvalue(), "application/x-npy")
    assert np.load(BytesIO(npy.body)).tolist() == expected[:3].tolist()
    for kind in ("application/json; charset=utf-8", "Application/JSON ;charset=utf-8"):
        found = client.classify(json.dumps({"rows": IMAGES[:3].tolist()}).encode(), kind)
        assert json.loads(found.body) == {"digits": expected[:3].tolist()}


def npy_of(header: bytes) -> bytes:
    """A .npy file with any header, and one row."""
    return b"\x93NUMPY\x01\x00v\x00" + header.ljust(117) + b"\n" + bytes(256)


HEADER: Final = b"{'descr': '<f4', 'fortran_order': False, 'shape': (%s, 64), }"


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"123", RAW, 400),
        (b"", RAW, 400),
        (bytes(256 * 33), RAW, 400),  # more rows than a batch has
        (b"not a file", "application/x-npy", 400),
        (npy_of(HEADER % b"99999999999999"), "application/x-npy", 400),
        (npy_of(HEADER % b"True"), "application/x-npy", 400),
        (npy_of(b"{[]: 1}"), "application/x-npy", 400),
        (npy_of(b"{1: 1, 'shape': ()}"), "application/x-npy", 400),
        (npy_of(b"("), "application/x-npy", 400),
        (b'{"rows": [[1, 2]]}', "application/json", 400),
        (b'{"rows": [[1], [1, 2]]}', "application/json", 400),
        (b'{"rows": {"a": 1}}', "application/json", 400),
        (b'{"rows": [[%s]]}' % (b"9" * 400), "application/json", 400),
        (b"[1]", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"{", "application/json", 400),
        (bytes(64 * 4), "text/plain", 415),
        (bytes((1 << 20) + 4), RAW, 413),
    ],
)
def test_request_that_cannot_be_served_is_refused_with_a_reason(
    body: bytes, kind: str, status: int, client: Client
) -> None:
    answer = client.classify(body, kind)
    assert answer.status == status
    assert answer.error
    assert client.classify(IMAGES[:1].tobytes()).status == 200


def test_failed_execution_of_a_request_gets_500(client: Client) -> None:
    with simulator.fault(EXECUTE, every=1, async_error=TASK_FAULT):
        answer = client.classify(IMAGES[:1].tobytes())
    assert (answer.status, answer.error) == (500, "the execution of this request failed")
    assert client.classify(IMAGES[:1].tobytes()).status == 200


def test_device_that_fails_is_reset_and_the_request_is_repeated(client: Client, expected: Any) -> None:
    with simulator.fault(EXECUTE, nth=1, async_error=FAULT, sticky=FAULT):
        answer = client.classify(IMAGES[:1].tobytes())
    assert (answer.status, answer.body[0]) == (200, expected[0])


def test_status_of_each_error_follows_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch) as (_, module):
        secret = "a secret text"
        made = {
            aioacl.QueueFull(secret): (503, "1"),
            aioacl.DeviceTimeout(secret): (504, None),
            aioacl.DeviceReset(secret): (503, "1"),
            aioacl.DeviceQuarantined(secret): (503, "1"),
            aioacl.DeviceFault(secret, code=TASK_FAULT): (500, None),
            aioacl.DeviceFault(secret, code=FAULT): (503, "1"),
            aioacl.ParameterError(secret): (503, "1"),  # of an await: the batcher was closed
        }
        for error, (status, retry_after) in made.items():
            refused = module.refusal_of(error)
            assert (refused.status, refused.headers.get("Retry-After")) == (status, retry_after), error
            assert secret not in str(refused)


def holds(module: Any, rows: int) -> bool:
    """Whether so many rows run or wait."""
    stats = module.state.infer.stats()
    return bool(stats.running * 32 + stats.waiting == rows)


def test_full_queue_gets_503_with_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch, MOST_WAITING=32) as (client, module):
        simulator.hang_call(EXECUTE)
        full = list[Raised]()
        for rows in (32, 64, 96):  # two batches are in flight, and one waits
            full.append(Raised(lambda: client.classify(IMAGES[:32].tobytes())))
            assert until_now(partial(holds, module, rows), PATIENCE)
        answer = client.classify(IMAGES[:1].tobytes())
        assert (answer.status, answer.error) == (503, "the queue is full")
        assert int(answer.headers["Retry-After"]) >= 1
        simulator.release_call(EXECUTE)
        assert [each.join().status for each in full] == [200, 200, 200]


# --- clients that go away ---------------------------------------------------------------------------------------------


def test_item_of_a_client_that_goes_away_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch) as (client, module):
        simulator.hang_call(EXECUTE)
        busy = [socket.create_connection((HOST, client.port)) for _ in range(80)]  # two executions run 64
        body = IMAGES[:1].tobytes()
        head = f"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Type: {RAW}\r\nContent-Length: {len(body)}\r\n\r\n"
        for connection in busy:
            connection.sendall(head.encode() + body)
        stats = module.state.infer.stats
        assert until_now(lambda: stats().rows + stats().waiting == len(busy), PATIENCE)
        waiting = stats().waiting
        for connection in busy:
            connection.close()
        assert until_now(lambda: stats().waiting == 0, PATIENCE)
        assert stats().cancelled >= waiting
        rows = stats().rows
        simulator.release_call(EXECUTE)
        assert until_now(lambda: stats().running == 0, PATIENCE)
        assert stats().rows == rows  # no item that waited has run
        assert client.classify(body).status == 200


def test_client_that_goes_away_inside_its_body_ends_its_request_without_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with served(monkeypatch) as (client, module):
        read, statuses = module.body_of, list[int]()

        async def body_of(request: Any) -> Any:
            try:
                return await read(request)
            except module.Refused as refused:
                statuses.append(refused.status)
                raise

        module.body_of = body_of
        connection = socket.create_connection((HOST, client.port))
        head = f"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Type: {RAW}\r\nContent-Length: 256\r\n\r\n"
        connection.sendall(head.encode() + bytes(100))
        connection.close()
        assert until_now(lambda: statuses == [module.GONE], PATIENCE)
        assert client.classify(IMAGES[:1].tobytes()).status == 200
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


# --- probes and metrics -----------------------------------------------------------------------------------------------


def test_probes_answer_without_a_text_of_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch) as (client, module):
        assert [client("GET", path).body for path in ("/readyz", "/livez")] == [b"ready", b"live"]
        simulator.fail_call("aclrtSetDevice", FAULT, 100)
        module.state.device.force_reset().result()
        answers = [client("GET", path) for path in ("/readyz", "/livez")]
        assert [(answer.status, answer.body) for answer in answers] == [(503, b"not ready"), (200, b"live")]
        assert client.classify(IMAGES[:1].tobytes()).status in (503, 504)
        simulator.clear()
        module.state.device.force_reset().result()
        assert client("GET", "/readyz").status == 200


def test_liveness_fails_while_a_call_does_not_return(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch) as (client, module):
        monkeypatch.setattr(module, "STUCK_SECONDS", 0.0)
        assert client("GET", "/livez").status == 503


@pytest.mark.parametrize(
    ("accept", "kind", "last"),
    [
        ("*/*", "text/plain; version=0.0.4; charset=utf-8", "aioacl_"),
        (
            "application/openmetrics-text;version=1.0.0",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            "# EOF",
        ),
    ],
)
def test_metrics_follow_the_accept_header(accept: str, kind: str, last: str, client: Client) -> None:
    client.classify(IMAGES[:1].tobytes())
    answer = client("GET", "/metrics", accept=accept)
    text = answer.body.decode()
    assert answer.headers["Content-Type"] == kind
    assert 'aioacl_batch_items_total{model="digits_batches.om",outcome="done"}' in text
    assert text.splitlines()[-1].startswith(("# TYPE aioacl_", last))


# --- the admin --------------------------------------------------------------------------------------------------------


def test_reset_does_not_exist_without_a_token(client: Client) -> None:
    assert client("POST", "/admin/reset").status == 404
    assert client("POST", "/admin/reset", authorization="Bearer ").status == 404


def test_short_token_is_an_error_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(ValueError, match="AIOACL_ADMIN_TOKEN must have at least 32 characters"),
        served(monkeypatch, "t" * 31),
    ):
        pass


def test_reset_needs_the_token_and_this_host_and_is_limited_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "service")
    with served(monkeypatch, TOKEN) as (client, module):

        def reset(token: str, source: str = HOST) -> Answer:
            return client("POST", "/admin/reset", authorization=f"Bearer {token}", source=source)

        generation = module.state.device.generation
        assert [reset(token).status for token in ("", "t" * 31, "\xff" * 32)] == [401, 401, 401]
        assert reset(TOKEN, "127.0.0.2").status == 403
        assert module.state.device.generation == generation
        assert json.loads(reset(TOKEN).body) == {"ok": True, "generation": generation + 1}
        second = reset(TOKEN)
        assert (second.status, 0 < int(second.headers["Retry-After"]) <= 60) == (429, True)
        assert module.state.device.generation == generation + 1
    messages = [record.getMessage() for record in caplog.records if record.name == "service"]
    assert "127.0.0.1 has sent a wrong token" in messages[0]
    assert any("127.0.0.2 is another host" in message for message in messages)
    assert any(message == "127.0.0.1 requests a reset" for message in messages)
    assert not any(TOKEN in message for message in messages)


def test_token_with_other_characters_than_ascii_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    token = "\xfc" * 32
    with served(monkeypatch, token) as (client, _):
        sent = token.encode().decode("latin-1")  # a shell and curl send UTF-8
        assert client("POST", "/admin/reset", authorization=f"Bearer {sent}").status == 200


def test_reset_from_another_host_is_possible_if_the_operator_allows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIOACL_ADMIN_FROM_ANYWHERE", "1")
    with served(monkeypatch, TOKEN) as (client, _):
        answer = client("POST", "/admin/reset", authorization=f"Bearer {TOKEN}", source="127.0.0.2")
        assert answer.status == 200


# --- a trace ----------------------------------------------------------------------------------------------------------


def test_trace_of_the_service_has_all_its_work_with_arrows_and_true_times_of_the_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The clock of the device is ahead, and a reset comes between the requests."""
    path, brackets = tmp_path / "run.pftrace", list[tuple[int, int]]()
    with virtual_clock():
        simulator.advance_clock(AHEAD_SECONDS)
    with (
        aioacl.trace(path, html=tmp_path / "run.html", device_time=True),
        served(monkeypatch, TOKEN) as (client, _),
    ):
        for number in range(12):
            if number == 6:
                assert client("POST", "/admin/reset", authorization=f"Bearer {TOKEN}").status == 200
            before = time.monotonic_ns()
            assert client.classify(IMAGES[:1].tobytes()).status == 200
            brackets.append((before, time.monotonic_ns()))
    found = Decoded(path.read_bytes())
    assert not [begin.name for begin, end in found.slices() if "unfinished" in end.values]
    linked, alone = found.arrows()
    assert (len(linked) >= len(brackets), alone) == (True, [])
    chains: defaultdict[int, list[str]] = defaultdict(list)
    for event in found.events:
        for flow in event.flows:
            chains[flow].append(event.name)
    items = [chain for chain in chains.values() if "item done" in chain]
    assert items == [["item", "item", "item done"]] * len(brackets)  # the item, its batch, its end
    assert len(found.named("generation")) == 2
    assert {begin.name for begin, _ in found.slices()} >= {"DRAINING", "RESETTING", "OPEN", "load"}
    executions = [pair for pair in device_slices(found) if pair[0].name == EXECUTE]
    assert all(end.values[ERROR] < AHEAD_SECONDS * 1e6 for _, end in executions)  # a thousandth of the offset
    seen = {flow: end.at for begin, end in found.named("execution") for flow in begin.flows}
    assert all(end.at <= seen[flow] + end.values[ERROR] for begin, end in executions for flow in begin.flows)
    for before, after in brackets[6:]:  # the reset may have come before the times of the others were read
        assert [
            begin
            for begin, end in executions
            if before - end.values[ERROR] <= begin.at <= end.at <= after + end.values[ERROR]
        ]
    shown = json.loads(
        (tmp_path / "run.html").read_text().partition('id="data">')[2].partition("</script>")[0]
    )
    names = {shown["names"][str(each[1])] for each in shown["slices"]}
    assert names >= {"await", "execution", "item", "RESETTING", EXECUTE}


# --- load -------------------------------------------------------------------------------------------------------------

ALLOWED: Final = {200, 500, 503, 504}


class Load:
    """What the clients have counted: answers by status, answers with a wrong digit, requests without an answer."""

    def __init__(self, expected: Any, seconds: float) -> None:
        self.expected = expected
        self.answers: Counter[int] = Counter()
        self.sent = self.wrong = 0
        self.memory: list[float] = []  # of this process, which is both the service and its clients
        self.seconds = seconds
        self.end = time.monotonic() + seconds

    def over(self) -> bool:
        return time.monotonic() > self.end

    @property
    def lost(self) -> int:
        return self.sent - self.answers.total()

    def grown(self) -> float:
        """The mean of the memory in the last third of the load, divided by that in the second third."""
        third = len(self.memory) // 3
        return fmean(self.memory[-third:]) / fmean(self.memory[third : 2 * third])


async def ask(port: int, load: Load) -> None:
    """Sends one request after another over one connection, and counts the answers."""
    reader, writer = await asyncio.open_connection(HOST, port)
    number = 0
    while not load.over():
        at = number = (number + 1) % 90
        body = IMAGES[at : at + 1].tobytes()
        head = f"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Type: {RAW}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        load.sent += 1
        answer = await reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().partition(b"content-length: ")[2].split(b"\r")[0])
        found = await reader.readexactly(length)
        status = int(answer.split()[1])
        load.answers[status] += 1
        load.wrong += status == 200 and found[0] != load.expected[at]
    writer.close()


async def leave(port: int, load: Load) -> None:
    """Sends requests, and goes away before the answer."""
    body = IMAGES[:1].tobytes()
    head = f"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Type: {RAW}\r\nContent-Length: {len(body)}\r\n\r\n"
    while not load.over():
        _, writer = await asyncio.open_connection(HOST, port)
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        await asyncio.sleep(0.01)


async def operate(device: aioacl.Device, load: Load, pause: float) -> None:
    """Resets the device again and again. After a quarter, the device fails until a reset; after half, a call hangs.

    So what the process allocates once for these two is not in the last third.
    """
    rounds = int(load.seconds / pause)
    for number in range(1, rounds):
        await asyncio.sleep(pause)
        if number == rounds // 4:
            with simulator.fault(EXECUTE, nth=1, async_error=FAULT, sticky=FAULT):
                await asyncio.sleep(pause / 2)
        elif number == rounds // 2:
            simulator.hang_call(EXECUTE)
            await asyncio.sleep(pause / 2)
            simulator.release_call(EXECUTE)
        await asyncio.to_thread(device.force_reset().result)


def resident() -> float:
    """The memory of this process, in pages."""
    return float(Path("/proc/self/statm").read_text().split()[1])


async def weigh(load: Load) -> None:
    """Notes the memory of this process."""
    while not load.over():
        load.memory.append(resident())
        await asyncio.sleep(0.1)


def fill_rings() -> None:
    """Fills the journal of the simulator and the flight recorder: the system counts their memory when it is written."""
    count = ffi.new("uint32_t *")
    for _ in range(flight_ring.SLOTS):  # the journal has as many entries
        lib.aio_u_aclrtGetDeviceCount(count)
        flight_note(lib.AIO_FLIGHT_WAKE, -1, 0, 0, 0)


def loaded(monkeypatch: pytest.MonkeyPatch, expected: Any, seconds: float, pause: float) -> Load:
    """64 connections, clients that go away, resets, random failures of tasks, one of the device, and one hang."""

    async def main(port: int, device: aioacl.Device) -> Load:
        load = Load(expected, seconds)
        await asyncio.gather(
            operate(device, load, pause),
            weigh(load),
            *(leave(port, load) for _ in range(2)),
            *(ask(port, load) for _ in range(64)),
        )
        return load

    with served(monkeypatch) as (client, module), simulator.fault(EXECUTE, p=0.01, async_error=TASK_FAULT):
        load = asyncio.run(main(client.port, module.state.device))
        assert until_now(lambda: client("GET", "/readyz").status == 200, PATIENCE)
    assert load.answers.keys() <= ALLOWED
    assert (load.lost, load.wrong) == (0, 0)
    return load


def test_load_with_failures_and_resets_gets_right_answers_only(
    monkeypatch: pytest.MonkeyPatch, expected: Any
) -> None:
    assert loaded(monkeypatch, expected, 10.0, 1.0).answers[200] > 100


@pytest.mark.slow
def test_a_minute_of_load_with_failures_and_resets_gets_right_answers_only_and_needs_no_more_memory(
    monkeypatch: pytest.MonkeyPatch, expected: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "aioacl")  # pytest keeps each record
    fill_rings()
    load = loaded(monkeypatch, expected, 60.0, 5.0)
    print(dict(load.answers), "memory of the last third:", load.grown())
    assert load.answers[200] > 1000
    assert load.grown() <= 1.01


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def process() -> Generator[tuple[subprocess.Popen[str], Client]]:
    """The service in a process of its own, started as its README says."""
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    environ = {**os.environ, "AIOACL_LIBRARY": "simulator", "SERVICE_STOP_SECONDS": "1"}
    command = [sys.executable, "-m", "uvicorn", "service:app", "--app-dir", str(FOLDER), "--port", str(port)]
    with subprocess.Popen(
        [*command, "--timeout-graceful-shutdown", "20"], env=environ, stderr=subprocess.PIPE, text=True
    ) as started:
        client = Client(port)

        def answers() -> bool:
            with suppress(OSError):
                # A connection from the same address to a free port may be one to itself.
                return client("GET", "/readyz", source="127.0.0.2").status == 200
            return False

        try:
            assert until_now(answers, PATIENCE)
            yield started, client
        finally:
            started.kill()


def test_sigterm_fails_the_readiness_probe_first_and_then_ends_the_service(
    process: tuple[subprocess.Popen[str], Client],
) -> None:
    started, client = process
    started.send_signal(signal.SIGTERM)
    assert until_now(lambda: client("GET", "/readyz").status == 503, PATIENCE)
    assert client.classify(IMAGES[:1].tobytes()).status == 200  # it still serves
    _, errors = started.communicate(timeout=PATIENCE)
    assert started.returncode in (0, -signal.SIGTERM)
    assert "Application shutdown complete" in errors
    assert (
        "INFO aioacl.device: device 0 opened" in errors
    )  # the log of a service that was started as its README says
    assert "Traceback" not in errors


def test_end_of_the_service_restores_the_threshold_of_the_garbage_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = gc.get_threshold()
    with served(monkeypatch) as (_, module):
        assert gc.get_threshold() == (module.NEW_OBJECTS, *before[1:])
    assert gc.get_threshold() == before


def test_readme_of_the_service_names_what_the_program_reads() -> None:
    text, program = (FOLDER / "README.md").read_text(), (FOLDER / "service.py").read_text()
    for name in ("AIOACL_ADMIN_TOKEN", "AIOACL_ADMIN_FROM_ANYWHERE", "SERVICE_MODEL", "SERVICE_STOP_SECONDS"):
        assert name in program
        assert name in text
