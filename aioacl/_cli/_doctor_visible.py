"""The two variables that select the cards of a process, and common mistakes in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

RUNTIME: Final = "ASCEND_RT_VISIBLE_DEVICES"
CONTAINER: Final = "ASCEND_VISIBLE_DEVICES"


def meaning(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the meaning of each variable's value, in words."""
    return {RUNTIME: _runtime(environ.get(RUNTIME)), CONTAINER: _container(environ.get(CONTAINER))}


def _runtime(value: str | None) -> str:
    if value is None:
        return "not set: the process sees every card that it may use"
    ids = leading_ids(value)
    seen = ", ".join(f"device {index} is card {card}" for index, card in enumerate(ids))
    return f"{value!r}: {seen}" if seen else f"{value!r}: it names no card"


def _container(value: str | None) -> str:
    if value is None:
        return "not set"
    return f"{value!r}: the container runtime has used it to select the cards; CANN does not read it"


def leading_ids(value: str) -> list[int]:
    """Returns the cards that the value names before the first part that is not a number."""
    ids: list[int] = []
    for part in value.split(","):
        if not _is_id(part):
            break
        ids.append(int(part))
    return ids


def _is_id(part: str) -> bool:
    return part.isascii() and part.isdigit()


def mistakes(environ: Mapping[str, str], visible: int | None) -> list[str]:
    """Returns the certain and the probable mistakes in the variables.

    `visible` is the number of devices that the runtime sees.
    """
    value = environ.get(RUNTIME)
    if value is None:
        if CONTAINER in environ:
            return [f"{CONTAINER} does not select devices for a process: set {RUNTIME} for that"]
        return []
    return [f"{RUNTIME}={value!r}: {what}" for what in _mistakes(value, visible)]


def _mistakes(value: str, visible: int | None) -> Iterator[str]:
    parts = [part.strip() for part in value.split(",")]
    ids = [int(part) for part in parts if _is_id(part)]
    if not value:
        yield "it is empty: name cards, or unset it"
        return
    if any(each.isspace() for each in value):
        yield "it contains a space: CANN ends the list there or refuses it (207004); write 0,1,2"
    wrong = [part for part in parts if not _is_id(part)]
    if wrong:
        yield f"{wrong[0]!r} is not the number of a card: CANN ends the list there or refuses it (207004)"
    if len(set(ids)) < len(ids):
        yield "it names a card twice, which CANN refuses (207004)"
    if ids != sorted(ids):
        yield "its numbers do not ascend, which CANN refuses (207004)"
    if visible is not None and ids and visible != len(ids):
        yield f"it names {len(ids)} cards, but the runtime sees {visible}: an unknown card ends the list"
