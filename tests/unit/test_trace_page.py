"""The page of `aioacl.trace()` in headless Chromium, at two widths, with a name that must not become a part of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from aioacl._trace import page
from tests.support.browser import Browser
from tests.unit.test_trace import ring_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aioacl._base import flight_ring

pytestmark = [pytest.mark.slow, pytest.mark.process]
HOSTILE: Final = "</script><img src=x onerror=\"alert('1')\">\n'quoted' <!-- &amp; \u2028 模型"
MODEL: Final = 7
WIDTHS: Final = (1200, 400)
HEIGHT: Final = 900
TOP, ROW = 20, 18  # as in trace.js


def a_ring() -> flight_ring.Ring:
    """Returns the records of two generations of a device, of copies, and of calls of a model."""
    records: list[tuple[str, int, dict[str, int]]] = [("state", 0, {"id": 1, "code": 1})]
    for number in range(40):
        at, copy, run = 50 + number * 20, 1 << 32 | number, 2 << 32 | number
        records += [
            ("copy", at, {"id": copy, "value": 4096}),
            ("wait begins", at + 1, {"id": copy}),
            ("execution begins", at + 2, {"id": run, "value": MODEL}),
            ("wait begins", at + 3, {"id": run}),
            ("wait ends", at + 6, {"id": copy, "value": 5}),
            ("execution ends", at + 17, {"id": run}),
            ("wait ends", at + 18, {"id": run, "value": 15}),
            ("wake", at + 19, {"value": 1}),
        ]
    records += [("state", 900, {"id": 1, "code": 3}), ("state", 950, {"id": 2, "code": 1})]
    return ring_of(*records)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "run.html"
    path.write_bytes(page.encode(a_ring(), {MODEL: HOSTILE}))
    return path


def colours(browser: Browser) -> int:
    """Returns how many colours the timeline has."""
    return int(
        browser.run("""(() => {
            const canvas = document.getElementById("timeline");
            const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            return new Set(new Uint32Array(data.buffer)).size;
        })()""")
    )


def picture(browser: Browser) -> str:
    return str(browser.run('document.getElementById("timeline").toDataURL()'))


def selected(browser: Browser) -> str:
    return str(browser.run('document.getElementById("selected").textContent'))


def press(browser: Browser, button: str) -> str:
    """Presses a button, and returns the picture of the timeline after it."""
    browser.run(f'document.getElementById("{button}").click()')
    return picture(browser)


def click_row(browser: Browser, row: int) -> None:
    """Clicks the middle of a row of the timeline."""
    place: Any = browser.run('document.getElementById("timeline").getBoundingClientRect().toJSON()')
    browser.click(place["left"] + place["width"] * 0.5, place["top"] + TOP + ROW * (row + 0.5))


@pytest.mark.parametrize("width", WIDTHS)
def test_page_fits_the_window_and_shows_the_timeline_and_the_slowest_awaits(
    browser: Browser, file: Path, width: int
) -> None:
    browser.open(file, width, HEIGHT)
    assert browser.run("document.documentElement.scrollWidth <= window.innerWidth")
    assert colours(browser) > 20  # slices, text and lines
    cells = browser.run(
        '[...document.querySelectorAll("#slowest tr")].map((row) => [...row.cells].map((cell) => cell.textContent))'
    )
    assert len(cells) == 50
    assert cells[0][1:] == ["0.015", "0", f"execution on model {HOSTILE} ({MODEL})", "0"]
    assert cells[-1][1:] == ["0.005", "0", "copy on stream 1", "0"]


@pytest.mark.parametrize("width", WIDTHS)
def test_name_of_a_model_does_not_become_a_part_of_the_page(browser: Browser, file: Path, width: int) -> None:
    browser.open(file, width, HEIGHT)
    browser.run('document.querySelector("#slowest tr").click()')
    assert f"model {HOSTILE} ({MODEL})" in selected(browser)
    assert browser.run('document.querySelectorAll("img").length') == 0
    assert browser.run("document.scripts.length") == 2
    assert "Page.javascriptDialogOpening" not in browser.names()
    assert [each["request"]["url"] for each in browser.of("Network.requestWillBeSent")] == [file.as_uri()]
    assert browser.of("Runtime.exceptionThrown") == browser.of("Log.entryAdded") == []


@pytest.mark.parametrize("width", WIDTHS)
def test_buttons_and_clicks_zoom_and_select(browser: Browser, file: Path, width: int) -> None:
    browser.open(file, width, HEIGHT)
    whole = picture(browser)
    assert press(browser, "closer") != whole
    assert press(browser, "whole") == whole
    click_row(browser, 1)  # below the heading of the device
    assert selected(browser).startswith("OPEN, device 0: states: at 0.000 ms, for 900.0 us")
    click_row(browser, 0)  # the heading is no slice
    assert selected(browser).startswith("OPEN")


def test_policy_refuses_a_script_that_the_page_does_not_have(browser: Browser, file: Path) -> None:
    """Otherwise the other tests would not notice a policy without effect."""
    browser.open(file, WIDTHS[0], HEIGHT)
    browser.run('document.body.insertAdjacentHTML("beforeend", `<img src=x onerror="window.ran = 1">`)')
    browser.run(
        'document.body.append(Object.assign(document.createElement("script"), {textContent: "ran = 1"}))'
    )
    assert browser.run("window.ran === undefined")
    assert len(browser.of("Log.entryAdded")) >= 2
