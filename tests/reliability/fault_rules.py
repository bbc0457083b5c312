"""The faults that a seed injects, as rules of the simulator's fault engine.

aioacl can recover from each of these faults. The recovery may need a reset, and may lose work and handles. No rule
makes a call report bytes that it has not copied, or hides an object that a call has created.

    rc, oom       not for calls that free an object: an object that is not freed would stay in the simulator for ever
    rc-after      not for calls that create or enqueue: the caller could not find out what the call has done
    lost          only for a device that stays open: a device that cannot be set can be neither opened nor reset
    foreign reset only for calls without device memory among their arguments, because the reset would free that memory
                  during the call; at most twice, because each foreign reset waits a second for the call for which the
                  rule fires
    false-drain   only for waits for the whole device: after a wait for a stream, the missing work could not be detected
    hang          not used: the part `stuck` tests hanging calls
"""

from __future__ import annotations

import math
import random
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LEAST, MOST = 0.001, 0.05
# Calls that create objects or query memory; calls that enqueue; calls that wait or query the progress of work.
MAKING: Final = "aclrtMalloc|aclrtMallocHost|aclrtCreateStream|aclrtCreateEventExWithFlag|aclrtGetMemInfo"
ENQUEUEING: Final = "aclrtMemcpyAsync|aclrtMemsetAsync|aclrtRecordEvent|aclrtStreamWaitEvent"
ASKING: Final = "query|sync"

CODES: Final = (  # codes of most classes of errors, and of most actions
    100000,  # parameter
    107002,  # context
    107020,  # a task timed out: create a new stream
    107023,  # aborted: try again
    207001,  # out of memory
    207005,  # exhausted
    207013,  # other: try again
    507013,  # device fault: reset the device
    507015,  # device fault: create a new stream
    507053,  # device fault: repair the device
)
DEVICE_FAULTS: Final = (507013, 507010, 507899)

KINDS: Final[dict[str, Callable[[random.Random], str]]] = {
    "rc, making": lambda rng: f"{MAKING}:rc={rng.choice(CODES)}",
    "rc, enqueueing": lambda rng: f"{ENQUEUEING}:rc={rng.choice(CODES)}",
    "rc, asking": lambda rng: f"{ASKING}:rc={rng.choice(CODES)}",
    "rc, setting": lambda rng: f"aclrtSetDevice|aclrtResetDevice:rc={rng.choice(CODES)}",
    "rc-after": lambda rng: f"{ASKING}:rc-after={rng.choice(CODES)}",
    "oom": lambda _: f"{MAKING}:oom",
    "async-error": lambda rng: f"copy:async-error={rng.choice(CODES)}",
    "sticky": lambda rng: f"copy|sync:sticky={rng.choice(DEVICE_FAULTS)}",
    "lost": lambda rng: f"copy|sync:dev=0:lost={rng.choice(DEVICE_FAULTS)}",
    "reset-fail": lambda rng: f"aclrtResetDeviceForce:reset-fail={rng.randint(1, 3)}",
    "reset-lies": lambda rng: f"aclrtResetDeviceForce:reset-lies={rng.choice(DEVICE_FAULTS)}",
    "false-drain": lambda _: "aclrtSynchronizeDevice*:false-drain",
    "slow-teardown": lambda rng: f"aclrtDestroyStream|reset:slow-teardown={rng.randint(1, 20)}",
    "late-complete": lambda rng: f"copy:late-complete={rng.randint(1, 10)}",
    "late-copy": lambda rng: f"copy:late-copy={rng.randint(1, 10)}",
    "latency": lambda rng: f"*:latency={rng.randint(1, 4)}+-1:at={rng.choice(('before', 'after'))}",
    "foreign reset": lambda rng: f"{MAKING}:times={rng.randint(1, 2)}:ext-reset",
    "text": lambda rng: f"*:errmsg={rng.choice(('null', 'long', 'non-utf8', 'stale'))}",
}
MORE_CODES: Final[dict[str, tuple[int, ...]]] = {  # codes that calls may return besides the code in the rule
    "oom": (207001, 207007, 207008),  # memory, events, streams
    # The codes of calls and waits on a device in a fault state.
    **dict.fromkeys(("sticky", "lost", "reset-lies"), (507899, 507046, 507047)),
}
BREAKING: Final = ("sticky", "lost", "reset-lies")  # a false drain has no effect without one of these


def choose_rules(seed: int) -> dict[str, str]:
    """Returns the two to six rules of a seed, by kind. Each rule fires at 0.1 to 5 % of its calls."""
    rng = random.Random(seed)
    kinds = rng.sample(tuple(KINDS), rng.randint(2, 5))
    if "false-drain" in kinds and not set(kinds) & set(BREAKING):
        kinds.append("sticky")
    rules: dict[str, str] = {}
    for kind in kinds:
        which, _, effect = KINDS[kind](rng).partition(":")
        chance = math.exp(rng.uniform(math.log(LEAST), math.log(MOST)))
        rules[kind] = f"{which}:p={chance:.4f}:{effect}"
    return rules


def codes(rules: dict[str, str]) -> frozenset[int]:
    """The codes that calls may return under those rules."""
    codes_of_kinds = {code for kind in rules for code in MORE_CODES.get(kind, ())}
    return frozenset(
        codes_of_kinds | {int(code) for rule in rules.values() for code in re.findall(r"=(\d{6})\b", rule)}
    )
