"""`model.enqueue(inputs, outputs)`: executions on the model's stream, with memory of the caller."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import aioacl
from aioacl import simulator
from tests.kit import Raised, no_call, until_now
from tests.support import offline
from tests.support.interrupts import walk
from tests.support.offline import WEIGHTS, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

FAILED = 507011
INPUT, OUTPUT = 24, 32


class Memory:
    """Device memory for one execution of `offline.product()`."""

    def __init__(self, device: aioacl.Device) -> None:
        self.x: Any = device.allocate(INPUT).result()
        self.y: Any = device.allocate(OUTPUT).result()

    def close(self) -> None:
        for buffer in (self.x, self.y):
            buffer.close().result()


@pytest.fixture
def memory(device: aioacl.Device) -> Generator[Memory]:
    made = Memory(device)
    yield made
    made.close()


def fetched(stream: aioacl.Stream, memory: Memory) -> Any:
    """The output, which a copy after the execution fetches."""
    back = np.zeros((2, 4), np.float32)
    stream.copy(back, memory.y).result()
    return back


def run(model: aioacl.Model, memory: Memory, first: float = 0) -> Any:
    """Uploads, executes and downloads on the model's stream."""
    model.stream.copy(memory.x, rows(first))
    model.enqueue(memory.x, memory.y)
    return fetched(model.stream, memory)


def test_execution_runs_in_the_order_of_the_stream(model: aioacl.Model, memory: Memory) -> None:
    for first in range(5):
        assert np.array_equal(run(model, memory, first), rows(first) @ WEIGHTS)


def test_ticket_ends_when_the_execution_ends(model: aioacl.Model, memory: Memory) -> None:
    with simulator.held(model.stream):
        ticket = model.enqueue(memory.x, memory.y)
        assert "not known to be done" in repr(ticket)
    ticket.result()
    assert ticket.done
    assert offline.executions() == 1


def test_work_of_another_stream_joins_through_an_event(
    device: aioacl.Device, model: aioacl.Model, memory: Memory
) -> None:
    with device.create_stream() as stream:
        simulator.hold(stream)
        stream.copy(memory.x, rows(3))
        model.stream.wait_event(stream.record())
        ticket = model.enqueue(memory.x, memory.y)
        assert not ticket.done
        simulator.release(stream)
        ticket.result()
        assert np.array_equal(fetched(model.stream, memory), rows(3) @ WEIGHTS)


def test_several_inputs_and_outputs_are_passed_by_list_or_by_name(device: aioacl.Device) -> None:
    a, b = rows(1), rows(5) * 2
    with (
        device.load_model(offline.sums()) as model,
        device.allocate(INPUT) as one,
        device.allocate(INPUT) as two,
        device.allocate(INPUT) as plus,
        device.allocate(INPUT) as minus,
    ):
        model.stream.copy(one, a)
        model.stream.copy(two, b)
        forms: list[tuple[Any, Any]] = [
            ([one, two], (plus, minus)),
            ({"b": two, "a": one}, {"minus": minus, "plus": plus}),
        ]
        for inputs, outputs in forms:
            model.stream.fill(plus, 0)
            model.stream.fill(minus, 0)
            model.enqueue(inputs, outputs)
            back = np.zeros((2, 2, 3), np.float32)
            model.stream.copy(back[0], plus)
            model.stream.copy(back[1], minus).result()
            assert np.array_equal(back[0], a + b)
            assert np.array_equal(back[1], a - b)


def test_views_and_larger_buffers_are_taken(device: aioacl.Device, model: aioacl.Model) -> None:
    with device.allocate(1024) as whole:
        x, y = whole[64 : 64 + INPUT], whole[512:]
        model.stream.copy(x, rows(2))
        model.enqueue(x, y)
        back = np.zeros((2, 4), np.float32)
        model.stream.copy(back, y[:OUTPUT]).result()
    assert np.array_equal(back, rows(2) @ WEIGHTS)


def test_enqueue_while_a_call_runs_is_refused(model: aioacl.Model, memory: Memory) -> None:
    offline.hold(model)
    blocked = Raised(lambda: model(rows()).result())
    assert until_now(offline.enqueued)
    with pytest.raises(aioacl.QueueFull) as caught:
        model.enqueue(memory.x, memory.y)
    assert caught.value.message == (
        "a call of the model is running, and one instance runs on one stream at a time"
    )
    assert caught.value.hint == (
        "Await the calls first, or load the model with instances=2 for calls and enqueue together."
    )
    offline.release(model)
    blocked.join()
    assert np.array_equal(run(model, memory), rows() @ WEIGHTS)


