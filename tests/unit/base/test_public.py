"""Tracebacks, pickles and tools show the module from which users import a public name."""

from __future__ import annotations

import inspect
import pickle
import pickletools
import traceback
import typing
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from aioacl import lowlevel, simulator, testing
from aioacl._base.records import Stuck

if TYPE_CHECKING:
    from types import ModuleType

PUBLIC = (aioacl, simulator, lowlevel, testing)
NAMES = [(module, name) for module in PUBLIC for name in module.__all__]
STUCK = Stuck("aclrtMalloc", 7, 1.5)
REPORT = aioacl.ResetReport(0, ok=False, generation=3, stuck=(STUCK,), problem="the card is gone")
VALUES: list[Any] = [
    REPORT,
    aioacl.DeviceEvent("quarantined", 0, aioacl.State.QUARANTINED, 3, 1.0, report=REPORT),
    aioacl.Health("ok", aioacl.State.OPEN, 1, "", 0.0, 0, 0),
    aioacl.DeviceInfo(0, "Ascend910B1"),
    aioacl.MemoryInfo(1, 2),
    aioacl.LibraryInfo(
        "simulator", "/a.so", "argument", missing=(aioacl.MissingSymbol("aclrtMemcpy", "8.5"),)
    ),
    aioacl.State.OPEN,
]
ERRORS = [
    error
    for name in aioacl.__all__
    if inspect.isclass(error := getattr(aioacl, name)) and issubclass(error, aioacl.AclError)
]


def classes_in(pickled: bytes) -> set[str]:
    """The modules of the classes that a pickle refers to."""
    texts: list[str] = []
    modules: set[str] = set()
    for opcode, argument, _ in pickletools.genops(pickled):
        if isinstance(argument, str):
            texts.append(argument)
        if opcode.name == "STACK_GLOBAL":
            modules.add(texts[-2])
    return modules


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda value: getattr(value, "__name__", value))
def test_public_name_reports_the_module_from_which_it_is_imported(module: ModuleType, name: str) -> None:
    thing = getattr(module, name)
    if inspect.isclass(thing) or inspect.isfunction(thing):
        assert (thing.__module__, thing.__qualname__) == (module.__name__, name)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_pickled_record_names_public_modules_only_and_is_read_back(value: Any) -> None:
    pickled = pickle.dumps(value, protocol=4)
    assert pickle.loads(pickled) == value
    assert not {module for module in classes_in(pickled) if module.startswith("aioacl.")}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_pickled_error_names_public_modules_only_and_is_read_back(error: type[aioacl.AclError]) -> None:
    raised = error("it did not work", code=507000, call="aclrtMalloc", device=0, generation=1)
    pickled = pickle.dumps(raised, protocol=4)
    again = pickle.loads(pickled)
    assert (type(again), str(again), again.code) == (error, str(raised), 507000)
    assert "aioacl" in classes_in(pickled)
    assert not {module for module in classes_in(pickled) if module.startswith("aioacl.")}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_traceback_of_an_error_names_the_public_class(error: type[aioacl.AclError]) -> None:
    (line,) = traceback.format_exception_only(error("it did not work"))
    assert line.startswith(f"aioacl.{error.__name__}: it did not work")


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda value: getattr(value, "__name__", value))
def test_types_of_a_public_class_can_be_looked_up(module: ModuleType, name: str) -> None:
    thing = getattr(module, name)
    if inspect.isclass(thing):
        typing.get_type_hints(thing)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_source_of_a_public_class_raises_os_error_instead_of_a_wrong_source(
    error: type[aioacl.AclError],
) -> None:
    with pytest.raises(OSError, match=r"class|source code not available"):  # the latter from Python 3.13 on
        inspect.getsource(error)


HANDLES = [
    kind
    for module, name in NAMES
    if inspect.isclass(kind := getattr(module, name))
    and not issubclass(kind, (aioacl.AclError, aioacl.State))
    and not is_dataclass(kind)
]


@pytest.mark.parametrize("kind", HANDLES, ids=lambda kind: kind.__name__)
def test_public_class_shows_no_constant_of_the_implementation(kind: type) -> None:
    shown = [name for name in dir(kind) if not name.startswith("_")]
    assert [name for name in shown if isinstance(inspect.getattr_static(kind, name), str)] == []
