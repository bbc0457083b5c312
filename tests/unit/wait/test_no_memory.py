"""Ports while Python's memory runs out: each allocation of a step fails in turn."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest

from aioacl._base.ffi import ffi, lib
from aioacl._wait.current import current_port
from aioacl._wait.port import LoopPort
from aioacl._wait.trio import TrioPort
from tests.kit import until

if TYPE_CHECKING:
    from collections.abc import Generator

memory = pytest.importorskip("_testcapi", reason="CPython's own test module lets allocations fail")

pytestmark = [pytest.mark.every_loop, pytest.mark.anyio]

MOST = 30  # more than the allocations of a step


@contextmanager
def failing(nth: int) -> Generator[None]:
    """Inside the block, the allocation with this number fails."""
    memory.set_nomemory(nth, nth + 1)
    try:
        yield
    finally:
        memory.remove_mem_hooks()


def complete(port: LoopPort, key: int) -> None:
    """Completes a wait, as the engine does."""
    token = ffi.new("aio_token **")
    assert lib.aio_token_take(port.handle, key, token) == 0
    lib.aio_token_post(token, 7)


def has_all(ended: list[int]) -> bool:
    return len(ended) >= 3  # a delivery may be repeated


@pytest.mark.parametrize("anyio_backend", [("trio", {})], ids=["trio"])
async def test_reader_of_a_trio_run_goes_on_after_a_drain_without_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port, drain = current_port(), TrioPort.drain
    failures = [MemoryError()]
    reported: list[object] = []
    ended: list[int] = []

    def failing_once(self: TrioPort) -> None:
        if failures:
            raise failures.pop()
        drain(self)

    assert isinstance(port, TrioPort)
    monkeypatch.setattr(TrioPort, "drain", failing_once)
    monkeypatch.setattr(sys, "unraisablehook", lambda each: reported.append(each.exc_type))
    complete(port, port.expect(ended.append, None))
    await until(lambda: ended)
    assert (ended, reported) == ([7], [MemoryError])


async def test_drain_without_memory_loses_no_completion() -> None:
    port, raised = current_port(), 0
    assert isinstance(port, LoopPort)
    for nth in range(1, MOST):
        ended: list[int] = []
        for _ in range(3):
            complete(port, port.expect(ended.append, None))
        try:
            with failing(nth):
                port.drain()
        except MemoryError:
            raised += 1
        await until(partial(has_all, ended))
    assert raised
