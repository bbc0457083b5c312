"""Controls that are called with the wrong name of a function or option, or with a wrong device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

import aioacl
from aioacl import simulator
from aioacl._base.options import repr_of

if TYPE_CHECKING:
    from collections.abc import Callable

BY_FUNCTION: dict[str, Callable[[str], object]] = {
    "fail_call": lambda name: simulator.fail_call(name, 1),
    "hang_call": simulator.hang_call,
    "hung": simulator.hung,
    "calls": simulator.calls,
}
BY_DEVICE: dict[str, Callable[[int], object]] = {
    "retain_count": simulator.retain_count,
    "resets": simulator.resets,
    "wakes": simulator.wakes,
    "wake": simulator.wake,
}
BY_TEXT: dict[str, Callable[[str], object]] = {
    **BY_FUNCTION,
    "set_limits": simulator.set_limits,
    "release_call": simulator.release_call,
    "register_kernel": lambda name: simulator.register_kernel(name, print),
    "fault": lambda which: simulator.fault(which, rc=1).__enter__(),
}


def refusal(control: Callable[[Any], object], argument: object) -> str:
    with pytest.raises(aioacl.ParameterError) as caught:
        control(argument)
    return str(caught.value)


@pytest.mark.parametrize("control", BY_FUNCTION)
def test_control_of_an_unknown_function_suggests_close_names(control: str) -> None:
    text = refusal(BY_FUNCTION[control], "aclrtMaloc")
    assert text.startswith(
        "expected the name of an ACL function, got 'aclrtMaloc'. Did you mean aclrtMalloc "
    )


def test_release_of_a_misspelt_function_suggests_close_names() -> None:
    text = refusal(simulator.release_call, "aclrtMaloc")
    assert text.startswith(
        "expected the name of an ACL function, got 'aclrtMaloc'. Did you mean aclrtMalloc "
    )
    simulator.release_call("a-key-under-which-nothing-hangs")


@pytest.mark.parametrize("control", BY_FUNCTION)
def test_control_of_a_function_without_close_names_refers_to_the_header(control: str) -> None:
    text = refusal(BY_FUNCTION[control], "####")
    assert (
        text
        == "expected the name of an ACL function, got '####'. Pass a name of acl_rt.h, aclrtMalloc for instance."
    )


@pytest.mark.parametrize("control", BY_DEVICE)
@pytest.mark.parametrize("index", [-1, 99])
def test_control_of_an_unknown_device_raises_parameter_error(control: str, index: int) -> None:
    assert refusal(BY_DEVICE[control], index).startswith(
        f"expected the index of a simulated device, got {index}. "
    )


@pytest.mark.parametrize("control", BY_TEXT)
@pytest.mark.parametrize("text", [3, "aclrtMalloc\0", b"aclrtMalloc"])
def test_control_with_a_bad_text_raises_parameter_error(control: str, text: object) -> None:
    assert f", got {repr_of(text)}. Pass a str" in refusal(BY_TEXT[control], text)


def test_fail_call_with_negative_times_reports_the_number() -> None:
    text = refusal(lambda times: simulator.fail_call("aclrtMalloc", 1, times), -2)
    assert text == "times must be an int from -1, got -2. Pass a number of calls, or -1 for all calls."


def test_fault_with_an_unknown_option_suggests_close_names() -> None:
    fault = cast("Any", simulator.fault)
    assert refusal(lambda code: fault("copy", rcc=code), 1) == (
        "expected options of a fault, got 'rcc'. Did you mean rc?"
    )
    assert "The options are device, stream, thread, " in refusal(lambda code: fault("copy", zzzz=code), 1)


def test_rule_with_an_unknown_field_lists_all_fields() -> None:
    text = refusal(lambda rule: simulator.fault(rule).__enter__(), "copy:rcc=1")
    assert 'column 6, "rcc=1": no such field; the fields are dev stream thread tid size> ' in text
    assert " late-copy ext-reset errmsg. " in text


def test_rule_with_an_unknown_function_suggests_close_names() -> None:
    text = refusal(lambda which: simulator.fault(which, rc=1).__enter__(), "alloc|aclrtMaloc")
    assert '"aclrtMaloc" is not a function or a group of functions; the groups are alloc copy ' in text
    assert "Did you mean aclrtMalloc " in text
