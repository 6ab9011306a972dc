"""Owns what MkDocs does beside the pages of `docs/`: pages from outside of it, and the reference.

A page keeps links that work in the checkout. What they name outside of `docs/` comes along, and
comments such as `<!-- commands: run -->` become what the code says of itself.
"""

import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from site_commands import commands
from site_names import check_names
from site_settings import exceptions, settings
from site_source import Find, reader_of

ROOT = Path(__file__).parent.parent
PROJECT = {
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "README.md": "index.md",
}
"""Pages that lie beside `docs/`, and where they are found in the site."""
LINK = re.compile(r"(?<=\]\()([\w./-]+)(?=[)#])")
MARK = re.compile(r"^<!-- (commands|settings|exceptions):? ?(.*?) -->$", re.MULTILINE)
WRITERS: dict[str, Callable[[list[str], Find], str]] = {
    "commands": commands,
    "settings": settings,
    "exceptions": exceptions,
}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages and files outside of `docs/` that pages link to, and check the reference.

    Raises:
        PluginError: a public name, command or setting is nowhere described.
    """
    from mkdocs.structure.files import File

    pages = {f"docs/{page.src_uri}": page.content_string for page in files.documentation_pages()}
    reference = [text for name, text in pages.items() if name.startswith("docs/reference/")]
    check_names(reference, reader_of(config))
    for name in ("CONTRIBUTING.md", "CHANGELOG.md"):
        pages[name] = (ROOT / name).read_text()
        files.append(File.generated(config, PROJECT[name], content=pages[name]))
    for source in sorted({path for name, text in pages.items() for path in linked(text, name)}):
        if place(source).startswith("files/"):
            files.append(File.generated(config, place(source), abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links towards the site's own places, and comments into what the code says."""
    uri = page.file.src_uri
    source = next((path for path, home in PROJECT.items() if home == uri), f"docs/{uri}")
    source = source if source != "README.md" else "docs/index.md"
    find = reader_of(config)
    return MARK.sub(
        lambda mark: WRITERS[mark[1]](mark[2].split(), find), relinked(markdown, source, uri)
    )


def linked(text: str, source: str) -> list[str]:
    """The files that a page links to, as paths in the checkout."""
    targets = (posixpath.join(posixpath.dirname(source), found) for found in LINK.findall(text))
    return [path for path in map(posixpath.normpath, targets) if (ROOT / path).is_file()]


def place(path: str) -> str:
    """Where in the site a file of the checkout is found."""
    if path in PROJECT:
        return PROJECT[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"files/{path}"


def relinked(text: str, source: str, uri: str) -> str:
    """The text of the page `source` with links as the page `uri` of the site needs them."""

    def turned(link: re.Match[str]) -> str:
        found = linked(f"]({link[1]})", source)
        return posixpath.relpath(place(found[0]), posixpath.dirname(uri)) if found else link[1]

    return LINK.sub(turned, text)
