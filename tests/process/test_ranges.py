"""Ranges of mstx: a small library beside the ACL library stands for CANN's, and writes a line for each call."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

import pytest

from aioacl.simulator import library_path
from tests.process.child import Child
from tests.support.libraries import compiled

if TYPE_CHECKING:
    from pathlib import Path

MSTX: Final = r"""
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static _Atomic uint64_t last;

static void say(const char *what, uint64_t range, const char *text) {
    FILE *file = fopen(getenv("TEST_RANGES"), "a");
    fprintf(file, "%s %llu %s\n", what, (unsigned long long)range, text);
    fclose(file);
}

uint64_t mstxRangeStartA(const char *text, void *stream) {
    uint64_t range = ++last;
    say(stream ? "stream" : "begin", range, text);
    return range;
}

void mstxRangeEnd(uint64_t range) {
    say("end", range, "");
}
"""
WORKS: Final = """
from aioacl import _digits, open_batcher
use_library(os.environ["TEST_LIBRARY"])
x = _digits.inputs(_digits.digits().images[0])
device = open_device(0, os.environ["TEST_WAITS"]).result()
model = device.load_model(_digits.MODEL).result()
for _ in range(3):
    model(x).result()
infer = open_batcher(model).result()
infer(x).result()
infer.close().result()
device.force_reset().result()
model.close().result()
device.close().result()
say("done")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the simulator."""
    for name in ("libascendcl.so", "libruntime.so"):
        shutil.copy(library_path().with_name(name), tmp_path / name)
    return tmp_path


def ranges_of(folder: Path) -> list[tuple[str, int, str]]:
    """Runs the program with the ACL library of that folder, and returns the calls of mstx."""
    file = folder / "ranges"
    file.touch()
    variables = {"TEST_RANGES": str(file), "TEST_LIBRARY": str(folder / "libascendcl.so")}
    with Child(WORKS, more=variables) as child:
        status, output, errors = child.end()
    assert (status, output, errors) == (0, "done\n", "")
    lines = [line.split(" ", 2) for line in file.read_text().splitlines()]
    return [(what, int(number), text) for what, number, text in lines]


def test_executions_batches_and_resets_are_ranges_with_a_begin_and_an_end(folder: Path) -> None:
    compiled(MSTX, folder / "libms_tools_ext.so")
    calls = ranges_of(folder)
    texts = {number: text for what, number, text in calls if what == "begin"}
    ended = [number for what, number, _ in calls if what == "end"]
    assert {what for what, _, _ in calls} == {"begin", "end"}  # none has a stream
    assert sorted(ended) == sorted(texts)
    names = [text.rstrip("0123456789 ") for text in texts.values()]
    assert names.count("aioacl execution: model") >= 4
    assert "aioacl batch: 1 rows" in texts.values()
    assert [text for text in texts.values() if "reset" in text] == ["aioacl reset: device 0"]
    places = {(what, number): at for at, (what, number, _) in enumerate(calls)}
    assert all(places["begin", number] < places["end", number] for number in texts)


@pytest.mark.parametrize(
    "source",
    [None, "int mstxMarkA(void) { return 0; }", "broken"],
    ids=["absent", "without ranges", "no library"],
)
def test_library_that_is_absent_or_has_no_ranges_changes_nothing(folder: Path, source: str | None) -> None:
    library = folder / "libms_tools_ext.so"
    if source == "broken":
        library.write_text(source)
    elif source is not None:
        compiled(source, library)
    assert ranges_of(folder) == []


def test_library_that_others_may_write_is_not_loaded(folder: Path) -> None:
    compiled(MSTX, folder / "libms_tools_ext.so").chmod(0o777)
    assert ranges_of(folder) == []
