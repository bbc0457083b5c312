"""Rules of `fault()`: which calls they match, when they fire, their text, and their counts."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import ffi
from tests.kit import in_thread
from tests.simulator.rawacl import DEVICE, device, fill, malloc, new_memory, new_stream, query, rc

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = "aclrtGetDeviceCount"


def fired(calls: int, **options: Any) -> list[int]:
    """The numbers, from 1, of the calls on which the rule fires."""
    with simulator.fault(COUNT, rc=507000, **options) as fault:
        hit = [call for call in range(1, calls + 1) if query()]
    assert (fault.hits, fault.matches) == (len(hit), calls)
    return hit


# --- conditions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({"times": 2}, [1, 2]),
        ({"times": -1}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({"nth": 3}, [3]),
        ({"nth": 3, "times": 2}, [3, 4]),
        ({"after": 5}, [6, 7, 8]),
        ({"after": 5, "times": 1}, [6]),
        ({"every": 3}, [3, 6]),
        ({"every": 3, "after": 1}, [4, 7]),
        ({"every": 2, "nth": 3}, [3, 5, 7]),
        ({"p": 0.0}, []),
        ({"p": 1}, [1, 2, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_rule_with_conditions_fires_on_the_expected_calls(
    options: dict[str, Any], expected: list[int]
) -> None:
    assert fired(8, **options) == expected


def test_rule_per_thread_counts_each_thread_separately() -> None:
    with simulator.fault(COUNT, nth=2, per_thread=True, rc=507000) as fault:
        assert [query(), query(), query()] == [0, 507000, 0]
        assert in_thread(lambda: [query(), query(), query()]) == [0, 507000, 0]
    assert (fault.hits, fault.matches) == (2, 6)


# --- matching calls -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "which", ["aclrtMalloc", "alloc", "memory", "lifetime", "*", "aclrtMall*", "event|alloc"]
)
def test_rule_for_functions_or_groups_matches_their_calls(which: str) -> None:
    with device(), simulator.fault(which, rc=207001, nth=1) as fault:
        assert malloc() == 207001
        assert fault.hits == 1


def test_rule_for_other_functions_does_not_match() -> None:
    with device(), simulator.fault("copy|stream|event", rc=207001) as fault:
        assert malloc() == 0
        assert fault.matches == 0


def test_rule_for_a_device_fires_on_that_device_only() -> None:
    def set_both() -> tuple[int, int]:
        first, second = rc("aclrtSetDevice", 0), rc("aclrtSetDevice", 1)
        for index in (0, 1):
            rc("aclrtResetDevice", index)
        return first, second

    with simulator.fault("aclrtSetDevice", device=1, rc=507033) as fault:
        assert in_thread(set_both) == (0, 507033)
        assert fault.matches == 1


def test_rule_for_a_stream_id_fires_on_that_stream_only() -> None:
    with device():
        memory, one, two = new_memory(), new_stream(), new_stream()
        number = ffi.new("int32_t *")
        assert rc("aclrtStreamGetId", two, number) == 0
        with simulator.fault("copy", stream=number[0], rc=507000) as fault:
            assert (fill(memory, one), fill(memory, two)) == (0, 507000)
        with simulator.fault(f"copy:stream={int(ffi.cast('uintptr_t', one)):#x}:rc=507000"):
            assert (fill(memory, one), fill(memory, two)) == (507000, 0)
        assert fault.matches == 1


@pytest.mark.anyio
async def test_rule_for_an_aioacl_stream_fires_on_that_stream_only() -> None:
    async with (
        aioacl.open_device(DEVICE) as one,
        one.create_stream() as stream,
        one.create_stream() as other,
        one.allocate(64) as memory,
    ):
        with simulator.fault("copy", stream=stream, rc=507000):
            await other.fill(memory, 1)
            with pytest.raises(aioacl.DeviceFault):
                stream.fill(memory, 1)


def test_rule_for_a_raw_stream_handle_fires_on_that_stream_only() -> None:
    with device():
        memory, one, two = new_memory(), new_stream(), new_stream()
        with simulator.fault("copy", stream=two, rc=507000) as fault:
            assert (fill(memory, one), fill(memory, two)) == (0, 507000)
        with simulator.fault("copy", stream=int(ffi.cast("uintptr_t", one)), rc=507000):
            assert (fill(memory, one), fill(memory, two)) == (507000, 0)
        assert fault.rule == f"copy:stream={int(ffi.cast('uintptr_t', two)):#x}:rc=507000"


@pytest.mark.parametrize("wrong", [True, "one", 1.5, ffi.NULL, ffi.new("aclrtStream *")])
def test_rule_for_a_value_that_is_not_a_stream_raises_parameter_error(wrong: Any) -> None:
    with pytest.raises(aioacl.ParameterError, match="expected a stream, got"):
        simulator.fault("copy", stream=wrong, rc=507000)


@pytest.mark.parametrize(("size", "code"), [(4095, 0), (4096, 207001), (8192, 207001), (8193, 0)])
def test_rule_for_sizes_fires_within_the_range_only(size: int, code: int) -> None:
    with device(), simulator.fault("alloc", size_min=4096, size_max=8192, rc=207001):
        assert malloc(size) == code


def test_rule_text_with_a_unit_in_a_size_is_accepted() -> None:
    with device(), simulator.fault("alloc:size>=4K:oom"):
        assert (malloc(4095), malloc(4096)) == (0, 207001)


def test_rule_for_a_thread_fires_in_that_thread_only() -> None:
    with simulator.fault(COUNT, tid=threading.get_native_id(), rc=507000):
        assert query() == 507000
        assert in_thread(query) == 0


# --- text and refusals ----------------------------------------------------------------------------------------------


def test_fault_with_options_writes_the_text_of_the_rule() -> None:
    fault = simulator.fault(
        "alloc|copy", device=0, size_min=16, nth=3, times=2, rc=507015, latency=0.02, jitter=0.005, at="after"
    )
    assert fault.rule == "alloc|copy:dev=0:size>=16:nth=3:times=2:rc=507015:latency=20+-5:at=after"
    times = {0: "0", 2: "2000", 0.2: "200", 0.0001: "0.1", 1e-9: "0.000001", 1_000_000: "1000000000"}
    for seconds, milliseconds in times.items():
        assert simulator.fault("copy", late_copy=seconds).rule == f"copy:late-copy={milliseconds}"
    hang = simulator.fault("sync", hang="gate", per_thread=True)
    assert hang.rule == "sync:per=thread:hang=gate"
    assert simulator.fault("reset", reset_lies=True).rule == "reset:reset-lies"
    assert repr(hang) == "<Fault 'sync:per=thread:hang=gate': 0 hits of 0 matches>"


@pytest.mark.parametrize(
    "options",
    [
        {"nth": 0, "rc": 1},
        {"nth": True, "rc": 1},
        {"times": 0, "rc": 1},
        {"p": 1.5, "rc": 1},
        {"p": float("nan"), "rc": 1},
        {"rc": 1 << 31},
        {"rc": False},
        {"rc_after": 0},
        {"device": -1, "rc": 1},
        {"latency": -1},
        {"latency": float("inf")},
        {"latency": 1_000_001},
        {"jitter": 5, "rc": 1},
        {"hang": "a:b"},
        {"at": "some:day", "latency": 1},
        {"colour": "red"},
    ],
)
def test_fault_with_a_bad_option_raises_parameter_error_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(aioacl.ParameterError):
        simulator.fault(COUNT, **options)


REFUSED = {
    "aclrtNothing:rc=1": 'column 1, "aclrtNothing": "aclrtNothing" is not a function',
    "alloc|nonsense:rc=1": '"nonsense" is not a function',
    "alloc": "the rule has no effect",
    "alloc:nth=3": "the rule has no effect",
    "alloc:rc=": 'column 7, "rc=": rc expects a code',
    "alloc:rc": "rc expects a code",
    "alloc:nth=0:rc=1": 'column 7, "nth=0": nth expects a whole number, at least 1',
    "alloc:colour=red:rc=1": 'column 7, "colour=red": no such field',
    "alloc:oom=1": "oom expects no value",
    "alloc:oom:rc=1": "two effects exclude each other",
    "alloc:rc=1:at=after": "at= needs latency=; add it",
    "alloc:size>=9:size<=3:rc=1": "no size is in that range",
    "aclrtMalloc:async-error=1": "none of these functions can show the effects",
    "aclmdlExecute:async-error=1": "none of these functions can show the effects",
    "aclmdlExecuteV2:async-error=1": "none of these functions can show the effects",
    "aclrtRecordEvent*:async-error=1": "none of these functions can show the effects",
    "alloc:hang=a b": "hang expects a key",
    "alloc:p=2:rc=1": "p expects a chance",
    "alloc::rc=1": "no such field",
    "alloc:nth=1:nth=2:rc=1": 'column 13, "nth=2": nth expects no earlier field that sets the same value',
    "alloc:nth=1:after=2:rc=1": "after expects no earlier field that sets the same value",
    "alloc:once:times=2:rc=1": "times expects no earlier field that sets the same value",
    "alloc:rc=1:rc=2": "rc expects no earlier field that sets the same value",
    "alloc:rc= 1": "rc expects a code",
    "alloc:rc=+1": "rc expects a code",
    "alloc:latency=5+- 1": "latency expects milliseconds",
    "alloc:p=\n1:rc=1": "p expects a chance",
    'acl[r"]tMalloc:rc=1': "is not a function",
    "*" * 95 + "aclrtNothing:rc=1": "is not a function",
    "": "is not a function",
    "alloc:rc=1:" + "x" * 300: "a rule has at most 255 characters",
}


@pytest.mark.parametrize("rule", REFUSED)
def test_fault_with_a_bad_rule_reports_the_mistake_and_its_place_at_once(rule: str) -> None:
    with pytest.raises(aioacl.ParameterError) as caught:
        simulator.fault(rule)
    assert REFUSED[rule] in str(caught.value)


def test_fault_that_is_never_entered_changes_no_decision_of_later_rules() -> None:
    def decisions() -> list[int]:
        simulator.set_seed(7)
        with simulator.fault(COUNT, rc=507000, p=0.5):
            return [query() for _ in range(32)]

    expected = decisions()
    simulator.fault(COUNT, rc=507000)
    assert query() == 0
    assert decisions() == expected


def test_fault_applies_in_its_block_only_and_counts_from_zero_in_the_next() -> None:
    fault = simulator.fault(COUNT, rc=507000)
    with fault:
        assert query() == 507000
        with pytest.raises(aioacl.ParameterError, match="applies already"), fault:
            pass
    assert (query(), fault.hits) == (0, 1)
    with fault:
        assert fault.hits == 0


def test_clear_drops_every_rule() -> None:
    with simulator.fault(COUNT, rc=507000) as fault:
        query()
        assert fault.hits == 1
        simulator.clear()
        assert query() == 0
    assert fault.hits == 1


@pytest.mark.parametrize(
    "control",
    [
        lambda: simulator.set_seed(-1),
        lambda: simulator.set_seed(1 << 64),
        lambda: simulator.set_limits("stream"),
        lambda: simulator.set_limits("colour=3"),
        lambda: simulator.set_limits("stream=-1"),
        lambda: simulator.advance_clock(1),
        lambda: simulator.advance_clock(-1),
    ],
)
def test_control_with_a_bad_value_raises_parameter_error(control: Callable[[], Any]) -> None:
    with pytest.raises(aioacl.ParameterError):
        control()


@pytest.mark.parametrize(
    "call",
    [
        lambda: simulator.retain_count(1 << 40),
        lambda: simulator.resets(1 << 40),
        lambda: simulator.fail_call("aclrtMalloc", 1 << 40),
        lambda: simulator.fail_call("aclrtMalloc", 507000, times=1 << 40),
    ],
)
def test_control_with_a_number_beyond_32_bits_raises_parameter_error(call: Callable[[], object]) -> None:
    with pytest.raises(aioacl.ParameterError, match="must fit 32 bits, got"):
        call()


@pytest.mark.parametrize("seconds", [math.inf, math.nan, -1.0, 1e300, 9e9])
def test_advance_clock_out_of_range_raises_parameter_error(seconds: float) -> None:
    simulator.set_virtual_clock(virtual=True)
    try:
        before = simulator.clock()
        with pytest.raises(aioacl.ParameterError, match="expected a virtual clock and seconds from 0"):
            simulator.advance_clock(seconds)
        assert simulator.clock() == before
    finally:
        simulator.set_virtual_clock(virtual=False)