def test_call_waits_for_enqueued_executions(model: aioacl.Model, memory: Memory) -> None:
    simulator.hold(model.stream)
    tickets = [model.enqueue(memory.x, memory.y) for _ in range(3)]
    blocked = Raised(lambda: model(rows(4)).result())
    assert until_now(lambda: offline.load_of(model).slots.free == 1)
    assert blocked.running
    simulator.release(model.stream)
    assert np.array_equal(blocked.join(), rows(4) @ WEIGHTS)
    assert all(ticket.done for ticket in tickets)
    assert simulator.violations() == []


def test_second_instance_takes_enqueued_executions_while_calls_run(
    device: aioacl.Device, memory: Memory
) -> None:
    with device.load_model(offline.product(), slots=1, instances=2) as model:
        simulator.hold(offline.streams_of(model)[0])
        blocked = Raised(lambda: model(rows(1)).result())
        assert until_now(offline.enqueued)
        assert np.array_equal(run(model, memory, 2), rows(2) @ WEIGHTS)
        assert blocked.running
        simulator.release(offline.streams_of(model)[0])
        assert np.array_equal(blocked.join(), rows(1) @ WEIGHTS)


def test_failure_fails_the_stream_until_it_is_renewed_and_no_call(
    device: aioacl.Device, model: aioacl.Model, memory: Memory
) -> None:
    failed, unknown = device.health.failed_tasks, device.health.unknown_failures
    with simulator.fault("model", nth=1, async_error=FAILED), pytest.raises(aioacl.DeviceFault) as caught:
        model.enqueue(memory.x, memory.y).result()
    assert caught.value.code == FAILED
    assert np.array_equal(model(rows(6)).result(), rows(6) @ WEIGHTS)
    with pytest.raises(aioacl.DeviceFault):
        model.enqueue(memory.x, memory.y)
    model.stream.renew().result()
    assert np.array_equal(run(model, memory, 1), rows(1) @ WEIGHTS)
    assert until_now(lambda: device.health.failed_tasks == failed + 1)
    assert device.health.unknown_failures == unknown


def test_failure_counts_for_each_unfinished_execution_of_its_thread(
    device: aioacl.Device, model: aioacl.Model, memory: Memory
) -> None:
    """The runtime reports only the thread, so aioacl cannot tell which of the two has failed."""
    unknown = device.health.unknown_failures
    with device.load_model(offline.product()) as other:
        second = Memory(device)
        simulator.hold(model.stream)
        simulator.hold(other.stream)
        with simulator.fault("model", nth=1, async_error=FAILED):
            tickets = [model.enqueue(memory.x, memory.y), other.enqueue(second.x, second.y)]
            simulator.release(model.stream)
            with pytest.raises(aioacl.DeviceFault):
                tickets[0].result()
            simulator.release(other.stream)
            with pytest.raises(aioacl.DeviceFault):
                tickets[1].result()
        assert device.health.unknown_failures == unknown
        for failed in (model, other):
            failed.stream.renew().result()
        assert np.array_equal(run(other, second), rows() @ WEIGHTS)
        second.close()


def test_memory_is_kept_until_the_execution_is_done(device: aioacl.Device, model: aioacl.Model) -> None:
    memory = Memory(device)
    alive = weakref.ref(memory.x), weakref.ref(memory.y)
    simulator.hold(model.stream)
    ticket = model.enqueue(memory.x, memory.y)
    memory.close()
    del memory
    gc.collect()
    assert simulator.violations() == []
    assert all(ref() is not None for ref in alive)
    simulator.release(model.stream)
    ticket.result()
    assert until_now(lambda: all(ref() is None for ref in alive))


def test_close_of_the_model_waits_for_enqueued_executions(device: aioacl.Device, memory: Memory) -> None:
    model = device.load_model(offline.product()).result()
    stream = model.stream
    simulator.hold(stream)
    ticket = model.enqueue(memory.x, memory.y)
    closing = Raised(lambda: model.close().result())
    assert until_now(lambda: "closed" in repr(model))
    assert closing.running
    assert len(simulator.models()) == 1
    simulator.release(stream)
    closing.join()
    assert simulator.models() == ()
    assert ticket.done
    assert simulator.violations() == []


# --- refused buffers --------------------------------------------------------------------------------------------

ALLOCATE_HINT = "Allocate the buffer on the device of the model, with the size in `model.inputs`."
KIND_HINT = "Allocate them with device.allocate(), and upload to them; or call the model with arrays."


class Scene:
    """What the rows use."""

    def __init__(self, device: aioacl.Device, other: aioacl.Device, memory: Memory) -> None:
        self.x, self.y = memory.x, memory.y
        self.small: Any = device.allocate(INPUT - 1).result()
        self.foreign: Any = other.allocate(64).result()
        self.closed: Any = device.allocate(64).result()
        self.closed.close().result()
        self.pinned: Any = device.pinned(64).result()


