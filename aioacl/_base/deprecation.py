"""Warns of public names and parameters that a later version removes; the page "What may change" has the rule."""

from __future__ import annotations

from aioacl._base import origin


def removal(since: str) -> str:
    """Returns the first version that may remove what the version `since` ("0.3") has deprecated."""
    major, minor = map(int, since.split("."))
    return f"{major + 1}.0" if major else f"0.{minor + 2}"


def deprecated(what: str, *, since: str, instead: str) -> None:
    """Emits a DeprecationWarning at the line of the user's code that called aioacl."""
    sentence = (
        f"{what} is deprecated since aioacl {since} and may be removed in {removal(since)}; use {instead}"
    )
    origin.warn(sentence, origin.site(), 0, DeprecationWarning)
