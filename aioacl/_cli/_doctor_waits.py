"""Which value of `waits=` suits a device, derived from the rows of `doctor --timing`.

With "watch", one thread queries for all awaits, so a task resumes up to one interval between two queries late. With
"thread", each await occupies a thread that waits in ACL. If such waits spin, each of them keeps a processor busy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioacl._cli._doctor_rows import QUERY_EVENT, SPINS_PERCENT, WAIT_EVENT, WAKE_THREAD, WAKE_WATCH

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioacl._base.options import Strategy
    from aioacl._cli._doctor_rows import Row

WAIT: Final = "aclrtSynchronizeEventWithTimeout"
SOONER: Final = 0.8  # "thread" wakes sooner if its wake-ups take at most this share of the time with "watch"


def advise(rows: Iterable[Row]) -> tuple[Strategy, str]:
    """Returns the strategy that suits, and a reason that contains the figures."""
    by_step = {row.step: row for row in rows}
    wait, watch, thread = by_step[WAIT_EVENT], by_step[WAKE_WATCH], by_step[WAKE_THREAD]
    if wait.behaviour == "spins":
        return "watch", _because_waits_spin(wait, by_step[QUERY_EVENT])
    if wait.median is None or watch.median is None or thread.median is None:
        missing = next(row.step for row in (wait, watch, thread) if row.median is None)
        return "watch", f'it is the default, and there is no figure for "{missing}"'
    if wait.behaviour is None:
        return "watch", (
            f"it is the default, and it is not clear whether a wait in {WAIT} sleeps or spins ({_share(wait)})"
        )
    sleeps = f"a wait in {WAIT} sleeps ({_share(wait)})"
    figures = f'{_us(thread)} after the completion with "thread", and {_us(watch)} with "watch"'
    if thread.median > SOONER * watch.median:
        return "watch", (
            f"{sleeps}, but a task resumed {figures}. A thread for each await pays only if it resumes the task "
            f"{100 * (1 - SOONER):.0f} % sooner"
        )
    return "thread", (
        f"{sleeps}, and a task resumed {figures}. Each unfinished await occupies a thread, so use "
        '"watch" for thousands of awaits at once'
    )


def _because_waits_spin(wait: Row, query: Row) -> str:
    awake = "" if wait.median is not None and wait.median >= SPINS_PERCENT else ", and it never sleeps"
    cost = "" if query.median is None else f", and one query takes {_us(query)}"
    return (
        f'a wait in {WAIT} spins ({_share(wait)}{awake}). With "thread", each unfinished await would keep a '
        f"processor busy; the watcher is one thread for all awaits{cost}"
    )


def _share(row: Row) -> str:
    return f"{row.median:.1f} % of it on the processor, from {row.low:.1f} to {row.high:.1f} %"


def _us(row: Row) -> str:
    return f"{row.median:,.1f} us"
