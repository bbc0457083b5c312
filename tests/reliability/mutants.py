"""The tests notice bugs in the code: bugs that break the protocol, small bugs in Python, one-line changes in C.

Each bug is tried with its own tests. Quick: one protocol bug. By default: the protocol bugs in C, and some of the other
protocol bugs and small bugs, chosen by the seed. Slow: all bugs; 160 mutants of the lifecycle's modules, drawn from all
mutants that mutmut generates; and all one-line changes to the engine. The tests must notice nine in ten mutants and
one-line changes. Only copies of the installed package are changed; tests and C sources are those of the checkout.
"""

from __future__ import annotations

import random
import re
import tempfile
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.reliability import rebuilt
from tests.reliability.killing import BROKEN, HUNG, KILLED, SURVIVED, Copies, Ended, Job, Plan, package_copies
from tests.reliability.names import ROOT, missing
from tests.reliability.part import Outcome, Scale

if TYPE_CHECKING:
    from tests.reliability.killing import Reporter
    from tests.reliability.mutation import Mutant

LIMIT_SECONDS: Final = {Scale.QUICK: 40.0, Scale.DEFAULT: 200.0, Scale.SLOW: 3000.0}
HERE: Final = Path(__file__).resolve().parent
QUICK_BUGS: Final = ("two_procedures",)
# The numbers of bugs in Python. All bugs in C are tried: they take almost no time once the engine is built.
DEFAULT_BUGS: Final = 4
DEFAULT_SMALL_BUGS: Final = 2
MUST_BE_NOTICED: Final = 0.9
PYTHON_MUTANTS: Final = 160
LONGEST_SECONDS: Final = 2.5
BUG_SECONDS: Final = 5.0  # the time limit of each test of a bug; a test that exceeds it counts as hung

