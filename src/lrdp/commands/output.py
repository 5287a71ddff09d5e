"""How commands speak: data on stdout, words for people on stderr.

Nothing else in the commands writes to either. Whatever came from a file, a server or a peer passes here, and is made
visible on the way: see :func:`lrdp.screen.visible`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, ProgressColumn

from lrdp.errors import InvalidInput
from lrdp.screen import visible

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def print_record(record: Mapping[str, Any], as_json: bool) -> None:
    """One JSON object, or one line per figure that there is."""
    if as_json:
        print_json(record)
        return
    shown = {key.replace("_", " "): value for key, value in record.items() if value is not None}
    width = max(map(len, shown), default=0)
    for key, value in shown.items():
        print_line(f"{key:<{width}}  {_words(value)}")


def print_json(record: Mapping[str, Any]) -> None:
    """One JSON object on a line, in ASCII, with every number whole.

    Raises:
        InvalidInput: if a figure is infinite or not a number, for which JSON has no word; nothing is printed then.
    """
    try:
        line = json.dumps(record, allow_nan=False)
    except ValueError:
        raise InvalidInput(
            "a figure is infinite or not a number, for which JSON has no word: nothing was printed; ask without --json."
        ) from None
    print(line, flush=True)


def print_line(text: str) -> None:
    """One line."""
    print(visible(text))


def print_page(text: str) -> None:
    """The lines of a text that was made here, of parts that are visible."""
    for line in text.split("\n"):
        print_line(line)


def say(sentence: str) -> None:
    """A word to people."""
    print(visible(sentence), file=sys.stderr)


def screen(*, stderr: bool = False, least_width: int = 0) -> Console:
    """For tables and bars; words in square brackets are printed as words, never taken for colours or links."""
    console = Console(stderr=stderr, highlight=False, markup=False)
    if console.width < least_width:
        console.width = least_width
    return console


def progress(*columns: ProgressColumn) -> Progress:
    """A bar on stderr, gone once it ends; where nobody watches, in a log or a pipe, there is none."""
    console = screen(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _words(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {count}" for name, count in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
