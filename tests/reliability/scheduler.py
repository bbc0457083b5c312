"""A cooperative scheduler for the threads of aioacl: real threads run one at a time, in a chosen order.

Theory of operation. `Scheduler` is a backend of `aioacl._base.sync`. It schedules every thread that the lifecycle
starts, and every thread of a scenario. One of these threads runs at a time; each of the others sleeps on a lock of its
own (`wakeup`). At a *point*, the running thread lists the threads that can go on. A point is where a lock is taken or
released, or a thread is started. A wait for a condition, a descriptor or calls in C is a point too. `Grain` selects
some of these. If more than one thread can go on, the strategy chooses one: a *decision*. The list of decisions is the
schedule. The same decisions make the same run.

No thread waits in the kernel for its condition. Instead, the condition is evaluated at each point: the lock is free,
the thread was notified, the descriptor is readable, or no call is inside C (polled with a time of 0).

The clock is virtual. It does not advance while any thread can go on, and jumps to the next deadline when no thread can.
With `patience`, a strategy may also let the clock jump while threads can go on, but only up to that many seconds after
the beginning. If no thread can go on and no thread has a deadline, there is a deadlock, which is reported with all
stacks.

The engine's own threads (for instance the watcher) and the simulator's are not scheduled. A call into C is one step,
even if the call waits for these threads. Their order has no effect in the scenarios, because no stream has work when it
is awaited. `engine_at_work` returns whether the engine must still complete an await. If so, and no thread can go on,
the scheduler waits in real time for the completion before it moves the clock. Such a schedule may not be replayable.
"""

from __future__ import annotations

import select
import sys
import threading
import traceback
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

CLOCK: Final = -1  # not a thread: the clock jumps to the next deadline although a thread could go on
DROP: Final = -2  # not a thread: the running thread drops the last reference to an object
DRIVER: Final = 0
BEGINNING: Final = 1000.0
POINTS_AT_MOST: Final = 50_000
HANG_SECONDS: Final = 60.0
ENGINE_SECONDS: Final = 2.0
GLANCE_SECONDS: Final = 0.002
_HIDDEN: Final = (__file__, threading.__file__)  # files whose frames are in every stack, and are not shown


class Stuck(BaseException):
    """The run cannot go on, for example because every thread waits for ever."""


class Grain(Enum):
    """The steps that are points."""

    COARSE = "coarse"  # before each possible wait, and after each step that ends a wait: enough if locks guard all data
    LOCKS = "locks"  # in addition, where a lock is released
    CROSSINGS = "crossings"  # in addition to these, before calls into C that other threads can notice


class Strategy(Protocol):
    """Chooses the thread that goes on."""

    def pick(self, options: Sequence[int], current: int) -> int:
        """Returns one of the options: a thread's number, CLOCK or DROP. If `current` is an option, it is running."""
        ...


class Actor:
    """A thread of a run, and the condition for which it waits."""

    __slots__ = ("deadline", "ended", "fd", "name", "notified", "number", "ready", "thread", "wakeup")

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.wakeup = threading.Lock()
        self.wakeup.acquire()
        self.thread: threading.Thread | None = None
        self.ready: Callable[[], object] | None = None
        self.deadline: float | None = None
        self.notified = False
        self.fd = -1
        self.ended = False

    def description(self) -> str:
        """Returns the thread's name, deadline and stack."""
        frames = sys._current_frames()
        frame = frames.get(self.thread.ident or 0) if self.thread else None
        steps = (
            [step for step in traceback.extract_stack(frame) if step.filename not in _HIDDEN] if frame else []
        )
        stack = "".join(traceback.format_list(steps))
        return f"thread {self.number} {self.name}, deadline {self.deadline}:\n{stack}"


class _Lock:
    """A lock. Taking the lock is a point, and so is releasing it unless the grain is coarse."""

    __slots__ = ("_scheduler", "owner")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.owner: object = None

    def free(self) -> bool:
        return self.owner is None

    def __enter__(self) -> bool:
        self._scheduler.point(self.free)
        self.owner = self._scheduler.current
        return True

    def __exit__(self, *_: object) -> None:
        self.owner = None
        if not self._scheduler.coarse:
            self._scheduler.point()


