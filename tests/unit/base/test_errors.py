"""The errors: the class of each code, the texts, and that copying and pickling keep all attributes."""

import copy
import inspect
import pickle
from typing import get_args

import pytest

from aioacl._base import errors
from aioacl._base.codes import Action, Family, lookup
from aioacl._base.errors import (
    _CLASSES,
    MESSAGE_LIMIT_BYTES,
    AclError,
    AclWarning,
    ContextError,
    DeviceFault,
    DeviceQuarantined,
    DeviceReset,
    DeviceResetting,
    DeviceTimeout,
    ForkedProcessError,
    LeaseHeldError,
    LibraryConflict,
    LibraryNotFound,
    NotSupported,
    OutOfMemoryError,
    ParameterError,
    QueueFull,
    ResetError,
    ResourceExhausted,
    StaleHandleError,
    StreamAborted,
    TaskTimeout,
    error_for,
    of_device,
)

OWN = [
    ResetError,
    StaleHandleError,
    DeviceReset,
    DeviceResetting,
    DeviceQuarantined,
    LeaseHeldError,
    ForkedProcessError,
    LibraryNotFound,
    LibraryConflict,
]
ALL = [*_CLASSES.values(), *OWN]


@pytest.mark.parametrize(
    ("code", "kind", "builtin"),
    [
        (107000, ParameterError, ValueError),
        (107002, ContextError, AclError),
        (207001, OutOfMemoryError, MemoryError),
        (207008, ResourceExhausted, AclError),
        (207014, QueueFull, AclError),
        (507046, DeviceTimeout, TimeoutError),
        (107023, StreamAborted, AclError),
        (507015, DeviceFault, AclError),
        (507014, TaskTimeout, DeviceFault),
        (107020, TaskTimeout, DeviceFault),
        (507899, DeviceFault, AclError),
        (207000, NotSupported, AclError),
        (500000, AclError, Exception),
        (599999, DeviceFault, AclError),
        (-1, AclError, Exception),
    ],
)
def test_error_for_a_code_has_the_class_of_its_family(
    code: int, kind: type[AclError], builtin: type[Exception]
) -> None:
    error = error_for(code, "aclrtCall", device=2, generation=5, message="why")
    assert type(error) is kind
    assert isinstance(error, builtin)
    known = lookup(code)
    assert (error.code, error.name, error.action) == (code, known.name, known.action)
    assert (error.call, error.device, error.generation, error.message) == ("aclrtCall", 2, 5, "why")


def test_device_fault_from_malloc_is_not_a_memory_error() -> None:
    assert not isinstance(error_for(507899, "aclrtMalloc"), MemoryError)


def test_task_timeout_is_not_a_timeout_of_the_await() -> None:
    assert not issubclass(TaskTimeout, DeviceTimeout | TimeoutError)


@pytest.mark.parametrize("call", ["", "aclrtSynchronizeStream", "aclrtMemcpyAsync", "aclrtDestroyStream"])
def test_task_failure_from_a_call_on_a_stream_asks_for_a_new_stream(call: str) -> None:
    error = error_for(507034, call)
    assert error.action == "new_stream"
    assert error.hint == "Make a new stream, or `await stream.renew()`."


@pytest.mark.parametrize("call", ["aclrtMalloc", "aclrtSetDevice", "aclrtCreateStream", "aclrtFreeHost"])
def test_task_code_from_a_call_that_runs_no_task_asks_for_a_reset(call: str) -> None:
    error = error_for(507015, call)
    assert (type(error), error.action, error.hint) == (DeviceFault, "reset", DeviceFault.default_hint)


def test_error_from_of_device_keeps_everything_but_action_and_hint() -> None:
    error = error_for(507014, "aclrtSynchronizeStream", device=1, generation=2, message="why")
    there = of_device(error)
    assert (there.action, there.hint) == ("reset", DeviceFault.default_hint)
    assert {**vars(there), "action": error.action, "hint": error.hint} == vars(error)


def test_every_family_has_its_own_class() -> None:
    assert set(_CLASSES) == set(Family)
    assert len(set(_CLASSES.values())) == len(Family)


def test_text_of_an_error_goes_from_the_call_to_the_hint_on_one_line() -> None:
    text = str(
        error_for(507033, "aclrtSetDevice", device=0, generation=3, message="EE1001: \n\tset-up failed")
    )
    assert text == (
        "aclrtSetDevice on device 0, generation 3: 507033 ACL_ERROR_RT_DEV_SETUP_ERROR: "
        f"EE1001: set-up failed. {lookup(507033).hint}"
    )


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            ParameterError("size is negative", hint="Give a size of 1 or more."),
            "size is negative. Give a size of 1 or more.",
        ),
        (ParameterError("Really?", hint="Yes."), "Really? Yes."),
        (ParameterError("no hint", hint=""), "no hint"),
        (QueueFull(device=1, hint="Wait."), "device 1. Wait."),
        (QueueFull(call="copy", device=0, hint="Wait."), "copy on device 0. Wait."),
        (StaleHandleError("it is old", generation=3, hint="Renew."), "generation 3: it is old. Renew."),
        (AclError(hint="Look."), "Look."),
        (AclError(code=-7, hint="Look."), "-7 ACL_ERROR_UNKNOWN_-7. Look."),
    ],
)
def test_text_of_an_error_leaves_out_what_is_not_set(error: AclError, text: str) -> None:
    assert str(error) == text


