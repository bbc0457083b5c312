"""The metrics count for the whole process, so these tests compare two scrapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

pytest.importorskip(
    "onnx", reason="the models of these tests need the package onnx: pip install 'aioacl[onnx]'"
)
pytest.importorskip("onnxruntime", reason="executing a model needs onnxruntime: pip install 'aioacl[onnx]'")

import aioacl
from aioacl._base import totals

if TYPE_CHECKING:
    from collections.abc import Callable


class Values(NamedTuple):
    """The samples of a scrape, by name and labels."""

    all: dict[tuple[str, frozenset[tuple[str, str]]], float]

    @classmethod
    def now(cls) -> Values:
        """Scrapes."""
        samples = [sample for metric in aioacl.metrics() for sample in metric.samples]
        found = {(each.name, frozenset(each.labels.items())): each.value for each in samples}
        assert len(found) == len(samples), "expected each sample once"
        return cls(found)

    def of(self, name: str, **labels: str) -> float:
        """The sum of the samples with this name, without the prefix, and with at least these labels."""
        wanted = set(labels.items())
        return sum(
            value for (each, has), value in self.all.items() if each == f"aioacl_{name}" and wanted <= has
        )


@pytest.fixture
def changes() -> Callable[..., float]:
    """Returns by how much samples have risen since the test began; the arguments are those of `Values.of`."""
    before = Values.now()
    return lambda name, **labels: Values.now().of(name, **labels) - before.of(name, **labels)


@pytest.fixture(autouse=True)
def _labels_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier tests of the process may have loaded 100 models."""
    monkeypatch.setattr(totals, "_models", {})