class _Condition:
    """A condition with a lock of its own."""

    __slots__ = ("_lock", "_scheduler", "_waiting")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = _Lock(scheduler)
        self._waiting: list[Actor] = []

    def __enter__(self) -> bool:
        return self._lock.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.__exit__()

    def wait(self, timeout: float | None = None) -> bool:
        scheduler, lock = self._scheduler, self._lock
        me = scheduler.current
        assert lock.owner is me, "expected the waiting thread to hold the lock"
        assert me is not None, "expected a thread of the run: no other thread can wait"
        me.notified = False
        self._waiting.append(me)
        lock.owner = None
        notified = scheduler.point(lambda: me.notified and lock.owner is None, timeout)
        if not notified:
            scheduler.point(lock.free)
            if me in self._waiting:
                self._waiting.remove(me)
        lock.owner = me
        return notified

    def notify_all(self) -> None:
        for actor in self._waiting:
            actor.notified = True
        self._waiting.clear()


class Scheduler:
    """A backend of `aioacl._base.sync`, for many runs one after another: objects of a run may outlive it."""

    def __init__(self) -> None:
        self.current: Actor | None = None
        self.actors: list[Actor] = []
        self._alive: list[Actor] = []
        self.now = BEGINNING
        self.fine = False
        self.coarse = False
        self.exploring = False
        self.patience = 0.0
        self.garbage: list[object] = []
        self.decisions: list[int] = []
        self.problems: list[str] = []
        self.points = 0
        self.engine_at_work: Callable[[], object] = bool
        self._strategy: Strategy | None = None
        self._quiet = False
        self._over = threading.Lock()
        self._epoll = select.epoll()
        self._readers: dict[int, Actor] = {}
        self._readable: set[int] = set()

    # --- the interface of aioacl._base.sync -------------------------------------------------------------------

    def lock(self) -> _Lock:
        return _Lock(self)

    def condition(self) -> _Condition:
        return _Condition(self)

    def monotonic(self) -> float:
        return self.now

    def spawn(self, name: str, body: Callable[[], object]) -> None:
        actor = Actor(len(self.actors), name)
        actor.thread = threading.Thread(target=self._run_actor, args=(actor, body), name=name, daemon=True)
        actor.thread.start()
        self.actors.append(actor)
        self._alive.append(actor)
        self.point()

    def readable(self, fd: int, timeout: float | None) -> bool:
        me = self.current
        assert me is not None, "expected a thread of the run: no other thread can wait"
        self._readers[fd] = me
        self._epoll.register(fd, select.EPOLLIN)
        try:
            return self.point(lambda: fd in self._readable, timeout)
        finally:
            self._epoll.unregister(fd)
            self._readable.discard(fd)
            del self._readers[fd]

    def settled(self, ask: Callable[[float], bool], timeout: float) -> bool:
        return self.point(lambda: ask(0.0), timeout)

    # --- points -----------------------------------------------------------------------------------------------

    def crossing(self) -> None:
        """A point before a call into C."""
        if self.fine:
            self.point()

    def point(self, ready: Callable[[], object] | None = None, timeout: float | None = None) -> bool:
        """Lets other threads run. Returns True once the condition holds, or False after the time limit."""
        me = self.current
        if me is None or self._quiet:
            if ready is not None and not ready():
                raise Stuck(
                    "expected no wait in a finalizer or in a thread outside of the run; it could never end"
                )
            return True
        me.ready = ready
        me.deadline = None if timeout is None else self.now + max(0.0, timeout)
        self._switch(me)
        held = ready is None or bool(ready())
        me.ready = me.deadline = None
        return held

    def _able(self) -> list[int]:
        """The threads that can go on."""
        if len(self._readable) < len(self._readers):
            self._readable.update(fd for fd, _ in self._epoll.poll(0))
        able = list[int]()
        for actor in self._alive:
            late = actor.deadline is not None and actor.deadline <= self.now
            if late or actor.ready is None or actor.ready():
                able.append(actor.number)
        return able

    def _next_deadline(self) -> float | None:
        return min(
            (
                actor.deadline
                for actor in self._alive
                if actor.deadline is not None and actor.deadline > self.now
            ),
            default=None,
        )

    def _decide(self, me: Actor) -> int:
        """Chooses a thread that goes on."""
        self.points += 1
        if self.points > POINTS_AT_MOST:
            raise Stuck(f"expected the run to end within {POINTS_AT_MOST} points, but it still runs")
        if not self.exploring and not me.ended and (me.ready is None or me.ready()):
            return me.number
        while True:
            options = self._able()
            if not options:
                self._wait_for_time()
                continue
            mine = me.number in options
            if not self.exploring or self._strategy is None:
                return options[0]
            if self.garbage:
                options.append(DROP)
            if self._may_jump():
                options.append(CLOCK)
            if len(options) == 1:
                return options[0]
            chosen = self._strategy.pick(options, me.number if mine else DRIVER - 10)
            self.decisions.append(chosen)
            if chosen >= 0:
                return chosen
            self._apply_event(chosen)

    def _may_jump(self) -> bool:
        """Whether the clock may jump although a thread could go on."""
        if not self.patience:
            return False
        following = self._next_deadline()
        return following is not None and following <= BEGINNING + self.patience

    def _apply_event(self, what: int) -> None:
        if what == CLOCK:
            following = self._next_deadline()
            self.now = self.now if following is None else following
            return
        self._quiet = True
        try:
            self.garbage.pop()
        finally:
            self._quiet = False

    def _wait_for_time(self) -> None:
        """Called when no thread can go on. Waits for the engine if it must complete an await; else moves the clock."""
        following = self._next_deadline()
        if self._readers and self.engine_at_work():
            self._readable.update(
                fd for fd, _ in self._epoll.poll(ENGINE_SECONDS if following is None else GLANCE_SECONDS)
            )
            if self._readable:
                return
        if following is None:
            raise Stuck("deadlock: every thread waits for ever")
        self.now = following

    def _switch(self, me: Actor) -> None:
        try:
            chosen = self.actors[self._decide(me)]
        except Stuck as stuck:
            self._fail(str(stuck))
            me.wakeup.acquire()  # blocks for ever; the process ends with the finding
            raise
        if chosen is me:
            return
        self.current = chosen
        chosen.wakeup.release()
        if not me.ended:
            me.wakeup.acquire()

    # --- a run ------------------------------------------------------------------------------------------------

    def _run_actor(self, actor: Actor, body: Callable[[], object]) -> None:
        actor.wakeup.acquire()
        try:
            body()
        except BaseException:
            self.problems.append(f"expected thread {actor.name} to return, got\n{traceback.format_exc()}")
        actor.ended = True
        self._alive.remove(actor)
        if not self._alive:
            self.current = None
            self._over.release()
        else:
            self._switch(actor)

    def _fail(self, what: str) -> None:
        self.problems.append("\n".join([what, *(actor.description() for actor in self._alive)]))
        self._over.release()

    def run(
        self,
        body: Callable[[], object],
        strategy: Strategy,
        *,
        grain: Grain = Grain.LOCKS,
        patience: float = 0.0,
    ) -> bool:
        """Runs the body and all threads that it starts until they end. Returns False if they cannot go on."""
        self.actors, self._alive, self.decisions, self.problems, self.garbage = [], [], [], [], []
        self.now, self.points = BEGINNING, 0
        self.fine, self.coarse = grain is Grain.CROSSINGS, grain is Grain.COARSE
        self.patience, self._strategy = patience, strategy
        self.exploring = False
        self._over.acquire(blocking=False)
        self.spawn("driver", body)
        driver = self.current = self.actors[DRIVER]
        driver.wakeup.release()
        if not self._over.acquire(timeout=HANG_SECONDS):
            self._over.acquire(blocking=False)
            self._fail(
                f"expected blocking in aioacl._base.sync only, got a thread blocked elsewhere for {HANG_SECONDS:.0f} s"
            )
            return False
        if self._alive:
            return False
        for actor in self.actors:
            if actor.thread is not None:
                actor.thread.join(HANG_SECONDS)
        return True

    # --- for scenarios ----------------------------------------------------------------------------------------

    def ended(self, numbers: range) -> bool:
        """Whether the threads with these numbers have ended."""
        return all(self.actors[number].ended for number in numbers)

    def side_by_side(self, bodies: Sequence[tuple[str, Callable[[], object]]]) -> None:
        """Runs each body on a thread of its own, in the strategy's order, until all have ended."""
        first = len(self.actors)
        for name, body in bodies:
            self.spawn(name, body)
        users = range(first, first + len(bodies))
        self.exploring = True
        self.point(lambda: self.ended(users))
        self.exploring = False

    def others_end(self) -> None:
        """Waits until all other threads have ended. If they do not end, a deadlock is reported."""
        me = self.current
        self.point(lambda: self._alive == [me])
