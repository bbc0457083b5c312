"""Injected faults: rules that make calls of the simulator fail, hang, take longer or return a wrong code.

A rule is text; aclsim.h describes its grammar. `fault()` writes the text from named values and refuses values that
are not valid. To replay a rule, pass the text of `Fault.rule` to the environment variable `AIOACL_SIM_FAULTS`.
"""

from __future__ import annotations

import math
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, SupportsIndex, TypedDict, Unpack

from aioacl._base.errors import ParameterError
from aioacl._base.ffi import ffi, pointer
from aioacl._base.options import real_of, repr_of, whole_of
from aioacl.simulator._control import control_function, stream_handle
from aioacl.simulator._names import c_text, functions, suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from aioacl._base.options import Seconds
    from aioacl.simulator._control import StreamLike

ERROR_BYTES: Final = 1024
LONGEST_SECONDS: Final = 1 << 33  # fits into 64 bits as nanoseconds
MOST_SECONDS: Final = 1_000_000  # of a time in a rule
WORD_MOST: Final = (1 << 63) - 1
HANDLE_LEAST: Final = 4096  # stream ids are below this number, and addresses are not
CODE_LEAST: Final = -(1 << 31)
CODE_MOST: Final = (1 << 31) - 1

Moment = Literal["before", "during", "after"]
ErrorText = Literal["null", "long", "non-utf8", "stale"]


class Fault:
    """A rule that `fault()` made. It applies within a `with` block.

    `hits` and `matches` can be read inside the block and after it. They start at 0 again in the next block.

    Attributes:
        rule: the text of the rule.
    """

    __slots__ = ("__weakref__", "_counted", "_id", "rule")

    def __init__(self, rule: str) -> None:
        self.rule = rule
        self._id: int | None = None
        self._counted = (0, 0)

    def __repr__(self) -> str:
        return f"<Fault {self.rule!r}: {self.hits} hits of {self.matches} matches>"

    def __enter__(self) -> Self:
        if self._id is not None:
            raise ParameterError(
                f"expected a fault outside of its `with` block, but {repr_of(self.rule)} applies already",
                hint="Use a fault in one block at a time.",
            )
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
        """The number of calls on which the rule has fired, in the current or last block."""
        return self._count()[0]

    @property
    def matches(self) -> int:
        """The number of calls that matched the rule, whether it fired or not, in the current or last block."""
        return self._count()[1]


def _refusal() -> str:
    text = ffi.new("char[]", ERROR_BYTES)
    control_function("aclsim_fault_error", "int (*)(char *, size_t)")(text, ERROR_BYTES)
    return ffi.string(text).decode("utf-8", "replace")


def _add(rule: str) -> int:
    made = ffi.new("uint32_t[1]")
    add = control_function("aclsim_fault_add", "int (*)(const char *, uint32_t *)")
    if add(c_text("a rule", rule), made) != 0:
        raise _refused(rule)
    return int(made[0])


def _check(rule: str) -> None:
    check = control_function("aclsim_fault_check", "int (*)(const char *)")
    if check(c_text("a rule", rule)) != 0:
        raise _refused(rule)


def _refused(rule: str) -> ParameterError:
    hint = "aclsim.h, in the folder include_dir(), describes the grammar of rules."
    return ParameterError(
        f"the simulator refused the rule {repr_of(rule)}: {_refusal()}", hint=_closest(rule, hint)
    )


def _closest(rule: str, otherwise: str) -> str:
    """Returns a hint with functions similar to an unknown function of the rule, or `otherwise` if there are none."""
    known = functions()
    words = [word for word in rule.partition(":")[0].split("|") if word.startswith("acl")]
    strange = next((word for word in words if word not in known and not {*"*?"} & {*word}), "")
    return suggestion(strange, known, otherwise)


# --- from named values to text ------------------------------------------------------------------------------------