# For each module, the tests that notice most of its changes. These run first, in this order.
FIRST: Final = {
    "_base/states": (
        "tests/unit/base/test_states.py",
        "tests/unit/lifecycle/test_admission.py",
        "tests/unit/lifecycle/test_counts.py",
    ),
    "_lifecycle/manager": (
        "tests/unit/test_device.py",
        "tests/unit/lifecycle/test_procedures.py",
        "tests/unit/lifecycle/test_reset.py",
    ),
    "_lifecycle/admission": (
        "tests/unit/base/test_states.py",
        "tests/unit/lifecycle/test_admission.py",
        "tests/unit/lifecycle/test_counts.py",
        "tests/unit/lifecycle/test_lease.py",
        "tests/unit/lifecycle/test_procedures.py",
    ),
    "_lifecycle/lease": (
        "tests/unit/lifecycle/test_lease.py",
        "tests/unit/handles/test_dropped.py",
        "tests/unit/test_misuse.py",
    ),
    "_lifecycle/turns": ("tests/unit/test_contract.py", "tests/unit/lifecycle/test_lease.py"),
    "_lifecycle/procedures/close": (
        "tests/unit/lifecycle/test_procedures.py",
        "tests/unit/lifecycle/test_foreign.py",
        "tests/unit/lifecycle/test_foreign_set.py",
        "tests/unit/test_device.py",
    ),
    "_lifecycle/procedures/procedure": (
        "tests/unit/lifecycle/test_procedures.py",
        "tests/unit/lifecycle/test_foreign.py",
        "tests/unit/lifecycle/test_foreign_set.py",
        "tests/unit/test_device.py",
    ),
    "_lifecycle/procedures/open": ("tests/unit/test_device.py", "tests/unit/lifecycle/test_procedures.py"),
    "_lifecycle/procedures/foreign": (
        "tests/unit/lifecycle/test_foreign.py",
        "tests/unit/lifecycle/test_foreign_set.py",
    ),
    "_lifecycle/counts": (
        "tests/unit/lifecycle/test_counts_beside.py",
        "tests/unit/lifecycle/test_foreign_set.py",
        "tests/unit/test_device.py",
    ),
    "_lifecycle/failures": ("tests/unit/handles/test_uncollected.py", "tests/unit/lifecycle/test_faults.py"),
    "_lifecycle/deferred": ("tests/unit/handles/test_garbage.py", "tests/unit/lifecycle/test_maintenance.py"),
    "_lifecycle/procedures/reset": (
        "tests/unit/lifecycle/test_reset.py",
        "tests/unit/lifecycle/test_reset_failing.py",
        "tests/unit/lifecycle/test_reset_stuck.py",
        "tests/unit/test_contract.py",
    ),
    "_lifecycle/executor": ("tests/unit/lifecycle/test_executor.py",),
    "_lifecycle/jobs": ("tests/unit/lifecycle/test_executor.py", "tests/unit/lifecycle/test_job_waits.py"),
    "_wait/port": ("tests/unit/wait/test_port.py", "tests/unit/handles/test_awaits.py"),
    "_wait/asyncio": ("tests/unit/wait/test_port.py", "tests/unit/handles/test_awaits.py"),
    "_wait/thread": ("tests/unit/wait/test_port.py", "tests/unit/handles/test_awaits.py"),
    "_wait/current": ("tests/unit/wait/test_port.py", "tests/unit/handles/test_awaits.py"),
}
# For a file of the engine, the native tests that run first; for files not named here, these are in test_stream.c.
LISTS: Final = {
    "gate.c": "gate",
    "abort.c": "abort",
    "foreign.c": "abort",
    "foreignstop.c": "other_code",
    "port.c": "port",
    "rounds.c": "waits",
    "lent.c": "rounds",
    "watcher.c": "waits",
    "waiters.c": "workers",
    "exit.c": "ends",
    "outcome.c": "outcome",
    "failure.c": "failure",
    "collect.c": "failure",
    "attribution.c": "failure",
    "report.c": "failure",
    "link.c": "links",
    "confirm.c": "confirm",
    "device.c": "confirm",
    "record.c": "stage",
    "wake.c": "confirm",
    "nudge.c": "confirm",
    "enqueue.c": "failure",
    "stage.c": "stage",
    "staged.c": "stage",
}
REST: Final = (
    "tests/unit/base/test_states.py",
    "tests/unit/lifecycle/test_admission.py",
    "tests/unit/lifecycle/test_counts.py",
    "tests/unit/test_device.py",
    "tests/unit/wait/test_port.py",
    "tests/unit/lifecycle/test_lease.py",
    "tests/unit/lifecycle/test_procedures.py",
    "tests/unit/wait/test_interrupts.py",
    "tests/unit/lifecycle/test_foreign.py",
    "tests/unit/lifecycle/test_foreign_set.py",
    "tests/unit/lifecycle/test_foreign_unmet.py",
    "tests/unit/lifecycle/test_late.py",
    "tests/unit/lifecycle/test_reset.py",
    "tests/unit/lifecycle/test_reset_failing.py",
    "tests/unit/lifecycle/test_reset_stuck.py",
    "tests/unit/lifecycle/test_executor.py",
    "tests/unit/lifecycle/test_job_waits.py",
    "tests/unit/lifecycle/test_counts_beside.py",
    "tests/unit/lifecycle/test_notifications.py",
    "tests/unit/test_contract.py",
    "tests/unit/handles/test_awaits.py",
    "tests/unit/handles/test_stale.py",
    "tests/unit/lifecycle/test_faults.py",
    "tests/unit/handles/test_stream.py",
    "tests/unit/handles/test_event.py",
    "tests/unit/wait/test_threads.py",
    "tests/unit/lifecycle/test_foreign_found.py",
    "tests/unit/lifecycle/test_maintenance.py",
    "tests/unit/lifecycle/test_closing.py",
    "tests/unit/handles/test_garbage.py",
    "tests/unit/handles/test_memory.py",
    "tests/unit/handles/test_use_guards.py",
    "tests/unit/lifecycle/test_turns.py",
    "tests/unit/wait/test_cancel.py",
    "tests/process/test_exit.py",
    "tests/process/test_fork.py",
    "tests/process/test_limits.py",
)


