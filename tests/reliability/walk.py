"""One random walk of sets, resets and queries by several threads, in C and by lowlevel, compared with the model.

Threads take turns, one at a time, so the seed determines everything. A step makes one call and compares its result and
the state with the model. Each device is used in one of three ways. If only lowlevel uses it, lowlevel's counts equal
the runtime's. If only C uses it, C acts as a foreign library. If both use it, each makes changes without the other's
knowledge.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

import aioacl
from aioacl import lowlevel, simulator
from aioacl._base import states
from aioacl._base.ffi import ffi, lib
from aioacl._base.states import RELEASED_ALREADY
from aioacl._lifecycle.manager import manager_of
from aioacl.simulator._control import control_function
from tests.reliability.walk_model import (
    FORCE,
    NO_CONTEXT,
    NO_SUCH_DEVICE,
    RESET,
    SET,
    Binding,
    Context,
    Fault,
    World,
)
from tests.reliability.walk_states import GENERATIONS, States

if TYPE_CHECKING:
    from collections.abc import Sequence

HAND, C, EITHER = range(3)
WAYS: Final = (HAND, HAND, C, EITHER, EITHER)
DEVICES: Final = len(WAYS)
THREADS: Final = 4
CONTEXTS: Final = 4
GATES: Final = (60, 61, 62)  # indices without a device
TURNS: Final = (1, 1, 2, 3, 5, 8, 13, 34, 89, 233)
FAULTY_TURNS: Final = 0.25  # the share of long turns in which resets fail
LONG_TURN: Final = 34
RENEWED_TURNS: Final = 0.02
API_TURNS: Final = 0.01  # the share of one-step turns in which a device is opened and closed
CODES: Final = (507000, 507033, 507899)
ACTS: Final = ("aclrtSetDevice", "aclrtResetDevice", "aclrtResetDeviceForce")
IN_C: Final = (lib.aio_u_aclrtSetDevice, lib.aio_u_aclrtResetDevice, lib.aio_u_aclrtResetDeviceForce)
BY_HAND: Final = (lowlevel.set_device, lowlevel.reset_device, lowlevel.reset_device_force)
NAMES: Final = ("set", "reset", "force reset")
KINDS: Final = tuple(
    tuple((f"{act} {way}", f"{act} {way}, refused", f"{act} {way}, failing") for act in NAMES)
    for way in ("by lowlevel", "in C")
)


class Divergence(AssertionError):
    """The model and the library disagree."""


class Actor:
    """A thread that takes turns, with its binding in the model."""

    def __init__(self) -> None:
        self.binding = Binding()
        self._turns: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._ended: SimpleQueue[BaseException | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="actor", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (turn := self._turns.get()) is not None:
            try:
                turn()
            except BaseException as error:
                self._ended.put(error)
            else:
                self._ended.put(None)

    def take(self, turn: Callable[[], object]) -> None:
        """Runs a turn to its end. Raises the error of the turn."""
        self._turns.put(turn)
        error = self._ended.get()
        if error is not None:
            raise error

    def end(self) -> None:
        """Ends the thread."""
        self._turns.put(None)
        self._thread.join()


class Walk:
    """A walk with a number of steps. The same seed makes the same walk."""

    def __init__(self, seed: str, steps: int) -> None:
        self._rng = random.Random(seed)
        self._left = steps
        self.done = 0
        self.kinds: Counter[str] = Counter()
        self._world = World(DEVICES)
        self._managers = [manager_of(index) for index in range(DEVICES)]
        self._contexts: list[Context] = []
        self._gone: list[Context] = []
        self._dead = 0  # how often the walk bound a destroyed context; the usage checker reports each time
        self._violations = simulator.stats().violations
        self._actors: list[Actor] = []
        self._retained = control_function("aclsim_retain_count", "int (*)(int32_t)")
        self._resets = control_function("aclsim_resets", "uint64_t (*)(int32_t)")
        self._released = [simulator.resets(device) for device in range(DEVICES)]
        self._calls = [simulator.calls(function) for function in ACTS]
        starts = (1, GENERATIONS - 40, self._rng.randrange(1, GENERATIONS))
        self._states = [States(index, start) for index, start in zip(GATES, starts, strict=True)]
        self._count_calls = control_function("aclsim_calls", "uint64_t (*)(const char *)")
        self._names = [ffi.new("char[]", function.encode()) for function in ACTS]
        self._int = ffi.new("int32_t *")
        self._found = ffi.new("aclrtContext *")

    def run(self) -> None:
        """Runs the walk, and leaves the devices as they were. Raises Divergence if a result differs from the model."""
        try:
            self._actors = [Actor() for _ in range(THREADS)]
            self._actors[0].take(self._learn_primary_contexts)
            while self._left:
                self._take_turn()
            self._actors[0].take(self._tidy)
        finally:
            for actor in self._actors:
                actor.end()

    def _learn_primary_contexts(self) -> None:
        """Queries the primary contexts. Their handles never change, so no explicit context gets such a handle."""
        for device in range(DEVICES):
            for step in (Walk._set, Walk._get_context, Walk._force):
                step(self, self._actors[0].binding, device)

    # --- turns ---------------------------------------------------------------------------------------------------

    def _take_turn(self) -> None:
        rng = self._rng
        place = rng.randrange(THREADS)
        actor = self._actors[place]
        kind = rng.random()
        length = min(rng.choice(TURNS), self._left)
        self._left -= length
        if kind < API_TURNS and length == 1:
            self._open_and_close(rng.randrange(DEVICES))
            return
        if kind < RENEWED_TURNS:
            actor.end()
            actor = self._actors[place] = Actor()
        if kind > 1 - FAULTY_TURNS and length >= LONG_TURN:
            self._faulty(actor, length)
        else:
            actor.take(lambda: self._steps(actor.binding, length))

    def _steps(self, binding: Binding, length: int) -> None:
        rng = self._rng
        steps = rng.choices(STEPS, cum_weights=WEIGHTS, k=length)
        devices = rng.choices(range(DEVICES), k=length)
        for (step, _), device in zip(steps, devices, strict=True):
            self.kinds[step(self, binding, device)] += 1
            self.done += 1
        for device in range(DEVICES):
            self._compare(device)
        self._compare_calls()

    def _faulty(self, actor: Actor, length: int) -> None:
        """Runs a turn in which some resets of a device fail, or succeed and nevertheless return an error code."""
        rng = self._rng
        fault = Fault(
            rng.randrange(DEVICES),
            rng.randint(1, 4),
            rng.randint(1, 3),
            rng.choice(CODES),
            works=rng.random() < 0.3,
        )
        effect = f"rc-after={fault.code}" if fault.works else f"reset-fail=1:rc={fault.code}"
        rule = f"aclrtResetDevice|aclrtResetDeviceForce:dev={fault.device}:nth={fault.first}"
        with simulator.fault(f"{rule}:times={fault.times}:{effect}") as armed:
            self._world.fault = fault
            actor.take(lambda: self._steps(actor.binding, length))
            self._world.fault = None
        self._same("the hits of the rule", armed.hits, fault.hits)

    def _open_and_close(self, device: int) -> None:
        """Opens a device that lowlevel may have set. lowlevel then refuses sets and resets, and keeps its counts."""
        binding, world = Binding(), self._world
        opened = aioacl.open_device(device).result()
        world.act(binding, SET, device)
        world.own[device] = states.set_device(world.own[device]).counts
        self._calls[SET] += 1
        self._compare(device)
        for act in (SET, RESET, FORCE):
            self._same("lowlevel's refusal while the device is open", self._code_by_hand(act, device), None)
        self._compare_calls()
        opened.close().result()
        own = world.own[device]
        code = world.act(binding, RESET, device)
        self._same("the reset of the close", code, 0)
        world.own[device] = states.reset_device(own).counts  # lowlevel is notified of foreign resets only
        self._calls[RESET] += 1
        self._compare(device)
        self._compare_calls()
        self.kinds["open and close"] += 1
        self.done += 1

    def _tidy(self) -> None:
        """Releases everything. Any actor's thread can do this."""
        binding = self._actors[0].binding
        for context in self._contexts:
            self._same("destroy", lib.aio_u_aclrtDestroyContext(context.handle), 0)
            self._world.destroyed(binding, context)
        for device in range(DEVICES):
            for way in (self._hand, self._c):
                way(binding, FORCE, device)
            self._compare(device)
            self._same(
                "counts at the end",
                (self._world.counts[device], self._world.own[device]),
                (states.Counts(),) * 2,
            )
        self._compare_calls()
        self._same("contexts left", simulator.stats().contexts, 0)
        self._same("violations", simulator.stats().violations - self._violations, self._dead)

    # --- steps: each returns its kind ------------------------------------------------------------------------------

    def _set(self, binding: Binding, device: int) -> str:
        return self._one_way(binding, SET, device)

    def _reset(self, binding: Binding, device: int) -> str:
        return self._one_way(binding, RESET, device)

    def _force(self, binding: Binding, device: int) -> str:
        return self._one_way(binding, FORCE, device)

    def _one_way(self, binding: Binding, act: int, device: int) -> str:
        way = WAYS[device]
        if way == EITHER:
            way = HAND if self._rng.random() < 0.5 else C
        code = self._hand(binding, act, device) if way == HAND else self._c(binding, act, device)
        self._compare(device)
        return KINDS[way][act][0 if code == 0 else 1 if code == RELEASED_ALREADY else 2]

    def _c(self, binding: Binding, act: int, device: int) -> int:
        expected = self._world.act(binding, act, device)
        self._calls[act] += 1
        code = IN_C[act](device)
        if code != expected:
            raise Divergence(f"{ACTS[act]} of device {device}: expected {expected} by the model, got {code}")
        return code

    def _hand(self, binding: Binding, act: int, device: int) -> int:
        expected, calls_runtime = self._world.by_hand(binding, act, device)
        self._calls[act] += calls_runtime
        self._same(BY_HAND[act].__name__, self._code_by_hand(act, device), expected)
        if not calls_runtime:
            self._same(f"the calls of {ACTS[act]}", self._called(act), self._calls[act])
        return expected

    @staticmethod
    def _code_by_hand(act: int, device: int) -> int | None:
        """Returns the code that lowlevel returns or raises; None if it refuses without a code."""
        try:
            BY_HAND[act](device)
        except aioacl.AclError as error:
            return error.code
        return 0

    def _no_device(self, binding: Binding, device: int) -> str:
        """Makes the same call in C and by lowlevel, for an index without a device."""
        act = self._rng.randrange(3)
        missing = DEVICES + device
        self._calls[act] += 1
        self._same(f"{ACTS[act]} of no device", IN_C[act](missing), NO_SUCH_DEVICE)
        self._world.failed(binding, NO_SUCH_DEVICE)
        calls_runtime = act == SET
        self._calls[act] += calls_runtime
        answer = self._code_by_hand(act, missing)
        self._same(
            f"{BY_HAND[act].__name__} of no device",
            answer,
            NO_SUCH_DEVICE if calls_runtime else RELEASED_ALREADY,
        )
        self._same("lowlevel's count of no device", manager_of(missing).counts.now.retained, 0)
        return "no such device"

    def _state(self, _: Binding, device: int) -> str:
        wrong = self._states[device % len(GATES)].step(self._rng)
        self._same("an event for a state", wrong, "")
        return "event for a state"

    # --- steps: contexts ---------------------------------------------------------------------------------------------

    def _get_device(self, binding: Binding, _: int) -> str:
        found = self._world.query(binding)
        code = lib.aio_u_aclrtGetDevice(self._int)
        expected = (NO_CONTEXT, None) if found is None else (0, found.device)
        self._same("aclrtGetDevice", (code, None if code else self._int[0]), expected)
        return "query the device"

    def _get_context(self, binding: Binding, _: int) -> str:
        found = self._world.query(binding)
        code = lib.aio_u_aclrtGetCurrentContext(self._found)
        self._same("aclrtGetCurrentContext", code, NO_CONTEXT if found is None else 0)
        if found is not None and found.handle is None:
            found.handle = self._found[0]
        elif found is not None:
            # This is true for a primary context too: a device that is set again has the same primary context.
            self._same("the context", self._found[0], found.handle)
        return "query the context"

    def _get_active(self, _: Binding, device: int) -> str:
        code = lib.aio_u_aclrtGetPrimaryCtxState(device, ffi.NULL, self._int)
        active = int(self._world.counts[device].retained > 0)
        self._same("aclrtGetPrimaryCtxState", (code, self._int[0]), (0, active))
        return "query whether the device is set"

    def _make_context(self, binding: Binding, device: int) -> str:
        if len(self._contexts) == CONTEXTS:
            return self._destroy_context(binding, device)
        self._same("aclrtCreateContext", lib.aio_u_aclrtCreateContext(self._found, device), 0)
        handle = self._found[0]
        self._gone = [context for context in self._gone if context.handle != handle]
        self._contexts.append(self._world.made(binding, device, handle))
        return "make an explicit context"

    def _destroy_context(self, binding: Binding, device: int) -> str:
        if not self._contexts:
            return self._make_context(binding, device)
        context = self._contexts.pop(self._rng.randrange(len(self._contexts)))
        self._same("aclrtDestroyContext", lib.aio_u_aclrtDestroyContext(context.handle), 0)
        self._world.destroyed(binding, context)
        self._gone = [*self._gone[-3:], context]
        return "destroy an explicit context"

    def _bind(self, binding: Binding, device: int) -> str:
        """Binds the thread to an explicit context, alive or not, or to a primary context."""
        known = [context for context in self._world.primary if context.handle is not None]
        choice = [*self._contexts, *self._gone, *known]
        if not choice:
            return self._get_context(binding, device)
        context = self._rng.choice(choice)
        expected = self._world.bind(binding, context)
        self._dead += expected != 0 and not context.primary
        self._same("aclrtSetCurrentContext", lib.aio_u_aclrtSetCurrentContext(context.handle), expected)
        kind = "a primary" if context.primary else "an explicit"
        return f"bind {kind} context" if expected == 0 else "bind a dead context"

    # --- comparing ---------------------------------------------------------------------------------------------------

    def _same(self, what: str, seen: object, expected: object) -> None:
        if seen != expected:
            raise Divergence(f"{what}: expected {expected!r} by the model, got {seen!r}")

    def _compare(self, device: int) -> None:
        """Compares the runtime's count, the resets that released the device, and lowlevel's count."""
        world = self._world
        seen = (
            self._retained(device),
            self._resets(device),
            self._managers[device].counts.standing().retained,
        )
        expected = (
            world.counts[device].retained,
            self._released[device] + world.released[device],
            world.own[device].retained,
        )
        if seen != expected:
            raise Divergence(
                f"device {device}: count, resets, lowlevel's count: expected {expected} by the model, got {seen}"
            )

    def _called(self, act: int) -> int:
        return int(self._count_calls(self._names[act]))

    def _compare_calls(self) -> None:
        """Checks that C received each call that the walk made or that lowlevel admitted, and no other call."""
        self._same("the calls of each function", [self._called(act) for act in range(3)], self._calls)


Step = Callable[[Walk, Binding, int], str]
STEPS: Final[Sequence[tuple[Step, int]]] = (
    (Walk._set, 32),
    (Walk._reset, 26),
    (Walk._force, 6),
    (Walk._no_device, 1),
    (Walk._state, 12),
    (Walk._get_device, 6),
    (Walk._get_context, 6),
    (Walk._get_active, 3),
    (Walk._make_context, 2),
    (Walk._destroy_context, 2),
    (Walk._bind, 4),
)
WEIGHTS: Final = list(itertools.accumulate(weight for _, weight in STEPS))
