"""The expected results of sets, resets and queries. `aioacl._base.states` has the rules of the counts.

The rules of contexts and bindings are ACL's. A thread is bound to a device, if it has set the device, or to a context.
A thread that is bound to a device finds the device's primary context while the device is set. A thread that is bound to
an explicit context finds this context until the context is destroyed, even after a reset of the device. The thread that
releases a device loses its binding to any device. A query has an effect: if a thread queries its context and finds
none, it is bound to nothing from then on. A thread that does not query is bound again once the device is set again.
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
    """A context. A device's primary context is alive while the device is set."""

    device: int
    primary: bool = False
    alive: bool = True
    handle: Any = None  # unknown until a thread has queried it


@dataclass(eq=False, slots=True)
class Binding:
    """The binding of a thread: to a device, to a context, or to nothing."""

    device: int | None = None
    context: Context | None = None


@dataclass(eq=False, slots=True)
class Fault:
    """A rule of the simulator: beginning with reset number `first` of the device, `times` resets fail with the code.

    These resets change nothing. If `works` is true, they take effect, but return the code nevertheless.
    """

    device: int
    first: int
    times: int
    code: int
    works: bool
    seen: int = 0
    hits: int = 0

    def fires(self) -> bool:
        """Whether this reset of the device fails."""
        self.seen += 1
        fired = self.first <= self.seen < self.first + self.times
        self.hits += fired
        return fired


@dataclass(slots=True)
class World:
    """The state of the runtime, and lowlevel's counts."""

    devices: int
    counts: list[Counts] = field(init=False)
    own: list[Counts] = field(init=False)  # lowlevel's own counts
    released: list[int] = field(init=False)
    primary: list[Context] = field(init=False)
    fault: Fault | None = None

    def __post_init__(self) -> None:
        everywhere = range(self.devices)
        self.counts = [Counts() for _ in everywhere]
        self.own = [Counts() for _ in everywhere]
        self.released = [0 for _ in everywhere]
        self.primary = [Context(index, primary=True, alive=False) for index in everywhere]

    # --- queries -------------------------------------------------------------------------------------------------

    def query(self, binding: Binding) -> Context | None:
        """Returns the context that the thread finds."""
        found = binding.context
        if found is None and binding.device is not None:
            found = self.primary[binding.device]
        if found is not None and not found.alive:
            binding.context = binding.device = None
            return None
        return found

    def failed(self, binding: Binding, code: int) -> int:
        """Notes that a call failed. aioacl then fetches the runtime's error text, which queries the context."""
        if code:
            self.query(binding)
        return code

    # --- counts --------------------------------------------------------------------------------------------------

    def act(self, binding: Binding, act: int, device: int) -> int:
        """Makes a set, a reset or a force reset; returns the runtime's code."""
        result = RULES[act](self.counts[device])
        if act == SET:
            self._set(binding, device, result)
            return result.code
        fault = self.fault
        undoes_one_of_several = result.code == 0 and not result.releases
        meant = fault is not None and fault.device == device and (fault.works or not undoes_one_of_several)
        fired = fault is not None and meant and fault.fires()
        if fault is None or not fired:
            self._reset(binding, device, result)
            return self.failed(binding, result.code)
        if result.releases and not fault.works:
            self.own[device] = Counts()  # lowlevel was notified of the release, although the reset failed
            return self.failed(binding, fault.code)  # the runtime's state has not changed
        self._reset(binding, device, result)
        return self.failed(binding, result.code or (fault.code if fault.works else 0))

    def _set(self, binding: Binding, device: int, result: CountResult) -> None:
        self.counts[device] = result.counts
        self.primary[device].alive = result.counts.retained > 0
        binding.device, binding.context = device, None

    def _reset(self, binding: Binding, device: int, result: CountResult) -> None:
        self.counts[device] = result.counts
        if result.releases:
            self.released[device] += 1
            self.own[device] = Counts()
            self.primary[device].alive = False
            binding.device = None

    def by_hand(self, binding: Binding, act: int, device: int) -> tuple[int, bool]:
        """Returns lowlevel's result, and True if lowlevel calls the runtime, because its own counts allow the call."""
        own = self.own[device]
        result = RULES[act](own)
        if result.code:
            return result.code, False
        code = self.act(binding, act, device)
        self.own[device] = own  # lowlevel is not notified of its own reset, only of foreign ones
        if code == 0:
            self.own[device] = result.counts
        elif code == states.RELEASED_ALREADY:
            # Other code has released the device, so lowlevel's count no longer applies.
            self.own[device] = Counts()
        return code, True

    # --- contexts ------------------------------------------------------------------------------------------------

    def made(self, binding: Binding, device: int, handle: Any) -> Context:
        """Notes that the thread created an explicit context, to which it is now bound. The device need not be set."""
        context = Context(device, handle=handle)
        binding.context, binding.device = context, None
        return context

    def destroyed(self, binding: Binding, context: Context) -> None:
        """Notes that the thread destroyed a context. The thread is unbound at once; others are at their next query."""
        context.alive = False
        if binding.context is context:
            self.query(binding)

    def bind(self, binding: Binding, context: Context) -> int:
        """Binds the thread to the context; returns the code of aclrtSetCurrentContext."""
        if not context.alive:
            return self.failed(binding, NO_SUCH_CONTEXT)
        binding.context, binding.device = context, None
        return 0
