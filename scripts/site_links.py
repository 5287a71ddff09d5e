"""For the site: a link to a file beside docs/ leads nowhere there, so its words and the file's path stand in its place.

The same pages are read in the repository, where these links work. Whatever else is not found fails the build.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from posixpath import normpath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

_LINK: Final = re.compile(r"\[([^\]]+)\]\((\.\./[^)\s]+)\)")


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """What mkdocs calls with each page before it is rendered."""
    return within_the_site(markdown, PurePosixPath(page.file.src_uri).parent)


def within_the_site(markdown: str, folder: PurePosixPath) -> str:
    """The page without links that leave docs/."""

    def replaced(link: re.Match[str]) -> str:
        words, target = link.groups()
        path = normpath(folder / target.partition("#")[0])
        if not path.startswith("../"):
            return link[0]
        return words if words.strip("`") == path[3:] else f"{words} (`{path[3:]}`)"

    return _LINK.sub(replaced, markdown)
