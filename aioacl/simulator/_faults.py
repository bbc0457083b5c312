"""Faults on purpose: rules that make calls of the simulator fail, hang, lie or take their time.

A rule is text, as in csrc/aclsim.h, and text is what replays it: `AIOACL_SIM_FAULTS` takes what `Fault.rule` says.
`fault()` writes that text from named values and refuses what could not be meant.
"""

from __future__ import annotations

import math
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, SupportsIndex, TypedDict, Unpack

from aioacl._base.errors import ParameterError
from aioacl._base.ffi import ffi, pointer
from aioacl._base.options import real_of, whole_of
from aioacl.simulator._control import control_function, stream_handle
from aioacl.simulator._names import c_text, functions, suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from aioacl._base.options import Seconds
    from aioacl.simulator._control import StreamLike

TEXT_BYTES: Final = 1024
LONGEST_SECONDS: Final = 1 << 33  # fits 64 bits of nanoseconds
WORD_MOST: Final = (1 << 63) - 1
HANDLE_LEAST: Final = 4096  # no address is below it, and the id of a stream always is
CODE_LEAST: Final = -(1 << 31)
CODE_MOST: Final = (1 << 31) - 1

Moment = Literal["before", "during", "after"]
ErrorText = Literal["null", "long", "non-utf8", "stale"]


class Fault:
    """A rule. It holds within a `with` block; `hits` and `matches` can be read there and afterwards."""

    __slots__ = ("__weakref__", "_counted", "_id", "rule")

    def __init__(self, rule: str) -> None:
        self.rule = rule
        self._id: int | None = None
        self._counted = (0, 0)

    def __repr__(self) -> str:
        return f"<Fault {self.rule!r}: {self.hits} hits of {self.matches} matches>"

    def __enter__(self) -> Self:
        if self._id is not None:
            raise ParameterError(f"{self.rule!r} holds already", hint="Use one block at a time for a fault.")
        self._counted = (0, 0)
        self._id = _add(self.rule)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._count()
        if self._id is not None:
            control_function("aclsim_fault_remove", "int (*)(uint32_t)")(self._id)
            self._id = None

    def _count(self) -> tuple[int, int]:
        counts = ffi.new("uint64_t[2]")
        ask = control_function("aclsim_fault_hits", "int (*)(uint32_t, uint64_t *, uint64_t *)")
        if self._id is not None and ask(self._id, counts, counts + 1) == 0:
            self._counted = (counts[0], counts[1])
        return self._counted

    @property
    def hits(self) -> int:
        """How often the rule has fired."""
        return self._count()[0]

    @property
    def matches(self) -> int:
        """How many calls were of those that the rule looks at."""
        return self._count()[1]


def _refusal() -> str:
    text = ffi.new("char[]", TEXT_BYTES)
    control_function("aclsim_fault_error", "int (*)(char *, size_t)")(text, TEXT_BYTES)
    return ffi.string(text).decode("utf-8", "replace")


def _add(rule: str) -> int:
    made = ffi.new("uint32_t[1]")
    add = control_function("aclsim_fault_add", "int (*)(const char *, uint32_t *)")
    if add(c_text("a rule", rule), made) != 0:
        hint = "aclsim.h, in the folder include_dir(), has the grammar of rules."
        raise ParameterError(
            f"the simulator refuses the rule {rule!r}: {_refusal()}", hint=_closest(rule, hint)
        )
    return int(made[0])


def _closest(rule: str, otherwise: str) -> str:
    """A hint that names a function which is close to one that the rule names, but that does not exist."""
    known = functions()
    words = [word for word in rule.partition(":")[0].split("|") if word.startswith("acl")]
    strange = next((word for word in words if word not in known and not {*"*?"} & {*word}), "")
    return suggestion(strange, known, otherwise)


# --- from named values to text ------------------------------------------------------------------------------------


