"""The command line: a file for each command, and shared code."""

from __future__ import annotations

from typing import Any


class UserError(Exception):
    """An error that the user can correct. It is printed as one line on stderr, and the exit status is 2.

    `results` is what the command has found before the error. With `--json`, it is printed beside the error.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.results: dict[str, Any] = {}
