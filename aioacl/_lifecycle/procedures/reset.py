"""One force reset.

The steps of a reset. Each has a time limit:

    hooks     the functions of `device.before_reset`, each with a time limit of its own; `timeout` begins after them
    turns     still OPEN: operations that waited for the previous reset may start, for at most a second
    drain     DRAINING: wait for leases, calls and work, at most `grace`; turns and drain take at most half of `timeout`
    abort     RESETTING: abort the work that still runs, all streams in parallel
    models    which models are idle is noted before the abort; these are unloaded after the barrier, if no fault has
              occurred. The others are abandoned
    barrier   wait until no call and no job is inside the device, for at most 10 seconds, or 5 if the last close waits.
              If one is still inside then, no reset is attempted: QUARANTINED
    reset     aclrtResetDeviceForce, aclrtSetDevice and a probe, on the control thread, at most three times.
              A reset of the scope "context" replaces the context instead. If that fails, the next attempt has the scope
              "device", unless other code may use the device and must not be disturbed
    revive    a new generation, OPEN
    hooks     the functions of `device.after_reset`, also after a reset that has failed

The barrier waits for every call that is inside the gate: calls that enqueue, calls that query, abort or wait (a round
of the watcher too), and calls that create or destroy. A job of `device.executor` is inside the gate unless it waits by
`result()`. During a reset, a call that enqueues or synchronizes a stream would crash the runtime, and a call that
creates or destroys would block it. Only with `waits="thread"`, threads may stay inside
aclrtSynchronizeEventWithTimeout. Calls through `lowlevel.functions` enter no gate, so no reset waits for them.

If a call on the control thread does not return in time, the thread stays in C. No second thread is started beside it: a
later procedure first waits for that thread.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn, cast

from aioacl._base import flight, ranges, sync
from aioacl._base.ffi import ffi, lib, next_generation
from aioacl._base.options import LONGEST_SECONDS
from aioacl._base.records import ResetReport, Stuck
from aioacl._base.states import RELEASED_ALREADY, State, Trigger
from aioacl._library import runtime
from aioacl._library.plog import log_of
from aioacl._lifecycle.gate import counts, inside
from aioacl._lifecycle.probe import probe
from aioacl._lifecycle.procedures import limits
from aioacl._lifecycle.procedures.procedure import Procedure
from aioacl._lifecycle.turns import TURN_SECONDS
from aioacl._wait.internal_call import InternalCall
from aioacl._wait.workers import WorkerStuck

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from aioacl._base.records import Scope
    from aioacl._lifecycle.hooks import When
    from aioacl._lifecycle.manager import Manager


NOT_RESET: Final = (
    "Only the context of aioacl was replaced, because other code has perhaps set the device: "
    "force_reset(foreign=True) resets the device too"
)
SUPERVISOR: Final = "a supervisor"  # in a report: it has requested the reset


class _Failed(Exception):
    """This procedure cannot bring the device back to OPEN."""


def name_of(holder: object) -> str:
    """Returns a short name of a task or a thread, for a report. A supervisor is a str.

    The name of an asyncio task includes its function, because the names of most asyncio tasks are only numbers.
    """
    if isinstance(holder, str):
        return holder
    if isinstance(holder, threading.Thread):
        return f"thread {holder.name}"
    if not isinstance(holder, asyncio.Task):  # a trio task
        return f"task {getattr(holder, 'name', holder)}"
    task = cast("asyncio.Task[object]", holder)
    function = getattr(task.get_coro(), "__qualname__", "")
    return f"task {task.get_name()}{function and f' ({function})'}"


class ResetProcedure(Procedure):
    """One force reset, with its report."""

    name = "reset"
    goes_on = "The reset continues: force_reset() joins it, and events() reports how it ends."

    def __init__(
        self,
        manager: Manager,
        *,
        grace: float,
        timeout: float,
        reason: str = "",
        by: object,
        scope: Scope = "device",
        may_widen: bool = False,
        permitted: bool = True,
        held_back: bool = False,
    ) -> None:
        super().__init__(manager)
        self.joined = 1
        self._scope: Scope = scope
        self._may_widen = may_widen
        self._permitted = permitted  # whether the device may be reset although other code has perhaps set it
        self._held_back = held_back  # whether the device is not reset, because of other code
        self._setups = lib.aio_device_setups(self.index)
        self._grace = min(grace, LONGEST_SECONDS)
        self._reason = reason
        self._by = name_of(by)
        self._limit = min(timeout, LONGEST_SECONDS)
        self._start_clock()
        self._stages: dict[str, float] = {}
        self._codes: list[tuple[str, int]] = []
        self._work = {"drained": 0, "aborted": 0, "not_aborted": 0}
        self._attempts = 0
        self._was_reset = False
        self._foreign_sets = 0
        self._hook_errors: tuple[str, ...] = ()
        self._report: ResetReport | None = None
        repairs = self._by == SUPERVISOR or manager.failures.last_fault is not None
        self._cause = "fault" if repairs else "request"

    def _start_clock(self) -> None:
        began = sync.monotonic()
        self._patient_until = began + self._limit / 2  # turns and drain end here: the reset needs time too
        self._end = began + self._limit

    @property
    def finished(self) -> bool:
        """Whether the reset has ended, so that new callers cannot join it. Call it with the lock held."""
        return self._report is not None

    @property
    def report(self) -> ResetReport:
        """The report, once the procedure has ended."""
        assert self._report is not None, "the procedure has not ended"
        return self._report

    def run(self) -> None:
        with ranges.around(f"aioacl reset: device {self.index}"):
            self._run()

    def _run(self) -> None:
        problem, stuck = "", tuple[Stuck, ...]()
        self._run_hooks("before_reset", self._scope)
        self._start_clock()
        try:
            self._ladder()
        except _Failed as failed:
            problem = str(failed)
            stuck = inside(self.index)
        self._finish(problem, stuck)
        if self._run_hooks("after_reset", self.report):
            with self.admission.changed:
                self._report = replace(self.report, hook_errors=self._hook_errors)
                self.admission.report = self._report

    def _run_hooks(self, when: When, argument: object) -> bool:
        """Runs the user's hooks. Returns whether one of them has failed."""
        hooks = self.manager.hooks
        if not hooks.any(when):
            return False
        with self._stage(when):
            errors = hooks.run(when, argument)
        self._hook_errors += errors
        return bool(errors)

    def _ladder(self) -> None:
        if self.admission.state is State.OPEN:
            self._give_turns()
            with self._stage("drain"):
                self._drain()
        with self.admission.changed:
            self.admission.revoke_leases()
            self.admission.apply(Trigger.SEIZE)
        self.manager.models.choose()
        with self._stage("abort"):
            self._abort()
        with self._stage("barrier"):
            self._barrier()
        self._bring_back()

    def _bring_back(self) -> None:
        self._call("aclrtDestroyEvent", self._destroy_events, limits.EVENTS_SECONDS)
        if self.manager.models.ids:
            self._call("aclmdlUnload", self._end_models, limits.MODELS_SECONDS)
        while not self._attempt():
            if self._attempts == limits.RESETS_TRIED:
                found = (f"{call} returned {code}" if code else call for call, code in self._codes)
                failed = ", ".join(dict.fromkeys(found))
                cure = f". {NOT_RESET}" if self._held_back else ""
                raise _Failed(f"the reset failed in all {limits.RESETS_TRIED} attempts: {failed}{cure}")

    def _end_models(self) -> int:
        """Unloads the idle models. After an earlier procedure has reset the device, their ids are not used."""
        was_reset = self.manager.counts.ended_generation == self.admission.generation
        return self.manager.models.end_all(healthy=not was_reset and self.manager.failures.last_fault is None)

    def _finish(self, problem: str, stuck: tuple[Stuck, ...]) -> None:
        admission = self.admission
        self.manager.failures.collect_known()  # the report names the cause of the first effect of a fault
        with admission.changed:
            event = Trigger.FAIL if problem else Trigger.REVIVE
            generation = admission.generation if problem else next_generation(admission.generation)
            self._report = self._make_report(problem, stuck, generation)
            if not problem:
                self.manager.failures.forget_faults()
            admission.apply(event, self._report, problem)
            if not problem:
                self._settle_foreign()
        self._count(self._cause, ok=not problem)
        lib.aio_device_flush(self.index)
        if not problem:
            self.manager.maintenance.submit(InternalCall(self._prepare))

    def _make_report(self, problem: str, stuck: tuple[Stuck, ...], generation: int) -> ResetReport:
        recent = flight.recent(self.index)
        return ResetReport(
            device=self.index,
            ok=not problem,
            generation=generation,
            reason=self._why(),
            requested_by=self._by,
            joined=self.joined,
            scope=self._scope,
            foreign_sets=self._foreign_sets,
            more_foreign_sets=self._uncounted,
            device_kept=self._device_kept(),
            attempts=self._attempts,
            codes=tuple(self._codes),
            stuck=stuck,
            stages=self._stages,
            problem=problem,
            hook_errors=self._hook_errors,
            recent=recent,
            cann_log=log_of(recent),
            **self._work,
        )

    def _why(self) -> str:
        """The reason. That of a supervisor is the cause, which may be known only now: its effects may come first."""
        if self._by != SUPERVISOR:
            return self._reason
        cause = self.manager.failures.cause
        return f"supervisor: {'it was quarantined' if cause is None else f'{cause.code} {cause.name}'}"

    def _device_kept(self) -> bool:
        """Whether the runtime was not released: it reports each set-up after a release."""
        return (
            self._was_reset
            and runtime.is_told_of_resets()
            and self._setups == lib.aio_device_setups(self.index)
        )

    @contextmanager
    def _stage(self, name: str) -> Generator[None]:
        begun = sync.monotonic()
        try:
            yield
        finally:
            spent = (sync.monotonic() - begun) * 1000
            self._stages[name] = self._stages.get(name, 0.0) + spent

    def _spent(self) -> str:
        return ", ".join(f"{name} {spent / 1000:.1f} s" for name, spent in self._stages.items())

    def _left(self, at_most: float) -> float:
        return max(0.0, min(at_most, self._end - sync.monotonic()))

    # --- drain, abort, barrier ----------------------------------------------------------------------------------------

    def _give_turns(self) -> None:
        """Lets the operations that waited for the previous reset start first."""
        admission, end = self.admission, min(sync.monotonic() + TURN_SECONDS, self._patient_until)
        with self._stage("turns"), admission.changed:
            while admission.turns.due and (left := end - sync.monotonic()) > 0:
                admission.changed.wait(left)
            admission.turns.forget()

    def _drain(self) -> None:
        self._apply(Trigger.DRAIN)
        end = min(sync.monotonic() + self._grace, self._patient_until)
        # What may enqueue is counted before the work: it may enqueue and end between the two counts.
        quiet, busy = self._quiet(), self._busy(end, 0)
        most_busy, nap = busy, limits.SHORTEST_NAP
        while not self._drained(quiet, busy) and sync.monotonic() < end:
            with self.admission.changed:
                self.admission.changed.wait(min(nap, max(0.0, end - sync.monotonic())))
            nap = min(nap * 2, limits.LONGEST_NAP)
            quiet, busy = self._quiet(), self._busy(end, busy)
            most_busy = max(most_busy, busy)
        self._work["drained"] = most_busy - busy

    def _busy(self, end: float, before: int) -> int:
        """The number of streams with work, or `before` if the number is not known in time.

        The control thread makes the queries, so that this thread can report a query that hangs.
        """
        left = end - sync.monotonic()
        with suppress(WorkerStuck):
            if left > 0:
                return self.manager.control.call(lambda: int(lib.aio_device_busy(self.index)), left)
        return before

    def _quiet(self) -> bool:
        """Whether nothing is inside the device that may enqueue."""
        with self.admission.changed:  # jobs leave and enter the device with this lock held
            enqueueing, _, lifetime = counts(self.index)
            return not (self.admission.leases or self.manager.jobs.outside or enqueueing or lifetime)

    def _drained(self, quiet: bool, busy: int) -> bool:
        if lib.aio_gate_foreign(self.index) or self._close_waits():
            return True  # a foreign reset or the last close has ended the work that the drain waits for
        return quiet and not busy and not lib.aio_device_waits(self.index)

    def _abort(self) -> None:
        if self.manager.counts.ended_generation == self.admission.generation:
            return  # an earlier procedure has reset the device but has not brought it back to OPEN
        outcome = ffi.new("int32_t[3]")
        limit = int(self._left(limits.ABORT_SECONDS) * 1e6)
        with self.manager.jobs.named.in_use() as named:
            streams = ffi.new("void *[]", [ffi.cast("void *", address) for address in named])
            lib.aio_device_abort_named(self.index, streams, len(named), limit, outcome)
        self._work["aborted"] = outcome[0]
        self._work["not_aborted"] = outcome[1] + outcome[2]

    def _barrier(self) -> None:
        lib.aio_watcher_wake(self.index)
        if not self._all_leave_within(self._left(limits.BARRIER_SECONDS), limits.CLOSE_SECONDS):
            self._refuse()

    def _refuse(self) -> NoReturn:
        calls = "; ".join(
            f"{call.function} on thread {call.thread} for {call.seconds:.1f} s" for call in inside(self.index)
        )
        raise _Failed(f"no reset was attempted, because a thread is still inside a call: {calls}")

    # --- reset, set, probe --------------------------------------------------------------------------------------------

    def _attempt(self) -> bool:
        self._attempts += 1
        before = self.manager.counts.ended_generation
        # This is noted before the call, because a call that does not return in time may still succeed later.
        self.manager.counts.ended_generation = self.admission.generation
        limit = limits.RESET_SECONDS + limits.DROP_SECONDS * self._work["not_aborted"]
        self._choose_scope()
        replace = self._replace_context if self._scope == "context" else self._reset_device
        ended, is_set_again = replace(limit)
        if not ended:
            self.manager.counts.ended_generation = before  # the reset failed, so the context still exists
        if not is_set_again:
            return False
        with self._stage("probe"):
            return self._call("probe", self._probe, self._end - sync.monotonic()) == 0

    def _choose_scope(self) -> None:
        """Widens the scope after a failure, unless other code has set the device since the reset began."""
        if not (self.manager.own_context.wanted and self._may_widen):
            return
        if not self._may_reset_device():
            self._scope, self._held_back = "context", True
        elif self._attempts > 1:
            self._scope = "device"

    def _may_reset_device(self) -> bool:
        return self._permitted or self.manager.counts.are_alone

    def _must_be_permitted(self) -> None:
        if not self._may_reset_device():
            raise _Failed(
                "no reset was made, because other code has set the device since force_reset() was called: "
                "force_reset(foreign=True) resets it all the same"
            )

    def _reset_device(self, limit: float) -> tuple[bool, bool]:
        """Resets and sets the device. Returns whether the context was ended, and whether there is a new one.

        No context of aioacl's own may exist meanwhile, because it would keep the device.
        """
        own, counts = self.manager.own_context, self.manager.counts
        with self._stage("reset"):
            self._must_be_permitted()
            if own.wanted and self._call("aclrtDestroyContext", own.end, limit) not in (0, RELEASED_ALREADY):
                return False, False
            faulty = self._attempts > 1 or self.manager.failures.last_fault is not None
            reset = partial(self._reset_force, faulty=faulty)
            self._must_be_permitted()  # again, because other code may have set the device during the destroy
            if self._call("aclrtResetDeviceForce", reset, limit) not in (0, RELEASED_ALREADY):
                return own.wanted, False
            self._was_reset = True
            self._foreign_sets = counts.owed
        with self._stage("set"):
            if self._call("aclrtSetDevice", self._restore_sets, self._end - sync.monotonic()):
                return True, False
            return True, self._call(self._set_call, self._set, self._end - sync.monotonic()) == 0

    def _replace_context(self, limit: float) -> tuple[bool, bool]:
        """Makes a new context before it destroys the old one, so that the device is not released in between.

        The memory is freed last, because until then unfinished work may use it.
        """
        own = self.manager.own_context
        with self._stage("set"):
            if self._call("aclrtCreateContext", own.make, self._end - sync.monotonic()):
                return False, False
        with self._stage("reset"):
            if self._call("aclrtDestroyContext", lambda: own.end_all_but(1), limit):
                return False, False
            self._call("aclrtFree", self._free_kept, limits.RESET_SECONDS)
        return True, True

    def _probe(self) -> int:
        failed = probe(self.index, self.manager.counts.foreign_resets_seen)
        if failed is None:
            return 0
        self._codes.append(failed)
        return failed[1] or -1

    def _call(self, name: str, work: Callable[[], int], limit: float) -> int:
        seconds = self._left(limit)
        if not seconds:
            raise _Failed(f"no time was left for {name}; time spent: {self._spent()}")
        try:
            code = self.manager.control.call(work, seconds)
        except WorkerStuck:
            raise _Failed(f"{self._holds_up() or name} did not return in time") from None
        if code and name not in ("probe", "aclrtFree") and code != RELEASED_ALREADY:
            self._codes.append((name, code))
        return code
