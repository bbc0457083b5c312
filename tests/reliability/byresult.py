"""What plain threads of a crowd do. They have no loop, so they use `.result()` for everything."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, TypeVar

from aioacl import open_device
from tests.reliability import operations
from tests.reliability.hand import HANGS_SECONDS
from tests.reliability.operations import must

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl import Device, Opening
    from aioacl._handles.operation import Closable
    from tests.reliability.hand import Hand


C = TypeVar("C", bound="Closable")


def _made(stack: ExitStack, opening: Opening[C], timeout: float | None = None) -> C:
    """Creates an object; the exit stack closes it."""
    thing = opening.result(timeout)
    stack.callback(lambda: thing.close().result(HANGS_SECONDS))
    return thing


def there_and_back(hand: Hand, device: Device) -> None:
    """Uploads and downloads, and records an event behind both."""
    sent = hand.bytes()
    answer = bytearray(len(sent))
    with ExitStack() as stack:
        stream = _made(stack, device.create_stream())
        memory = _made(stack, device.allocate(len(sent)), hand.timeout())
        stream.copy(memory, sent).result()
        ticket, mark = stream.copy(answer, memory), stream.record()
        mark.result(hand.timeout())
        must(ticket.done, "an event is done, but the ticket before it is not")
        stream.result()
    must(bytes(answer) == sent, f"{len(sent)} bytes came back changed on a thread")


def leased(hand: Hand, device: Device) -> None:
    """Steps that no reset may separate."""
    with device.lease() as lease:
        generation = device.generation
        there_and_back(hand, device)
        must(
            not lease.held or device.generation == generation,
            "a reset ran between the steps of a thread's lease",
        )


def job(hand: Hand, device: Device) -> None:
    """A job, by the executor and by run()."""
    number = hand.random.randrange(1 << 20)
    must(device.run(hex, number).result() == hex(number), "a job's result is another's")


def look(hand: Hand, device: Device) -> None:
    """Queries, and a wait for all work of the device."""
    found = device.memory_info().result(hand.timeout())
    must(found.free <= found.total, f"{found} cannot be")
    if operations.synchronize in hand.plan.weights:
        device.synchronize(hand.timeout()).result()


def another_open(hand: Hand, device: Device) -> None:
    """The device, opened once more, and closed."""
    with ExitStack() as stack:
        _made(stack, open_device(device.index, hand.waits, **hand.demands()))


def reset(hand: Hand, device: Device) -> None:
    """A force reset, which others may share."""
    hand.landed(device.force_reset(grace=0.01, reason=f"thread {hand.name}").result())


DOES: Final[tuple[Callable[[Hand, Device], None], ...]] = (
    there_and_back,
    there_and_back,
    there_and_back,
    leased,
    job,
    look,
    another_open,
)


def _on_some_device(hand: Hand, operation: Callable[[Hand, Device], None]) -> None:
    device = hand.device()
    with ExitStack() as stack:
        if isinstance(device, int):
            device = _made(stack, open_device(device, hand.waits, **hand.demands()))
        operation(hand, device)


def work(hand: Hand) -> None:
    """The thread's body: does what the plan has for it."""
    while (asked := hand.plan.next(hand.random)) is not None:
        operation = reset if asked is operations.reset else hand.random.choice(DOES)
        hand.begins()
        try:
            _on_some_device(hand, operation)
        except Exception as error:
            hand.ended(operation.__name__, error)
        else:
            hand.plan.ended(hand.crew, operation.__name__, "ok")
