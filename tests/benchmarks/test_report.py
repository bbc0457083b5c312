"""The output of the benchmarks: the table, JSON, and the generated part of docs/performance.md."""

from __future__ import annotations

import json
from dataclasses import asdict
from io import StringIO
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from benchmarks import __main__ as command
from benchmarks import plot, report
from benchmarks.machine import cpu_model, facts
from benchmarks.rows import Gate, Row, Spread, judge, row_of

if TYPE_CHECKING:
    from pathlib import Path

FACTS = {"CPU": "a processor", "cores": "2"}
ROWS = [
    Row("copy", "up", "memcpy", "x", Spread(0.75, 0.5, 1.0)),
    Row("copy", "up: rate", "", "GB/s", Spread(12.0, 11.0, 130.0), "a note"),
    Row("copy", "down", "memcpy", "x", None, "within the noise"),
    Row("throughput", "64 waits: rate of aioacl", "", "k/s", Spread(90.0, 80.0, 100.0)),
    Row("throughput", "1 wait: rate of aioacl", "", "k/s", Spread(9.0, 8.0, 10.0)),
    Row("throughput", "1 wait: rate of aioacl", "", "k/s", Spread(5.0, 5.0, 5.0), pinned=False),
]
GATES = [
    Gate("copy", "up", "memcpy", 0.6, 0.8, at_least=True),
    Gate("copy", "down", "memcpy", 0.6, None, at_least=True),
]
JUDGED = judge(ROWS, GATES)


@pytest.mark.parametrize("row", ROWS)
def test_row_is_the_same_after_conversion_to_json_and_back(row: Row) -> None:
    assert row_of(json.loads(json.dumps(asdict(row)))) == row


def test_table_has_the_rows_with_a_gate_or_all_rows() -> None:
    for everything in (False, True):
        text = StringIO()
        report.show(JUDGED, Console(file=text, width=200), everything=everything)
        assert "copy: up x memcpy" in text.getvalue()
        assert ("up: rate" in text.getvalue()) is everything
        assert "0 missed, 1 within the noise" in text.getvalue()


def test_markdown_has_the_machine_and_the_rows_with_a_gate() -> None:
    lines = report.markdown(JUDGED, FACTS, "picture.svg").splitlines()
    assert "| CPU | a processor |" in lines
    assert "| copy | up | x memcpy | 0.75 | 0.5 to 1 | >= 0.6 | >= 0.8 | must |" in lines
    assert "| copy | down | x memcpy |  | within the noise | >= 0.6 |  | noise |" in lines
    assert not any("up: rate" in line for line in lines)
    assert lines[-1].endswith("(picture.svg)")


def test_writer_changes_only_the_text_between_the_markers() -> None:
    page = f"# Title\n\nBefore.\n{report.BEGIN}\nold\n{report.END}\n\nAfter.\n"
    written = report.between_markers(page, "new")
    assert written == f"# Title\n\nBefore.\n{report.BEGIN}\nnew\n{report.END}\n\nAfter.\n"
    assert report.between_markers(written, "new") == written


@pytest.mark.parametrize(
    "page",
    [
        "",
        f"{report.BEGIN}\n",
        f"{report.END}\n{report.BEGIN}\n",
        f"{report.BEGIN}\n{report.BEGIN}\n{report.END}\n",
        f"{report.BEGIN}\n{report.END}\n{report.END}\n",
    ],
    ids=["none", "no end", "wrong order", "two begins", "two ends"],
)
def test_writer_without_two_markers_raises_value_error(page: str) -> None:
    with pytest.raises(ValueError, match="expected one line"):
        report.between_markers(page, "new")


def test_page_of_the_documentation_has_the_markers() -> None:
    report.between_markers(command.PAGE.read_text(), "new")


@pytest.mark.process  # matplotlib starts fc-list to find fonts
@pytest.mark.leaves("descriptors")  # matplotlib keeps the files of fonts open
def test_write_page_writes_the_table_and_the_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib; install the extra `bench`")
    page = tmp_path / "performance.md"
    page.write_text(f"# Title\n{report.BEGIN}\n{report.END}\n")
    (tmp_path / command.PICTURE).parent.mkdir()
    command.write_page(JUDGED, page)
    assert "| copy | up | x memcpy |" in page.read_text()
    assert ET.parse(tmp_path / command.PICTURE).getroot().tag.endswith("svg")


def test_plot_has_the_rates_of_the_pinned_process_by_number_of_waits() -> None:
    assert plot.lines(ROWS) == {"aioacl": [(1, 9.0), (64, 90.0)]}


def test_cpu_model_is_read_from_cpuinfo() -> None:
    assert cpu_model("processor\t: 0\nmodel name\t: A: b\n\nprocessor\t: 1\n") == "A: b"
    assert cpu_model("")  # the architecture


def test_facts_name_the_machine_and_the_versions() -> None:
    found = facts()
    assert list(found) == ["CPU", "cores", "kernel", "aioacl", "Python", "simulator"]
    assert found["simulator"].endswith("as CANN master")