@dataclass(frozen=True)
class Patch:
    """A change written by hand."""

    file: str
    find: str
    replace: str
    name: str = ""
    what: str = ""
    tests: list[str] = field(default_factory=list)
    survives: str = ""

    @property
    def in_c(self) -> bool:
        """Whether the patch changes the engine."""
        return self.file.endswith(".c")

    def __str__(self) -> str:
        return self.name or f"{self.file}: `{one_line(self.find)}` became `{one_line(self.replace)}`"

    def apply(self, text: str) -> str:
        """Returns the changed text. Raises ValueError if the text to change does not occur exactly once."""
        if text.count(self.find) != 1:
            raise ValueError(
                f"{self}: expected the text to change once, got it {text.count(self.find)} times"
            )
        return text.replace(self.find, self.replace)


def one_line(text: str) -> str:
    """Returns a piece of code on one line, for a list."""
    return " ".join(text.split())


def patches(kind: str) -> list[Patch]:
    """Returns the patches of that kind."""
    table: dict[str, list[dict[str, Any]]] = tomllib.loads((HERE / "patches.toml").read_text())
    return [Patch(**row) for row in table[kind]]


def survivors() -> dict[str, list[dict[str, str]]]:
    """Returns the tables of survivors.toml."""
    return tomllib.loads((HERE / "survivors.toml").read_text())


class Exemptions:
    """The mutants that no test can notice, and that are therefore not drawn."""

    def __init__(self) -> None:
        table = survivors()
        self._single = {(row["module"], row["was"], row["becomes"]) for row in table.get("survivor", [])}
        self._families = [
            (re.compile(row["was"]), re.compile(row["becomes"])) for row in table.get("family", [])
        ]

    def __contains__(self, mutant: Mutant) -> bool:
        single = (mutant.module, mutant.was, mutant.becomes) in self._single
        return single or any(
            was.search(mutant.was) and becomes.search(mutant.becomes) for was, becomes in self._families
        )


# --- names in the tables ------------------------------------------------------------------------


def problems() -> list[str]:
    """Returns a line for each named module, test or file that does not exist, and for each stale exemption."""
    tests = [*REST, *(file for files in FIRST.values() for file in files)]
    tests += [test for kind in ("bug", "small", "mutant") for patch in patches(kind) for test in patch.tests]
    tests = [re.sub("^native:(\\w+)$", r"tests/native/\1.c", test) for test in tests]
    found = missing(dict.fromkeys(tests))
    found += missing(f"aioacl/{module}.py" for module in FIRST)
    found += missing(f"aioacl/_native/{file}" for file in LISTS)
    found += missing(f"tests/native/test_{name}.c" for name in dict.fromkeys([*LISTS.values(), "stream"]))
    names = {patch.name for patch in patches("bug")}
    found += [
        f"{name}: expected a bug of that name in patches.toml, found none; correct QUICK_BUGS"
        for name in QUICK_BUGS
        if name not in names
    ]
    return found or stale_exemptions()


def stale_exemptions() -> list[str]:
    """Returns a line for each row of survivors.toml about code that no longer exists."""
    texts = {name: (ROOT / "aioacl" / f"{name}.py").read_text() for name in FIRST}
    joined = {name: one_line(text) for name, text in texts.items()}
    table = survivors()
    found = [
        f"survivors.toml: `{row['was']}` is not in {row['module']}; correct or delete the row"
        for row in table["survivor"]
        if one_line(row["was"]) not in joined.get(row["module"], "")
    ]
    lines = [line.strip() for text in texts.values() for line in text.splitlines()]
    return found + [
        f"survivors.toml: {row['was']} matches no line; correct or delete the row"
        for row in table["family"]
        if not any(re.search(row["was"], line) for line in lines)
    ]


def plan_for(module: str, base: Plan) -> Plan:
    """Returns the plan for changes of a module: its own tests come first."""
    first = FIRST.get(module, ())
    files = (*first, *(file for file in REST if file not in first))
    return Plan(files, durations=base.durations, kills=base.kills, longest=base.longest, group=module)


