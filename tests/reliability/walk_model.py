"""What must be answered to sets, resets and looks: counts by `aioacl._base.states`, contexts and bindings by ACL.

The rules beyond the counts: a thread is bound to a device (by setting it) or to a context. It finds a device's primary
context while that is set, and an explicit context while it lives, whatever becomes of its device. The thread that
releases a device loses its binding to any device. Looking is an act: a thread that looks for a context and finds its
binding dead is bound to nothing from then on, while one that does not look revives with the device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from aioacl._base import states
from aioacl._base.states import Counts

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.states import CountResult

SET, RESET, FORCE = range(3)
RULES: Final[tuple[Callable[[Counts], CountResult], ...]] = (
    states.set_device,
    states.reset_device,
    states.reset_device_force,
)
NO_CONTEXT: Final = 107002
NO_SUCH_CONTEXT: Final = 107000
NO_SUCH_DEVICE: Final = 107001


@dataclass(eq=False, slots=True)
class Context:
    """A context; a device's primary one is alive while the device is set."""

    device: int
    primary: bool = False
    alive: bool = True
    handle: Any = None  # unknown until somebody has seen it


@dataclass(eq=False, slots=True)
class Binding:
    """What a thread is bound to: to a device, to a context, or to nothing."""

    device: int | None = None
    context: Context | None = None


@dataclass(eq=False, slots=True)
class Fault:
    """A rule of the simulator: from the `first` reset of the device on, so many of them go wrong with the code.

    They fail and are taken back or, if `works`, do what they should and answer the code all the same.
    """

    device: int
    first: int
    times: int
    code: int
    works: bool
    met: int = 0
    hits: int = 0

    def fires(self) -> bool:
        """Whether this reset of the device goes wrong."""
        self.met += 1
        fired = self.first <= self.met < self.first + self.times
        self.hits += fired
        return fired


@dataclass(slots=True)
class World:
    """What is so in the runtime, and what lowlevel believes."""

    devices: int
    counts: list[Counts] = field(init=False)
    own: list[Counts] = field(init=False)  # lowlevel's
    released: list[int] = field(init=False)
    primary: list[Context] = field(init=False)
    fault: Fault | None = None

    def __post_init__(self) -> None:
        everywhere = range(self.devices)
        self.counts = [Counts() for _ in everywhere]
        self.own = [Counts() for _ in everywhere]
        self.released = [0 for _ in everywhere]
        self.primary = [Context(index, primary=True, alive=False) for index in everywhere]

    # --- looking -------------------------------------------------------------------------------------------------

    def look(self, binding: Binding) -> Context | None:
        """The context that the thread finds."""
        found = binding.context
        if found is None and binding.device is not None:
            found = self.primary[binding.device]
        if found is not None and not found.alive:
            binding.context = binding.device = None
            return None
        return found

    def failed(self, binding: Binding, code: int) -> int:
        """A call has failed: the binding has fetched the runtime's text, which looks for a context."""
        if code:
            self.look(binding)
        return code

    # --- counts --------------------------------------------------------------------------------------------------

    def act(self, binding: Binding, act: int, device: int) -> int:
        """The runtime's answer to a set, a reset or a force reset."""
        verdict = RULES[act](self.counts[device])
        if act == SET:
            self._set(binding, device, verdict)
            return verdict.code
        fault = self.fault
        fired = fault is not None and fault.device == device and fault.fires()
        if fault is None or not fired:
            self._reset(binding, device, verdict)
            return self.failed(binding, verdict.code)
        if verdict.releases and not fault.works:
            self.own[device] = Counts()  # it was told all the same
            return self.failed(binding, fault.code)  # taken back: nothing has changed
        self._reset(binding, device, verdict)
        return self.failed(binding, verdict.code or (fault.code if fault.works else 0))

    def _set(self, binding: Binding, device: int, verdict: CountResult) -> None:
        self.counts[device] = verdict.counts
        self.primary[device].alive = verdict.counts.retained > 0
        binding.device, binding.context = device, None

    def _reset(self, binding: Binding, device: int, verdict: CountResult) -> None:
        self.counts[device] = verdict.counts
        if verdict.releases:
            self.released[device] += 1
            self.own[device] = Counts()
            self.primary[device].alive = False
            binding.device = None

    def by_hand(self, binding: Binding, act: int, device: int) -> tuple[int, bool]:
        """lowlevel's answer, and whether it asks the runtime: it refuses what would be too much by its own counts."""
        own = self.own[device]
        verdict = RULES[act](own)
        if verdict.code:
            return verdict.code, False
        code = self.act(binding, act, device)
        self.own[device] = own  # only a reset by others is told
        if code == 0:
            self.own[device] = verdict.counts
        elif code == states.RELEASED_ALREADY:  # somebody else has: nothing of ours is left
            self.own[device] = Counts()
        return code, True

    # --- contexts ------------------------------------------------------------------------------------------------

    def made(self, binding: Binding, device: int, handle: Any) -> Context:
        """The thread has made an explicit context, which needs no set device, and is bound to it."""
        context = Context(device, handle=handle)
        binding.context, binding.device = context, None
        return context

    def destroyed(self, binding: Binding, context: Context) -> None:
        """It has destroyed one: who was bound to it finds out when he looks, the caller at once."""
        context.alive = False
        if binding.context is context:
            self.look(binding)

    def bind(self, binding: Binding, context: Context) -> int:
        """The answer to aclrtSetCurrentContext."""
        if not context.alive:
            return self.failed(binding, NO_SUCH_CONTEXT)
        binding.context, binding.device = context, None
        return 0
