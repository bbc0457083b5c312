"""The calls that the fuzzer generates: all functions of the simulator's ABI, with all values that their types allow."""

from __future__ import annotations

import re

import pytest

from aioacl import simulator
from tests import elf
from tests.native.fuzz import table

pytestmark = pytest.mark.process  # the table is read through the C preprocessor


def test_every_exported_function_is_called_with_all_its_arguments() -> None:
    names = {function.name for function in table.functions()}
    exported = {name for name in elf.exports(simulator.library_path()) if not name.startswith("aclsim_")}
    assert names == exported
    text = table.source()
    for function in table.functions():
        arguments = ", ".join(f"a{number}" for number in range(len(function.parameters)))
        assert f"{function.name}({arguments})" in text


def test_handles_that_a_call_returns_can_be_drawn_and_ended() -> None:
    types = table.Types()
    ends = dict.fromkeys(re.findall(r"\{(\d+), end_\w+\}", table.source()))
    for kind in ("memory", "aclrtStream", "aclrtEvent", "aclrtContext", "aclrtNotify", "aclrtMemPool"):
        assert str(types.kinds.index(kind)) in ends
