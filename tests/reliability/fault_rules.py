"""The faults that a seed injects, as rules of the simulator's fault engine.

Only faults from which aioacl can recover: a fault may cost work, handles and a reset. No rule makes a call report bytes
that it has not copied, or hides an object that a call has created.

    rc, oom       never of a call that frees something: what it did not free would stay in the simulator for ever
    rc-after      never of a call that creates or enqueues: the caller could not find out what the call has done
    lost          only of a device that stays open: a device that cannot be set cannot be opened or reset either
    foreign reset of calls that take no memory: the reset would free theirs during the call; and at most twice, because
              each waits a second for the call for which it fires
    false-drain   of a wait for the whole device only: after one for a stream, the missing work could not be detected
    hang          not at all: the part `stuck` tests hanging calls
"""

from __future__ import annotations

import math
import random
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LEAST, MOST = 0.001, 0.05
# Calls that create or query; calls that enqueue; calls that wait or query the progress of work.
MAKING: Final = "aclrtMalloc|aclrtMallocHost|aclrtCreateStream|aclrtCreateEventExWithFlag|aclrtGetMemInfo"
ENQUEUEING: Final = "aclrtMemcpyAsync|aclrtMemsetAsync|aclrtRecordEvent|aclrtStreamWaitEvent"
ASKING: Final = "query|sync"

CODES: Final = (  # one for each action and each class of errors
    100000,  # parameter
    107002,  # context
    107020,  # a task timed out: new stream
    107023,  # aborted: again
    207001,  # out of memory
    207005,  # exhausted
    300000,  # other: again
    507013,  # device fault: reset
    507015,  # device fault: new stream
    507053,  # device fault: repair
)
DEVICE_FAULTS: Final = (507013, 507010, 507899)

KINDS: Final[dict[str, Callable[[random.Random], str]]] = {
    "rc, making": lambda dice: f"{MAKING}:rc={dice.choice(CODES)}",
    "rc, enqueueing": lambda dice: f"{ENQUEUEING}:rc={dice.choice(CODES)}",
    "rc, asking": lambda dice: f"{ASKING}:rc={dice.choice(CODES)}",
    "rc, setting": lambda dice: f"aclrtSetDevice|aclrtResetDevice:rc={dice.choice(CODES)}",
    "rc-after": lambda dice: f"{ASKING}:rc-after={dice.choice(CODES)}",
    "oom": lambda _: f"{MAKING}:oom",
    "async-error": lambda dice: f"copy:async-error={dice.choice(CODES)}",
    "sticky": lambda dice: f"copy|sync:sticky={dice.choice(DEVICE_FAULTS)}",
    "lost": lambda dice: f"copy|sync:dev=0:lost={dice.choice(DEVICE_FAULTS)}",
    "reset-fail": lambda dice: f"aclrtResetDeviceForce:reset-fail={dice.randint(1, 3)}",
    "reset-lies": lambda dice: f"aclrtResetDeviceForce:reset-lies={dice.choice(DEVICE_FAULTS)}",
    "false-drain": lambda _: "aclrtSynchronizeDevice*:false-drain",
    "slow-teardown": lambda dice: f"aclrtDestroyStream|reset:slow-teardown={dice.randint(1, 20)}",
    "late-complete": lambda dice: f"copy:late-complete={dice.randint(1, 10)}",
    "late-copy": lambda dice: f"copy:late-copy={dice.randint(1, 10)}",
    "latency": lambda dice: f"*:latency={dice.randint(1, 4)}+-1:at={dice.choice(('before', 'after'))}",
    "foreign reset": lambda dice: f"{MAKING}:times={dice.randint(1, 2)}:ext-reset",
    "text": lambda dice: f"*:errmsg={dice.choice(('null', 'long', 'non-utf8', 'stale'))}",
}
MORE_CODES: Final[dict[str, tuple[int, ...]]] = {  # codes in addition to the one in the rule
    "oom": (207001, 207007, 207008),  # memory, events, streams
    **dict.fromkeys(
        ("sticky", "lost", "reset-lies"), (507899, 507046, 507047)
    ),  # of a broken device: calls, waits
}
BREAKING: Final = ("sticky", "lost", "reset-lies")  # a false drain has no effect without one of them


def choose_rules(seed: int) -> dict[str, str]:
    """The rules of a seed, by kind: two to five, each fires at 0.1 to 5 % of its calls."""
    dice = random.Random(seed)
    kinds = dice.sample(tuple(KINDS), dice.randint(2, 5))
    if "false-drain" in kinds and not set(kinds) & set(BREAKING):
        kinds.append("sticky")
    rules: dict[str, str] = {}
    for kind in kinds:
        which, _, effect = KINDS[kind](dice).partition(":")
        chance = math.exp(dice.uniform(math.log(LEAST), math.log(MOST)))
        rules[kind] = f"{which}:p={chance:.4f}:{effect}"
    return rules


def codes(rules: dict[str, str]) -> frozenset[int]:
    """The codes that calls may return under those rules."""
    codes_of_kinds = {code for kind in rules for code in MORE_CODES.get(kind, ())}
    return frozenset(
        codes_of_kinds | {int(code) for rule in rules.values() for code in re.findall(r"=(\d{6})\b", rule)}
    )
