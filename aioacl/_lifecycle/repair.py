"""When a supervisor resets its device. Pure decisions: no clock, no threads, no ACL.

Each look gets what was found at a time. A device that works ends a series of failed resets, but not the count of the
resets that were begun: a card that fails again and again is given up too.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioacl._base.health import SupervisorState

# How often to look for a change that perhaps wakes no thread: a call returns, for instance.
LOOK_SECONDS: Final = 0.5
RELAPSE_SECONDS: Final = 60.0  # if the device fails again within this time, a new context has not helped


class Found(NamedTuple):
    """The state of a device.

    Attributes:
        ready: whether it admits work and has no fault.
        busy: whether a reset, or another procedure, runs.
        stuck: whether a call has been inside C for so long that no reset should be tried before it returns.
        permitted: whether it may be reset.
    """

    ready: bool
    busy: bool = False
    stuck: bool = False
    permitted: bool = True


class Step(NamedTuple):
    """What a supervisor does now.

    Attributes:
        act: what it does.
        seconds: after how many seconds it looks again, if nothing wakes it before; None for no limit.
        gently: whether a reset begins with aioacl's own context, if the device uses one.
    """

    act: Literal["nothing", "reset", "give up"] = "nothing"
    seconds: float | None = None
    gently: bool = True


class Repair:
    """The decisions of one supervisor.

    Attributes:
        state: what the supervisor does, for `health`.
        problem: why it has given up, or "".
    """

    def __init__(self, pauses: Sequence[float], at_most: int, per: float) -> None:
        self.state: SupervisorState = "watching"
        self.problem = ""
        self._pauses = tuple(pauses)
        self._at_most = at_most
        self._per = per
        self._begun: deque[float] = deque()  # when the newest resets began, oldest first
        self._failed = 0  # resets in a row that have failed
        self._pause_ends = float("-inf")
        self._relapses_before = float("-inf")  # the end of the time in which a new context must prove itself

    def look(self, found: Found, now: float) -> Step:
        """Decides what to do. After the act "reset", the caller calls `ended` when that reset has ended."""
        if found.busy:
            return self._wait("resetting", LOOK_SECONDS)
        if found.ready:
            self.problem, self._failed, self._pause_ends = "", 0, now
            return self._wait("watching")
        if self.problem:
            return self._wait("given up")
        if found.stuck:
            self._pause_ends = now  # the return of the call is a better time than the end of the pause
            return self._wait("stuck", LOOK_SECONDS)
        if not found.permitted:
            return self._wait("forbidden", LOOK_SECONDS)
        if self._failed > len(self._pauses):
            return self._give_up(f"its supervisor gave up after {_resets(self._failed)} that failed")
        if now < self._pause_ends:
            return self._wait("pausing", self._pause_ends - now)
        while self._begun and self._begun[0] <= now - self._per:
            self._begun.popleft()
        if len(self._begun) >= self._at_most:
            return self._give_up(
                f"its supervisor gave up, because {_resets(self._at_most)} within {self._per:g} s did not help"
            )
        self._begun.append(now)
        self.state = "resetting"
        return Step("reset", gently=now >= self._relapses_before)

    def _wait(self, state: SupervisorState, seconds: float | None = None) -> Step:
        self.state = state
        return Step(seconds=seconds)

    def _give_up(self, why: str) -> Step:
        self.state, self.problem = "given up", why
        return Step("give up")

    def ended(self, now: float, *, ok: bool, attempted: bool = True, of_context: bool = False) -> None:
        """Notes how the reset ended that the last step "reset" has begun.

        A reset that was not attempted, because a call was inside C, counts neither as begun nor as failed.
        `of_context` is whether it has only replaced aioacl's own context.
        """
        self._relapses_before = now + RELAPSE_SECONDS if ok and of_context else float("-inf")
        if ok:
            self._failed = 0
        elif not attempted:
            self._begun.pop()
        else:
            self._failed += 1
            pauses = self._pauses[self._failed - 1 : self._failed]
            self._pause_ends = now + sum(pauses)


def _resets(count: int) -> str:
    return "1 reset" if count == 1 else f"{count} resets"
