"""With trio, Ctrl-C is raised at the next checkpoint while a function of aioacl is on the stack."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

import aioacl
from aioacl._wait import trio as trio_port

if TYPE_CHECKING:
    from types import FrameType

    from tests.kit import OpenDevice

PLACE = str(Path(aioacl.__file__).parent)
OF_WEAK_REFERENCES = {"gone"}  # a nested function that the garbage collector calls


async def work(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        await stream.fill(memory, 1)
        async with device.lease():
            await stream.upload(memory, bytes(64))
        event = stream.record()
        await event
        await stream.synchronize()
        await device.run(int)
        assert (await device.force_reset(grace=0)).ok


@pytest.mark.thorough
def test_functions_that_a_trio_run_calls_are_protected_from_ctrl_c(open_device: OpenDevice) -> None:
    seen: set[str] = set()
    unprotected: set[str] = set()

    def trace(frame: FrameType, _event: str, _argument: Any) -> None:
        if frame.f_code.co_filename.startswith(PLACE):
            seen.add(frame.f_code.co_qualname)
            if not trio.lowlevel.currently_ki_protected():
                unprotected.add(f"{frame.f_code.co_filename}: {frame.f_code.co_name}")

    async def main() -> None:
        await work(open_device)  # the first wait of a process protects the functions
        sys.settrace(trace)
        try:
            await work(open_device)
        finally:
            sys.settrace(None)

    trio.run(main)
    assert {name for name in unprotected if name.rpartition(": ")[2] not in OF_WEAK_REFERENCES} == set()
    assert len(seen) > 50


def test_search_for_functions_of_a_module_while_a_global_is_bound_finds_them() -> None:
    namespace = dict(vars(trio_port))
    found = trio_port._functions(namespace, trio_port.__name__)
    first = next(found)
    namespace["bound_meanwhile"] = None
    assert {first, *found} >= {trio_port.port_of_run, trio_port.TrioPort.wait}
