"""The public API is the recorded one, so a name or a signature changes only on purpose, with a changelog entry."""

from __future__ import annotations

import pytest

import aioacl
from scripts import signatures


@pytest.mark.process  # griffe runs git
def test_public_api_is_the_recorded_one() -> None:
    changed = signatures.difference(signatures.RECORD.read_text(), signatures.current())
    assert not changed, (
        "expected the public API of tests/public_api.txt, got these changes; if they are intended, add an entry to "
        f"CHANGELOG.md (docs/stability.md has the rules), and run: {signatures.COMMAND}\n{changed}"
    )


def test_record_has_each_public_name_of_the_package() -> None:
    recorded = {
        line.removeprefix("class ").split("(")[0].split(":")[0]
        for line in signatures.RECORD.read_text().splitlines()
    }
    assert {f"aioacl.{name}" for name in aioacl.__all__} <= recorded


@pytest.mark.parametrize(
    ("recorded", "current", "changed"),
    [
        ("a.f(x: int) -> None\na.g()", "a.f(x: int) -> None\na.g()", ""),
        (
            "a.f(x: int) -> None\na.g()",
            "a.f(y: int) -> None\na.g()",
            "-a.f(x: int) -> None\n+a.f(y: int) -> None",
        ),
        ("a.f()\na.g()", "a.f()", "-a.g()"),
        ("a.f()", "a.f()\na.g()", "+a.g()"),
    ],
    ids=["the same", "a renamed parameter", "a removed name", "a new name"],
)
def test_difference_has_the_changed_lines_only(recorded: str, current: str, changed: str) -> None:
    assert signatures.difference(recorded, current) == changed