class Tally:
    """Counts the noticed and the unnoticed changes of one kind."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.kinds: Counter[str] = Counter()
        self.survivors: list[str] = []
        self.by: Counter[str] = Counter()
        self.broken: list[str] = []

    def add(self, job: Job, ended: Ended, reason: str = "") -> None:
        """Adds one run."""
        self.kinds[ended.kind] += 1
        if ended.kind == BROKEN:
            self.broken.append(f"{job.name}: expected to try this change, got {ended.log}")
        elif ended.kind == SURVIVED:
            self.survivors.append(f"{job.name}{': ' if reason else ''}{reason}")
        else:
            self.by[ended.by.partition("::")[0]] += 1

    @property
    def total(self) -> int:
        """The number of changes that were tried."""
        return sum(self.kinds.values())

    def report(self, outcome: Outcome, least: float = MUST_BE_NOTICED) -> None:
        """Adds the figures, and a finding if too few changes were noticed."""
        noticed = self.kinds[KILLED] + self.kinds[HUNG]
        outcome.findings += self.broken
        text = f"{noticed} of {self.total} noticed, {self.kinds[KILLED]} by a failure, {self.kinds[HUNG]} by a hang"
        outcome.figures[self.what] = text
        if self.survivors:
            outcome.figures[f"{self.what}: survivors"] = self.survivors
        outcome.figures[f"{self.what}: noticed by"] = dict(self.by.most_common(6))
        outcome.expect(
            noticed >= least * self.total,
            f"{self.what}: expected {least:.0%} to be noticed, got {text}: {'; '.join(self.survivors)}",
        )


# --- C ------------------------------------------------------------------------------------------------------------


def try_natively(
    engine: rebuilt.Engine, patch: Patch | None, place: Path, copy: Path, reporter: Reporter
) -> None:
    """Builds the changed engine in the child, runs the native tests, and for pytest also links the extension."""
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder = Path(name)
        source = patch.file if patch else "gate.c"
        text = (rebuilt.ENGINE / source).read_text()
        objects = engine.changed(source, patch.apply(text) if patch else text, folder)
        reporter.pytest_runtest_logstart("a build")
        engine.try_lists(objects, folder, reporter, LISTS.get(source, "stream"))
        if engine.for_python:
            target = next((copy / "aioacl").glob("_acl.*.so"))
            target.unlink()
            engine.extension(objects, target)


def c_job(engine: rebuilt.Engine, patch: Patch, place: Path, plan: Plan) -> Job:
    """Returns the job that tries a changed engine."""
    return Job(str(patch), plan, before=partial(try_natively, engine, patch, place))


# --- the three kinds ----------------------------------------------------------------------------------------------


def bug_job(patch: Patch, copies: Copies, engine: rebuilt.Engine | None, place: Path) -> Job | None:
    """Returns the job for a bug and its tests; None if the bug is in C and the C sources are missing."""
    if not patch.in_c:
        plan = Plan(tuple(patch.tests), group=patch.name, patience=BUG_SECONDS)
        return Job(patch.name, plan, {patch.file: patch.apply(copies.source(patch.file))})
    return None if engine is None else c_job(engine, patch, place, Plan(()))


def chosen_bugs(scale: Scale, seed: int) -> dict[str, list[Patch]]:
    """Returns, by kind, the bugs to try at a scale. Each of these bugs has its own tests."""
    bugs, small_bugs = patches("bug"), patches("small")
    if scale is Scale.QUICK:
        return {"protocol bugs": [one for one in bugs if one.name in QUICK_BUGS]}
    if scale is Scale.DEFAULT:
        chance = random.Random(seed)
        some = chance.sample([one for one in bugs if not one.in_c], DEFAULT_BUGS)
        bugs = [one for one in bugs if one.in_c or one in some]
        small_bugs = chance.sample(small_bugs, DEFAULT_SMALL_BUGS)
    return {"protocol bugs": bugs, "small bugs": small_bugs}


def try_bugs(
    outcome: Outcome,
    copies: Copies,
    engine: rebuilt.Engine | None,
    place: Path,
    kinds: dict[str, list[Patch]],
) -> None:
    """Tries bugs with their own tests, which must notice each bug and pass without it."""
    chosen = [patch for of_kind in kinds.values() for patch in of_kind]
    tests = tuple(dict.fromkeys(test for patch in chosen if not patch.in_c for test in patch.tests))
    natively = partial(try_natively, engine, None, place) if engine else None
    everywhere = engine is not None and engine.for_python
    for problem in copies.baseline(Plan(tests), natively, everywhere=everywhere):
        outcome.findings.append(f"unchanged: {problem}")
    for what, of_kind in kinds.items():
        tally = Tally(what)
        jobs = [bug_job(patch, copies, engine, place) for patch in of_kind]
        for job, ended in copies.run(job for job in jobs if job is not None):
            tally.add(job, ended)
        tally.report(outcome, 1.0)


def drawn(copies: Copies, count: int, seed: int) -> tuple[list[Mutant], int, int]:
    """Draws mutants. Returns them, the number of exempt mutants that were drawn and left out, and the total."""
    from tests.reliability.mutation import Mutants

    modules = [Mutants(name, copies.source(f"{name}.py")) for name in FIRST]
    every = [(mutants, number) for mutants in modules for number in range(len(mutants))]
    known = Exemptions()
    random.Random(seed).shuffle(every)
    found: list[Mutant] = []
    exempt = 0
    for mutants, number in every:
        if len(found) == count:
            break
        mutant = mutants[number]
        if mutant in known:
            exempt += 1
        else:
            found.append(mutant)
    return found, exempt, len(every)


def try_python(outcome: Outcome, copies: Copies, count: int, seed: int) -> Plan:
    """Tries mutants of the lifecycle's modules; returns the plan with the times of the tests."""
    chosen, exempt, every = drawn(copies, count, seed)
    base = Plan(REST)
    for problem in copies.baseline(base):
        outcome.findings.append(f"unchanged: {problem}")
    base.longest = LONGEST_SECONDS
    plans = {name: plan_for(name, base) for name in FIRST}
    tally = Tally("Python mutants")
    by_name = {str(mutant): mutant for mutant in chosen}
    jobs = (
        Job(name, plans[mutant.module], {f"{mutant.module}.py": mutant.text})
        for name, mutant in by_name.items()
    )
    for job, ended in copies.run(jobs):
        tally.add(job, ended)
        if ended.kind == KILLED:
            base.kills[job.plan.group, ended.by] += 1
            base.kills["", ended.by] += 1
    outcome.figures["mutants in total"] = every
    outcome.figures["drawn and left out, because exempt in survivors.toml"] = exempt
    tally.report(outcome)
    return base


