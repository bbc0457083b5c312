"""Models of the gate, its manager, its procedures and their users, explored by spin in every state.

models/device.pml describes what is modelled and what is not. A configuration is a set of users. Each configuration is
explored in several modes (MODES in model_spin.py). The figure is the number of distinct states visited. A bug is one
change to the model (-DBUG_...). A bug that is not caught is a finding, and so is an error of the unchanged model.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.reliability.model_spin import Exploration, Explored, SpinError, explore, missing
from tests.reliability.part import Outcome, Scale

if TYPE_CHECKING:
    from collections.abc import Iterable

LIMIT_SECONDS: Final = {Scale.QUICK: 120.0, Scale.DEFAULT: 600.0, Scale.SLOW: 3600.0}
AT_ONCE: Final = 2
DEVICE: Final = "device.pml"

QUICK: Final = (("ENQUEUERS=1 RESETTERS=1", "bounded"),)
DEFAULT: Final = (
    ("ENQUEUERS=1 RESETTERS=1 FAILS=1", "bounded cancelled"),
    ("HOLDERS=1 RESETTERS=1", "patient live"),
    ("MAKERS=1 RESETTERS=1 RESETS=2", "patient"),
    ("ENQUEUERS=1 MAKERS=1 RESETTERS=1", "bounded live"),
)
# The largest configurations come first, so that no core has to finish a large one at the end.
SLOW: Final = (
    ("HOLDERS=1 JOBS=1 MAKERS=1 RESETTERS=1", "live patient"),
    ("HOLDERS=1 ENQUEUERS=1 RESETTERS=2", "bounded"),
    ("ENQUEUERS=1 WAITERS=1 RESETTERS=1 FOREIGN_RESETTERS=1", "bounded"),
    ("OPENERS=2 RESETTERS=1", "bounded cancelled"),
    ("WAITERS=1 MAKERS=1 RESETTERS=1 FAILS=1", "bounded cancelled"),
    ("HOLDERS=2 RESETTERS=1", "bounded cancelled"),
    ("MAKERS=1 OPENERS=1 RESETTERS=1", "bounded cancelled"),
    ("JOBS=1 HOLDERS=1 RESETTERS=1", "bounded cancelled"),
    ("ENQUEUERS=1 MAKERS=1 RESETTERS=1 FAILS=1", "bounded cancelled"),
    ("HOLDERS=1 MAKERS=1 RESETTERS=1 RESETS=2", "patient"),
    ("OPENERS=1 ENQUEUERS=1 FOREIGN_RESETTERS=1", "bounded cancelled"),
    *DEFAULT,
)


@dataclass(frozen=True, slots=True)
class Bug:
    """One wrong step of the model, with the smallest set of users and the mode that find the bug."""

    name: str
    users: str
    mode: str = "bounded"

    @property
    def exploration(self) -> Exploration:
        """The exploration of the model with this bug."""
        return Exploration(DEVICE, (*self.users.split(), f"BUG_{self.name}"), self.mode)


#: Bugs that `mutants` also puts into the real code, under the same names.
BUGS: Final = (
    Bug("no_generation_check", "ENQUEUERS=1 RESETTERS=1 TIMES=2"),
    Bug("drain_ignores_leases", "HOLDERS=1 RESETTERS=1", "patient"),
    Bug("no_lifetime_barrier", "MAKERS=1 RESETTERS=1"),
    Bug("lost_wake", "MAKERS=1 RESETTERS=1", "patient"),
    Bug("procedure_leaves_gate_shut", "RESETTERS=1 FAILS=1"),
    Bug("two_procedures", "RESETTERS=2"),
    Bug("nested_lease_waits", "HOLDERS=1 RESETTERS=1", "patient"),
    Bug("check_then_count", "ENQUEUERS=1 RESETTERS=1"),
    Bug("foreign_flag_lost", "HOLDERS=1 RESETTERS=1 FOREIGN_RESETTERS=1"),
    Bug("no_turns", "MAKERS=1 RESETTERS=1 RESETS=2", "patient"),
)
#: Bugs that only the model has.
MORE_BUGS: Final = (
    Bug("no_leave_time", "WAITERS=1 OPENERS=1"),
    Bug("finish_ignores_foreign", "RESETTERS=1 FOREIGN_RESETTERS=1"),
    Bug("join_after_finish", "RESETTERS=2"),
    Bug("open_ignores_foreign", "OPENERS=1 ENQUEUERS=1 FOREIGN_RESETTERS=1"),
    Bug("settle_in_steps", "MAKERS=1 RESETTERS=1 FOREIGN_RESETTERS=1", "patient"),
    Bug("last_turn_wakes_none", "MAKERS=1 RESETTERS=1 RESETS=2 FOREIGN_RESETTERS=1", "patient"),
)


def _explorations(scale: Scale) -> Iterable[Exploration]:
    rows = {Scale.QUICK: QUICK, Scale.DEFAULT: DEFAULT, Scale.SLOW: SLOW}[scale]
    # Short searches use -O0, because with -O2 the compiler would take longer than the search.
    optimise = "-O2" if scale is Scale.SLOW else "-O0"
    for users, modes in rows:
        for mode in modes.split():
            yield Exploration(DEVICE, tuple(users.split()), mode, optimise)


def _bugs(scale: Scale) -> tuple[Bug, ...]:
    return {Scale.QUICK: (), Scale.DEFAULT: BUGS, Scale.SLOW: BUGS + MORE_BUGS}[scale]


def _try(exploration: Exploration) -> Explored | SpinError:
    try:
        return explore(exploration)
    except SpinError as error:
        return error


def _report_model(outcome: Outcome, exploration: Exploration, explored: Explored | SpinError) -> None:
    if isinstance(explored, SpinError):
        outcome.findings.append(str(explored))
        return
    outcome.figures["models"].append(f"{exploration!s:<62} {explored}")
    outcome.figures["states in total"] += explored.states
    outcome.expect(
        not explored.error,
        f"{exploration}: expected no error, got {explored.error}; the end of the trail:\n{explored.trail}\n"
        f"to repeat it: spin -a {' '.join(exploration.defines)} tests/reliability/models/{exploration.model}",
    )


def _report_bug(outcome: Outcome, bug: Bug, explored: Explored | SpinError) -> bool:
    if isinstance(explored, SpinError):
        outcome.findings.append(str(explored))
        return False
    caught = bool(explored.error)
    outcome.figures["bugs caught"].append(f"{bug.name:<24} {bug.mode:<9} {explored.error or 'NOT CAUGHT'}")
    outcome.expect(caught, f"{bug.exploration}: expected an error, found none in {explored.states:,} states")
    return caught


def run(scale: Scale, seed: int) -> Outcome:
    """Explores the models of the scale. The seed has no effect: every order is tried."""
    del seed
    outcome = Outcome(not_run=missing())
    if outcome.not_run:
        return outcome
    figures: dict[str, Any] = {"models": [], "states in total": 0}
    outcome.figures = figures
    models, bugs = list(_explorations(scale)), _bugs(scale)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        explored = list(pool.map(_try, [*models, *(bug.exploration for bug in bugs)]))
    for exploration, one in zip(models, explored[: len(models)], strict=True):
        _report_model(outcome, exploration, one)
    if bugs:
        figures["bugs caught"] = []
        caught = [
            _report_bug(outcome, bug, one) for bug, one in zip(bugs, explored[len(models) :], strict=True)
        ]
        figures["bugs"] = f"{sum(caught)} of {len(bugs)} caught"
    return outcome
