"""One injection: runs a scenario with one fault, and checks that aioacl kept its promises.

Every error must be the one that the table of codes gives. Afterwards, no object may be left in the simulator. No thread
and no descriptor may be left in the process. The usage checker must report no violation. The device must open again.
"""

from __future__ import annotations

import asyncio
import gc
import re
import sys
import threading
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

import aioacl
from aioacl import AclError, lowlevel, simulator
from aioacl._base.codes import Family, lookup
from aioacl._base.errors import error_for
from aioacl._lifecycle.manager import manager_of
from tests.kit import until_now
from tests.sweep import byhand, ground, scenarios

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

PATIENCE_SECONDS: Final = 5.0
CLOSING_SECONDS: Final = 0.3
OF_DEVICES: Final = (
    Family.DEVICE_FAULT,
    Family.TASK_TIMEOUT,
)  # if a call that is not about a task returns one of these, the device has failed
HANG_SECONDS: Final = 60

# One code for each pair of family and action in the table of codes.
CODES: Final = (
    507015,  # device fault: new stream
    107020,  # task timeout: new stream
    507013,  # device fault: reset
    207001,  # out of memory
    107002,  # context
    100000,  # parameter
    207000,  # not supported
    207005,  # exhausted
    207014,  # queue full
    207020,  # timeout: again
    107023,  # aborted: again
    107035,  # aborted: reset
    500000,  # other: the environment
    207013,  # other: again
    507053,  # device fault: repair
    345102,  # device fault: replace
    545601,  # timeout: reset
)

# The calls that wake the runtime when work makes no progress. Any scenario may make these calls if it runs slowly. A
# scenario in CERTAIN always makes the calls that are listed there.
WAKING: Final = {"aclrtQueryEvent", "aclrtDestroyStreamForce"}
CERTAIN: Final[Mapping[str, set[str]]] = {
    "task_that_fails": WAKING,
    "streams": {"aclrtQueryEvent"},
    "memory": {"aclrtDestroyStreamForce"},
}

SCENARIOS: Final[Mapping[str, Callable[[], Coroutine[Any, Any, None]]]] = {
    function.__name__: function
    for function in (
        scenarios.copy_and_await,
        scenarios.task_that_fails,
        scenarios.events_across_streams,
        scenarios.pinned_memory,
        scenarios.host_functions,
        scenarios.two_devices,
        scenarios.lease_and_force_reset,
        scenarios.executor,
        scenarios.timeouts,
        scenarios.cancel_and_abort,
        scenarios.counts_by_hand,
        byhand.facts,
        byhand.streams,
        byhand.contexts,
        byhand.memory,
    )
}

# The kinds of objects that are left when a call to free or destroy an object fails.
KEEPS: Final[Mapping[str, tuple[str, ...]]] = {
    "aclrtDestroyEvent": ("events",),
    "aclrtDestroyNotify": ("notifies",),
    "aclrtDestroyContext": ("contexts", "streams", "device_blocks"),
    "aclrtFreeHost": ("host_blocks",),
    "aclrtFree": ("device_blocks",),
    "aclrtDestroyStream": ("streams",),
    "aclrtDestroyStreamForce": ("streams",),
}


@dataclass(frozen=True)
class Injection:
    """A fault in a scenario."""

    scenario: str
    function: str
    code: int
    sticky: bool
    nth: int

    @property
    def rule(self) -> str:
        """The text of the rule for the fault engine."""
        when = f"after={self.nth - 1}" if self.sticky else f"nth={self.nth}"
        return f"{self.function}:{when}:rc={self.code}"

    @property
    def replay(self) -> str:
        """The command that repeats the injection."""
        return f"python -m tests.sweep --replay {self.scenario} {self.rule}"


@dataclass
class Outcome:
    """The result of an injection."""

    hits: int = 0
    error: BaseException | None = None
    complaints: list[str] = field(default_factory=list[str])


# --- what aioacl must not do -------------------------------------------------------------------------------------


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yields the errors in a group, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            yield from leaves(one)  # pyright: ignore[reportUnknownArgumentType]
    else:
        yield error


# Only a context that is stopped answers a task's code to queries, records and other calls that enqueue: then other code
# has set STOP mode, and only a reset helps.
STOPPED_IF_FAILED: Final = re.compile(
    r"aclrtStreamQuery|aclrtQueryEventStatus|aclrtRecordEvent|aclrtStreamWaitEvent.*|aclrtLaunchKernel.*|\w+Async"
)


def wrong_error(error: BaseException, injection: Injection) -> str | None:
    """Returns why the fault must not cause this error, or None if it may."""
    code = injection.code
    own = (aioacl.DeviceReset, aioacl.DeviceResetting, aioacl.DeviceQuarantined, aioacl.StaleHandleError)
    if not isinstance(error, AclError):
        return f"expected an error of aioacl, got {type(error).__name__}: {error}"
    if isinstance(error, own) or error.code is None:
        return None
    expected = type(error_for(error.code, "call"))
    if type(error) is not expected:
        return f"expected {expected.__name__} for code {error.code}, got {type(error).__name__}"
    action = error_for(code, error.call).action
    stopped = STOPPED_IF_FAILED.fullmatch(injection.function) and error.action == "reset"
    if error.code == code and error.action != action and not stopped:
        return f"expected action {action!r} for code {code}, got {error.action!r}"
    return None