class FaultOptions(TypedDict, total=False):
    """The options of `fault()`. Times are in seconds of the simulator's clock, and codes are ints of 32 bits.

    Attributes:
        device: match only calls on this device.
        stream: match only calls on this stream: an aioacl.Stream, a raw handle, or an int below 4096 as the id of a
            stream (aclrtStreamGetId).
        thread: match only calls of the thread with this number. Threads are numbered from 1, in the order of their
            first call that is checked against rules.
        tid: match only calls of the thread with this native thread id.
        size_min: match only calls with at least this many bytes.
        size_max: match only calls with at most this many bytes.
        nth: fire on the n-th match, from 1; with `times`, on later matches too.
        after: fire only after this many matches.
        every: fire on each match whose number is a multiple of this.
        times: fire at most this often; -1 for no limit.
        p: fire with this chance, from 0 to 1.
        per_thread: count matches for each thread.
        rc: the call does nothing and returns this code, which may be 0.
        rc_after: the call does its work and returns this code.
        oom: the call fails as if the memory or resource that it takes had run out.
        latency: the call takes this much longer.
        jitter: the latency varies by at most this much.
        at: when the call is delayed: "before", "during" or "after" its work.
        hang: the call hangs until `release_call` is called with this key, or with the function's name. True: no key.
        async_error: the enqueued task fails later, with this code. Not for aclrtRecordEvent*, aclmdlExecute and
            aclmdlExecuteV2.
        late_complete: the enqueued task does its work, and ends this much later.
        late_copy: the enqueued task copies its bytes this much later, and ends then.
        sticky: the device enters a fault state with this code, until a force reset. After the first wait or query has
            returned the code, waits time out.
        lost: like `sticky`; also, the device cannot be set until it was released, and its first reset fails.
        reset_fail: the number of resets that fail and leave the device unchanged.
        reset_lies: the reset returns 0 and leaves the device in a fault state, with this code. With True, the code is
            507018.
        false_drain: waits for a device in a fault state return 0.
        slow_teardown: the end of a stream, context or device takes this much longer.
        ext_reset: other code of the process force-resets the device during the call.
        errmsg: the text that the thread's next aclGetRecentErrMsg returns. "null": no text. "long": a very long text.
            "non-utf8": a text that is not UTF-8. "stale": the previous text.
    """

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


def _int(least: int, most: int, expected: str, hint: str) -> Callable[[str, Any], str]:
    def write(name: str, value: Any) -> str:
        number = whole_of(value)
        if number is None or not least <= number <= most:
            raise ParameterError(f"{name} must be {expected}, got {repr_of(value)}", hint=hint)
        return f"{name}{number}"

    return write


def _number(least: int) -> Callable[[str, Any], str]:
    return _int(least, WORD_MOST, f"an int from {least}", f"Pass an int from {least} to {WORD_MOST}.")


_any_code: Final = _int(
    CODE_LEAST, CODE_MOST, "a code of ACL", f"Pass an int from {CODE_LEAST} to {CODE_MOST}."
)


def _times(name: str, value: Any) -> str:
    if whole_of(value) == -1:
        return f"{name}-1"
    hint = "Pass a number of calls, or -1 for no limit."
    return _int(1, WORD_MOST, "an int from 1, or -1", hint)(name, value)


def _code(name: str, value: Any) -> str:
    code = _any_code(name, value)
    if code == f"{name}0":
        raise ParameterError(
            f"{name} must be a code other than 0, got 0",
            hint="Pass an error code of ACL, 507015 for instance.",
        )
    return code


def _real(name: str, value: Any, most: float = math.inf) -> str:
    number = real_of(value)
    if number is None or not 0 <= number <= most or math.isinf(number):
        limit = "" if math.isinf(most) else f" to {most}"
        raise ParameterError(
            f"{name} must be a number from 0{limit}, got {repr_of(value)}",
            hint="Pass a finite int or float in that range.",
        )
    whole = whole_of(value)
    return f"{name}{number if whole is None else whole}"


def _seconds(name: str, value: Any) -> str:
    """Writes a time. The text of a rule has milliseconds, to the nanosecond."""
    _real(name, value, MOST_SECONDS)
    milliseconds = f"{(real_of(value) or 0) * 1000:.6f}".rstrip("0").rstrip(".")
    return f"{name}{milliseconds}"


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
        raise ParameterError(
            f"{name} must be a word, got {repr_of(value)}",
            hint="Pass a str of letters, digits and the characters _ . + -",
        )
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
        "async_error": ("async-error=", _code),
        "late_complete": ("late-complete=", _seconds),
        "late_copy": ("late-copy=", _seconds),
        "sticky": ("sticky=", _code),
        "lost": ("lost=", _code),
        "reset_fail": ("reset-fail=", _number(1)),
        "reset_lies": ("reset-lies=", _lie),
        "false_drain": ("false-drain", _flag),
        "slow_teardown": ("slow-teardown=", _seconds),
        "ext_reset": ("ext-reset", _flag),
        "errmsg": ("errmsg=", _word),
    }
)


_FLAGS: Final = frozenset({"per_thread", "oom", "hang", "reset_lies", "false_drain", "ext_reset"})


def _spread(options: dict[str, Any]) -> None:
    """Joins `jitter` to `latency`, because the rule's text has one field for both."""
    jitter = options.pop("jitter", 0)
    if "latency" in options:
        whole = _seconds("latency=", options["latency"]).removeprefix("latency=")
        options["latency"] = (
            f"{whole}+-{_seconds('jitter=', jitter).removeprefix('jitter=')}" if jitter else whole
        )
    elif jitter:
        raise ParameterError(
            f"expected latency= with jitter=, got jitter={repr_of(jitter)} alone",
            hint="Pass latency= too, in seconds.",
        )


