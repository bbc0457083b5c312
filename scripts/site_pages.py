"""A hook of mkdocs: pages of the site that are files outside docs/, and links to such files.

README.md becomes the first page. The other Markdown files of the root keep their names. A source file or folder that a
page links to becomes a page of its own with the text of the file, or with a list of the folder's files.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[1]
TOP: Final = {
    "index.md": "README.md",
    **{
        name: name
        for name in ("README.zh.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
    },
}
"""The pages that are made from files of the root."""

PAGE_OF: Final = {source: page for page, source in TOP.items()}
LINK: Final = re.compile(r"\]\((?!https?://|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
LANGUAGES: Final = {".py": "python", ".toml": "toml", ".c": "c", ".h": "c", ".md": "markdown", "": "text"}


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


def targets(markdown: str, folder: Path) -> list[Path]:
    """The files and folders of the repository that a text links to."""
    return [path for link in LINK.finditer(markdown) if (path := (folder / link[1]).resolve()).exists()]


def text_of(path: Path) -> str:
    """The text of a page for a file or folder outside docs/."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        if (path / "README.md").exists():
            return (path / "README.md").read_text()
        rows = [f"- [{each.name}]({each.name})" for each in sorted(path.iterdir()) if each.suffix == ".py"]
        return f"# {name}\n\n" + "\n".join(rows) + "\n"
    if path.suffix == ".md":
        return path.read_text()
    return f"# {name}\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text()}````\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages for files of the root, and for all other files that pages link to."""
    for page in TOP:
        files.append(File.generated(config, page, content=source_of(page).read_text()))
    waiting = [source_of(page.src_uri) for page in files.documentation_pages()]
    while waiting:
        source = waiting.pop()
        folder = source if source.is_dir() else source.parent
        text = text_of(source) if source.is_dir() or source.suffix != ".md" else source.read_text()
        for target in targets(text, folder) if source.suffix in ("", ".md") else ():
            page = page_for(target)
            if files.get_file_from_path(page) is None:
                files.append(File.generated(config, page, content=text_of(target)))
                waiting.append(target)
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Replaces links to files of the repository by links to their pages."""
    source = source_of(page.file.src_uri)
    folder = source if source.is_dir() else source.parent
    here = Path(page.file.src_uri).parent.as_posix()

    def moved(match: re.Match[str]) -> str:
        target = (folder / match[1]).resolve()
        if not target.exists() or not target.is_relative_to(ROOT):
            return match[0]
        return f"]({os.path.relpath(page_for(target), here)}{match[2] or ''})"

    if source.suffix not in ("", ".md"):
        return markdown
    return LINK.sub(moved, markdown)