class Listener:
    """Records warnings, and errors in threads and finalizers."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def __enter__(self) -> Self:
        self._hooks = (sys.unraisablehook, threading.excepthook)
        sys.unraisablehook = lambda unraised: self.problems.append(
            f"unraisable: {unraised.exc_value!r} in {unraised.object!r}"
        )
        threading.excepthook = lambda error: self.problems.append(f"in a thread: {error.exc_value!r}")
        self._caught = warnings.catch_warnings(record=True)
        self._warnings = self._caught.__enter__()
        warnings.simplefilter("always")
        return self

    def __exit__(self, *_: object) -> None:
        self._caught.__exit__(None, None, None)
        sys.unraisablehook, threading.excepthook = self._hooks
        expected = (aioacl.AclWarning,)
        self.problems += [
            f"warning: {one.category.__name__}: {one.message}"
            for one in self._warnings or []
            if not issubclass(one.category, expected)
        ]


def may_leave(injection: Injection) -> tuple[str, ...]:
    """Returns the kinds of objects that may be left: those of the failed call, and events if the device failed."""
    abandoned = ("events",) if lookup(injection.code).family in OF_DEVICES or _was_reset(injection) else ()
    return (*KEEPS.get(injection.function, ()), *abandoned)


def _was_reset(injection: Injection) -> bool:
    return "Reset" in injection.function or injection.function == "aclrtSetDevice"


def take_back_sets(index: int) -> None:
    """Resets a device that a scenario has set by a direct call and could not reset."""
    manager = manager_of(index)
    if manager.counts.now.retained > manager.counts.own_sets and not ground.open_devices():
        lowlevel.reset_device_force(index)


# --- one injection ------------------------------------------------------------------------------------------------


class Bed:
    """Makes injections in one process, one after another, on one event loop."""

    def __init__(self) -> None:
        aioacl.use_library("simulator")
        self._runner = asyncio.Runner()
        for scenario in SCENARIOS.values():
            self._runner.run(scenario())
        self._recover(Outcome())  # creates the objects that are created once per process

    def close(self) -> None:
        """Closes the loop."""
        self._runner.close()

    def calls(self, scenario: str) -> list[str]:
        """Returns the functions that the scenario calls without faults, except those that only a slow run calls."""
        simulator.forget()
        self._runner.run(SCENARIOS[scenario]())
        self._settle()
        names = {entry["call"] for entry in simulator.journal()}
        return sorted(names - (WAKING - CERTAIN.get(scenario, set())))

    def run(self, injection: Injection) -> Outcome:
        """Makes the injection and checks the effects."""
        outcome = Outcome()
        simulator.forget()
        before = ground.possessions()
        with Listener() as listener:
            with simulator.fault(injection.rule) as fault:
                outcome.error = self._scenario(injection.scenario)
                ground.all_closed(CLOSING_SECONDS)
                outcome.hits = fault.hits
            self._recover(outcome)
            self._check_left(injection, before, outcome)
        outcome.complaints += listener.problems
        for error in leaves(outcome.error) if outcome.error is not None else ():
            outcome.complaints += filter(None, [wrong_error(error, injection)])
        outcome.complaints += [f"the usage checker: {text}" for text in simulator.violations()]
        return outcome

    def _scenario(self, name: str) -> BaseException | None:
        try:
            self._runner.run(SCENARIOS[name]())
        except Exception as error:
            error.__traceback__ = None
            return error
        return None

    def _settle(self) -> bool:
        return ground.all_closed(PATIENCE_SECONDS)

    def _recover(self, outcome: Outcome) -> None:
        """Checks that the devices open and close when the fault is gone."""
        for index in range(2):
            take_back_sets(index)
            try:
                opened = aioacl.open_device(index, timeout=PATIENCE_SECONDS).result()
            except AclError as refused:
                outcome.complaints.append(f"expected device {index} to open again, got {refused}")
                continue
            opened.close().result()
        if not self._settle():
            left = [f"{manager.index} {manager.admission.state.name}" for manager in ground.open_devices()]
            outcome.complaints.append(f"expected all devices to be closed, got {left}")
            ground.force_closed()

    def _check_left(self, injection: Injection, before: dict[str, int], outcome: Outcome) -> None:
        allowed = may_leave(injection)
        if ground.more_than(before, *allowed):
            gc.collect()
            until_now(lambda: not ground.more_than(before, *allowed), PATIENCE_SECONDS)
        left = ground.more_than(before, *allowed)
        if left:
            outcome.complaints.append(f"expected all objects to be released, got more than before: {left}")
