"""Uses: the list of the work that refers to one buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aioacl import simulator
from aioacl._base.ffi import Core, InFlight, Uses
from tests.kit import equipped, instances, until

if TYPE_CHECKING:
    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio


async def test_work_is_listed_once_in_the_order_of_the_enqueues(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        first, second = (InFlight(stream._core, (memory,), None) for _ in range(2))
        uses = memory._uses
        assert not uses
        for reference in (first, second, first):
            uses.add(reference)
        assert uses
        assert list(uses) == [first, second]
        stream._core._drop(first)
        assert list(uses) == [second]
        uses.add(first)
        assert list(uses) == [second, first]
        for reference in (second, first, second):
            stream._core._drop(reference)
        assert not uses
        assert list(uses) == []


async def test_copy_within_a_buffer_is_one_use_of_it(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        simulator.hold(stream)
        ticket = stream.copy(memory[:8], memory[8:16])
        assert len(list(memory._uses)) == 1
        simulator.release(stream)
        await ticket
        await until(lambda: not memory._uses)


async def test_work_of_two_buffers_is_in_the_uses_of_both(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (device, stream, source), device.allocate(64) as target:
        simulator.hold(stream)
        tickets = [stream.copy(target, source), stream.fill(source, 1)]
        assert list(target._uses) == stream._core.in_flight[:1]
        assert list(source._uses) == stream._core.in_flight
        simulator.release(stream)
        await tickets[1]
        await until(lambda: not source._uses and not target._uses)


async def test_change_during_an_iteration_does_not_affect_it(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream:
        uses = Uses()
        references = [InFlight(stream._core, (), None) for _ in range(3)]
        for reference in references:
            uses.add(reference)
        seen = []
        for reference in uses:
            for each in references:
                stream._core._drop(each)
            seen.append(reference)
        assert seen == references
        assert not uses


@pytest.mark.parametrize("wrong", [None, 1, "reference"])
def test_object_that_is_no_reference_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="expected an InFlight"):
        Uses().add(wrong)


async def test_stream_refuses_references_of_other_streams(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.create_stream() as other:
        reference, unattached = InFlight(stream._core, (), None), Core()
        stream._core._add(reference)
        with pytest.raises(TypeError, match="expected an InFlight of this stream"):
            other._core._drop(reference)
        assert stream._core.in_flight == [reference]
        for core, wrong in (
            (other._core, InFlight(stream._core, (), None)),
            (unattached, InFlight(unattached, (), None)),
        ):
            with pytest.raises(ValueError, match="expected a new InFlight of this stream"):
                core._add(wrong)
        stream._core._drop(reference)


async def test_garbage_collector_frees_a_cycle_through_uses(open_device: OpenDevice) -> None:
    class Holder:
        uses: Uses

    async with open_device() as device, device.create_stream() as stream:
        holder = Holder()
        holder.uses = Uses()
        for _ in range(3):
            holder.uses.add(InFlight(stream._core, (), holder))
        assert instances(Holder) == 1
        del holder
        assert instances(Holder) == 0


async def test_uses_that_are_freed_first_leave_their_references_usable(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream:
        first, second = Uses(), Uses()
        reference = InFlight(stream._core, (), None)
        first.add(reference)
        second.add(reference)
        del first
        assert list(second) == [reference]
        del second
        third = Uses()
        third.add(reference)
        assert list(third) == [reference]
        stream._core._drop(reference)