class FaultOptions(TypedDict, total=False):
    """What `fault` takes: which calls, when, and what then."""

    device: SupportsIndex
    stream: StreamLike
    thread: SupportsIndex
    tid: SupportsIndex
    size_min: SupportsIndex
    size_max: SupportsIndex
    nth: SupportsIndex
    after: SupportsIndex
    every: SupportsIndex
    times: SupportsIndex
    p: Seconds
    per_thread: bool
    rc: SupportsIndex
    rc_after: SupportsIndex
    oom: bool
    latency: Seconds
    jitter: Seconds
    at: Moment
    hang: str | bool
    block_record: str | bool
    async_error: SupportsIndex
    late_complete: Seconds
    late_copy: Seconds
    sticky: SupportsIndex
    lost: SupportsIndex
    reset_fail: SupportsIndex
    reset_lies: SupportsIndex | bool
    false_drain: bool
    slow_teardown: Seconds
    ext_reset: bool
    errmsg: ErrorText


def _whole(value: object, least: int, most: int) -> int | None:
    number = whole_of(value)
    return number if number is not None and least <= number <= most else None


def _number(least: int) -> Callable[[str, Any], str]:
    def write(name: str, value: Any) -> str:
        number = _whole(value, least, WORD_MOST)
        if number is None:
            raise ParameterError(f"{name}{value!r} is no whole number from {least}")
        return f"{name}{number}"

    return write


def _times(name: str, value: Any) -> str:
    number = _whole(value, -1, WORD_MOST)
    if not number:
        raise ParameterError(f"{name}{value!r} is no whole number from 1, and not -1 for ever")
    return f"{name}{number}"


def _any_code(name: str, value: Any) -> str:
    number = _whole(value, CODE_LEAST, CODE_MOST)
    if number is None:
        raise ParameterError(f"{name}{value!r} is no code of ACL")
    return f"{name}{number}"


def _code(name: str, value: Any) -> str:
    code = _any_code(name, value)
    if code == f"{name}0":
        raise ParameterError(f"{code} is no fault")
    return code


def _real(name: str, value: Any, most: float = math.inf) -> str:
    number = real_of(value)
    if number is None or not 0 <= number <= most or math.isinf(number):
        raise ParameterError(f"{name}{value!r} is not from 0 to {most}")
    whole = whole_of(value)
    return f"{name}{number if whole is None else whole}"


def _chance(name: str, value: Any) -> str:
    return _real(name, value, 1)


def _stream(name: str, value: Any) -> str:
    number = whole_of(value)
    if number is not None and number < HANDLE_LEAST:
        return _number(0)(name, value)
    return f"{name}{pointer(stream_handle(value)):#x}"


def _flag(name: str, value: Any) -> str:
    return name.removesuffix("=") if value is True else _word(name, value)


def _lie(name: str, value: Any) -> str:
    return name.removesuffix("=") if value is True else _code(name, value)