@pytest.mark.parametrize("kind", ALL)
def test_every_error_ends_in_its_hint_and_has_its_own_docstring(kind: type[AclError]) -> None:
    error = kind("something happened")
    assert error.hint.endswith(".")
    assert str(error) == f"something happened. {error.hint}"
    assert kind.__doc__ is not None
    assert kind.__doc__ != AclError.__doc__ or kind is AclError


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        (ParameterError, "fix_code"),
        (ContextError, "fix_code"),
        (OutOfMemoryError, "retry"),
        (ResourceExhausted, "retry"),
        (QueueFull, "retry"),
        (DeviceTimeout, "retry"),
        (StreamAborted, "retry"),
        (DeviceFault, "reset"),
        (TaskTimeout, "new_stream"),
        (NotSupported, "fix_code"),
        (ResetError, "retry"),
        (StaleHandleError, "retry"),
        (DeviceReset, "retry"),
        (DeviceResetting, "retry"),
        (DeviceQuarantined, "reset"),
        (LeaseHeldError, "fix_code"),
        (ForkedProcessError, "fix_code"),
        (LibraryNotFound, "fix_code"),
        (LibraryConflict, "fix_code"),
    ],
)
def test_error_without_a_code_has_the_action_of_its_class(kind: type[AclError], action: str) -> None:
    assert kind("why").action == action


@pytest.mark.parametrize("action", get_args(Action))
def test_error_is_retryable_if_no_reset_repair_or_change_has_to_come_first(action: Action) -> None:
    assert AclError("why", action=action).retryable == (action in ("retry", "new_stream"))


def test_reset_error_is_the_base_of_the_errors_of_a_reset_and_of_no_other() -> None:
    assert {kind for kind in ALL if issubclass(kind, ResetError)} == {
        ResetError,
        DeviceReset,
        DeviceResetting,
        StaleHandleError,
    }
    assert DeviceReset("why").report is None


def test_timeout_does_not_say_whether_work_had_begun_unless_it_is_told() -> None:
    assert DeviceTimeout("late").started is None
    assert error_for(507046, "aclrtSynchronizeStreamWithTimeout").started is None  # type: ignore[attr-defined]
    assert DeviceTimeout("late", started=False).started is False


@pytest.mark.parametrize("kind", OWN)
def test_error_that_only_aioacl_raises_keeps_its_hint_if_it_has_a_code(kind: type[AclError]) -> None:
    bare, coded = kind("why"), kind("why", code=207001)
    assert (coded.action, coded.hint) == (bare.action, bare.hint)
    assert coded.name == "ACL_ERROR_RT_MEMORY_ALLOCATION"


def test_hint_and_action_of_the_caller_override_the_table() -> None:
    error = DeviceFault("why", code=507015, hint="Do this.", action="replace")
    assert (error.hint, error.action) == ("Do this.", "replace")


def test_not_supported_names_the_release_that_has_the_function() -> None:
    error = NotSupported("absent", call="aclFinalizeReference", since="8.5")
    assert error.since == "8.5"
    assert "CANN 8.5" in str(error)
    assert NotSupported("absent", since="8.5", hint="Give up.").hint == "Give up."


def test_library_not_found_lists_each_candidate_on_its_own_line() -> None:
    error = LibraryNotFound(candidates=(("/a.so", "no such file"), ("", "the path is empty")))
    first, *tried, hint = str(error).splitlines()
    assert first.endswith(":")
    assert tried == ["  '/a.so': no such file", "  '': the path is empty"]
    assert hint == error.hint


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))]
)
def test_copied_or_pickled_error_keeps_its_type_attributes_and_text(kind: type[AclError], duplicate) -> None:
    error = kind("why", code=507015, call="c", device=1, generation=2, hint="h", action="replace")
    error.add_note("on the way")
    for extra in ("since", "report", "candidates", "started"):
        if hasattr(error, extra):
            setattr(error, extra, (("some", "thing"),))
    there = duplicate(error)
    assert type(there) is kind
    assert vars(there) == vars(error)
    assert (there.args, str(there)) == (error.args, str(error))


@pytest.mark.parametrize("text", ["a" * 20_000, "\u4e2d" * 20_000, "\ud800" * 20_000])
def test_long_message_is_cut_to_its_limit_in_message_and_args(text: str) -> None:
    error = error_for(507015, "c", message=text)
    size = len(error.message.encode("utf-8", "surrogatepass"))
    assert MESSAGE_LIMIT_BYTES - 4 <= size <= MESSAGE_LIMIT_BYTES
    assert error.message.endswith("...")
    assert error.args == (error.message,)


def test_message_as_long_as_the_limit_is_not_cut() -> None:
    text = "a" * MESSAGE_LIMIT_BYTES
    assert AclError(text).message == text


def test_every_error_of_the_module_is_tested_here() -> None:
    public = {
        each
        for name, each in inspect.getmembers(errors, inspect.isclass)
        if issubclass(each, AclError) and not name.startswith("_")
    }
    assert public == set(ALL)


def test_acl_warning_is_a_runtime_warning() -> None:
    assert issubclass(AclWarning, RuntimeWarning)


def test_repr_of_an_error_without_a_message_shows_its_code_and_call() -> None:
    shown = repr(error_for(507015, "aclrtSynchronizeStream", device=0))
    assert shown == "DeviceFault('', code=507015, call='aclrtSynchronizeStream', device=0)"
    assert repr(AclError("why")) == "AclError('why')"
