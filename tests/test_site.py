"""The site: its navigation has each page, scripts/site_pages.py makes a page for each linked file, and a browser needs
no other host: scripts/site_requests.py.
"""

from __future__ import annotations

import html
import json
import logging
import re
import shutil
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.utils.yaml import yaml_load

from scripts.pages import LANGUAGES, ROOT, pages
from scripts.site_pages import page_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Site = Callable[[str], tuple[list[str], dict[str, str]]]

SETTINGS = (ROOT / "mkdocs.yml").read_text()
CHROMIUM = shutil.which("chromium")


# --- the navigation ------------------------------------------------------------------------------------------------


def names_in(entry: Any) -> list[str]:
    """Returns the pages of an entry of the navigation."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [name for part in parts for name in names_in(part)]


def wrong_entries(settings: str) -> list[str]:
    """Returns what is wrong with the navigation."""
    found = Counter(names_in(yaml_load(settings)["nav"]))
    site = {name for path in pages() if not (name := page_for(path)).startswith("files/")}
    return [
        f"expected one entry for {name} in the navigation of mkdocs.yml, got {found[name]}; correct `nav:`"
        for name in sorted(site | set(found))
        if found[name] != 1
    ] + [
        f"expected the navigation of mkdocs.yml to name pages, got {name}; remove it from `nav:`"
        for name in sorted(set(found) - site)
    ]


def test_navigation_has_each_page_of_the_root_and_of_docs_once() -> None:
    assert wrong_entries(SETTINGS) == []


@pytest.mark.parametrize(
    ("entry", "instead", "problem"),
    [
        ("      - CONTRIBUTING.md\n", "", r"one entry for CONTRIBUTING\.md in .* mkdocs\.yml, got 0"),
        ("      - resets.md\n", "      # - resets.md\n", r"one entry for resets\.md .*, got 0"),
        ("      - resets.md\n", 2 * "      - resets.md\n", r"one entry for resets\.md .*, got 2"),
        ("      - resets.md\n", "      - resets.md\n      - gone.md\n", r"name pages, got gone\.md"),
    ],
    ids=["removed", "commented out", "twice", "without a page"],
)
def test_wrong_entry_of_the_navigation_is_named(entry: str, instead: str, problem: str) -> None:
    assert SETTINGS.count(entry) == 1
    (wrong,) = wrong_entries(SETTINGS.replace(entry, instead))
    assert re.search(problem, wrong)


# --- pages and links -----------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Site:
    """Builds a site with the hooks from the text of one page. Returns the warnings, and the HTML of each page."""
    project = tmp_path / "project"
    for folder in ("docs", "scripts", "tests/unit", "theme"):
        (project / folder).mkdir(parents=True)
    (tmp_path / "outside.md").write_text("# Outside\n")
    (project / "README.md").write_text("# Project\n")
    (project / "NEW.md").write_text("# New\n")
    (project / "tests" / "a b.py").write_text('"""Has [no link](unit/x.py).\n\n`````\n"""\n')
    (project / "tests" / "unit" / "x.py").write_text("x = 1\n")
    (project / "theme" / "main.html").write_text("{{ page.content }}")
    for name in ("site_pages.py", "site_requests.py"):
        shutil.copy2(ROOT / "scripts" / name, project / "scripts")
    settings = {name: value for name, value in yaml_load(SETTINGS).items() if name != "nav"}
    settings |= {
        "theme": {"name": None, "custom_dir": "theme"},
        "plugins": [],
        "site_dir": "site",
        "markdown_extensions": [],
    }
    (project / "mkdocs.yml").write_text(json.dumps(settings))

    def make(text: str) -> tuple[list[str], dict[str, str]]:
        (project / "docs" / "page.md").write_text(text)
        build(load_config(str(project / "mkdocs.yml")))
        written = project / "site"
        pages_of_site = {
            path.relative_to(written).as_posix(): path.read_text() for path in written.rglob("*.html")
        }
        warnings = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
        return warnings, pages_of_site

    return make


@pytest.mark.parametrize(
    ("link", "url", "made"),
    [
        ("[a](../README.md#project)", "index.html#project", "index.html"),
        ("[a](../NEW.md)", "NEW.html", "NEW.html"),
        ("[a][b]\n\n[b]: ../tests/unit/x.py", "files/tests/unit/x.py.html", "files/tests/unit/x.py.html"),
        ("[a](../tests/a%20b.py)", "files/tests/a%20b.py.html", "files/tests/a b.py.html"),
        ("[a](../tests/unit/)", "files/tests/unit.html", "files/tests/unit/x.py.html"),
        ("![a](../tests/unit/x.py)", "files/tests/unit/x.py.html", "files/tests/unit/x.py.html"),
    ],
    ids=["the first page", "a page of the root", "a label", "a name with a space", "a folder", "an image"],
)
def test_link_to_a_file_outside_docs_leads_to_its_page(site: Site, link: str, url: str, made: str) -> None:
    warnings, pages_of_site = site(link)
    assert warnings == []
    assert f'"{url}"' in pages_of_site["page.html"]
    assert made in pages_of_site


@pytest.mark.parametrize("code", ["`[a](../tests/unit/x.py)`", "```text\n[a](../tests/unit/x.py)\n```"])
def test_link_in_code_is_unchanged_and_makes_no_page(site: Site, code: str) -> None:
    warnings, pages_of_site = site(code)
    assert warnings == []
    assert "[a](../tests/unit/x.py)" in re.sub(r"</?\w[^>]*>", "", pages_of_site["page.html"])
    assert "files/tests/unit/x.py.html" not in pages_of_site


def test_page_of_a_source_file_shows_the_whole_file(site: Site) -> None:
    _, pages_of_site = site("[a](<../tests/a b.py>)")
    shown = html.unescape(re.sub(r"<[^>]*>", "", pages_of_site["files/tests/a b.py.html"]))
    assert '"""Has [no link](unit/x.py).\n\n`````\n"""' in shown
    assert "files/tests/unit/x.py.html" not in pages_of_site


@pytest.mark.parametrize("target", ["../../outside.md", "../gone.py", "../../gone.py"])
def test_link_without_a_target_in_the_repository_is_a_warning(site: Site, target: str) -> None:
    (warning,), _ = site(f"[a]({target})")
    assert f"Doc file 'page.md' contains a link '{target}', but the target" in warning


@pytest.mark.parametrize(
    ("text", "got"),
    [("[a][b]", "a label that the page defines, got [b]"), ("<a href=b>c</a>", "in Markdown, got <a href=")],
)
def test_link_that_the_hook_cannot_replace_is_a_warning(site: Site, text: str, got: str) -> None:
    (warning,), _ = site(f"# Page\n\n{text}")
    assert warning.startswith("docs/page.md:3: expected a ")
    assert got in warning


# --- requests ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("<script src=https://example.org/a.js></script>", "https://example.org/a.js"),
        ("<script src=//example.org/a.js></script>", "//example.org/a.js"),
        ("<script>\nimport('https://example.org/a.js')\n</script>", "https://example.org/a.js"),
        ("<script>\nnew WebSocket(`wss://example.org/`)\n</script>", "wss://example.org/"),
        ("<link rel=stylesheet href=https://example.org/a.css>", "https://example.org/a.css"),
        ("<style>\n@import 'https://example.org/a.css';\n</style>", "https://example.org/a.css"),
        ("<style>\na {src: url( https://example.org/a.woff)}\n</style>", "https://example.org/a.woff"),
        ('<p style="background: url(https://example.org/a.png)"></p>', "https://example.org/a.png"),
        ("![a](https://example.org/a.png)", "https://example.org/a.png"),
        ('<img srcset="page.html 1x, https://example.org/a.png 2x">', "https://example.org/a.png"),
        ('<meta http-equiv="refresh" content="0; url=https://example.org/">', "https://example.org/"),
        ("<form action=https://example.org/></form>", "https://example.org/"),
    ],
)
def test_request_to_another_host_is_a_warning(site: Site, text: str, url: str) -> None:
    warnings, _ = site(text)
    (warning,) = [each for each in warnings if each.startswith("page.html: expected the URL of a file")]
    assert warning.endswith(f", got {url}, which is on another host; put a copy of the file into docs/assets")


@pytest.mark.parametrize(
    ("url", "problem"),
    [("gone.js", "does not exist"), ("/page.html", "is absolute, and leads nowhere if a browser opens")],
)
def test_request_for_a_file_that_files_do_not_find_is_a_warning(site: Site, url: str, problem: str) -> None:
    warnings, _ = site(f"<script src={url}></script>")
    (warning,) = [each for each in warnings if f", got {url}, which {problem}" in each]
    assert warning.startswith("page.html: expected the URL of a file of the site")


@pytest.mark.parametrize(
    "text",
    [
        "[a](https://example.org/) `<script src=https://example.org/a.js>`",
        "<script src=page.html?a#b></script>",
        "<style>\na {background: url('data:image/png;base64,AA'), url(page.html)}\n</style>",
        "<svg><use href='#a'/></svg>",
    ],
    ids=["a link, and code", "a file", "a style", "a part of the page"],
)
def test_links_and_requests_for_files_of_the_site_are_accepted(site: Site, text: str) -> None:
    warnings, _ = site(text)
    assert [each for each in warnings if "expected the URL" in each] == []


def test_theme_has_no_reason_to_request_what_its_scripts_could_request() -> None:
    assert "repo_url" not in yaml_load(SETTINGS)
    assert "mermaid" not in LANGUAGES


# --- the whole site ------------------------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.packaging
def test_site_is_built_without_a_broken_link_and_with_a_search_for_files() -> None:
    ran = subprocess.run([ROOT / "scripts" / "docs"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    written = ROOT / "build" / "site"
    index = (written / "search" / "search_index.js").read_text().removeprefix("var __index = ")
    found = {each["location"] for each in json.loads(index)["docs"]}
    for page in ("index", "tutorial", "reference/stream"):
        assert f"{page}.html" in found
        scripts = re.findall(r'<script src="([^"]*)"', (written / f"{page}.html").read_text())
        assert [name.rpartition("/")[2].partition(".")[0] for name in scripts] == ["iframe-worker", "bundle"]


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.packaging
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, for example of Debian's package")
@pytest.mark.parametrize(("words", "page"), [("quarantine", "resets.html"), ("复位", "real-card.zh.html")])
def test_search_of_the_site_finds_a_page_if_a_browser_opens_files(
    words: str, page: str, tmp_path: Path
) -> None:
    built = subprocess.run(
        [ROOT / "scripts" / "docs", "build", "--site-dir", tmp_path / "site"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    first = (tmp_path / "site" / "index.html").as_uri()
    shown = subprocess.run(
        [
            *(str(CHROMIUM), "--headless", "--no-sandbox", f"--user-data-dir={tmp_path / 'profile'}"),
            *("--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000", "--dump-dom"),
            f"{first}?q={quote(words)}",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    results = re.findall(
        r'<a href="file:[^"]*/site/([^"#?]*)[^"]*" class="md-search-result__link', shown.stdout
    )
    assert page in results