def _word(name: str, value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[\w.+-]+", value):
        raise ParameterError(f"{name}{value!r} is no word")
    return f"{name}{value}"


_WRITERS: Final[Mapping[str, tuple[str, Callable[[str, Any], str]]]] = MappingProxyType(
    {
        "device": ("dev=", _number(0)),
        "stream": ("stream=", _stream),
        "thread": ("thread=", _number(1)),
        "tid": ("tid=", _number(1)),
        "size_min": ("size>=", _number(0)),
        "size_max": ("size<=", _number(0)),
        "nth": ("nth=", _number(1)),
        "after": ("after=", _number(0)),
        "every": ("every=", _number(1)),
        "times": ("times=", _times),
        "p": ("p=", _chance),
        "per_thread": ("per=thread", _flag),
        "rc": ("rc=", _any_code),
        "rc_after": ("rc-after=", _code),
        "oom": ("oom", _flag),
        "latency": ("latency=", _word),
        "at": ("at=", _word),
        "hang": ("hang=", _flag),
        "block_record": ("block-record=", _flag),
        "async_error": ("async-error=", _code),
        "late_complete": ("late-complete=", _real),
        "late_copy": ("late-copy=", _real),
        "sticky": ("sticky=", _code),
        "lost": ("lost=", _code),
        "reset_fail": ("reset-fail=", _number(1)),
        "reset_lies": ("reset-lies=", _lie),
        "false_drain": ("false-drain", _flag),
        "slow_teardown": ("slow-teardown=", _real),
        "ext_reset": ("ext-reset", _flag),
        "errmsg": ("errmsg=", _word),
    }
)


_FLAGS: Final = frozenset(
    {"per_thread", "oom", "hang", "block_record", "reset_lies", "false_drain", "ext_reset"}
)


def _spread(options: dict[str, Any]) -> None:
    """Joins latency and jitter."""
    jitter = options.pop("jitter", 0)
    if "latency" in options:
        whole = _real("", options["latency"])
        options["latency"] = f"{whole}+-{_real('', jitter)}" if jitter else whole
    elif jitter:
        raise ParameterError("jitter= goes with latency=")


def fault(which: str, **options: Unpack[FaultOptions]) -> Fault:
    """Make a rule for a `with` block, as in `with simulator.fault("aclrtMalloc", nth=3, rc=507015) as f: ...`.

    `which` names functions (with `*` and `?`) or groups, between bars: `"alloc|aclrtCreateStream"`. Of the
    options, those up to `size_max` narrow that down, those up to `per_thread` say when the rule fires, and the
    others what it does then; `aclsim.h`, in the folder `include_dir()`, tells each. Times are in milliseconds of
    the simulator's clock. A rule's whole text will do for `which`, too.

    Raises:
        ParameterError: an option makes no sense; when the block is entered also, they do not go together, no
            function is of that name or can do what the rule wants, or the process does not use the simulator.
    """
    given = {name: value for name, value in options.items() if value is not False or name not in _FLAGS}
    unknown = given.keys() - FaultOptions.__annotations__.keys()
    if unknown:
        strange = min(unknown)
        known = ", ".join(FaultOptions.__annotations__)
        raise ParameterError(
            f"expected options of a fault, got {strange!r}",
            hint=suggestion(strange, FaultOptions.__annotations__, f"The options are {known}."),
        )
    c_text("functions or groups of them", which)
    _spread(given)
    parts = [write(name, given[key]) for key, (name, write) in _WRITERS.items() if key in given]
    return Fault(":".join([which, *parts]))


# --- the rest of the engine -----------------------------------------------------------------------------------------


def set_seed(seed: SupportsIndex) -> None:
    """By which number rules with a chance decide; the same seed decides the same."""
    number = whole_of(seed)
    if number is None or not 0 <= number < 1 << 64:
        raise ParameterError(
            f"expected a seed from 0 to {(1 << 64) - 1}, got {seed!r}; pass an int of 64 bits"
        )
    control_function("aclsim_set_seed", "void (*)(uint64_t)")(number)


def release_key(key: str) -> None:
    """Calls that hang with that key go on; without one, their function's name is the key."""
    control_function("aclsim_release_key", "int (*)(const char *)")(c_text("a key", key))


def set_limits(limits: str = "") -> None:
    """At most so many of each on a device, as in "stream=8,event=16,notify=4,context=2,mem=64M"; "" lifts them.

    "host=32M" bounds the pinned, managed and physical memory of the host.
    """
    if control_function("aclsim_set_limits", "int (*)(const char *)")(c_text("limits", limits)) != 0:
        raise ParameterError(f"the simulator refuses the limits {limits!r}: {_refusal()}")


def set_virtual_clock(virtual: bool) -> None:
    """With True the simulator's clock stands still but for `advance_clock`; with False it goes on as usual."""
    control_function("aclsim_clock_virtual", "void (*)(int)")(int(virtual))


def advance_clock(seconds: Seconds) -> None:
    """Moves the virtual clock on: what is due by then comes."""
    number = real_of(seconds)
    if (
        number is None
        or not 0 <= number < LONGEST_SECONDS
        or control_function("aclsim_clock_advance", "int (*)(int64_t)")(int(number * 1e9)) != 0
    ):
        raise ParameterError(
            f"the clock cannot be moved on by {seconds!r} s",
            hint="Make it virtual first, with set_virtual_clock(True), and keep to some decades.",
        )


def clock() -> float:
    """What time it is for the simulator, in seconds."""
    return int(control_function("aclsim_clock_now", "int64_t (*)(void)")()) / 1e9
