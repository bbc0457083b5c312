"""A hook of mkdocs: warns of each request of the site to another host, and of each file of the site that is missing.

A browser can then show the site without a network, also from files. Links that a reader follows may lead to any host.
"""

from __future__ import annotations

import logging
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig

LOG: Final = logging.getLogger("mkdocs.site_requests")
LINKS: Final = ("a", "area")
LOADED: Final = ("action", "background", "data", "href", "poster", "src", "xlink:href")
"""The attributes with a URL that a browser requests, if the tag is not one of LINKS."""
ABSOLUTE_PAGES: Final = ("404.html",)
"""A server shows this page at any path, so its URLs begin with a slash."""

IN_STYLE: Final = re.compile(r"url\(\s*[\"']?([^\"')]+)|@import\s+[\"']([^\"']+)")
IN_SCRIPT: Final = re.compile(r"[\"'`]((?:https?:|wss?:)?//[^\"'`\s]+)[\"'`]")
NOT_REQUESTED: Final = {
    "http://www.w3.org/": "the name of an XML namespace",
    "https://unpkg.com/mermaid": "requested for a page with a diagram of mermaid, which test_site.py forbids",
    "https://unpkg.com/resize-observer-polyfill": "requested by browsers of before 2020",
    "https://api.github.com/": "requested if mkdocs.yml has repo_url, which test_site.py forbids",
    "https://${e}/api/v4/projects/": "likewise",
}
"""URLs in scripts of the theme that this site does not request, each with the reason."""


class Requests(HTMLParser):
    """Collects the URLs that a browser requests for a page, without a click of the reader."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collects the URLs of the attributes."""
        self._inside = tag
        for name, value in attrs:
            if not value or tag in LINKS:
                continue
            if name in LOADED:
                self.found.append(value)
            elif name in ("srcset", "imagesrcset"):
                self.found += [each.split()[0] for each in value.split(",") if each.strip()]
            elif name == "style":
                self.found += in_style(value)
            elif name == "content" and (target := re.search(r"^\s*\d+\s*;\s*url=(.+)", value, re.IGNORECASE)):
                self.found.append(target[1])

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002 - the name that HTMLParser has
        """Notes that a style or script has ended."""
        self._inside = ""

    def handle_data(self, data: str) -> None:
        """Collects the URLs of a style or script in the page."""
        if self._inside == "style":
            self.found += in_style(data)
        elif self._inside == "script":
            self.found += in_script(data)


def in_style(text: str) -> Iterator[str]:
    """The URLs in a style sheet."""
    return (first or second for first, second in IN_STYLE.findall(text))


def in_script(text: str) -> Iterator[str]:
    """The URLs of hosts in a script, except those of NOT_REQUESTED."""
    return (url for url in IN_SCRIPT.findall(text) if not url.startswith(tuple(NOT_REQUESTED)))


def wrong_requests(site: Path) -> Iterator[str]:
    """Yields a complaint for each URL that a browser would request and that is not a file of the site."""
    for path in sorted(site.rglob("*")):
        name = path.relative_to(site).as_posix()
        if path.suffix == ".html":
            found: Iterator[str] = iter(Requests(path.read_text()).found)
        elif path.suffix == ".css":
            found = in_style(path.read_text())
        elif path.suffix == ".js" and path.parent != site / "search":  # the index has the text of the pages
            found = in_script(path.read_text())
        else:
            continue
        for url in found:
            if problem := _problem(url, path.parent, site, absolute=name in ABSOLUTE_PAGES):
                yield f"{name}: expected the URL of a file of the site, got {url}, which {problem}"


def _problem(url: str, folder: Path, site: Path, *, absolute: bool) -> str:
    """What is wrong with a URL that a browser requests; "" if nothing is."""
    parts = urlsplit(url)
    if parts.scheme == "data" or not (parts.scheme or parts.netloc or parts.path):
        return ""
    if parts.scheme or parts.netloc:
        return "is on another host; put a copy of the file into docs/assets"
    if parts.path.startswith("/"):
        if not absolute:
            return "is absolute, and leads nowhere if a browser opens the site as files"
        folder = site
    target = folder / unquote(parts.path.lstrip("/"))
    return "" if target.exists() else "does not exist"


def on_post_build(config: MkDocsConfig) -> None:
    """Logs the complaints, which `mkdocs build --strict` treats as errors."""
    for problem in wrong_requests(Path(config.site_dir)):
        LOG.warning(problem)