def try_c(outcome: Outcome, copies: Copies, engine: rebuilt.Engine, place: Path, base: Plan) -> None:
    """Tries the one-line changes to the engine."""
    tally = Tally("C mutants")
    table = {str(patch): patch for patch in patches("mutant")}
    plan = plan_for("c", base)
    for job, ended in copies.run(c_job(engine, patch, place, plan) for patch in table.values()):
        tally.add(job, ended, table[job.name].survives)
        if ended.kind == KILLED:
            plan.kills["c", ended.by] += 1
    tally.report(outcome)


def check_patches(outcome: Outcome, copies: Copies, *, in_c: bool) -> bool:
    """Checks that the code still contains the text of each patch."""
    fits = True
    for patch in patches("bug") + patches("small") + patches("mutant"):
        if patch.in_c and not in_c:
            continue
        try:
            patch.apply(
                (rebuilt.ENGINE / patch.file).read_text() if patch.in_c else copies.source(patch.file)
            )
        except ValueError as gone:
            fits = False
            outcome.findings.append(f"patches.toml: {gone}")
    return fits


def run(scale: Scale, seed: int) -> Outcome:
    """Tries the changes; each copy of the package has one change at a time."""
    outcome = Outcome(findings=problems())
    if outcome.findings:
        return outcome
    lacking = rebuilt.missing()
    outcome.not_run = f"C: {lacking}" if lacking and scale is not Scale.QUICK else ""
    with package_copies() as (copies, place):
        if not check_patches(outcome, copies, in_c=not lacking):
            return outcome
        engine = None
        if scale is not Scale.QUICK and not lacking:
            engine = rebuilt.Engine(place / "engine", copies.library, extension=scale is Scale.SLOW)
        try_bugs(outcome, copies, engine, place, chosen_bugs(scale, seed))
        if scale is Scale.SLOW:
            base = try_python(outcome, copies, PYTHON_MUTANTS, seed)
            if engine is not None:
                try_c(outcome, copies, engine, place, base)
    return outcome