def fault(which: str, **options: Unpack[FaultOptions]) -> Fault:
    """Makes a rule for a `with` block, as in `with simulator.fault("aclrtMalloc", nth=3, rc=507015) as f: ...`.

    Args:
        which: names of functions (with `*` and `?` as in a shell) or groups of functions, separated by bars:
            `"alloc|aclrtCreateStream"`. `which` may also be the whole text of a rule.
        options: see `FaultOptions`. The options from `device` to `size_max` select calls. The options from `nth` to
            `per_thread` decide when the rule fires. The others are the effects of the rule. Times are in seconds of the
            simulator's clock; in the text of a rule, they are in milliseconds. `aclsim.h`, in the folder
            `include_dir()`, describes each option and lists the groups.

    Raises:
        ParameterError: an option is unknown, its value is not valid, the options exclude each other, no function has
            that name, the effect applies to none of the functions, or the process does not use the simulator.
    """
    given = {name: value for name, value in options.items() if value is not False or name not in _FLAGS}
    unknown = given.keys() - FaultOptions.__annotations__.keys()
    if unknown:
        strange = min(unknown)
        known = ", ".join(FaultOptions.__annotations__)
        raise ParameterError(
            f"expected options of a fault, got {repr_of(strange)}",
            hint=suggestion(strange, FaultOptions.__annotations__, f"The options are {known}."),
        )
    c_text("functions or groups of them", which)
    _spread(given)
    parts = [write(name, given[key]) for key, (name, write) in _WRITERS.items() if key in given]
    rule = ":".join([which, *parts])
    _check(rule)
    return Fault(rule)


# --- the rest of the engine -----------------------------------------------------------------------------------------


def set_seed(seed: SupportsIndex) -> None:
    """Sets the seed of rules that fire by chance (`p`). The same seed gives the same decisions.

    Args:
        seed: an int from 0 to 2^64 - 1.

    Raises:
        ParameterError: `seed` is not an int in that range.
    """
    number = whole_of(seed)
    if number is None or not 0 <= number < 1 << 64:
        raise ParameterError(
            f"seed must be an int from 0 to {(1 << 64) - 1}, got {repr_of(seed)}",
            hint="Pass an int of 64 bits.",
        )
    control_function("aclsim_set_seed", "void (*)(uint64_t)")(number)


def set_limits(limits: str = "") -> None:
    """Limits the number of objects and the amount of memory of each device. Each call replaces all earlier limits.

    Args:
        limits: limits per device, as in "stream=8,event=16,notify=4,context=2,mem=64M". "host=32M" limits the pinned,
            managed and physical memory of the host. Sizes are in bytes, with an optional K, M, G or T. "" removes all
            limits.

    Raises:
        ParameterError: the simulator refused the text; the error contains the reason.
    """
    if control_function("aclsim_set_limits", "int (*)(const char *)")(c_text("limits", limits)) != 0:
        raise ParameterError(
            f"the simulator refused the limits {limits!r}: {_refusal()}",
            hint='Pass limits such as "stream=8,mem=64M".',
        )


def set_virtual_clock(virtual: bool) -> None:
    """Sets whether the simulator's clock is virtual.

    A virtual clock moves in two cases only. `advance_clock` advances it. If a wait with a time-out has lasted ten real
    seconds, the clock jumps to the earliest time at which a wait is due. The simulator polls at intervals of real time,
    and a wait for an event lasts at least one second of real time before it fails.

    Args:
        virtual: with True, the clock is virtual; with False, it follows the real time.
    """
    control_function("aclsim_clock_virtual", "void (*)(int)")(int(virtual))


def advance_clock(seconds: Seconds) -> None:
    """Advances the virtual clock. Everything that is due by the new time happens.

    Args:
        seconds: how far, from 0 to below 2^33.

    Raises:
        ParameterError: the clock is not virtual, or `seconds` is not a number in that range.
    """
    number = real_of(seconds)
    if (
        number is None
        or not 0 <= number < LONGEST_SECONDS
        or control_function("aclsim_clock_advance", "int (*)(int64_t)")(int(number * 1e9)) != 0
    ):
        raise ParameterError(
            f"expected a virtual clock and seconds from 0 to below {LONGEST_SECONDS}, got {repr_of(seconds)}",
            hint="Call set_virtual_clock(True) first, and pass a number in that range.",
        )


def clock() -> float:
    """Returns the time of the simulator's clock, in seconds."""
    return int(control_function("aclsim_clock_now", "int64_t (*)(void)")()) / 1e9
