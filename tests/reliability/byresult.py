"""The operations of plain threads in a crowd. Plain threads have no loop, so they use `.result()` for everything."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, TypeVar

from tests.reliability import operations, setting
from tests.reliability.member import HANGS_SECONDS
from tests.reliability.operations import must

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl import Device, Opening
    from aioacl._handles.operation import Closable
    from tests.reliability.member import Member


C = TypeVar("C", bound="Closable")


def _made(stack: ExitStack, opening: Opening[C], timeout: float | None = None) -> C:
    """Creates an object; the exit stack closes it."""
    thing = opening.result(timeout)
    stack.callback(lambda: thing.close().result(HANGS_SECONDS))
    return thing


def there_and_back(member: Member, device: Device) -> None:
    """Copies bytes to the device and back, and records an event after the copies."""
    sent = member.bytes()
    answer = bytearray(len(sent))
    with ExitStack() as stack:
        stream = _made(stack, device.create_stream())
        memory = _made(stack, device.allocate(len(sent)), member.timeout())
        stream.copy(memory, sent).result()
        ticket, mark = stream.copy(answer, memory), stream.record()
        mark.result(member.timeout())
        must(ticket.done, "expected the ticket before a complete event to be done, but it is not")
        stream.result()
    must(
        bytes(answer) == sent,
        f"expected copies to return the {len(sent)} bytes that were sent, got other bytes",
    )


def leased(member: Member, device: Device) -> None:
    """Steps under a lease: no reset may run between them."""
    with device.lease() as lease:
        generation = device.generation
        there_and_back(member, device)
        must(
            not lease.held or device.generation == generation,
            "expected no reset between the steps of a thread's lease, got one",
        )


def job(member: Member, device: Device) -> None:
    """Runs a job by `device.run()`, and checks its result."""
    number = member.random.randrange(1 << 20)
    must(
        device.run(hex, number).result() == hex(number), "expected the result of this job, got another result"
    )


def look(member: Member, device: Device) -> None:
    """Queries the device memory. If the plan has `synchronize`, also waits for all work of the device."""
    found = device.memory_info().result(member.timeout())
    must(found.free <= found.total, f"expected free <= total, got {found}")
    if operations.synchronize in member.plan.weights:
        device.synchronize(member.timeout()).result()


def another_open(member: Member, device: Device) -> None:
    """Opens the device once more, and closes it."""
    with ExitStack() as stack:
        _made(stack, setting.open_device(device.index, member.waits, **member.open_options()))


def reset(member: Member, device: Device) -> None:
    """A force reset; other callers may join it."""
    member.check_report(device.force_reset(grace=0.01, reason=f"thread {member.name}").result())


DOES: Final[tuple[Callable[[Member, Device], None], ...]] = (
    there_and_back,
    there_and_back,
    there_and_back,
    leased,
    job,
    look,
    another_open,
)


def _on_some_device(member: Member, operation: Callable[[Member, Device], None]) -> None:
    device = member.device()
    with ExitStack() as stack:
        if isinstance(device, int):
            device = _made(stack, setting.open_device(device, member.waits, **member.open_options()))
        operation(member, device)


def work(member: Member) -> None:
    """The body of the thread: runs the operations of the plan."""
    while (asked := member.plan.next(member.random)) is not None:
        operation = reset if asked is operations.reset else member.random.choice(DOES)
        member.begins()
        try:
            _on_some_device(member, operation)
        except Exception as error:
            member.ended(operation.__name__, error)
        else:
            member.plan.ended(member.kind, operation.__name__, "ok")
