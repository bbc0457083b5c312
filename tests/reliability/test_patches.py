"""The table of changes by hand fits the code as it is: else they would be found missing in the longest run only."""

from __future__ import annotations

from pathlib import Path

import pytest

import aioacl
from tests.reliability import rebuilt
from tests.reliability.mutants import Patch, patches

PACKAGE = Path(aioacl.__file__).parent


@pytest.mark.parametrize("kind", ["bug", "small", "mutant"])
def test_every_change_finds_what_it_changes(kind: str) -> None:
    def source(patch: Patch) -> str:
        return ((rebuilt.ENGINE if patch.in_c else PACKAGE) / patch.file).read_text()

    assert all(patch.apply(source(patch)) != source(patch) for patch in patches(kind))
