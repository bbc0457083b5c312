"""Fixtures that outlive a test. They own the resources that are made during their setup, until they are torn down."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aioacl.testing._audit import Audit, Finding
from aioacl.testing._origins import book, problem_of
from aioacl.testing._snapshot import Growth, Snapshot, growth, snapshot

if TYPE_CHECKING:
    from collections.abc import Generator

    import pytest


class Broader:
    """The fixtures of a broader scope that are set up, and the growth that each has caused."""

    def __init__(self) -> None:
        self.audit: Audit | None = None
        self._grown: dict[object, list[Growth]] = {}
        self._seen: Snapshot | None = None
        self._findings: list[Finding] = []

    @contextmanager
    def making(self, fixture: pytest.FixtureDef[Any]) -> Generator[None]:
        """Attributes to the fixture the resources that are made in the block.

        Blocks may be nested, because a fixture can request other fixtures.
        """
        outer = book().owner
        self._attribute(outer)
        book().owner = fixture
        try:
            yield
        finally:
            self._attribute(fixture)
            book().owner = outer

    def _attribute(self, fixture: object) -> None:
        """Attributes to the fixture the resources that were made since this function was last called."""
        before, self._seen = self._seen, snapshot()
        if fixture is None or before is None:
            return
        grown = growth(before, self._seen)
        self._grown.setdefault(fixture, []).append(grown)
        if self.audit is not None:
            self.audit.expect(grown)

    def gone(self, fixture: pytest.FixtureDef[Any]) -> None:
        """Called after the fixture's teardown: reports what the fixture left. These leaks do not count for the test."""
        grown = self._grown.pop(fixture, [])
        left = [origin for origin in book().origins if origin.owner is fixture]
        for origin in left:
            if wrong := problem_of(origin):
                text = f"{wrong}, by the fixture {fixture.argname}"
                self._findings.append(Audit.finding_of(origin, text))
        if self.audit is not None:
            self.audit.expect_no_more(grown, left)

    def findings(self) -> list[Finding]:
        """Returns the resources that fixtures have left since the last call."""
        findings, self._findings = self._findings, []
        return findings
