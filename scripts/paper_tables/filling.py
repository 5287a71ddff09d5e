"""Pages with tables between marks, which are made again from results."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    return "\n".join([_line(heads), "|---" * len(heads) + "|", *map(_line, rows)])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def filled(text: str, tables: Mapping[str, str], page: str) -> str:
    """``text`` with each table between its marks; ends the program with a sentence where it has no place."""
    for name, lines in tables.items():
        marks = rf"(?<=<!-- {name} -->\n).*?(?=\n<!-- end of {name} -->)"
        text, times = re.subn(marks, lines.replace("\\", r"\\"), text, flags=re.DOTALL)
        if times != 1:
            sys.exit(f"{page} has {times} places for the table {name!r}, and one is wanted.")
    return text


def fill(page: Path, tables: Mapping[str, str]) -> None:
    """Write the page again."""
    page.write_text(filled(page.read_text(encoding="utf-8"), tables, page.name), encoding="utf-8")
