"""Faults set by environment variables, mistakes in these variables, replay by the seed, and the trace."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support import forkserver
from tests.support.command import finished

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

pytestmark = pytest.mark.process

CALLS = """
from aioacl import use_library
from aioacl._base.ffi import ffi, lib
use_library("simulator")
count = ffi.new("uint32_t *")
"""
WHICH_FAIL = CALLS + "print([n for n in range(100) if lib.aio_u_aclrtGetDeviceCount(count)])\n"


def child(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the code in a forked process with these variables, which the library reads when it is loaded."""
    return forkserver.run([sys.executable, "-c", code], env=_environment(variables))


def real_child(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the code in a new Python process with these variables."""
    return finished([sys.executable, "-c", code], env=_environment(variables))


def _environment(variables: dict[str, str]) -> dict[str, str]:
    return {**os.environ, **{f"AIOACL_SIM_{name}": value for name, value in variables.items()}}


def test_rules_of_the_environment_apply_from_the_start() -> None:
    done = real_child(
        WHICH_FAIL, FAULTS="aclrtGetDeviceCount:nth=3:rc=507000; aclrtGetDeviceCount:after=97:rc=507001;"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [2, 97, 98, 99]


def test_field_of_a_rule_may_have_the_underscore_of_its_parameter() -> None:
    program = CALLS + "print([lib.aio_u_aclrtGetDeviceCount(count) for _ in range(2)])\n"
    done = child(program, FAULTS="aclrtGetDeviceCount:nth=2:rc_after=507000")
    assert (done.returncode, done.stdout, done.stderr) == (0, "[0, 507000]\n", "")


def test_same_seed_gives_the_same_decisions_and_another_seed_others() -> None:
    rule = "aclrtGetDeviceCount:p=0.3:rc=507000"
    first = child(WHICH_FAIL, FAULTS=f"seed=42; {rule}").stdout
    assert child(WHICH_FAIL, FAULTS=rule, SEED="42").stdout == first
    assert child(WHICH_FAIL, FAULTS=f"seed=43; {rule}").stdout != first
    assert 10 < len(json.loads(first)) < 60


def test_seed_set_before_the_first_call_replaces_the_environment() -> None:
    rule = "aclrtGetDeviceCount:p=0.3:rc=507000"
    set_first = (
        CALLS + "from aioacl import simulator\nsimulator.set_seed(43)\n" + WHICH_FAIL.removeprefix(CALLS)
    )
    assert child(set_first, FAULTS=rule, SEED="42").stdout == child(WHICH_FAIL, FAULTS=rule, SEED="43").stdout


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        (
            "FAULTS",
            "alloc:nth=x:rc=1",
            'aclsim: AIOACL_SIM_FAULTS: "alloc:nth=x:rc=1": column 7, "nth=x": nth expects',
        ),
        ("FAULTS", "alloc:rc=1; nobody:rc=1", '"nobody" is not a function or a group of functions'),
        ("FAULTS", "copyy:rc=1", "the groups are alloc copy memory stream event"),
        ("FAULTS", "seed=-1", '"seed=-1": expected a whole number'),
        ("FAULTS", "copy:rcc=1", "no such field; the fields are dev stream thread tid"),
        ("SPEED", "1", "AIOACL_SIM_SPEED=1: no such setting; the settings are AIOACL_SIM_DEVICES "),
        ("SEED", " -1", 'AIOACL_SIM_SEED: " -1": expected a whole number'),
        ("SEED", "many", 'AIOACL_SIM_SEED: "many": expected a whole number'),
        (
            "LIMITS",
            "stream=8,colour=3",
            '"colour": expected context=, stream=, event=, notify=, mem= or host=',
        ),
        ("LIMITS", "stream=some", "expected a whole number, such as 8 or 64M"),
        ("CLOCK", "sundial", "expected real or virtual"),
        ("TRACE", "/nowhere/at/all", "No such file or directory"),
    ],
)
def test_mistake_in_the_environment_is_reported_and_ends_the_process(
    name: str, value: str, complaint: str
) -> None:
    done = child(WHICH_FAIL, **{name: value})
    assert done.returncode == -signal.SIGABRT
    assert complaint in done.stderr
    assert done.stdout == ""


MAKE_STREAMS = (
    CALLS
    + """
lib.aio_u_aclrtSetDevice(0)
place = ffi.new("aclrtStream *")
events = ffi.new("aclrtEvent *")
memory = ffi.new("void **")
print([lib.aio_u_aclrtCreateStream(place) for _ in range(3)])
print([lib.aio_u_aclrtCreateEvent(events) for _ in range(3)])
print([lib.aio_u_aclrtMalloc(memory, 1 << 19, 0) for _ in range(3)])
lib.aio_u_aclrtDestroyStream(place[0])
print(lib.aio_u_aclrtCreateStream(place))
"""
)


def test_limits_of_the_environment_are_reached() -> None:
    done = child(MAKE_STREAMS, LIMITS="stream=2,event=1,mem=1M")
    assert done.stdout.splitlines() == ["[0, 0, 207008]", "[0, 207007, 207007]", "[0, 207001, 207001]", "0"]


def test_trace_has_every_call_and_every_fault(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    done = real_child(WHICH_FAIL, FAULTS="aclrtGetDeviceCount:nth=3:rc=507000", TRACE=str(trace))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    faults = [line for line in lines if "fault" in line]
    calls = [line for line in lines if line.get("call") == "aclrtGetDeviceCount" and "rc" in line]
    assert [(line["hit"], line["match"]) for line in faults] == [(1, 3)]
    assert faults[0]["rule"] == "aclrtGetDeviceCount:nth=3:rc=507000"
    assert [line["rc"] for line in calls].count(507000) == 1
    assert len(calls) == 100


def test_virtual_clock_of_the_environment_does_not_advance_by_itself() -> None:
    code = WHICH_FAIL + "from aioacl import simulator\nprint(simulator.clock() == simulator.clock())\n"
    assert child(code, CLOCK="virtual").stdout.splitlines()[-1] == "True"