REFUSED: dict[str, tuple[Callable[[Scene], tuple[Any, Any]], str, str]] = {
    "too small an input": (
        lambda s: (s.small, s.y),
        "input 'x': expected at least 24 bytes on device 0, got 23 bytes on device 0",
        ALLOCATE_HINT,
    ),
    "too small an output": (
        lambda s: (s.x, s.x),
        "output 'y': expected at least 32 bytes on device 0, got 24 bytes on device 0",
        ALLOCATE_HINT,
    ),
    "another device": (
        lambda s: (s.foreign, s.y),
        "input 'x': expected at least 24 bytes on device 0, got 64 bytes on device 1",
        ALLOCATE_HINT,
    ),
    "closed": (lambda s: (s.x, s.closed), "the device buffer is closed", "Make a new device buffer."),
    "pinned": (
        lambda s: (s.pinned, s.y),
        "expected a DeviceBuffer for each input ('x' of 24 bytes), got a PinnedBuffer",
        KIND_HINT,
    ),
    "array": (
        lambda s: (s.x, np.zeros((2, 4), np.float32)),
        "expected a DeviceBuffer for each output ('y' of 32 bytes), got a ndarray",
        KIND_HINT,
    ),
    "too many": (lambda s: ([s.x, s.x], s.y), "expected 1 input ('x'), got 2", KIND_HINT),
    "none": (lambda s: ([], s.y), "expected 1 input ('x'), got 0", KIND_HINT),
    "wrong name": (
        lambda s: ({"x": s.x}, {"z": s.y}),
        "expected outputs named 'y', got 'z'",
        "Pass one array for each name, and nothing else; the model lists them in `model.outputs`.",
    ),
}


@pytest.mark.parametrize(("choose", "message", "hint"), REFUSED.values(), ids=REFUSED)
def test_wrong_buffer_is_refused_without_a_call_of_acl(
    device: aioacl.Device,
    model: aioacl.Model,
    memory: Memory,
    choose: Callable[[Scene], tuple[Any, Any]],
    message: str,
    hint: str,
) -> None:
    with aioacl.open_device(1) as other:
        scene = Scene(device, other, memory)
        inputs, outputs = choose(scene)
        with no_call(), pytest.raises(aioacl.ParameterError) as caught:
            model.enqueue(inputs, outputs)
        assert (caught.value.message, caught.value.hint) == (message, hint)
        for buffer in (scene.small, scene.foreign, scene.pinned):
            buffer.close().result()


def test_model_with_gears_refuses_enqueue(device: aioacl.Device, memory: Memory) -> None:
    for source in (offline.product("2,4"), offline.negated_image(), offline.dims()):
        with device.load_model(source) as model:
            with pytest.raises(aioacl.ParameterError) as caught:
                model.enqueue(memory.x, memory.y)
            assert caught.value.message == "expected a model with fixed shapes, got one with gears"
            assert caught.value.hint == "Call the model instead: `await model(x)` selects the gear."


def test_buffer_from_before_a_reset_is_refused(device: aioacl.Device) -> None:
    with device.load_model(offline.product()) as model:
        memory = Memory(device)
        assert device.force_reset().result().ok
        for use in (lambda: model.enqueue(memory.x, memory.y), lambda: model.stream):
            with pytest.raises(aioacl.StaleHandleError) as caught:
                use()
            assert caught.value.message == "the device was reset after the model was loaded"
        model(rows()).result()
        with pytest.raises(aioacl.StaleHandleError, match="buffer"):
            model.enqueue(memory.x, memory.y)
        fresh = Memory(device)
        assert np.array_equal(run(model, fresh), rows() @ WEIGHTS)
        fresh.close()


def test_list_that_changes_during_enqueue_is_read_once(model: aioacl.Model, memory: Memory) -> None:
    class Changing(list[Any]):
        reads = 0

        def __iter__(self) -> Iterator[Any]:
            self.reads += 1
            return iter([memory.x] if self.reads == 1 else [memory.x[:4]])

    inputs = Changing([memory.x])
    model.enqueue(inputs, memory.y).result()
    assert inputs.reads == 1


def test_enqueue_that_is_interrupted_loses_no_dataset(model: aioacl.Model, memory: Memory) -> None:
    def check() -> None:
        model.stream.result()
        model.stream.record().result()  # releases what the execution used
        assert until_now(lambda: simulator.stats().descriptions == before)

    model.enqueue(memory.x, memory.y)
    model.stream.result()
    before = simulator.stats().descriptions
    assert walk(lambda: model.enqueue(memory.x, memory.y), check) > 20
