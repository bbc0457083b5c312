"""A hook of mkdocs: pages of the site that are files outside docs/, and links to such files.

README.md becomes the first page. The other Markdown files of the root keep their names. If a page links to a source
file or folder, the site gets a page with the text of the file, or with a list of the folder's files.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from mkdocs.structure.files import File

from scripts.pages import file_of, links, unparsed_links

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from markdown import Markdown
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[1]
TOP: Final = {
    "index.md" if path.name == "README.md" else path.name: path.name for path in sorted(ROOT.glob("*.md"))
}
"""The pages that are made from files of the root."""

LOG: Final = logging.getLogger("mkdocs.site_pages")
PAGE_OF: Final = {source: page for page, source in TOP.items()}
LANGUAGES: Final = {".py": "python", ".toml": "toml", ".c": "c", ".h": "c", "": "text"}


def source_of(page: str) -> Path:
    """The file from which a page is made."""
    if page in TOP:
        return ROOT / TOP[page]
    if page.startswith("files/"):
        return ROOT / page.removeprefix("files/").removesuffix(".md")
    return ROOT / "docs" / page


def page_for(target: Path) -> str:
    """The page that shows a file or folder of the repository."""
    name = target.relative_to(ROOT).as_posix()
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return PAGE_OF.get(name, f"files/{name}.md")


def target_of(link: str, source: Path) -> Path | None:
    """The file or folder of the repository that a link refers to, or None. mkdocs warns about links to other files."""
    path = file_of(link, source if source.is_dir() else source.parent)
    return path if path is not None and path.is_relative_to(ROOT) and path.exists() else None


def text_of(path: Path) -> str:
    """The text of the page for a file or folder."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        if (path / "README.md").exists():
            return (path / "README.md").read_text()
        rows = [f"- [{each.name}]({each.name})" for each in sorted(path.iterdir()) if each.suffix == ".py"]
        return f"# {name}\n\n" + "\n".join(rows) + "\n"
    text = path.read_text()
    if path.suffix == ".md":
        return text
    fence = "`" * max(3, *(len(run) + 1 for run in ["", *re.findall("`+", text)]))
    return f"# {name}\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n{fence}\n"


class SiteLinks(Treeprocessor, Extension):
    """An extension of Markdown that replaces links to files of the repository by links to their pages."""

    page = ""  # the page that is rendered

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - the name that Markdown calls
        """Runs after the links were parsed (20), and before mkdocs looks for their targets (0)."""
        md.treeprocessors.register(self, "site_links", 1)

    def run(self, root: Element) -> None:
        """Replaces the links of a page."""
        source, here = source_of(self.page), Path(self.page).parent
        for element in root.iter():
            key = {"a": "href", "img": "src"}.get(element.tag, "")
            link = element.get(key, "")
            target = target_of(link, source)
            if target is not None:
                url = urlsplit(link)._replace(path=quote(os.path.relpath(page_for(target), here)))
                element.set(key, url.geturl())


LINKS: Final = SiteLinks()


def on_config(config: MkDocsConfig) -> None:
    """Adds the extension."""
    config.markdown_extensions.append(LINKS)  # type: ignore[arg-type]  # Markdown accepts names and objects


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages for files of the root, and for all other files that pages link to."""
    for page in TOP:
        files.append(File.generated(config, page, content=source_of(page).read_text()))
    waiting = [source_of(page.src_uri) for page in files.documentation_pages()]
    while waiting:
        source = waiting.pop()
        text = text_of(source)
        for problem in unparsed_links(text, source.relative_to(ROOT).as_posix()):
            LOG.warning(problem)
        for _, link in links(text):
            target = target_of(link, source)
            if target is not None and files.get_file_from_path(page_for(target)) is None:
                files.append(File.generated(config, page_for(target), content=text_of(target)))
                waiting.append(target)
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Notes which page is rendered next."""
    LINKS.page = page.file.src_uri
    return markdown
